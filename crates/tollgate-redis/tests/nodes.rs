//! How many nodes share a store: who is counted, who is not any more, and what is said if somebody wrote too few.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;

use std::time::Duration;

use common::{Server, codes, open, server, settings, until_up, wait_async};
use tokio::runtime::Builder;
use tokio::time::{Instant, sleep};
use tollgate_policy::shared::SharedStore;
use tollgate_redis::{ACCESS_RULE, Secret, Settings, Store};

const SEEN: Duration = Duration::from_secs(30);
/// How long anything may take. A heartbeat that fails, as it may on a busy machine, begins the ten seconds anew.
const PATIENCE: Duration = Duration::from_secs(90);

/// A store whose policy says that so many nodes share it.
fn written(server: &Server, nodes: u32) -> Settings {
    let mut settings = settings(server.port());
    settings.nodes = Some(nodes);
    settings
}

/// How many the server would count now.
fn alive(server: &Server) -> usize {
    let time = server.cli(&["time"]);
    let (seconds, micros) = time.split_once('\n').unwrap();
    let now = format!("({}{:0>6}", seconds.trim(), micros.trim());
    let count = server.cli(&["zcount", "tg:{nodes}", &now, "+inf"]);
    count.parse().unwrap()
}

async fn until_all_believe(stores: &[Store], nodes: u32) {
    wait_async("all know of each other", SEEN, async || {
        stores.iter().all(|store| store.nodes() == nodes)
    })
    .await;
}

/// A node on a runtime of its own, so that it can be ended as a process is: by `end`, and then whatever runs is cut off.
fn with_a_node_of_its_own(settings: Settings, end: impl AsyncFnOnce(&Store) + Send) {
    let process = || {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let store = Store::open(settings, runtime.handle()).unwrap();
        runtime.block_on(end(&store));
        drop(runtime);
        drop(store);
    };
    std::thread::scope(|scope| scope.spawn(process).join().unwrap());
}

#[tokio::test]
async fn more_nodes_than_are_written_are_divided_by_until_they_are_gone() {
    let server = server(&[]);
    let stores = [(), ()].map(|()| open(written(&server, 2)));
    until_all_believe(&stores, 2).await;
    sleep(Duration::from_millis(2500)).await;
    assert!(stores.iter().all(|store| codes(store).is_empty()));

    let third = open(settings(server.port()));
    until_all_believe(&stores, 3).await;
    wait_async("the third counts, too", SEEN, async || third.nodes() == 3).await;
    assert!(stores.iter().all(|store| store.report().nodes == 3));
    // Whoever comes back is counted twice at first: nothing is said at once.
    assert!(stores.iter().all(|store| codes(store).is_empty()));

    drop(third);
    wait_async("it is not counted any more", PATIENCE, async || {
        stores.iter().all(|store| store.nodes() == 2)
    })
    .await;
}

#[tokio::test]
async fn fewer_nodes_than_are_written_are_nobodys_fault() {
    let server = server(&[]);
    let store = open(written(&server, 7));
    assert_eq!(store.nodes(), 7, "before anybody was counted");
    wait_async("it is counted", SEEN, async || alive(&server) == 1).await;
    sleep(Duration::from_millis(300)).await;
    assert_eq!(store.nodes(), 7);
    assert!(codes(&store).is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_leaves_is_counted_for_ten_seconds() {
    let server = server(&[]);
    let other = open(settings(server.port()));
    with_a_node_of_its_own(settings(server.port()), async |store| {
        wait_async("it is known", SEEN, async || other.nodes() == 2).await;
        assert_eq!(alive(&server), 2);
        store.leave().await;
    });
    let left = Instant::now();
    assert_eq!(alive(&server), 1, "it signed off");
    wait_async("it is believed", PATIENCE, async || other.nodes() == 1).await;
    let took = left.elapsed();
    assert!(took > Duration::from_millis(9900), "{took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_dies_is_counted_for_twenty_seconds() {
    let server = server(&[]);
    let other = open(settings(server.port()));
    with_a_node_of_its_own(settings(server.port()), async |_| {
        wait_async("it is known", SEEN, async || other.nodes() == 2).await;
    });
    let died = Instant::now();
    assert_eq!(alive(&server), 2, "it had no time to sign off");
    wait_async("it is believed", PATIENCE, async || other.nodes() == 1).await;
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
    wait_async("both are counted", SEEN, async || alive(&server) == 2).await;
    let [one, other] = stores;
    drop(one);
    // Long before it would be forgotten.
    let soon = Duration::from_secs(5);
    wait_async("it has signed off", soon, async || alive(&server) == 1).await;
    other.leave().await;
    assert_eq!(alive(&server), 0);
    // A node that has left does not come back by itself.
    sleep(Duration::from_millis(2500)).await;
    assert_eq!(alive(&server), 0);
}

#[tokio::test]
async fn nobody_waits_long_for_a_store_that_does_not_hear_who_leaves() {
    let server = server(&[]);
    let store = open(settings(server.port()));
    wait_async("it is counted", SEEN, async || alive(&server) == 1).await;
    server.freeze().unwrap();
    let since = Instant::now();
    store.leave().await;
    let took = since.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
    server.thaw().unwrap();

    let store = open(settings(server.port()));
    until_up(&store).await;
    server.kill();
    wait_async("it is noticed", SEEN, async || {
        !store.report().servers[0].is_up
    })
    .await;
    let since = Instant::now();
    store.leave().await;
    let took = since.elapsed();
    assert!(took < Duration::from_millis(200), "{took:?}");
}
