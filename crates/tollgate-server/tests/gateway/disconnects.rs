//! Clients that disconnect while a request waits are noticed, whatever else they have sent.

use std::io::{Read, Write};
use std::net::Shutdown;
use tollgate_testkit::wait;

use crate::support::{OPEN, TestGateway, pause};
use crate::upstream::Upstream;

const ONE_AT_ONCE: &str = "default: pass\nlimits:\n  - { name: all, allow: 1000000/s, burst: 1000000 }\nqueues:\n  - { name: q, at_once: 1, max_wait: 30s }\n";
const HANGS: &[u8] = b"GET /hang HTTP/1.1\r\nHost: a\r\n\r\n";

/// A client sends this, has to wait in a queue, and goes. It must leave the queue, and no server may see it.
fn leaves_the_queue(request: &[u8]) {
    let upstream = Upstream::start();
    let gateway = TestGateway::before(ONE_AT_ONCE, upstream.port);
    let waiting = || gateway.metric("tollgate_queue_waiting_requests{queue=\"q\"}");
    let mut first = gateway.connect();
    first.write_all(HANGS).unwrap();
    wait("the first is passed on", || upstream.count() == 1);
    let mut second = gateway.connect();
    second.write_all(request).unwrap();
    wait("the second waits", || waiting() == 1);
    drop(second);
    wait("the second has left", || waiting() == 0);
    drop(first);
    wait("the first was given up", || upstream.open() == 0);
    pause(300);
    assert_eq!(upstream.count(), 1, "a dead request was passed on");
}

#[test]
fn a_request_whose_client_disconnects_leaves_the_queue() {
    leaves_the_queue(b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n");
}

#[test]
fn a_request_with_a_body_whose_client_disconnects_leaves_the_queue() {
    leaves_the_queue(b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
}

#[test]
fn a_request_with_half_a_body_whose_client_disconnects_leaves_the_queue() {
    leaves_the_queue(b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhello");
}

#[test]
fn a_pipelined_request_whose_client_disconnects_leaves_the_queue() {
    leaves_the_queue(b"GET /x HTTP/1.1\r\nHost: a\r\n\r\nGET /y HTTP/1.1\r\nHost: a\r\n\r\n");
}

#[test]
fn a_request_with_a_large_body_whose_client_disconnects_leaves_the_queue() {
    let head = "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 50000\r\n\r\n";
    leaves_the_queue(format!("{head}{}", "a".repeat(50_000)).as_bytes());
}

#[test]
fn a_request_that_was_passed_on_is_given_up_even_with_bytes_behind_it() {
    let upstream = Upstream::start();
    let gateway = TestGateway::before(OPEN, upstream.port);
    let mut stream = gateway.connect();
    stream
        .write_all(b"GET /hang HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    wait("it is passed on", || upstream.count() == 1);
    drop(stream);
    wait("it is given up", || upstream.open() == 0);
    assert_eq!(upstream.count(), 1);
}

#[test]
fn an_error_is_sent_to_a_client_that_has_ended_its_side() {
    let upstream = Upstream::start();
    let gateway = TestGateway::before(OPEN, upstream.port);
    let mut stream = gateway.connect();
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
}
