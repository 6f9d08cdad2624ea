//! WebSockets: passed through, and counted until they end.

use std::io::{Read, Write};
use tollgate_testkit::wait;

use crate::support::{TestGateway, read_head};
use crate::upstream::Upstream;

const POLICY: &str =
    "default: pass\nlimits:\n  - { name: all, algorithm: concurrency, allow: 1, ttl: 60s }\n";
const ASKS: &str = "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";

#[test]
fn a_websocket_carries_both_directions_and_holds_its_permit() {
    let upstream = Upstream::start();
    let gateway = TestGateway::before(POLICY, upstream.port);
    let mut stream = gateway.connect();
    stream.write_all(ASKS.as_bytes()).unwrap();
    let head = read_head(&mut stream).to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 101"), "{head}");
    assert!(head.contains("upgrade: websocket"), "{head}");
    assert!(head.contains("connection: upgrade"), "{head}");
    assert!(head.contains("sec-websocket-accept: x"), "{head}");
    // A masked frame with `hello`, and one that looks like a request.
    let frame = [0x81, 0x85, 1, 2, 3, 4, 105, 103, 111, 104, 110];
    for sent in [&frame[..], b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"] {
        stream.write_all(sent).unwrap();
        let mut back = vec![0; sent.len()];
        stream.read_exact(&mut back).unwrap();
        assert_eq!(back, sent);
    }
    assert_eq!(gateway.get("/").status, 429, "the only place is taken");
    assert_eq!(upstream.count(), 1);
    drop(stream);
    wait("the tunnel ends", || upstream.open() == 0);
    wait("the place is free", || gateway.get("/").status == 200);
}

#[test]
fn bytes_sent_with_an_upgrade_request_are_not_lost() {
    let upstream = Upstream::start();
    let gateway = TestGateway::before(POLICY, upstream.port);
    let mut stream = gateway.connect();
    stream
        .write_all(format!("{ASKS}at once").as_bytes())
        .unwrap();
    read_head(&mut stream);
    let mut back = [0; 7];
    stream.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"at once");
}

#[test]
fn a_refused_upgrade_leaves_the_connection_usable() {
    let upstream = Upstream::start();
    let gateway = TestGateway::before(POLICY, upstream.port);
    let mut stream = gateway.connect();
    let asks = ASKS.replace("/ws", "/plain");
    let again = "GET /again HTTP/1.1\r\nHost: a\r\n\r\n";
    stream
        .write_all(format!("{asks}{again}").as_bytes())
        .unwrap();
    assert_eq!(crate::support::reply(&mut stream).status, 200);
    assert_eq!(crate::support::reply(&mut stream).status, 200);
    assert_eq!(upstream.last().line, "GET /again HTTP/1.1");
    // And it can still become one.
    stream.write_all(ASKS.as_bytes()).unwrap();
    assert!(read_head(&mut stream).starts_with("HTTP/1.1 101"));
}

#[test]
fn only_websocket_upgrades_are_accepted() {
    let upstream = Upstream::start();
    let gateway = TestGateway::before(POLICY, upstream.port);
    let asks = ASKS.replace("websocket", "h2c");
    let mut stream = gateway.connect();
    stream.write_all(asks.as_bytes()).unwrap();
    let answer = crate::support::reply(&mut stream);
    // This server switches whatever it is asked.
    assert_eq!(answer.status, 502, "{answer:?}");
    assert_eq!(upstream.last().header("upgrade"), None);
}
