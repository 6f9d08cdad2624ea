//! A single server: charges, settlements, foreign state, concurrent requests, timeouts.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{
    charge, codes, one, open, passes, prepare, request, server, server_at, server_with_password,
    settings, until_up, wait_async,
};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tollgate::LimitId;
use tollgate_policy::shared::{FaultKind, SharedLimits, SharedSettle, SharedStore};
use tollgate_redis::{ACCESS_RULE, Secret, Settings};
use tollgate_testkit::free_port;
use tollgate_testkit::servers::Access;

const SOON: Duration = Duration::from_secs(5);

async fn works(limits: &Arc<dyn SharedLimits>) -> bool {
    limits.charge(&one("works")).await.is_ok()
}

#[tokio::test]
async fn a_limit_is_kept_and_given_back() {
    let server = server(&[]);
    let store = open(settings(server.port()));
    let limits = prepare(&store, &[2]);
    until_up(&store).await;
    let first = limits.charge(&one("a")).await.unwrap();
    assert!(passes(&first));
    assert_eq!(first[0].status.remaining, 1);
    assert!(passes(&limits.charge(&one("a")).await.unwrap()));
    assert!(!passes(&limits.charge(&one("a")).await.unwrap()));
    assert!(passes(&limits.charge(&one("b")).await.unwrap()));
    let settle = SharedSettle {
        limit: LimitId::new(0),
        key: crate::common::key("a"),
        issued: first[0].issued,
        taken: 1,
        used: 0,
    };
    assert_eq!(limits.settle(&settle).await.unwrap(), 0);
    assert!(passes(&limits.charge(&one("a")).await.unwrap()));
    let report = store.report();
    assert_eq!(report.answered.counts.iter().sum::<u64>(), 5);
    assert_eq!(report.faults, [0; 7]);
    assert_eq!(report.servers.len(), 1);
    assert!(report.warnings.is_empty(), "{:?}", report.warnings);
}

#[tokio::test]
async fn a_charge_that_was_right_is_settled_without_a_command() {
    let server = server(&[]);
    let store = open(settings(server.port()));
    let limits = prepare(&store, &[10]);
    until_up(&store).await;
    let first = limits.charge(&one("a")).await.unwrap();
    let settle = SharedSettle {
        limit: LimitId::new(0),
        key: crate::common::key("a"),
        issued: first[0].issued,
        taken: 1,
        used: 1,
    };
    for _ in 0..3 {
        assert_eq!(limits.settle(&settle).await.unwrap(), 0);
    }
    let report = store.report();
    assert_eq!(
        (report.servers[0].broken, report.servers[0].connected),
        (0, 1)
    );
    assert!(report.warnings.is_empty(), "{:?}", report.warnings);
    let second = limits.charge(&one("a")).await.unwrap();
    assert_eq!(second[0].status.remaining, 8);
}

#[tokio::test]
async fn a_foreign_state_is_reported_without_its_key() {
    let server = server(&[]);
    let store = open(settings(server.port()));
    let limits = prepare(&store, &[10]);
    until_up(&store).await;
    limits.charge(&one("s3cr3t")).await.unwrap();
    let keys = server.cli(&["keys", "*s3cr3t*"]);
    assert_eq!(server.cli(&["set", &keys, "nonsense"]), "OK");
    let fault = limits.charge(&one("s3cr3t")).await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::Refused, "{fault}");
    let (code, words) = store.report().warnings.remove(0);
    assert_eq!(code, "foreign-key");
    for words in [words, fault.to_string()] {
        assert!(words.contains("TOLLGATE tg:limit0~"), "{words}");
        assert!(!words.contains("s3cr3t"), "{words}");
    }
}

#[tokio::test]
async fn a_refused_request_takes_nothing() {
    let server = server(&[]);
    let store = open(settings(server.port()));
    let limits = prepare(&store, &[5, 1]);
    until_up(&store).await;
    let both = request(vec![charge(0, "a"), charge(1, "a")]);
    assert!(passes(&limits.charge(&both).await.unwrap()));
    for _ in 0..10 {
        assert!(!passes(&limits.charge(&both).await.unwrap()));
    }
    let left = limits.charge(&one("a")).await.unwrap();
    assert_eq!(left[0].status.remaining, 3);
}

#[tokio::test]
async fn a_thousand_at_once_share_one_connection_and_one_limit() {
    let server = server(&[]);
    let store = open(settings(server.port()));
    let limits = prepare(&store, &[300]);
    until_up(&store).await;
    let mut tasks = JoinSet::new();
    for _ in 0..1000 {
        let limits = limits.clone();
        tasks.spawn(async move { passes(&limits.charge(&one("a")).await.unwrap()) });
    }
    let passed = tasks
        .join_all()
        .await
        .into_iter()
        .filter(|passes| *passes)
        .count();
    assert_eq!(passed, 300);
    assert_eq!(store.report().servers[0].connected, 1);
}

#[tokio::test]
async fn requests_above_the_in_flight_bound_fail_at_once() {
    let server = server(&[]);
    let mut wanted = settings(server.port());
    wanted.deadline = Duration::from_secs(5);
    let store = open(wanted);
    let limits = prepare(&store, &[300]);
    until_up(&store).await;
    server.freeze().unwrap();
    let mut tasks = JoinSet::new();
    for _ in 0..5000 {
        let limits = limits.clone();
        tasks.spawn(async move { limits.charge(&one("a")).await });
    }
    wait_async("904 requests failed", SOON, async || {
        store.report().faults[2] == 5000 - 4096
    })
    .await;
    server.thaw().unwrap();
    let answered = tasks
        .join_all()
        .await
        .into_iter()
        .filter(Result::is_ok)
        .count();
    assert_eq!(answered, 4096);
}

#[tokio::test]
async fn a_hung_server_times_out_and_recovers() {
    let server = server(&[]);
    let mut wanted = settings(server.port());
    wanted.deadline = Duration::from_millis(50);
    let store = open(wanted);
    let limits = prepare(&store, &[1_000_000]);
    until_up(&store).await;
    server.freeze().unwrap();
    let (mut kinds, mut longest) = (Vec::new(), Duration::ZERO);
    for _ in 0..200 {
        let since = Instant::now();
        kinds.push(limits.charge(&one("a")).await.unwrap_err().kind);
        longest = longest.max(since.elapsed());
    }
    assert!(longest < Duration::from_millis(150), "{longest:?}");
    assert_eq!(kinds[..3], [FaultKind::Late; 3]);
    assert!(
        kinds[3..].iter().all(|kind| *kind == FaultKind::Away),
        "{kinds:?}"
    );
    assert_eq!(store.report().servers[0].broken, 1);
    assert!(store.report().servers[0].last_fault.is_some());
    let since = Instant::now();
    for _ in 0..1000 {
        assert!(limits.charge(&one("a")).await.is_err());
    }
    assert!(
        since.elapsed() < Duration::from_millis(300),
        "{:?}",
        since.elapsed()
    );
    server.thaw().unwrap();
    let took = wait_async("the store is up", SOON, async || works(&limits).await).await;
    assert!(took < Duration::from_millis(2500), "{took:?}");
}

#[tokio::test]
async fn a_late_reply_never_answers_another_request() {
    let server = server(&[]);
    let mut wanted = settings(server.port());
    wanted.deadline = Duration::from_millis(30);
    let store = open(wanted);
    let limits = prepare(&store, &[1, 1_000_000]);
    until_up(&store).await;
    // Requests for `none` are refused and requests for `some` pass, so a misrouted reply shows.
    assert!(passes(&limits.charge(&one("none")).await.unwrap()));
    for round in 0..8 {
        let mut tasks = JoinSet::new();
        server.freeze().unwrap();
        for place in 0..200 {
            let limits = limits.clone();
            tasks.spawn(async move {
                if place % 2 == 0 {
                    limits
                        .charge(&one("none"))
                        .await
                        .map(|outcomes| !passes(&outcomes))
                } else {
                    limits
                        .charge(&request(vec![charge(1, "some")]))
                        .await
                        .map(|outcomes| passes(&outcomes))
                }
            });
        }
        sleep(Duration::from_millis(5 * round)).await;
        server.thaw().unwrap();
        for right in tasks.join_all().await.into_iter().flatten() {
            assert!(right);
        }
        wait_async("the store is up", SOON, async || works(&limits).await).await;
    }
    assert_eq!(store.report().faults[4], 0, "garbled");
}

#[tokio::test]
async fn a_restarted_server_gets_its_scripts_again() {
    let server = server(&[]);
    let store = open(settings(server.port()));
    let limits = prepare(&store, &[1]);
    until_up(&store).await;
    assert!(passes(&limits.charge(&one("a")).await.unwrap()));
    server.kill();
    wait_async("it is noticed", SOON, async || {
        limits.charge(&one("a")).await.is_err()
    })
    .await;
    let since = Instant::now();
    let fault = limits.charge(&one("a")).await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::Away);
    assert!(since.elapsed() < Duration::from_millis(20));
    server.restart().unwrap();
    wait_async("the store is up", SOON, async || works(&limits).await).await;
    assert!(passes(&limits.charge(&one("a")).await.unwrap()));
}

#[tokio::test]
async fn a_store_opens_without_its_server() {
    let port = free_port().unwrap();
    let store = open(settings(port));
    let limits = prepare(&store, &[1]);
    assert_eq!(
        limits.charge(&one("a")).await.unwrap_err().kind,
        FaultKind::Away
    );
    assert_eq!(store.nodes(), 1);
    let _server = server_at(port);
    wait_async("the store is up", SOON, async || works(&limits).await).await;
}

#[tokio::test]
async fn flushed_scripts_fail_no_request() {
    let server = server(&[]);
    let store = open(settings(server.port()));
    let limits = prepare(&store, &[1_000_000]);
    until_up(&store).await;
    let port = server.port();
    let flushing = tokio::task::spawn_blocking(move || {
        for _ in 0..100 {
            Access::plain(port).ask(&["SCRIPT", "FLUSH"]).unwrap();
            tollgate_testkit::sleep(Duration::from_millis(10));
        }
    });
    let mut asked = 0;
    while !flushing.is_finished() {
        limits.charge(&request(vec![charge(0, "a")])).await.unwrap();
        asked += 1;
    }
    let report = store.report();
    assert!(
        report.reloaded_scripts > 10,
        "{} of {asked}",
        report.reloaded_scripts
    );
    assert_eq!(report.faults, [0; 7]);
    let left = limits.charge(&one("a")).await.unwrap()[0].status.remaining;
    assert_eq!(left, 1_000_000 - asked - 1, "each was charged once");
}

#[tokio::test]
async fn a_server_that_becomes_a_replica_is_not_asked_any_more() {
    let primary = server(&[]);
    let server = server(&[]);
    let store = open(settings(server.port()));
    let limits = prepare(&store, &[10]);
    until_up(&store).await;
    server.cli(&["replicaof", "127.0.0.1", &primary.port().to_string()]);
    let fault = limits.charge(&one("a")).await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::Unable, "{fault}");
    assert_eq!(
        limits.charge(&one("a")).await.unwrap_err().kind,
        FaultKind::Away
    );
    wait_async("it is said loudly", SOON, async || {
        codes(&store).contains(&"not-primary")
    })
    .await;
    server.cli(&["replicaof", "no", "one"]);
    wait_async("the store is up", SOON, async || works(&limits).await).await;
    assert!(!codes(&store).contains(&"not-primary"));
}

#[tokio::test]
async fn the_documented_access_rule_suffices() {
    let server = server(&[]);
    let mut args = vec!["acl", "setuser", "tollgate", "on", ">secret"];
    args.extend(ACCESS_RULE.split_whitespace());
    assert_eq!(server.cli(&args), "OK");
    server.cli(&["acl", "setuser", "default", "off"]);
    let mut wanted = settings(server.port());
    wanted.username = Some("tollgate".into());
    wanted.password = Some(Secret::Text("secret".into()));
    let store = open(wanted);
    let limits = prepare(&store, &[1, 5]);
    until_up(&store).await;
    let both = request(vec![charge(0, "a"), charge(1, "a")]);
    let first = limits.charge(&both).await.unwrap();
    assert!(passes(&first) && !passes(&limits.charge(&both).await.unwrap()));
    let settle = SharedSettle {
        limit: LimitId::new(0),
        key: crate::common::key("a"),
        issued: first[0].issued,
        taken: 1,
        used: 0,
    };
    limits.settle(&settle).await.unwrap();
    sleep(Duration::from_millis(1500)).await;
    let report = store.report();
    assert!(report.warnings.is_empty(), "{:?}", report.warnings);
    assert_eq!(report.servers[0].broken, 0);
}

#[tokio::test]
async fn a_wrong_password_is_a_warning_until_it_is_right() {
    let server = server_with_password("right");
    let file = server.directory().join("password");
    std::fs::write(&file, "wrong\n").unwrap();
    let mut wanted = settings(server.port());
    wanted.password = Some(Secret::File(file.clone()));
    let store = open(wanted);
    let limits = prepare(&store, &[10]);
    wait_async("it is said", SOON, async || {
        codes(&store) == ["wrong-password"]
    })
    .await;
    assert_eq!(
        limits.charge(&one("a")).await.unwrap_err().kind,
        FaultKind::Away
    );
    std::fs::write(&file, "right\n").unwrap();
    wait_async("the store is up", SOON, async || works(&limits).await).await;
    assert!(codes(&store).is_empty());

    let store = open(settings(server.port()));
    wait_async("no password is said too", SOON, async || {
        codes(&store) == ["wrong-password"]
    })
    .await;
}

#[tokio::test]
async fn a_server_without_memory_is_given_up_after_three() {
    let server = server(&[]);
    let store = open(settings(server.port()));
    let limits = prepare(&store, &[10]);
    until_up(&store).await;
    server.cli(&["config", "set", "maxmemory", "1"]);
    for _ in 0..3 {
        assert_eq!(
            limits.charge(&one("a")).await.unwrap_err().kind,
            FaultKind::Unable
        );
    }
    assert_eq!(
        limits.charge(&one("a")).await.unwrap_err().kind,
        FaultKind::Away
    );
    server.cli(&["config", "set", "maxmemory", "0"]);
    wait_async("the store is up", SOON, async || works(&limits).await).await;
    assert_eq!(codes(&store), ["out-of-memory"], "for a while");
}

#[tokio::test]
async fn a_reply_to_a_probe_clears_no_warning() {
    let server = server(&[]);
    let store = open(settings(server.port()));
    let limits = prepare(&store, &[10]);
    until_up(&store).await;
    server.cli(&["config", "set", "maxmemory", "1"]);
    let mut question = one("a");
    question.take = false;
    for _ in 0..2 {
        assert!(limits.charge(&one("a")).await.is_err());
        assert_eq!(codes(&store), ["out-of-memory"]);
        assert!(limits.charge(&question).await.is_ok());
        assert_eq!(codes(&store), ["out-of-memory"]);
    }
}

#[tokio::test]
async fn a_server_that_evicts_keys_is_a_warning() {
    let server = server(&[("maxmemory-policy", "allkeys-lru")]);
    let store = open(settings(server.port()));
    wait_async("it is said", SOON, async || {
        codes(&store) == ["eviction-policy"]
    })
    .await;
}

#[tokio::test]
async fn a_foreign_script_without_end_is_not_waited_for() {
    let server = server(&[("busy-reply-threshold", "50")]);
    let store = open(settings(server.port()));
    let limits = prepare(&store, &[10]);
    until_up(&store).await;
    let port = server.port();
    // It is killed below: an error, or no answer in time.
    let looping = tokio::task::spawn_blocking(move || {
        let script = ["EVAL", "while true do end", "0"];
        Access::plain(port).ask(&script).unwrap_err();
    });
    sleep(Duration::from_millis(200)).await;
    let fault = limits.charge(&one("a")).await.unwrap_err();
    // The beat may have noticed before.
    assert!(
        matches!(fault.kind, FaultKind::Unable | FaultKind::Away),
        "{fault}"
    );
    assert_eq!(
        limits.charge(&one("a")).await.unwrap_err().kind,
        FaultKind::Away
    );
    server.cli(&["script", "kill"]);
    looping.await.unwrap();
    wait_async("the store is up", SOON, async || works(&limits).await).await;
}

#[tokio::test]
async fn nodes_count_each_other() {
    let server = server(&[]);
    let stores = [(), (), ()].map(|()| open(settings(server.port())));
    wait_async("all three are seen", Duration::from_secs(8), async || {
        stores.iter().all(|store| store.nodes() == 3)
    })
    .await;
    let mut configured = settings(server.port());
    configured.nodes = Some(7);
    assert_eq!(open(configured).nodes(), 7);
}

#[tokio::test]
async fn nodes_are_not_forgotten_when_the_store_forgets_them() {
    let server = server(&[]);
    let stores = [(), (), ()].map(|()| open(settings(server.port())));
    wait_async("all three are seen", Duration::from_secs(8), async || {
        stores.iter().all(|store| store.nodes() == 3)
    })
    .await;
    server.kill();
    server.restart().unwrap();
    for store in &stores {
        until_up(store).await;
    }
    let since = Instant::now();
    while since.elapsed() < Duration::from_secs(3) {
        assert!(stores.iter().all(|store| store.nodes() == 3));
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_node_that_starts_without_its_store_remembers_the_others() {
    let port = free_port().unwrap();
    let store = open(settings(port));
    store.remember_nodes(4);
    assert_eq!(store.nodes(), 4);
    let _server = server_at(port);
    until_up(&store).await;
    sleep(Duration::from_millis(2500)).await;
    assert_eq!(
        store.nodes(),
        4,
        "the others may not have sent a heartbeat yet"
    );
}

#[tokio::test]
async fn keys_do_not_outlive_their_use() {
    let server = server(&[]);
    let store = open(settings(server.port()));
    let limits = prepare(&store, &[10]);
    until_up(&store).await;
    limits.charge(&one("a")).await.unwrap();
    sleep(Duration::from_millis(1200)).await;
    let keys = server.cli(&["keys", "*"]);
    assert!(keys.lines().count() >= 3, "{keys}");
    for key in keys.lines() {
        assert!(key.starts_with("tg:"), "{key}");
        assert!(
            server.cli(&["pttl", key]).parse::<i64>().unwrap() > 0,
            "{key}"
        );
    }
}

#[tokio::test]
async fn the_default_deadline_is_kept() {
    let server = server(&[]);
    let store = open(Settings::standalone("127.0.0.1", server.port()));
    let limits = prepare(&store, &[1_000_000]);
    until_up(&store).await;
    server.freeze().unwrap();
    let mut took = Vec::new();
    for _ in 0..100 {
        let since = Instant::now();
        assert!(limits.charge(&one("a")).await.is_err());
        took.push(since.elapsed());
    }
    server.thaw().unwrap();
    took.sort_unstable();
    // One pause of a machine that runs other tests is not ours.
    assert!(took[98] < Duration::from_millis(30), "{took:?}");
}

#[tokio::test]
async fn every_node_notices_an_emptied_store() {
    let server = server(&[]);
    let stores = [(), (), ()].map(|()| open(settings(server.port())));
    wait_async("it is marked", SOON, async || {
        server.cli(&["exists", "tg:epoch"]) == "1"
    })
    .await;
    sleep(Duration::from_millis(1200)).await;
    server.cli(&["flushall"]);
    wait_async("it is noticed", Duration::from_secs(25), async || {
        stores
            .iter()
            .all(|store| codes(store).contains(&"store-reset"))
    })
    .await;
    for store in &stores {
        let warnings = store.report().warnings;
        assert!(warnings[0].1.contains("seen 1 times"), "{warnings:?}");
    }
}

#[tokio::test]
async fn a_dropped_store_closes_its_connections() {
    let server = server(&[]);
    let clients = || {
        server
            .cli(&["client", "list", "type", "normal"])
            .lines()
            .count()
    };
    let before = clients();
    let store = open(settings(server.port()));
    let limits = prepare(&store, &[10]);
    until_up(&store).await;
    drop(store);
    assert!(works(&limits).await, "the limits hold it");
    assert_eq!(clients(), before + 1);
    drop(limits);
    wait_async("it is closed", SOON, async || clients() == before).await;
}
