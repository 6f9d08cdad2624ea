//! Services that lease from a real store: no units are lost when callers disconnect or services stop.

use tollgate_server::rls::messages::Code;
use tollgate_testkit::servers::{Kind, Server};

use crate::harness::grpc::{Grpc, descriptor, hits, run};
use tollgate_testkit::http::Client;
use tollgate_testkit::tollgate::Tollgate;
use tollgate_testkit::{Signal, wait};

use crate::harness::{policy_with, serve, serve_with};

const ASK: &str = r#"{"path":"/","headers":{"x-org":"acme"}}"#;
/// What the limit holds: a window that does not end while this runs.
const ALL: u64 = 1_000_000;

fn store() -> Server {
    Server::start(Kind::Redis, &[]).unwrap_or_else(|error| panic!("{error}"))
}

/// A service to which the store lends, and which is patient with it.
fn service(store: &Server) -> Tollgate {
    let limit = "  - { name: org, key: header.x-org, algorithm: fixed-window, allow: 1000000/d }";
    let service = serve(&format!(
        "store: {{ url: 'redis://127.0.0.1:{}', deadline: 900ms }}\non_store_error: local\nsharing: lease\n{}",
        store.port(),
        policy_with(limit)
    ));
    wait("the store is up", || {
        service.ready()["store"]["status"] == "up"
    });
    service
}

/// What is left in the store.
fn left(service: &Tollgate) -> u64 {
    let mut client = service.client();
    let nothing = r#"{"path":"/","headers":{"x-org":"acme"},"cost":0}"#;
    let reply = client.post("/v1/peek", nothing).json();
    reply["remaining"].as_u64().unwrap_or_default()
}

/// Nodes that the store counts now, by their last heartbeats.
fn alive(store: &Server) -> usize {
    let count = "local now = redis.call('TIME')
        now = string.format('%.0f', now[1] * 1000000 + now[2])
        return tostring(redis.call('ZCOUNT', KEYS[1], now, '+inf'))";
    let reply = store.ask_text(&["EVAL", count, "1", "tg:{nodes}"]);
    let reply = reply.unwrap_or_else(|error| panic!("{error}"));
    reply.parse().unwrap_or_default()
}

/// Ten clients ask and disconnect before the store receives the call. Returns whether their block arrived.
fn hang_up(store: &Server, service: &Tollgate) -> bool {
    let mut clients: Vec<Client> = (0..10).map(|_| service.client()).collect();
    store.freeze().unwrap_or_else(|error| panic!("{error}"));
    for client in &mut clients {
        let bytes = client.request("POST", "/v1/check", &[], ASK);
        client.write(bytes.as_bytes()).expect("it listens");
    }
    wait("all are asked for", || {
        service.metric("tollgate_lease_keys") == Some(1)
    });
    drop(clients);
    store.thaw().unwrap_or_else(|error| panic!("{error}"));
    (0..500).any(|_| service.metric("tollgate_lease_blocks_total") >= Some(1))
}

#[test]
fn a_block_borrowed_by_a_disconnected_caller_is_spent_by_the_next() {
    let store = store();
    let service = service(&store);
    // On a machine that stalls the answer may be too late, and then it is rightly lost.
    assert!((0..5).any(|_| hang_up(&store, &service)));
}

/// Ten callers of the Envoy front end cannot wait for the store. Returns whether their block arrived.
fn has_no_time(store: &Server, service: &Tollgate) -> bool {
    store.freeze().unwrap_or_else(|error| panic!("{error}"));
    run(async {
        let envoy = Grpc::to(service.port_of("envoy").unwrap()).await;
        for _ in 0..10 {
            let said = envoy.asks(&[descriptor("org", "acme")], Some("20m")).await;
            assert_eq!(said.code(), Code::Ok, "by this node's share");
        }
    });
    store.thaw().unwrap_or_else(|error| panic!("{error}"));
    (0..500).any(|_| service.metric("tollgate_lease_blocks_total") >= Some(1))
}

#[test]
fn a_block_borrowed_by_a_caller_without_time_is_spent_by_the_next() {
    let store = store();
    let limit = "
domains: [{ name: edge }]
limits: [{ name: org, match: { domain: edge }, key: descriptor.org, algorithm: fixed-window, allow: 1000000/d }]
";
    let text = format!(
        "default: pass\nstore: {{ url: 'redis://127.0.0.1:{}', deadline: 900ms }}\non_store_error: local\nsharing: lease\n{limit}",
        store.port(),
    );
    let start = || {
        let service = serve_with(&text, &["--rls", "127.0.0.1:0"]);
        wait("the store is up", || {
            service.ready()["store"]["status"] == "up"
        });
        service
    };
    let service = start();
    // On a machine that stalls the answer may be too late, and then it is rightly lost.
    let tries = (1..=5).find(|_| has_no_time(&store, &service));
    let tries = tries.expect("a block");
    let degraded = service.metric("tollgate_degraded_decisions_total{verdict=\"pass\"}");
    // Of a later try some may have been paid from a block that came after all.
    assert!(
        (Some(10)..=Some(tries * 10)).contains(&degraded),
        "{degraded:?}"
    );
    service.signal(Signal::TERM).unwrap();
    assert_eq!(service.wait_for_exit().unwrap().code(), Some(0));
    let other = start();
    let (_, left) = run(async {
        let envoy = Grpc::to(other.port_of("envoy").unwrap()).await;
        envoy.edge(&[hits("org", "acme", 0)]).await.answer()
    });
    // Each counts once at the most: what this node admitted by its share, but not what the store answered too late.
    let left = u64::from(left.first().copied().unwrap_or_default());
    assert!(tries > 1 || (ALL - 10..=ALL).contains(&left), "{left}");
}

#[test]
fn a_service_that_stops_returns_its_leases_and_leaves_the_fleet() {
    let store = store();
    let (ends, stays) = (service(&store), service(&store));
    wait("both are counted", || alive(&store) == 2);
    let mut client = ends.client();
    for _ in 0..50 {
        client.post("/v1/check", ASK).expect(200);
    }
    assert!(ends.metric("tollgate_lease_blocks_total") >= Some(1));
    ends.signal(Signal::TERM).unwrap();
    assert_eq!(ends.wait_for_exit().unwrap().code(), Some(0));
    assert_eq!(left(&stays), ALL - 50);
    assert_eq!(alive(&store), 1);
}
