//! Request bodies: streamed and bounded.

use std::io::Write;

use crate::support::{OPEN, TestGateway, reply};
use crate::upstream::Upstream;

#[test]
fn bodies_of_every_framing_arrive_whole() {
    let upstream = Upstream::start();
    let gateway = TestGateway::before(OPEN, upstream.port);
    let large = "x".repeat(3_000_000);
    let head = format!(
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n",
        large.len()
    );
    assert_eq!(gateway.ask(format!("{head}{large}").as_bytes()).status, 200);
    assert_eq!(upstream.last().body.len(), large.len());
    assert_eq!(
        upstream.last().header("content-length").unwrap(),
        large.len().to_string()
    );
    let mut chunked =
        String::from("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    for _ in 0..100 {
        chunked += &format!("2710;e=1\r\n{}\r\n", "y".repeat(10_000));
    }
    chunked += "0\r\nx-trailer: 1\r\n\r\n";
    assert_eq!(gateway.ask(chunked.as_bytes()).status, 200);
    assert_eq!(upstream.last().body, "y".repeat(1_000_000).as_bytes());
    assert_eq!(upstream.last().header("content-length"), None);
}

#[test]
fn expect_100_continue_is_answered() {
    let upstream = Upstream::start();
    let gateway = TestGateway::before(OPEN, upstream.port);
    let mut stream = gateway.connect();
    stream
        .write_all(
            b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n",
        )
        .unwrap();
    let asked = crate::support::read_head(&mut stream);
    assert!(asked.starts_with("HTTP/1.1 100"), "{asked}");
    stream.write_all(b"hi").unwrap();
    assert_eq!(reply(&mut stream).body, "<hi>");
    assert_eq!(upstream.last().header("expect"), None);
}

#[test]
fn an_answer_that_comes_before_the_body_is_passed_on() {
    let upstream = Upstream::start();
    let gateway = TestGateway::before(OPEN, upstream.port);
    let mut stream = gateway.connect();
    stream
        .write_all(b"POST /early HTTP/1.1\r\nHost: a\r\nContent-Length: 50000000\r\n\r\nbegin")
        .unwrap();
    let answer = reply(&mut stream);
    assert_eq!((answer.status, answer.body), (403, "early".into()));
}

#[test]
fn bytes_behind_a_refused_body_are_not_a_request() {
    let upstream = Upstream::start();
    let policy = "default: pass\nlimits:\n  - { name: all, allow: 1/h, burst: 1 }\n";
    let gateway = TestGateway::before(policy, upstream.port);
    assert_eq!(gateway.get("/").status, 200);
    let smuggled = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
    let body = smuggled.repeat(200_000);
    let head = format!(
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let answer = gateway.raw(format!("{head}{body}").as_bytes());
    assert!(answer.starts_with("HTTP/1.1 429"), "{answer}");
    assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{answer}");
    assert_eq!(upstream.count(), 1);
}
