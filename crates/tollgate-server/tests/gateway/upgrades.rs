//! Requests that become tunnels, and the end of each direction of a tunnel.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};
use std::sync::mpsc;

use crate::support::{MAX_WAIT, OPEN, TestGateway, pause, read_head, reply};
use crate::upstream::Upstream;

const ASKS: &str =
    "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";

#[test]
fn an_ambiguous_upgrade_is_refused() {
    let upstream = Upstream::start();
    let gateway = TestGateway::before(OPEN, upstream.port);
    let asks = ASKS.trim_end();
    for sent in [
        format!("{asks}\r\nUpgrade: x\r\n\r\n"),
        format!("{asks}\r\nContent-Length: 1\r\n\r\nx"),
        format!("{asks}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    ] {
        assert_eq!(gateway.ask(sent.as_bytes()).status, 400, "{sent}");
    }
    assert_eq!(upstream.count(), 0);
}

#[test]
fn a_body_with_an_upgrade_offer_is_passed_on() {
    let upstream = Upstream::start();
    let gateway = TestGateway::before(OPEN, upstream.port);
    let sent = "POST / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\nhi";
    let answer = gateway.ask(sent.as_bytes());
    assert_eq!((answer.status, answer.body), (200, "<hi>".into()));
    assert_eq!(upstream.last().header("upgrade"), None);
}

#[test]
fn the_answer_to_an_earlier_request_opens_no_tunnel() {
    let upstream = Upstream::start();
    let gateway = TestGateway::before(OPEN, upstream.port);
    let mut stream = gateway.connect();
    let offers = "GET /slow HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n";
    let behind = "no\nrequest";
    stream
        .write_all(format!("{offers}{ASKS}{behind}").as_bytes())
        .unwrap();
    assert_eq!(reply(&mut stream).body, "slow");
    let head = read_head(&mut stream);
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    let mut back = vec![0; behind.len()];
    stream.read_exact(&mut back).unwrap();
    assert_eq!(back, behind.as_bytes());
}

#[test]
fn a_half_closed_tunnel_still_carries_the_client() {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let gateway = TestGateway::before(OPEN, socket.local_addr().unwrap().port());
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let (mut stream, _) = socket.accept().unwrap();
        read_head(&mut stream);
        stream
            .write_all(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nbye")
            .unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        // Later than the client sends: some of it must wait on the way.
        pause(500);
        let mut received = Vec::new();
        stream.read_to_end(&mut received).unwrap();
        sender.send(received.len()).unwrap();
    });
    let mut stream = gateway.connect();
    stream.write_all(ASKS.as_bytes()).unwrap();
    read_head(&mut stream);
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    assert_eq!(said, "bye");
    let much = vec![b'x'; 16 << 20];
    stream.write_all(&much).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(receiver.recv_timeout(MAX_WAIT).unwrap(), much.len());
}
