//! How healthy connections end: by a shutdown or an idle timeout.

use std::io::{Read, Write};
use std::time::Duration;

use crate::support::{OPEN, TestGateway, pause, read_head, reply, timed};
use crate::upstream::Upstream;

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
    const GOAWAY: u8 = 7;
    let upstream = Upstream::start();
    let policy = format!("{OPEN}gateway:\n  timeouts: {{ idle: 1s }}\n");
    let gateway = TestGateway::before(&policy, upstream.port);
    let mut stream = gateway.connect();
    stream
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        .unwrap();
    stream.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).unwrap();
    // GET / of the host `a`, as stream 1.
    let head = [0x82, 0x86, 0x84, 0x41, 1, b'a'];
    stream.write_all(&[0, 0, 6, 1, 5, 0, 0, 0, 1]).unwrap();
    stream.write_all(&head).unwrap();
    let mut kinds = Vec::new();
    let mut frame = [0; 9];
    while stream.read_exact(&mut frame).is_ok() {
        kinds.push(frame[3]);
        let length = u32::from_be_bytes([0, frame[0], frame[1], frame[2]]);
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        stream.read_exact(&mut payload).unwrap();
    }
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
