//! Bounds on connections by address.

use std::io::Read;
use std::net::TcpStream;
use tollgate_testkit::wait;

use crate::support::{TestGateway, reply};
use crate::upstream::Upstream;

fn gateway(accept: &str, more: &str, port: u16) -> TestGateway {
    let policy = format!("default: pass\n{more}gateway:\n  accept: {{ {accept} }}\n");
    TestGateway::before(&policy, port)
}

/// Closed at once, without an answer.
fn is_closed(mut stream: TcpStream) -> bool {
    !matches!(stream.read(&mut [0]), Ok(1))
}

fn rejected(gateway: &TestGateway, why: &str) -> u64 {
    gateway.metric(&format!(
        "tollgate_rejected_connections_total{{reason=\"{why}\"}}"
    ))
}

#[test]
fn connections_of_one_address_are_bounded_and_freed() {
    let upstream = Upstream::start();
    let gateway = gateway("per_address: 2", "", upstream.port);
    let mut first = gateway.send("/", "");
    let mut second = gateway.send("/", "");
    assert_eq!(reply(&mut first).status, 200);
    assert_eq!(reply(&mut second).status, 200);
    assert!(is_closed(gateway.connect()));
    assert!(is_closed(gateway.connect()));
    assert_eq!(rejected(&gateway, "too-many"), 2);
    drop(first);
    wait("there is room again", || {
        use std::io::Write;
        let mut stream = gateway.connect();
        let _ = stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        matches!(stream.read(&mut [0]), Ok(1))
    });
}

#[test]
fn the_connection_rate_of_one_address_is_bounded() {
    let upstream = Upstream::start();
    let gateway = gateway("rate: 1/h, burst: 3", "", upstream.port);
    for _ in 0..3 {
        assert_eq!(gateway.get("/").status, 200);
    }
    assert!(is_closed(gateway.connect()));
    assert_eq!(rejected(&gateway, "too-fast"), 1);
    assert_eq!(upstream.count(), 3);
}

#[test]
fn a_trusted_proxy_is_not_counted_by_its_address() {
    let upstream = Upstream::start();
    let trusted = "trusted_proxies: [127.0.0.1/32]\n";
    let gateway = gateway(
        "per_address: 1, rate: 1/h, burst: 1",
        trusted,
        upstream.port,
    );
    let mut open: Vec<_> = (0..10).map(|_| gateway.send("/", "")).collect();
    for stream in &mut open {
        assert_eq!(reply(stream).status, 200);
    }
    assert_eq!(rejected(&gateway, "too-many"), 0);
    assert_eq!(rejected(&gateway, "too-fast"), 0);
}
