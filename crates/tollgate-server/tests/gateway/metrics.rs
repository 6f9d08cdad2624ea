//! Metrics of upstreams.

use std::io::Write;
use tollgate_testkit::wait;

use crate::support::{OPEN, TestGateway};
use crate::upstream::Upstream;

fn requests(gateway: &TestGateway) -> u64 {
    gateway.metric("tollgate_upstream_requests_total{upstream=\"app\"}")
}

#[test]
fn a_forwarded_request_is_counted_with_any_outcome() {
    let upstream = Upstream::start();
    let gateway = TestGateway::before(OPEN, upstream.port);
    assert_eq!(requests(&gateway), 0);
    assert_eq!(gateway.get("/").status, 200);
    assert_eq!(gateway.get("/close").status, 502);
    assert_eq!(requests(&gateway), 2);
    let latencies =
        |series: &str| gateway.metric(&format!("tollgate_upstream_latency_seconds_{series}"));
    assert_eq!(latencies("count{upstream=\"app\"}"), 1);
    assert_eq!(latencies("bucket{upstream=\"app\",le=\"30\"}"), 1);
    // Also before the first probe.
    let mut hangs = gateway.connect();
    hangs
        .write_all(b"GET /hang HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    wait("it is there", || upstream.count() == 3);
    assert_eq!(requests(&gateway), 3);
}

#[test]
fn refused_requests_are_not_counted_and_retries_count_twice() {
    let upstream = Upstream::start();
    let unreachable = {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        socket.local_addr().unwrap().port()
    };
    let policy = "default: pass\nlimits:\n  - { name: all, allow: 1/h, burst: 1 }\n";
    let gateway = TestGateway::with(
        policy,
        |spec| spec.retries = 1,
        &[unreachable, upstream.port],
    );
    assert_eq!(gateway.get("/").status, 200);
    assert_eq!(gateway.get("/").status, 429);
    assert_eq!((requests(&gateway), upstream.count()), (2, 1));
}
