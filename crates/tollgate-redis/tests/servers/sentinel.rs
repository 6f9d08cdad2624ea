//! A store whose primary is found through sentinels.

use std::time::Duration;

use crate::common::fake_server::FakeServer;
use crate::common::{DEADLINE, Server, one, open, passes, prepare, server, wait_async};
use tokio::time::{Instant, sleep};
use tollgate_policy::shared::SharedStore;
use tollgate_redis::{Secret, Settings, Topology};
use tollgate_testkit::servers::{Kind, Sentinels};

const SOON: Duration = Duration::from_secs(20);

fn settings(fleet: &Sentinels) -> Settings {
    let mut settings = Settings::new(Topology::Sentinel {
        sentinels: fleet.sentinel_addresses(),
        service: fleet.service().into(),
    });
    settings.deadline = DEADLINE;
    settings
}

#[tokio::test]
async fn another_primary_is_found_when_one_is_killed_or_demoted() {
    let fleet = Sentinels::start(Kind::Redis, 2, 3, 500).unwrap();
    let store = open(settings(&fleet));
    let limits = prepare(&store, &[1_000_000]);
    wait_async("the store is up", SOON, async || {
        limits.charge(&one("a")).await.is_ok()
    })
    .await;
    let first = fleet.servers()[0].port();
    assert!(
        store.report().servers[0]
            .address
            .ends_with(&first.to_string())
    );
    wait_async("a replica has what was charged", SOON, async || {
        fleet.servers()[1..]
            .iter()
            .all(|server| server.cli(&["dbsize"]) != "0")
    })
    .await;

    fleet.servers()[0].kill();
    let mut longest = Duration::ZERO;
    let since = Instant::now();
    loop {
        let asked = Instant::now();
        let answer = limits.charge(&one("a")).await;
        longest = longest.max(asked.elapsed());
        if answer.is_ok() {
            break;
        }
        assert!(since.elapsed() < SOON, "{:?}", store.report());
        sleep(Duration::from_millis(1)).await;
    }
    assert!(
        longest < DEADLINE + Duration::from_millis(100),
        "{longest:?}"
    );
    let report = store.report();
    assert_eq!(report.servers.len(), 1);
    assert!(
        !report.servers[0].address.ends_with(&first.to_string()),
        "{report:?}"
    );

    // A planned change: connections stay open, and the old primary says READONLY.
    let second = report.servers[0].address.clone();
    wait_async("the sentinels would do it", SOON, async || {
        fleet.sentinels()[0].cli(&["sentinel", "failover", fleet.service()]) == "OK"
    })
    .await;
    wait_async("the other is asked", SOON, async || {
        let works = limits.charge(&one("a")).await.is_ok();
        let servers = store.report().servers;
        works && servers.len() == 1 && servers[0].address != second
    })
    .await;

    // Sentinels may die: the last known primary is asked.
    fleet.sentinels().iter().for_each(Server::kill);
    sleep(Duration::from_millis(1200)).await;
    assert!(passes(&limits.charge(&one("a")).await.unwrap()));
    wait_async("it is said", SOON, async || {
        crate::common::codes(&store).contains(&"no-sentinel")
    })
    .await;
}

#[tokio::test]
async fn a_slow_sentinel_is_waited_for() {
    let server = server(&[]);
    let far = FakeServer::start("").await;
    let port = server.port().to_string();
    far.set_reply("AUTH", "+OK\r\n");
    far.set_reply(
        "SENTINEL",
        &format!("*2\r\n$9\r\n127.0.0.1\r\n${}\r\n{port}\r\n", port.len()),
    );
    far.set_delay(Duration::from_millis(250));
    let mut wanted = Settings::new(Topology::Sentinel {
        sentinels: vec![("127.0.0.1".into(), far.port)],
        service: "limits".into(),
    });
    wanted.deadline = DEADLINE;
    wanted.sentinel_password = Some(Secret::Text("secret".into()));
    let store = open(wanted);
    let limits = prepare(&store, &[10]);
    wait_async("the store is up", Duration::from_secs(5), async || {
        limits.charge(&one("a")).await.is_ok()
    })
    .await;
    sleep(Duration::from_secs(2)).await;
    assert!(crate::common::codes(&store).is_empty());
    assert_eq!(far.calls_of("AUTH"), 1, "its connection is kept");
    assert!(far.calls_of("SENTINEL") > 2);
}
