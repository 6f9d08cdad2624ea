//! The node count of a store: heartbeats, sign-off, expiry, and the warning about a configured count that is too low.

use std::time::Duration;

use crate::common::{Server, codes, open, server, settings, until_up, wait_async};
use tokio::runtime::Builder;
use tokio::time::{Instant, sleep};
use tollgate_policy::shared::SharedStore;
use tollgate_redis::{ACCESS_RULE, RedisStore, Secret, Settings};

const SOON: Duration = Duration::from_secs(30);
/// Longest wait. A failed heartbeat, possible on a busy machine, restarts the ten seconds.
const TIMEOUT: Duration = Duration::from_secs(90);

/// Settings with a configured node count.
fn configured(server: &Server, nodes: u32) -> Settings {
    let mut settings = settings(server.port());
    settings.nodes = Some(nodes);
    settings
}

/// The number of nodes that the server counts now.
fn counted(server: &Server) -> usize {
    let time = server.cli(&["time"]);
    let (seconds, micros) = time.split_once('\n').unwrap();
    let now = format!("({}{:0>6}", seconds.trim(), micros.trim());
    let count = server.cli(&["zcount", "tg:{nodes}", &now, "+inf"]);
    count.parse().unwrap()
}

async fn until_all_count(stores: &[RedisStore], nodes: u32) {
    wait_async("all know of each other", SOON, async || {
        stores.iter().all(|store| store.nodes() == nodes)
    })
    .await;
}

/// A node on its own runtime, so that it can end as a process does: `end` runs, then the runtime aborts all tasks.
fn with_own_runtime(settings: Settings, end: impl AsyncFnOnce(&RedisStore) + Send) {
    let process = || {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let store = RedisStore::open(settings, runtime.handle()).unwrap();
        runtime.block_on(end(&store));
        drop(runtime);
        drop(store);
    };
    std::thread::scope(|scope| scope.spawn(process).join().unwrap());
}

#[tokio::test]
async fn more_nodes_than_configured_count_until_they_are_gone() {
    let server = server(&[]);
    let stores = [(), ()].map(|()| open(configured(&server, 2)));
    until_all_count(&stores, 2).await;
    sleep(Duration::from_millis(2500)).await;
    assert!(stores.iter().all(|store| codes(store).is_empty()));

    let third = open(settings(server.port()));
    until_all_count(&stores, 3).await;
    wait_async("the third counts, too", SOON, async || third.nodes() == 3).await;
    assert!(stores.iter().all(|store| store.report().nodes == 3));
    // A node that restarts is counted twice at first, so there is no warning at once.
    assert!(stores.iter().all(|store| codes(store).is_empty()));

    drop(third);
    wait_async("it is not counted any more", TIMEOUT, async || {
        stores.iter().all(|store| store.nodes() == 2)
    })
    .await;
}

#[tokio::test]
async fn fewer_nodes_than_configured_are_no_warning() {
    let server = server(&[]);
    let store = open(configured(&server, 7));
    assert_eq!(store.nodes(), 7, "before the first heartbeat");
    wait_async("it is counted", SOON, async || counted(&server) == 1).await;
    sleep(Duration::from_millis(300)).await;
    assert_eq!(store.nodes(), 7);
    assert!(codes(&store).is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_signs_off_is_counted_for_ten_seconds() {
    let server = server(&[]);
    let other = open(settings(server.port()));
    with_own_runtime(settings(server.port()), async |store| {
        wait_async("it is known", SOON, async || other.nodes() == 2).await;
        assert_eq!(counted(&server), 2);
        store.sign_off().await;
    });
    let left = Instant::now();
    assert_eq!(counted(&server), 1, "it signed off");
    wait_async("it is not counted any more", TIMEOUT, async || {
        other.nodes() == 1
    })
    .await;
    let took = left.elapsed();
    assert!(took > Duration::from_millis(9900), "{took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_dies_is_counted_for_twenty_seconds() {
    let server = server(&[]);
    let other = open(settings(server.port()));
    with_own_runtime(settings(server.port()), async |_| {
        wait_async("it is known", SOON, async || other.nodes() == 2).await;
    });
    let died = Instant::now();
    assert_eq!(counted(&server), 2, "it had no time to sign off");
    wait_async("it is not counted any more", TIMEOUT, async || {
        other.nodes() == 1
    })
    .await;
    let took = died.elapsed();
    assert!(took > Duration::from_millis(17_500), "{took:?}");
}

#[tokio::test]
async fn a_store_that_is_dropped_signs_off_and_the_access_rule_suffices() {
    let server = server(&[]);
    let mut args = vec!["acl", "setuser", "tollgate", "on", ">secret"];
    args.extend(ACCESS_RULE.split_whitespace());
    assert_eq!(server.cli(&args), "OK");
    let mut wanted = settings(server.port());
    wanted.username = Some("tollgate".into());
    wanted.password = Some(Secret::Text("secret".into()));
    let stores = [open(wanted.clone()), open(wanted)];
    wait_async("both are counted", SOON, async || counted(&server) == 2).await;
    let [one, other] = stores;
    drop(one);
    // Long before it would be forgotten.
    let soon = Duration::from_secs(5);
    wait_async("it has signed off", soon, async || counted(&server) == 1).await;
    other.sign_off().await;
    assert_eq!(counted(&server), 0);
    // A node that signed off does not come back by itself.
    sleep(Duration::from_millis(2500)).await;
    assert_eq!(counted(&server), 0);
}

#[tokio::test]
async fn signing_off_from_a_hung_or_dead_store_does_not_wait() {
    let server = server(&[]);
    let store = open(settings(server.port()));
    wait_async("it is counted", SOON, async || counted(&server) == 1).await;
    server.freeze().unwrap();
    let since = Instant::now();
    store.sign_off().await;
    let took = since.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
    server.thaw().unwrap();

    let store = open(settings(server.port()));
    until_up(&store).await;
    server.kill();
    wait_async("it is noticed", SOON, async || {
        !store.report().servers[0].is_up
    })
    .await;
    let since = Instant::now();
    store.sign_off().await;
    let took = since.elapsed();
    assert!(took < Duration::from_millis(200), "{took:?}");
}
