//! The Envoy front end on a shared store.

use std::time::Duration;

use tollgate_server::rls::messages::Code;
use tollgate_testkit::servers::{Kind, Server};

use crate::harness::grpc::{Grpc, brings, descriptor, hits, run};
use tollgate_testkit::tollgate::Tollgate;
use tollgate_testkit::{now, wait};

use crate::harness::serve_with;

const LIMITS: &str = "
domains: [{ name: edge, follow_request_limits: true }]
limits:
  - { name: user, match: { domain: edge, entries: [{ user: true }] }, key: descriptor.user, algorithm: fixed-window, allow: 10/365d }
  - { name: path, match: { domain: edge, entries: [{ path: true }] }, key: descriptor.path, allow: 1/h, burst: 3 }
  - { name: tokens, match: { domain: edge, entries: [{ tokens: true }] }, key: descriptor.tokens, algorithm: fixed-window, allow: 100/365d, when_over: take-rest }
  - { name: open, match: { domain: edge, entries: [{ open: true }] }, allow: 1/h, on_store_error: allow, reason: test }
  - { name: shut, match: { domain: edge, entries: [{ shut: true }] }, allow: 1/h, on_store_error: deny }
";

fn store() -> Server {
    Server::start(Kind::Redis, &[]).unwrap_or_else(|error| panic!("{error}"))
}

/// The policy on this store, with these fields of it besides.
fn policy(store: &Server, more: &str) -> String {
    let url = format!("redis://127.0.0.1:{}", store.port());
    // A machine that runs all tests at once is slow, and so is its store.
    let store = format!("store: {{ url: '{url}', deadline: 1s{more} }}");
    format!("default: pass\n{store}\non_store_error: local\n{LIMITS}")
}

/// A service on this store.
fn service(store: &Server, more: &str) -> Tollgate {
    let service = serve_with(&policy(store, more), &["--rls", "127.0.0.1:0"]);
    connected(&service);
    service
}

fn connected(service: &Tollgate) {
    wait("the store is up", || {
        service.ready()["store"]["status"] == "up"
    });
}

#[test]
fn two_services_hold_one_count_for_envoy() {
    let store = store();
    let (one, other) = (service(&store, ""), service(&store, ""));
    run(async {
        let nodes = [
            Grpc::to(one.port_of("envoy").unwrap()).await,
            Grpc::to(other.port_of("envoy").unwrap()).await,
        ];
        let ann = descriptor("user", "ann");
        let mut passed = 0;
        for turn in 0..30 {
            let said = nodes[turn % 2].edge(std::slice::from_ref(&ann)).await;
            passed += usize::from(said.code() == Code::Ok);
        }
        assert_eq!(passed, 10);
        // A request that one descriptor refuses costs the other nothing, on either node.
        let both = [descriptor("user", "bob"), descriptor("path", "/a")];
        for turn in 0..8 {
            let code = nodes[turn % 2].edge(&both).await.code();
            assert_eq!(code == Code::Ok, turn < 3, "turn {turn}");
        }
        let (_, left) = nodes[0].edge(&[hits("user", "bob", 0)]).await.answer();
        assert_eq!(left, [7]);
    });
}

#[test]
fn a_limit_that_a_request_brings_along_is_counted_in_the_store() {
    let store = store();
    let (one, other) = (service(&store, ""), service(&store, ""));
    run(async {
        let nodes = [
            Grpc::to(one.port_of("envoy").unwrap()).await,
            Grpc::to(other.port_of("envoy").unwrap()).await,
        ];
        for turn in 0..12_u32 {
            let asked = brings(7, descriptor("user", "cid"));
            let (code, left) = nodes[turn as usize % 2].edge(&[asked]).await.answer();
            let expected = match turn < 7 {
                true => (Code::Ok, vec![6 - turn]),
                false => (Code::OverLimit, vec![0]),
            };
            assert_eq!((code, left), expected, "turn {turn}");
        }
        // Another number continues the same count, on the other node too.
        let more = brings(9, descriptor("user", "cid"));
        let said = nodes[1].edge(&[more]).await.answer();
        assert_eq!(said, (Code::Ok, vec![1]));
        let none = brings(0, descriptor("user", "cid"));
        assert_eq!(nodes[0].edge(&[none]).await.code(), Code::OverLimit);
        // All or none, together with a limit of the policy that refuses.
        for _ in 0..3 {
            nodes[0].edge(&[descriptor("path", "/b")]).await;
        }
        let both = [
            brings(7, descriptor("user", "dan")),
            descriptor("path", "/b"),
        ];
        assert_eq!(nodes[1].edge(&both).await.code(), Code::OverLimit);
        let asked = brings(7, hits("user", "dan", 0));
        assert_eq!(nodes[0].edge(&[asked]).await.answer(), (Code::Ok, vec![7]));
        // The policy's own limit was never asked.
        let own = nodes[0].edge(&[hits("user", "cid", 0)]).await.answer();
        assert_eq!(own, (Code::Ok, vec![10]));
    });
}

#[test]
fn a_cost_that_is_reported_afterwards_is_taken_for_every_node() {
    let store = store();
    let (one, other) = (service(&store, ""), service(&store, ""));
    run(async {
        let (one, other) = (
            Grpc::to(one.port_of("envoy").unwrap()).await,
            Grpc::to(other.port_of("envoy").unwrap()).await,
        );
        let said = one.edge(&[hits("tokens", "a", 60)]).await.answer();
        assert_eq!(said, (Code::Ok, vec![40]));
        let over = one.edge(&[hits("tokens", "a", 1_000)]).await;
        assert_eq!(over.code(), Code::OverLimit);
        let asked = other.edge(&[hits("tokens", "a", 0)]).await;
        assert_eq!(asked.code(), Code::OverLimit);
        // Where it is not said, nothing is taken.
        let over = one.edge(&[hits("user", "a", 1_000)]).await;
        assert_eq!(over.code(), Code::OverLimit);
        let asked = other.edge(&[hits("user", "a", 0)]).await.answer();
        assert_eq!(asked, (Code::Ok, vec![10]));
    });
}

#[test]
fn without_the_store_each_limit_does_as_it_says_and_envoy_is_always_answered() {
    let store = store();
    let service = service(&store, ", nodes: 2");
    store.kill();
    wait("the store is away", || {
        service.ready()["store"]["status"] == "away"
    });
    run(async {
        let envoy = Grpc::to(service.port_of("envoy").unwrap()).await;
        let asks = async |asked: &[_]| {
            let mut passed = 0;
            for _ in 0..20 {
                passed += usize::from(envoy.edge(asked).await.code() == Code::Ok);
            }
            passed
        };
        // This node's share: half.
        assert_eq!(asks(&[descriptor("user", "ann")]).await, 5);
        assert_eq!(asks(&[brings(8, descriptor("user", "ann"))]).await, 4);
        assert_eq!(asks(&[brings(1, descriptor("user", "bob"))]).await, 1);
        assert_eq!(asks(&[brings(0, descriptor("user", "cid"))]).await, 0);
        assert_eq!(asks(&[descriptor("open", "x")]).await, 20);
        assert_eq!(asks(&[descriptor("shut", "x")]).await, 0);
        // One limit that refuses without the store refuses for all of the request, and the rest is not charged.
        let both = [descriptor("path", "/a"), descriptor("shut", "x")];
        assert_eq!(asks(&both).await, 0);
        let (_, left) = envoy.edge(&[hits("path", "/a", 0)]).await.answer();
        assert_eq!(left, [1]);
    });
}

#[test]
fn a_cost_reported_during_an_outage_reaches_the_store_later() {
    let store = store();
    // The other one comes later: two would have half of the limit each.
    let one = service(&store, ", nodes: 1");
    store.kill();
    wait("the store is away", || {
        one.ready()["store"]["status"] == "away"
    });
    run(async {
        let envoy = Grpc::to(one.port_of("envoy").unwrap()).await;
        let over = envoy.edge(&[hits("tokens", "a", 1_000)]).await;
        assert_eq!(over.code(), Code::OverLimit);
        let asked = envoy.edge(&[hits("tokens", "a", 0)]).await;
        assert_eq!(asked.code(), Code::OverLimit, "its own share is used up");
    });
    store.restart().unwrap_or_else(|error| panic!("{error}"));
    let connects = format!(
        "tollgate_store_connections_total{{server=\"127.0.0.1:{}\"}}",
        store.port()
    );
    wait("it has connected again", || {
        one.metric(&connects) >= Some(2)
    });
    connected(&one);
    let other = service(&store, ", nodes: 1");
    connected(&other);
    run(async {
        let envoy = Grpc::to(one.port_of("envoy").unwrap()).await;
        // The next charge for the key reports it.
        let over = envoy.edge(&[hits("tokens", "a", 1)]).await;
        assert_eq!(over.code(), Code::OverLimit);
        let other = Grpc::to(other.port_of("envoy").unwrap()).await;
        let asked = other.edge(&[hits("tokens", "a", 0)]).await;
        assert_eq!(asked.code(), Code::OverLimit, "the other node knows");
    });
}

#[test]
fn a_caller_with_little_time_is_answered_in_it_while_the_store_hangs() {
    let store = store();
    // Its deadline is much longer than the caller waits, so that it is the caller's time that ends the waiting.
    let (hasty, patient) = (service(&store, ""), service(&store, ""));
    run(async {
        let hasty_client = Grpc::to(hasty.port_of("envoy").unwrap()).await;
        let patient_client = Grpc::to(patient.port_of("envoy").unwrap()).await;
        let warm = hasty_client.edge(&[hits("user", "x", 0)]).await;
        assert_eq!(warm.code(), Code::Ok);
        assert_eq!(
            patient_client.edge(&[hits("user", "x", 0)]).await.code(),
            Code::Ok
        );
        store.freeze().unwrap_or_else(|error| panic!("{error}"));
        let watch = now();
        let asked = [descriptor("user", "ann")];
        let said = hasty_client.asks(&asked, Some("20m")).await;
        let took = watch.elapsed();
        assert_eq!(said.code(), Code::Ok, "by this node's share");
        // A busy machine is late; a second is what it would take to wait for the store.
        assert!(took < Duration::from_millis(500), "{took:?}");
        assert_eq!(
            hasty.metric("tollgate_degraded_decisions_total{verdict=\"pass\"}"),
            Some(1)
        );
        // Without a word about time the store is waited for: it does hang.
        let watch = now();
        assert_eq!(patient_client.edge(&asked).await.code(), Code::Ok);
        let took = watch.elapsed();
        assert!(took >= Duration::from_millis(900), "{took:?}");
        store.thaw().unwrap_or_else(|error| panic!("{error}"));
    });
}

#[test]
fn a_reload_begins_and_ends_the_following_and_forgets_nothing() {
    let store = store();
    let service = service(&store, "");
    let asked = [brings(4, descriptor("user", "ann"))];
    let left = |expected: (Code, u32)| {
        run(async {
            let envoy = Grpc::to(service.port_of("envoy").unwrap()).await;
            let (code, left) = envoy.edge(&asked).await.answer();
            assert_eq!((code, left.as_slice()), (expected.0, &[expected.1][..]));
        });
    };
    let reload = |text: &str| {
        std::fs::write(service.policy_file(), text).unwrap_or_else(|error| panic!("{error}"));
        service.operate("POST", "/reload", "{}").expect(200);
    };
    left((Code::Ok, 3));
    let follows = policy(&store, "");
    let does_not = follows.replace(
        "follow_request_limits: true",
        "follow_request_limits: false",
    );
    assert_ne!(follows, does_not);
    reload(&does_not);
    left((Code::Ok, 9));
    reload(&follows);
    left((Code::Ok, 2));
    // A file that is wrong changes nothing, and says what.
    let wrong = follows.replace("name: edge, follow", "name: '*', follow");
    std::fs::write(service.policy_file(), wrong).unwrap_or_else(|error| panic!("{error}"));
    let refused = service.operate("POST", "/reload", "{}");
    assert_ne!(refused.status, 200);
    assert!(
        refused.body.contains("is not a pattern here"),
        "{}",
        refused.body
    );
    left((Code::Ok, 1));
}
