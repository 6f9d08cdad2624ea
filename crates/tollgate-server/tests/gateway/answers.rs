//! Responses through both readers, that of requests without a body and that of hyper, must be the same for a client.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;

use crate::support::{OPEN, TestGateway, read_head, reply};

/// What a server says to the path that is its number, and whether it closes the connection then.
const SAID: [(&str, bool); 19] = [
    ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", false),
    (
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;a=b\r\nllo\r\n0\r\n\r\n",
        false,
    ),
    (
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nx-t: 1\r\n\r\n",
        false,
    ),
    ("HTTP/1.1 200 OK\r\n\r\nhello", true),
    ("HTTP/1.0 200 OK\r\n\r\nhello", true),
    (
        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello",
        true,
    ),
    ("HTTP/1.1 204 No Content\r\n\r\n", false),
    ("HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n", false),
    (
        "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        false,
    ),
    (
        "HTTP/1.1 404 Not Here\r\nContent-Length: 0\r\nX-A: 1\r\nX-A: 2\r\n\r\n",
        false,
    ),
    (
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        true,
    ),
    (
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: identity\r\n\r\nhello",
        true,
    ),
    (
        "\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        false,
    ),
    // From here on there is no answer, or only the beginning of one.
    (
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        true,
    ),
    ("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\nhello", true),
    ("nonsense\r\n\r\n", true),
    ("HTTP/1.1 200 OK\r\nContent-Le", true),
    ("", true),
    (
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        true,
    ),
];
const ANSWERS: usize = 13;

/// A server that says what is in a table.
struct Scripted {
    port: u16,
    connections: Arc<AtomicUsize>,
}

impl Scripted {
    fn start(said: impl Fn(usize) -> (Vec<u8>, bool) + Send + Sync + 'static) -> Scripted {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let connections = Arc::new(AtomicUsize::new(0));
        let (count, said) = (Arc::clone(&connections), Arc::new(said));
        thread::spawn(move || {
            for stream in listener.incoming() {
                count.fetch_add(1, SeqCst);
                let said = Arc::clone(&said);
                thread::spawn(move || speak(stream.unwrap(), &*said));
            }
        });
        Scripted { port, connections }
    }
}

fn speak(mut stream: TcpStream, said: &dyn Fn(usize) -> (Vec<u8>, bool)) {
    let mut byte = [0];
    while let Ok(1) = stream.peek(&mut byte) {
        let head = read_head(&mut stream);
        let number = head.split(['/', ' ']).nth(2).unwrap().parse().unwrap();
        if head.to_ascii_lowercase().contains("content-length: 3") {
            stream.read_exact(&mut [0; 3]).unwrap();
        }
        let (bytes, closes) = said(number);
        if stream.write_all(&bytes).is_err() || closes {
            return;
        }
    }
}

/// A request with and without a body; the first is for hyper, the second is not.
fn asks(number: usize, more: &str) -> [String; 2] {
    let head =
        |method: &str, more: &str| format!("{method} /{number} HTTP/1.1\r\nHost: a\r\n{more}\r\n");
    let with_body = head("POST", &format!("Content-Length: 3\r\n{more}"));
    [format!("{with_body}abc"), head("GET", more)]
}

#[test]
fn both_readers_pass_on_the_same_response() {
    let scripted = Scripted::start(|number| {
        let (said, closes) = SAID[number];
        (said.into(), closes)
    });
    let gateway = TestGateway::before(OPEN, scripted.port);
    for (number, (said, _)) in SAID.into_iter().enumerate() {
        // On a connection that stays, and on one that does not.
        for more in ["", "Connection: close\r\n"] {
            let replies = asks(number, more).map(|ask| {
                let reply = gateway.ask(ask.as_bytes());
                let names = ["content-length", "transfer-encoding", "etag", "x-a"];
                let fields = names.map(|name| reply.header(name).map(str::to_owned));
                let first = reply.head.lines().next().unwrap().to_owned();
                (first, reply.status, reply.body, fields)
            });
            let [hyper, ours] = &replies;
            assert_eq!(hyper.1, ours.1, "{said:?}: {replies:?}");
            if number < ANSWERS {
                assert_eq!(hyper, ours, "{said:?}");
                assert!(said.contains(&ours.1.to_string()), "{said:?}: {ours:?}");
            } else {
                assert_eq!(ours.1, 502, "{said:?}: {ours:?}");
            }
        }
    }
}

#[test]
fn bytes_after_a_response_answer_no_request() {
    let good = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood";
    let evil = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil";
    for chunked in [false, true] {
        let first = match chunked {
            false => good,
            true => "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ngood\r\n0\r\n\r\n",
        };
        let scripted = Scripted::start(move |number| match number {
            0 => (format!("{first}{evil}").into_bytes(), false),
            _ => (good.into(), false),
        });
        let gateway = TestGateway::before(OPEN, scripted.port);
        let mut stream = gateway.connect();
        for number in [0, 1, 0, 1] {
            stream.write_all(asks(number, "")[1].as_bytes()).unwrap();
            assert_eq!(reply(&mut stream).body, "good", "{chunked}");
        }
        assert!(
            scripted.connections.load(SeqCst) >= 3,
            "none is used again behind it"
        );
    }
}

#[test]
fn answers_of_any_size_arrive_whole_and_the_connection_is_used_again() {
    const SIZES: [usize; 9] = [1, 100, 4_000, 65_535, 65_536, 65_537, 200_000, 1_000_000, 3];
    let byte = |at: usize| b'a' + (at % 23) as u8;
    let body = move |size: usize| (0..size).map(byte).collect::<Vec<u8>>();
    let scripted = Scripted::start(move |number| {
        let (size, chunked) = (SIZES[number / 2], number % 2 == 1);
        let mut said = b"HTTP/1.1 200 OK\r\n".to_vec();
        if chunked {
            said.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
            for part in body(size).chunks(10_007) {
                said.extend_from_slice(format!("{:X}\r\n", part.len()).as_bytes());
                said.extend_from_slice(part);
                said.extend_from_slice(b"\r\n");
            }
            said.extend_from_slice(b"0\r\n\r\n");
        } else {
            said.extend_from_slice(format!("Content-Length: {size}\r\n\r\n").as_bytes());
            said.extend_from_slice(&body(size));
        }
        (said, false)
    });
    let gateway = TestGateway::before(OPEN, scripted.port);
    let mut stream = gateway.connect();
    // All at once: they are answered one by one, in order.
    for number in 0..2 * SIZES.len() {
        stream.write_all(asks(number, "")[1].as_bytes()).unwrap();
    }
    for number in 0..2 * SIZES.len() {
        let got = reply(&mut stream).body;
        let size = SIZES[number / 2];
        assert!(
            got.as_bytes() == body(size),
            "{number}: {} of {size}",
            got.len()
        );
    }
    assert_eq!(scripted.connections.load(SeqCst), 1);
}
