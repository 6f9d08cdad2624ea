//! Every error that a server may return, and its effect on the request, the link and the warnings.

use std::time::Duration;

use crate::common::fake_server::FakeServer;
use crate::common::{codes, one, open, prepare, settings, until_up, wait_async};
use tollgate_policy::shared::{FaultKind, SharedStore};

/// The error reply of the server, the fault of the request, whether the link closes, and the warning.
const TABLE: [(&str, FaultKind, bool, Option<&str>); 21] = [
    (
        "-LOADING Redis is loading\r\n",
        FaultKind::Unable,
        true,
        None,
    ),
    (
        "-MASTERDOWN Link with MASTER is down\r\n",
        FaultKind::Unable,
        true,
        None,
    ),
    ("-BUSY Redis is busy\r\n", FaultKind::Unable, true, None),
    (
        "-READONLY You can't write\r\n",
        FaultKind::Unable,
        true,
        None,
    ),
    (
        "-CLUSTERDOWN The cluster is down\r\n",
        FaultKind::Unable,
        false,
        Some("cluster-down"),
    ),
    (
        "-OOM command not allowed\r\n",
        FaultKind::Unable,
        false,
        Some("out-of-memory"),
    ),
    (
        "-MISCONF cannot save\r\n",
        FaultKind::Unable,
        false,
        Some("cannot-persist"),
    ),
    (
        "-NOREPLICAS Not enough\r\n",
        FaultKind::Unable,
        false,
        Some("no-replicas"),
    ),
    (
        "-NOAUTH Authentication required.\r\n",
        FaultKind::Refused,
        true,
        Some("wrong-password"),
    ),
    (
        "-WRONGPASS invalid\r\n",
        FaultKind::Refused,
        true,
        Some("wrong-password"),
    ),
    (
        "-NOPERM no permissions\r\n",
        FaultKind::Refused,
        false,
        Some("no-permission"),
    ),
    (
        "-CROSSSLOT Keys\r\n",
        FaultKind::Refused,
        false,
        Some("cross-slot"),
    ),
    (
        "-WRONGTYPE Operation\r\n",
        FaultKind::Refused,
        false,
        Some("foreign-key"),
    ),
    (
        "-TOLLGATE foreign\r\n",
        FaultKind::Refused,
        false,
        Some("foreign-key"),
    ),
    (
        "-ERR unknown command 'EVALSHA'\r\n",
        FaultKind::Refused,
        false,
        Some("unknown-command"),
    ),
    (
        "-ERR whatever\r\n",
        FaultKind::Refused,
        false,
        Some("store-error"),
    ),
    (
        "-TRYAGAIN Multiple keys\r\n",
        FaultKind::Unable,
        false,
        None,
    ),
    (
        "-MOVED 1 127.0.0.1:1\r\n",
        FaultKind::Refused,
        false,
        Some("is-cluster"),
    ),
    (
        "-NOSCRIPT No matching script\r\n",
        FaultKind::Unable,
        false,
        None,
    ),
    ("*2\r\n:1\r\n:1\r\n", FaultKind::Garbled, true, None),
    ("close", FaultKind::Broken, true, None),
];

#[tokio::test]
async fn no_error_is_a_pass() {
    for (answer, kind, given_up, warning) in TABLE {
        let fake = FakeServer::start(answer).await;
        let mut wanted = settings(fake.port);
        wanted.deadline = Duration::from_millis(100);
        let store = open(wanted);
        let limits = prepare(&store, &[10]);
        until_up(&store).await;
        let fault = limits.charge(&one("a")).await.expect_err(answer);
        assert_eq!(fault.kind, kind, "{answer}: {fault}");
        let report = store.report();
        // A call that a demoted server did not run is sent once more.
        let most = if answer.starts_with("-READONLY") {
            2
        } else {
            1
        };
        let broken = report.servers[0].broken;
        assert_eq!(broken > 0, given_up, "{answer}");
        assert!(broken <= most, "{answer}");
        if let Some(code) = warning {
            assert!(
                codes(&store).contains(&code),
                "{answer}: {:?}",
                report.warnings
            );
        }
        let place = FaultKind::ALL
            .iter()
            .position(|other| *other == kind)
            .unwrap();
        assert_eq!(report.faults[place], 1, "{answer}");
        // It works again when the server does.
        fake.set_script_reply("*4\r\n:{n}\r\n:1\r\n:1800000000000000\r\n:-1\r\n");
        wait_async("it works again", Duration::from_secs(5), async || {
            limits.charge(&one("a")).await.is_ok()
        })
        .await;
        // What is said stays for a while, and does not come and go with every answer.
        assert_eq!(
            codes(&store),
            Vec::from_iter(warning),
            "{answer}: {:?}",
            store.report().warnings
        );
    }
}

#[tokio::test]
async fn a_decision_of_a_script_is_not_repeated() {
    // It took nothing, though the state that it found would do; and it took something from a bucket that was empty.
    let empty = ":9007199254740991\r\n";
    for (took, state, scripts) in [(0, ":-1\r\n", 1), (1, empty, 2)] {
        let answer = format!("*4\r\n:{{n}}\r\n:{took}\r\n:1800000000000000\r\n{state}");
        let fake = FakeServer::start(&answer).await;
        let store = open(settings(fake.port));
        let limits = prepare(&store, &[10]);
        until_up(&store).await;
        let fault = limits.charge(&one("s3cr3t")).await.unwrap_err();
        assert_eq!(fault.kind, FaultKind::Garbled, "{fault}");
        assert!(fault.detail.contains("tg:limit0~"), "{fault}");
        assert!(!fault.detail.contains("s3cr3t"), "{fault}");
        let report = store.report();
        assert_eq!(report.script_errors, 1);
        assert_eq!(report.servers[0].broken, 0, "the server is still asked");
        assert_eq!(codes(&store), ["script-disagrees"]);
        // What was taken is given back.
        wait_async("it is given back", Duration::from_secs(2), async || {
            fake.scripts() == scripts
        })
        .await;
        wait_async("it is counted", Duration::from_secs(2), async || {
            store.report().compensated == took
        })
        .await;
        assert_eq!(fake.scripts(), scripts);
    }
}

#[tokio::test]
async fn an_invalid_reply_closes_the_connection_and_nothing_else() {
    for answer in [
        "!!!\r\n",
        ":notanumber\r\n",
        "+OK\r\n",
        "*0\r\n",
        "*1\r\n$1\r\nx\r\n",
        "$-1\r\n",
        "*3\r\n:{n}\r\n+what\r\n*0\r\n",
        "*100000000\r\n:1\r\n",
        "*2\r\n:{n}\r\n",
    ] {
        let fake = FakeServer::start(answer).await;
        let mut wanted = settings(fake.port);
        wanted.deadline = Duration::from_millis(60);
        let store = open(wanted);
        let limits = prepare(&store, &[10]);
        until_up(&store).await;
        let fault = limits.charge(&one("a")).await.expect_err(answer);
        let expected = [FaultKind::Garbled, FaultKind::Late, FaultKind::Broken];
        assert!(expected.contains(&fault.kind), "{answer}: {fault}");
    }
}

#[tokio::test]
async fn a_charge_whose_reply_is_lost_is_not_repeated() {
    let fake = FakeServer::start("").await;
    let mut wanted = settings(fake.port);
    wanted.deadline = Duration::from_millis(40);
    let store = open(wanted);
    let limits = prepare(&store, &[10]);
    until_up(&store).await;
    // Its reply would be taken for the one that is lost.
    wait_async(
        "a heartbeat is answered",
        Duration::from_secs(2),
        async || fake.heartbeats() > 0,
    )
    .await;
    assert_eq!(
        limits.charge(&one("a")).await.unwrap_err().kind,
        FaultKind::Late
    );
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(fake.scripts(), 1);
    fake.set_script_reply("close");
    assert_eq!(
        limits.charge(&one("a")).await.unwrap_err().kind,
        FaultKind::Broken
    );
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(fake.scripts(), 2);
}

#[tokio::test]
async fn backoff_grows_when_a_server_fails_again() {
    let fake = FakeServer::start("-BUSY Redis is busy\r\n").await;
    let store = open(settings(fake.port));
    let limits = prepare(&store, &[10]);
    until_up(&store).await;
    let until_now = tokio::time::Instant::now() + Duration::from_secs(4);
    while tokio::time::Instant::now() < until_now {
        assert!(limits.charge(&one("a")).await.is_err());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let server = &store.report().servers[0];
    assert!((3..=12).contains(&server.connected), "{server:?}");
}
