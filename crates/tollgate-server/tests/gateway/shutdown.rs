//! The end of healthy connections: by a shutdown or an idle timeout.

use std::io::{Read, Write};
use std::time::Duration;

use crate::support::{OPEN, TestGateway, pause, read_head, reply, timed};
use crate::upstream::Upstream;
use tollgate_testkit::http2::{
    END_HEADERS, END_STREAM, Frame, GOAWAY, HEADERS, frame, hello, request_block,
};

#[test]
fn a_tunnel_does_not_delay_a_shutdown() {
    let upstream = Upstream::start();
    let gateway = TestGateway::before(OPEN, upstream.port);
    let mut stream = gateway.connect();
    stream
        .write_all(
            b"GET /ws HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        )
        .unwrap();
    assert!(read_head(&mut stream).starts_with("HTTP/1.1 101 "));
    let ((), took) = timed(|| gateway.end());
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert!(matches!(stream.read(&mut [0]), Ok(0) | Err(_)));
}

#[test]
fn connections_made_before_a_shutdown_are_answered() {
    let upstream = Upstream::start();
    let gateway = TestGateway::before(OPEN, upstream.port);
    // Enough that the last are not accepted yet when the shutdown begins.
    let mut streams: Vec<_> = (0..100).map(|_| gateway.connect()).collect();
    for stream in &mut streams {
        let asks = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        stream.write_all(asks).unwrap();
    }
    gateway.end();
    for (number, stream) in streams.iter_mut().enumerate() {
        assert_eq!(reply(stream).status, 200, "{number}");
    }
}

#[test]
fn an_idle_http_2_connection_ends_with_a_goaway() {
    let upstream = Upstream::start();
    let policy = format!("{OPEN}gateway:\n  timeouts: {{ idle: 1s }}\n");
    let gateway = TestGateway::before(&policy, upstream.port);
    let mut stream = gateway.connect();
    let request = frame(
        HEADERS,
        END_HEADERS | END_STREAM,
        1,
        &request_block("GET", "/", &[]),
    );
    stream.write_all(&[hello(&[]), request].concat()).unwrap();
    let mut received = Vec::new();
    // The gateway ends the connection. A reset is an end, too.
    let _ = stream.read_to_end(&mut received);
    let mut received = received.as_slice();
    let frames = std::iter::from_fn(|| Frame::read(&mut received));
    let kinds: Vec<u8> = frames.map(|frame| frame.kind).collect();
    assert!(kinds.contains(&GOAWAY), "{kinds:?}");
    assert_eq!(upstream.count(), 1);
}

#[test]
fn an_unfinished_head_does_not_delay_a_shutdown() {
    let upstream = Upstream::start();
    let gateway = TestGateway::before(OPEN, upstream.port);
    let mut first = gateway.connect();
    first.write_all(b"GET / H").unwrap();
    let mut second = gateway.send("/", "");
    assert_eq!(reply(&mut second).status, 200);
    second.write_all(b"GET / HTTP/1.1\r\nHost").unwrap();
    pause(100);
    let ((), took) = timed(|| gateway.end());
    assert!(took.as_secs() < 6, "{took:?}");
}
