//! Servers that are unreachable, do not answer, or disconnect; clients that disconnect.

use std::io::{Read, Write};
use std::time::Duration;
use tollgate_testkit::free_port;
use tollgate_testkit::wait;

use tollgate::Span;

use crate::support::{OPEN, TestGateway, reply, timed};
use crate::upstream::Upstream;

const IN_FLIGHT: &str = "tollgate_upstream_server_in_flight_requests{upstream=\"app\",server=\"";

fn in_flight(gateway: &TestGateway, port: u16) -> u64 {
    gateway.metric(&format!("{IN_FLIGHT}127.0.0.1:{port}\"}}"))
}

#[test]
fn an_unreachable_server_is_502_with_problem_details() {
    let gateway = TestGateway::before(OPEN, free_port().unwrap());
    let answer = gateway.get("/");
    assert_eq!(answer.status, 502);
    assert_eq!(
        answer.header("content-type"),
        Some("application/problem+json")
    );
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    assert_eq!(answer.header("server"), None);
    assert_eq!(
        gateway.metric("tollgate_upstream_failures_total{upstream=\"app\"}"),
        1
    );
}

#[test]
fn a_server_that_disconnects_is_502_without_a_retry() {
    let upstream = Upstream::start();
    let gateway = TestGateway::before(OPEN, upstream.port);
    assert_eq!(gateway.get("/close").status, 502);
    // Also on a connection that was used before.
    assert_eq!(gateway.get("/").status, 200);
    assert_eq!(gateway.get("/close").status, 502);
    assert_eq!(upstream.count(), 3);
}

#[test]
fn a_server_that_hangs_is_504_and_its_connection_is_closed() {
    let upstream = Upstream::start();
    let gateway = TestGateway::with(
        OPEN,
        |spec| spec.answer = Span::from_millis(300),
        &[upstream.port],
    );
    let (answer, took) = timed(|| gateway.get("/hang"));
    assert_eq!(answer.status, 504);
    assert!(took < Duration::from_secs(3), "{took:?}");
    wait("the connection is closed", || upstream.open() == 0);
    assert_eq!(in_flight(&gateway, upstream.port), 0);
}

#[test]
fn a_stalled_response_is_aborted() {
    let upstream = Upstream::start();
    let gateway = TestGateway::with(
        OPEN,
        |spec| spec.idle = Span::from_millis(300),
        &[upstream.port],
    );
    let mut stream = gateway.connect();
    stream
        .write_all(b"GET /stall HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    let mut all = Vec::new();
    let _ = stream.read_to_end(&mut all);
    assert!(all.ends_with(b"abc"), "{}", String::from_utf8_lossy(&all));
    wait("the connection is closed", || upstream.open() == 0);
}

#[test]
fn a_disconnected_client_aborts_its_request_at_the_server() {
    let upstream = Upstream::start();
    let policy =
        "default: pass\nlimits:\n  - { name: all, algorithm: concurrency, allow: 1, ttl: 60s }\n";
    let gateway = TestGateway::before(policy, upstream.port);
    let mut stream = gateway.connect();
    stream
        .write_all(b"GET /hang HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    wait("the request is there", || upstream.count() == 1);
    assert_eq!(in_flight(&gateway, upstream.port), 1);
    assert_eq!(gateway.get("/").status, 429, "the only place is taken");
    drop(stream);
    wait("the connection is closed", || upstream.open() == 0);
    wait("the place is free", || gateway.get("/").status == 200);
    assert_eq!(in_flight(&gateway, upstream.port), 0);
}

#[test]
fn an_idle_connection_closed_by_the_server_costs_no_request() {
    let upstream = Upstream::start();
    let gateway = TestGateway::before(OPEN, upstream.port);
    for _ in 0..20 {
        assert_eq!(gateway.get("/once").status, 200);
        crate::support::pause(20);
    }
    assert_eq!(upstream.count(), 20);
    assert_eq!(gateway.admitted(), 20);
}

#[test]
fn an_ejected_server_is_avoided_and_reinstated() {
    let (good, port) = (Upstream::start(), free_port().unwrap());
    let gateway = TestGateway::with(OPEN, |_| (), &[port, good.port]);
    let up = format!("tollgate_upstream_server_up{{upstream=\"app\",server=\"127.0.0.1:{port}\"}}");
    assert_eq!(gateway.metric(&up), 1);
    let failed = std::cell::Cell::new(0);
    wait("it is out", || {
        failed.set(failed.get() + usize::from(gateway.get("/").status == 502));
        gateway.metric(&up) == 0
    });
    // One that failed is left alone for a moment, so that it takes a while.
    assert_eq!(failed.get(), 3);
    let back = Upstream::on(port);
    wait("it is back", || gateway.metric(&up) == 1);
    wait("it is asked", || {
        gateway.get("/");
        back.count() > 0
    });
}

#[test]
fn an_unsent_request_is_retried_if_the_policy_allows_it() {
    let (good, port) = (Upstream::start(), free_port().unwrap());
    let gateway = TestGateway::with(OPEN, |spec| spec.retries = 1, &[port, good.port]);
    for _ in 0..20 {
        assert_eq!(gateway.get("/").status, 200);
    }
    assert_eq!(good.count(), 20);
    assert_eq!(gateway.admitted(), 20);
}

#[test]
fn a_slow_server_shows_in_the_latency_metrics() {
    let upstream = Upstream::start();
    let gateway = TestGateway::before(OPEN, upstream.port);
    let mut stream = gateway.connect();
    stream
        .write_all(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    reply(&mut stream);
    assert_eq!(gateway.get("/503").status, 503);
    let observed = gateway.started.observed.upstreams();
    let (name, observed) = &observed[0];
    use std::sync::atomic::Ordering::Relaxed;
    assert_eq!(name, "app");
    assert_eq!(observed.answers.load(Relaxed), 2);
    assert_eq!(observed.failed.load(Relaxed), 1);
    assert!(observed.latency_ns.load(Relaxed) > 300_000_000);
}
