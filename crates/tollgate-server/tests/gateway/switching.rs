//! Which requests become tunnels, and how the two directions of a tunnel end.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};
use std::sync::mpsc;

use crate::upstream::Upstream;
use crate::world::{MAX_WAIT, OPEN, World, pause, read_head, reply};

const ASKS: &str =
    "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";

#[test]
fn a_request_that_leaves_two_opinions_about_a_tunnel_is_refused() {
    let upstream = Upstream::start();
    let world = World::before(OPEN, upstream.port);
    let asks = ASKS.trim_end();
    for sent in [
        format!("{asks}\r\nUpgrade: x\r\n\r\n"),
        format!("{asks}\r\nContent-Length: 1\r\n\r\nx"),
        format!("{asks}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    ] {
        assert_eq!(world.ask(sent.as_bytes()).status, 400, "{sent}");
    }
    assert_eq!(upstream.count(), 0);
}

#[test]
fn a_body_beside_an_offer_of_another_protocol_is_passed_on() {
    let upstream = Upstream::start();
    let world = World::before(OPEN, upstream.port);
    let sent = "POST / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\nhi";
    let answer = world.ask(sent.as_bytes());
    assert_eq!((answer.status, answer.body), (200, "<hi>".into()));
    assert_eq!(upstream.last().header("upgrade"), None);
}

#[test]
fn the_answer_to_another_request_decides_nothing_about_a_tunnel() {
    let upstream = Upstream::start();
    let world = World::before(OPEN, upstream.port);
    let mut stream = world.connect();
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
fn a_server_that_has_said_all_still_hears_the_client() {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let world = World::before(OPEN, socket.local_addr().unwrap().port());
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let (mut stream, _) = socket.accept().unwrap();
        read_head(&mut stream);
        stream
            .write_all(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nbye")
            .unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        // Later than the client sends: some of it must wait on the way.
        pause(500);
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).unwrap();
        tell.send(heard.len()).unwrap();
    });
    let mut stream = world.connect();
    stream.write_all(ASKS.as_bytes()).unwrap();
    read_head(&mut stream);
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    assert_eq!(said, "bye");
    let much = vec![b'x'; 16 << 20];
    stream.write_all(&much).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(told.recv_timeout(MAX_WAIT).unwrap(), much.len());
}
