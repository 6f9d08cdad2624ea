//! Reservations of a fleet: every node settles what any node has reserved, once.

use serde_json::Value;
use tollgate_testkit::servers::{Kind, Server};
use tollgate_testkit::tollgate::{TOKEN, Tollgate};
use tollgate_testkit::{Directory, wait};

use crate::harness::{policy_with, serve, tollgate};

fn store() -> Server {
    Server::start(Kind::Redis, &[]).unwrap_or_else(|error| panic!("{error}"))
}

/// Nodes that know of each other.
fn fleet<const N: usize>(store: &Server, limits: &str) -> [Tollgate; N] {
    let text = policy(store, limits);
    let nodes = [(); N].map(|()| serve(&text));
    for node in &nodes {
        wait("all nodes are counted", || {
            node.ready()["store"]["nodes"] == N
        });
    }
    nodes
}

fn policy(store: &Server, limits: &str) -> String {
    let store = format!(
        "{{ url: 'redis://127.0.0.1:{}', deadline: 1s }}",
        store.port()
    );
    format!(
        "store: {store}\non_store_error: local\n{}",
        policy_with(limits)
    )
}

const TOKENS: &str = "  - { name: tokens, key: header.x-org, allow: 1/h, burst: 10 }";

/// Reserves units for an organisation and returns the reservation.
fn reserve(node: &Tollgate, cost: u64) -> String {
    let body =
        format!(r#"{{"path":"/","headers":{{"x-org":"acme"}},"cost":{cost},"reserve":true}}"#);
    let answer = node.check(&body).expect(200).json();
    name(&answer)
}

fn name(answer: &Value) -> String {
    answer["reservation"]
        .as_str()
        .expect("a reservation")
        .to_owned()
}

/// Settles a reservation and returns the status.
fn settle(node: &Tollgate, reservation: &str, how: &str) -> u16 {
    let body = format!(r#"{{"reservation":"{reservation}"{how}}}"#);
    node.client().post("/v1/settle", &body).status
}

/// What is left for the organisation.
fn remaining(node: &Tollgate, limit: &str) -> Value {
    let body = format!(r#"{{"limit":"{limit}","key":"acme","cost":0}}"#);
    node.operate("POST", "/peek", &body).expect(200).json()["remaining"].take()
}

#[test]
fn every_node_settles_what_one_has_reserved_and_only_once() {
    let store = store();
    let [one, other] = fleet(&store, TOKENS);
    let reservation = reserve(&one, 8);
    assert_eq!(remaining(&other, "tokens"), 2);
    assert_eq!(settle(&other, &reservation, r#","actual":3"#), 200);
    assert_eq!(remaining(&one, "tokens"), 7);
    for node in [&one, &other] {
        assert_eq!(settle(node, &reservation, r#","cancel":true"#), 409);
    }
    assert_eq!(remaining(&one, "tokens"), 7);
    // At the node that made it, and with more than was reserved.
    let reservation = reserve(&one, 2);
    assert_eq!(settle(&one, &reservation, r#","actual":4"#), 200);
    assert_eq!(settle(&other, &reservation, ""), 409);
    assert_eq!(remaining(&other, "tokens"), 3);
}

#[test]
fn what_another_node_settles_is_owed_at_every_node() {
    let store = store();
    let limit = format!(
        "{}, when_over: owe, max_debt: 20 }}",
        &TOKENS[..TOKENS.len() - 2]
    );
    let [one, other] = fleet(&store, &limit);
    let reservation = reserve(&one, 4);
    let body = format!(r#"{{"reservation":"{reservation}","actual":35}}"#);
    let settled = other.client().post("/v1/settle", &body);
    // 30 units are the burst and the debt.
    assert_eq!(
        (settled.status, &settled.json()["unpaid"]),
        (200, &5.into())
    );
    assert_eq!(settle(&one, &reservation, ""), 409);
    for node in [&one, &other] {
        assert_eq!(remaining(node, "tokens"), 0);
        let refused = node.check(r#"{"path":"/","headers":{"x-org":"acme"}}"#);
        let retry_after = refused.expect(429).json()["retry_after_ms"].as_u64();
        assert!(retry_after > Some(20 * 3_600_000), "{retry_after:?}");
    }
}

#[test]
fn a_forged_reservation_is_unknown() {
    let store = store();
    let [one, other] = fleet(&store, TOKENS);
    let reservation = reserve(&one, 8);
    let (start, end) = reservation.split_at(reservation.len() / 2);
    let changed = match &end[..1] {
        "A" => "B",
        _ => "A",
    };
    let forged = format!("{start}{changed}{}", &end[1..]);
    for node in [&one, &other] {
        assert_eq!(settle(node, &forged, r#","cancel":true"#), 404);
        assert_eq!(settle(node, "no reservation", ""), 404);
    }
    assert_eq!(remaining(&other, "tokens"), 2);
}

#[test]
fn a_reservation_survives_its_node_and_a_reload() {
    let store = store();
    let [one, other] = fleet(&store, TOKENS);
    let (first, second) = (reserve(&one, 4), reserve(&one, 4));
    one.kill();
    assert_eq!(settle(&other, &first, r#","cancel":true"#), 200);
    assert_eq!(remaining(&other, "tokens"), 6);
    let greater = policy(&store, &TOKENS.replace("1/h", "1/2h"));
    std::fs::write(other.policy_file(), greater).unwrap();
    other.operate("POST", "/reload", "{}").expect(200);
    assert_eq!(settle(&other, &second, r#","cancel":true"#), 200);
    // A later node has the same secret.
    let third = reserve(&other, 1);
    let late = serve(&policy(&store, TOKENS));
    wait("the late node is counted", || {
        // The killed node is counted for a while, too.
        late.ready()["store"]["nodes"].as_u64() >= Some(2)
    });
    assert_eq!(settle(&late, &third, ""), 200);
}

#[test]
fn a_permit_is_released_at_any_node() {
    let store = store();
    let limit = "  - { name: jobs, key: header.x-org, algorithm: concurrency, allow: 1, ttl: 1h }";
    let [one, other] = fleet(&store, limit);
    let body = r#"{"path":"/","headers":{"x-org":"acme"}}"#;
    for (from, to) in [(&one, &other), (&other, &one), (&one, &one)] {
        let permit = name(&from.check(body).expect(200).json());
        to.check(body).expect(429);
        assert_eq!(settle(to, &permit, ""), 200);
        assert_eq!(settle(from, &permit, ""), 409);
    }
    one.check(body).expect(200);
}

#[test]
fn units_of_a_lease_are_refunded_at_any_node() {
    let store = store();
    let limit = "  - { name: leased, key: header.x-org, algorithm: fixed-window, allow: 4000000000/30d, sharing: lease }";
    let [one, other] = fleet(&store, limit);
    let leased = "tollgate_leased_decisions_total{verdict=\"pass\"}";
    let mut reservations = Vec::new();
    // A block is at most what the limit earns in the term of a lease, so the requests are small and many.
    wait("the key is busy enough for a lease", || {
        reservations.extend((0..50).map(|_| reserve(&one, 1)));
        one.metric(leased) > Some(10)
    });
    let taken = reservations.len() as u64;
    let left = || remaining(&other, "leased").as_u64().unwrap();
    let before = left();
    assert!(before <= 4_000_000_000 - taken, "{before}");
    for reservation in &reservations {
        assert_eq!(settle(&other, reservation, r#","cancel":true"#), 200);
    }
    // The store has everything but what the first node still has on lease.
    assert!(left() >= before + taken, "{} after {before}", left());
}

#[test]
fn without_the_store_a_reservation_is_not_settled_and_can_be_later() {
    let store = store();
    let [one, other] = fleet(&store, TOKENS);
    let reservation = reserve(&one, 8);
    store.kill();
    assert_eq!(settle(&other, &reservation, r#","cancel":true"#), 503);
    store.restart().unwrap_or_else(|error| panic!("{error}"));
    wait("the store is up", || {
        other.ready()["store"]["status"] == "up"
    });
    // The server has lost what was taken, and nothing more than that is refunded.
    assert_eq!(settle(&other, &reservation, r#","cancel":true"#), 200);
    assert_eq!(remaining(&other, "tokens"), 10);
}

#[test]
fn a_key_is_reset_for_the_whole_fleet() {
    for algorithm in [
        "allow: 1/h, burst: 3",
        "algorithm: fixed-window, allow: 3/h",
        "algorithm: sliding-log, allow: 3/h",
        "algorithm: sliding-window, allow: 3/h",
        "allow: 1/h, burst: 3, sharing: lease",
    ] {
        let store = store();
        let limit = format!("  - {{ name: tokens, key: header.x-org, {algorithm} }}");
        let [one, other] = fleet(&store, &limit);
        let body = r#"{"path":"/","headers":{"x-org":"acme"}}"#;
        let passes = |node: &Tollgate| (0..6).filter(|_| node.check(body).status == 200).count();
        assert_eq!(passes(&one), 3, "{algorithm}");
        let admin = format!("http://127.0.0.1:{}", other.admin_port());
        let scratch = Directory::new();
        let token = scratch.write("token", TOKEN);
        let token = token.to_string_lossy();
        let reset = |limit: &str| {
            tollgate(&[
                "reset",
                limit,
                "acme",
                "--server",
                &admin,
                "--token-file",
                &token,
            ])
        };
        let done = reset("tokens");
        assert_eq!(done.code, Some(0), "{}{}", done.out, done.err);
        assert!(done.out.contains("has forgotten this key"), "{}", done.out);
        assert_eq!(passes(&other), 3, "{algorithm}");
        let unknown = reset("token");
        assert_ne!(unknown.code, Some(0));
        assert!(
            unknown.err.contains("did you mean `tokens`?"),
            "{}",
            unknown.err
        );
    }
}

#[test]
fn a_node_that_needs_its_store_is_not_ready_without_it() {
    let store = store();
    let text = policy(&store, TOKENS).replace("on_store_error: local", "on_store_error: deny");
    let node = serve(&text);
    node.admin().get("/ready").expect(200);
    store.kill();
    wait("the node reports it", || {
        node.check(r#"{"path":"/","headers":{"x-org":"acme"}}"#);
        node.admin().get("/ready").status == 503
    });
    assert_eq!(node.ready()["status"], "unavailable");
    node.admin().get("/health").expect(200);
}
