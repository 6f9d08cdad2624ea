//! Queues in front of a server: in turn, one at a time, without requests of disconnected clients.

use std::io::{Read, Write};
use tollgate_testkit::wait;

use crate::support::{TestGateway, read_head, reply};
use crate::upstream::Upstream;

/// One at a time, fair between tenants.
fn policy(more: &str) -> String {
    format!(
        "default: pass\nlimits:\n  - {{ name: all, allow: 1000000/s, burst: 1000000 }}\nqueues:\n  - {{ name: all, flow: header.x-tenant, at_once: 1, {more} }}\n"
    )
}

#[test]
fn a_concurrency_of_one_alternates_between_tenants() {
    let upstream = Upstream::start();
    let gateway = TestGateway::before(&policy("max_wait: 10s"), upstream.port);
    let mut clients = Vec::new();
    let mut send = |tenant: &str, number: usize| {
        let target = format!("/{tenant}{number}?ms=30");
        clients.push(gateway.send(&target, &format!("X-Tenant: {tenant}\r\n")));
        // The order in which they came is known.
        let sent = clients.len() as u64;
        wait("it waits", || {
            gateway.waiting() + upstream.count() as u64 >= sent
        });
    };
    for number in 0..8 {
        send("a", number);
    }
    for number in 0..2 {
        send("b", number);
    }
    let answers: Vec<_> = clients.iter_mut().map(reply).collect();
    assert!(answers.iter().all(|answer| answer.status == 200));
    assert_eq!(upstream.busiest(), 1);
    let order: Vec<_> = upstream.targets();
    let place = |of: &str| order.iter().position(|t| t.starts_with(of)).unwrap();
    // The late client with few requests is done long before the other.
    assert!(place("/b1") < place("/a6"), "{order:?}");
    assert!(place("/b0") < place("/a5"), "{order:?}");
    // Responses of requests that waited report the wait; others do not.
    assert_eq!(answers[0].header("x-tollgate-waited"), None);
    let waited = answers[7].header("x-tollgate-waited").unwrap();
    let waited: u64 = waited.parse().unwrap();
    assert!((100..10_000).contains(&waited), "{waited}");
    assert_eq!(gateway.admitted(), 10);
}

#[test]
fn a_full_queue_rejects_requests_before_the_server() {
    let upstream = Upstream::start();
    let gateway = TestGateway::before(&policy("waiting: 1, max_wait: 10s"), upstream.port);
    let _holds = gateway.send("/hang", "");
    wait("it is there", || upstream.count() == 1);
    let _waits = gateway.send("/waits", "");
    wait("it waits", || gateway.waiting() == 1);
    let refused = gateway.get("/refused");
    assert_eq!(refused.status, 503, "{refused:?}");
    let after: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=60).contains(&after), "{refused:?}");
    let kind = refused.header("content-type");
    assert_eq!(kind, Some("application/problem+json"));
    assert_eq!(refused.header("cache-control"), Some("no-store"));
    assert!(refused.body.contains("\"status\":503"), "{refused:?}");
    assert_eq!(upstream.targets(), ["/hang"]);
}

#[test]
fn a_request_that_waits_too_long_is_rejected() {
    let upstream = Upstream::start();
    let gateway = TestGateway::before(&policy("max_wait: 200ms"), upstream.port);
    let _holds = gateway.send("/hang", "");
    wait("it is there", || upstream.count() == 1);
    let (answer, took) = crate::support::timed(|| gateway.get("/late"));
    assert_eq!(answer.status, 503, "{answer:?}");
    assert!(answer.header("retry-after").is_some(), "{answer:?}");
    assert!((150..2000).contains(&took.as_millis()), "{took:?}");
    assert_eq!(upstream.targets(), ["/hang"]);
}

#[test]
fn a_disconnected_client_leaves_the_queue_and_no_server_sees_it() {
    let upstream = Upstream::start();
    let gateway = TestGateway::before(&policy("waiting: 2, max_wait: 10s"), upstream.port);
    let holds = gateway.send("/hang", "");
    wait("it is there", || upstream.count() == 1);
    let gone = gateway.send("/gone", "");
    let mut stays = gateway.send("/stays", "");
    wait("both wait", || gateway.waiting() == 2);
    assert_eq!(gateway.get("/full").status, 503);
    drop(gone);
    wait("it has left", || gateway.waiting() == 1);
    let mut next = gateway.send("/next", "");
    wait("its place is taken", || gateway.waiting() == 2);
    drop(holds);
    assert_eq!(reply(&mut stays).status, 200);
    assert_eq!(reply(&mut next).status, 200);
    assert_eq!(upstream.targets(), ["/hang", "/stays", "/next"]);
    assert_eq!(
        gateway.metric("tollgate_queue_in_flight_requests{queue=\"all\"}"),
        0,
        "no permit is held any more"
    );
}

#[test]
fn a_tenant_that_reads_slowly_holds_only_its_own_permits() {
    const OF_SLOW: usize = 2;
    let upstream = Upstream::start();
    let bound = format!("at_once: 4, at_once_per_flow: {OF_SLOW}, max_wait: 30s");
    let gateway = TestGateway::before(&policy("").replace("at_once: 1, ", &bound), upstream.port);
    let in_flight = || gateway.metric("tollgate_queue_in_flight_requests{queue=\"all\"}");
    // Nothing of the answers is read, so they are in flight until the clients are gone.
    let asks = |_| gateway.send("/large", "X-Tenant: slow\r\n");
    let mut slow: Vec<_> = (0..OF_SLOW).map(asks).collect();
    wait("the first have their turns", || {
        in_flight() == OF_SLOW as u64
    });
    slow.extend((OF_SLOW..6).map(asks));
    wait("the rest of them wait", || gateway.waiting() == 4);
    assert_eq!(in_flight(), OF_SLOW as u64);
    assert_eq!(
        gateway.metric("tollgate_queue_saturated_flows{queue=\"all\"}"),
        1
    );
    for number in 0..20 {
        let mut quick = gateway.send(&format!("/quick{number}"), "X-Tenant: quick\r\n");
        let answer = reply(&mut quick);
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("x-tollgate-waited"), None, "it did not wait");
    }
    let of_slow = |targets: &[String]| targets.iter().filter(|t| *t == "/large").count();
    assert_eq!(
        of_slow(&upstream.targets()),
        OF_SLOW,
        "and no more were seen"
    );
    assert_eq!((gateway.waiting(), in_flight()), (4, OF_SLOW as u64));
    // One of its turns ends, so the next of its own goes, and one only.
    drop(slow.remove(0));
    wait("the next is admitted", || gateway.waiting() <= 3);
    wait("it is seen", || of_slow(&upstream.targets()) == OF_SLOW + 1);
    assert_eq!((gateway.waiting(), in_flight()), (3, OF_SLOW as u64));
    drop(slow);
    wait("all is over", || (gateway.waiting(), in_flight()) == (0, 0));
}

#[test]
fn a_tunnel_holds_its_permit_until_it_ends() {
    let upstream = Upstream::start();
    let gateway = TestGateway::before(&policy("max_wait: 10s"), upstream.port);
    let mut tunnel = gateway.send(
        "/ws",
        "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: eA==\r\nSec-WebSocket-Version: 13\r\n",
    );
    assert!(read_head(&mut tunnel).starts_with("HTTP/1.1 101"));
    let mut waits = gateway.send("/waits", "");
    wait("it waits", || gateway.waiting() == 1);
    tunnel.write_all(b"still").unwrap();
    let mut back = [0; 5];
    tunnel.read_exact(&mut back).unwrap();
    assert_eq!((gateway.waiting(), upstream.count()), (1, 1));
    drop(tunnel);
    assert_eq!(reply(&mut waits).status, 200);
}
