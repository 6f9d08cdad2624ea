//! Bounds on time and size that a client can use.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use tollgate_testkit::wait;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper_util::rt::{TokioExecutor, TokioIo};

use crate::support::{OPEN, TestGateway, pause, reply, timed};
use crate::upstream::Upstream;
use tollgate_testkit::http2::hello;

/// One second for everything that has a bound in time.
fn tight() -> String {
    format!(
        "{OPEN}gateway:\n  timeouts: {{ head: 1s, body: 1s, idle: 1s, write: 1s }}\n  max_body: 10KB\n"
    )
}

/// A bound of a second holds to within a second; the rest is for a busy machine.
const IN_TIME: Duration = Duration::from_millis(3500);

/// Reads to the end; what came, if it came in time.
fn ended(stream: &mut TcpStream) -> String {
    let mut all = Vec::new();
    let (_, took) = timed(|| stream.read_to_end(&mut all));
    assert!(took < IN_TIME, "{took:?}");
    String::from_utf8_lossy(&all).into_owned()
}

#[test]
fn an_inactive_connection_is_closed() {
    let upstream = Upstream::start();
    let gateway = TestGateway::before(&tight(), upstream.port);
    std::thread::scope(|scope| {
        // Nothing at all.
        scope.spawn(|| assert_eq!(ended(&mut gateway.connect()), ""));
        // Nothing after an answer.
        scope.spawn(|| {
            let mut stream = gateway.send("/", "");
            assert_eq!(reply(&mut stream).status, 200);
            assert_eq!(ended(&mut stream), "");
        });
        // HTTP/2 that begins and asks for nothing.
        scope.spawn(|| {
            let mut stream = gateway.connect();
            stream.write_all(&hello(&[])).unwrap();
            ended(&mut stream);
        });
        // A head of which only a part comes, of either HTTP.
        for begin in ["GET / HTTP/1.1\r\nHost: a\r\nx: ", "PRI * HTT"] {
            let gateway = &gateway;
            scope.spawn(move || {
                let mut stream = gateway.connect();
                stream.write_all(begin.as_bytes()).unwrap();
                assert_eq!(ended(&mut stream), "");
            });
        }
        // A head that dribbles: that gains no time.
        scope.spawn(|| {
            let mut stream = gateway.send("/", "");
            assert_eq!(reply(&mut stream).status, 200);
            stream
                .write_all(b"GET / HTTP/1.1\r\nHost: a\r\nx: ")
                .unwrap();
            let (closed, took) = timed(|| {
                (0..100).any(|_| {
                    pause(50);
                    stream.write_all(b"x").is_err()
                })
            });
            assert!(closed && took < IN_TIME, "{took:?}");
        });
    });
    assert_eq!(upstream.count(), 2);
}

#[test]
fn a_body_that_never_arrives_is_408() {
    let upstream = Upstream::start();
    let gateway = TestGateway::before(&tight(), upstream.port);
    std::thread::scope(|scope| {
        for framed in [
            "Content-Length: 100\r\n\r\n",
            "Transfer-Encoding: chunked\r\n\r\n5\r\n",
        ] {
            let gateway = &gateway;
            scope.spawn(move || {
                let mut stream = gateway.connect();
                let head = format!("POST /late HTTP/1.1\r\nHost: a\r\n{framed}abc");
                stream.write_all(head.as_bytes()).unwrap();
                let answer = ended(&mut stream);
                assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
                assert!(answer.contains("application/problem+json"), "{answer}");
            });
        }
    });
    assert_eq!(upstream.count(), 0, "no server had a whole one");
    wait("connections to it are closed", || upstream.open() == 0);
}

#[test]
fn a_body_above_the_bound_is_413_and_no_server_receives_all_of_it() {
    let upstream = Upstream::start();
    let gateway = TestGateway::before(&tight(), upstream.port);
    let post = |framed: &str| {
        let mut stream = gateway.connect();
        // It may be refused before all is sent.
        let _ = stream.write_all(format!("POST / HTTP/1.1\r\nHost: a\r\n{framed}").as_bytes());
        ended(&mut stream)
    };
    let answer = post("Content-Length: 10001\r\n\r\nabc");
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    assert_eq!(gateway.admitted(), 0, "it is seen from the head");
    let chunk = format!("3e8\r\n{}\r\n", "x".repeat(1000));
    let chunks = |count: usize| {
        format!(
            "Transfer-Encoding: chunked\r\n\r\n{}0\r\n\r\n",
            chunk.repeat(count)
        )
    };
    for count in [11, 1000] {
        let answer = post(&chunks(count));
        assert!(answer.starts_with("HTTP/1.1 413"), "{count}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{answer}");
    }
    assert_eq!(upstream.count(), 0);
    let fits = format!("POST / HTTP/1.1\r\nHost: a\r\n{}", chunks(10));
    assert_eq!(gateway.ask(fits.as_bytes()).status, 200);
    assert_eq!(upstream.last().body.len(), 10_000);
}

#[test]
fn a_response_that_the_client_does_not_read_is_aborted_at_the_server() {
    let upstream = Upstream::start();
    let gateway = TestGateway::before(&tight(), upstream.port);
    let _takes_nothing = gateway.send("/large", "");
    wait("it is asked", || upstream.count() == 1);
    let ((), took) = timed(|| wait("it is given up", || upstream.open() == 0));
    assert!(took < IN_TIME, "{took:?}");
}

#[test]
fn unread_responses_pause_further_requests() {
    let upstream = Upstream::start();
    let policy = tight().replace("gateway:\n", "gateway:\n  accept: { per_address: 1 }\n");
    let gateway = TestGateway::before(&policy, upstream.port);
    let mut stream = gateway.connect();
    // Each answer fits where answers wait to be written, so the next request begins while nothing is taken.
    let asks = "GET /kb30 HTTP/1.1\r\nHost: a\r\n\r\n".repeat(1000);
    stream.write_all(asks.as_bytes()).unwrap();
    wait("it is asked", || upstream.count() > 10);
    let seen = std::cell::Cell::new(0);
    wait("no more is asked", || {
        let before = seen.replace(upstream.count());
        pause(300);
        before == upstream.count()
    });
    assert!(upstream.count() < 1000, "everything was taken");
    // The only connection that the address may have is free again.
    let ((), took) = timed(|| {
        wait("it is closed", || {
            let mut other = gateway.connect();
            let _ = other.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            matches!(other.read(&mut [0]), Ok(1))
        });
    });
    assert!(took < IN_TIME, "{took:?}");
}

#[test]
fn a_stream_that_the_client_does_not_read_is_reset_alone() {
    let upstream = Upstream::start();
    let gateway = TestGateway::before(&tight(), upstream.port);
    let events = tokio::runtime::Runtime::new().unwrap();
    events.block_on(async {
        let stream = tokio::net::TcpStream::connect(gateway.address());
        let io = TokioIo::new(stream.await.unwrap());
        let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        builder.initial_stream_window_size(0);
        let (mut sender, connection) = builder.handshake(io).await.unwrap();
        tokio::spawn(connection);
        let request = |path: &str| {
            let request = Request::get(format!("http://app.example{path}"));
            request.body(Empty::<Bytes>::new()).unwrap()
        };
        let large = sender.send_request(request("/large")).await.unwrap();
        assert_eq!(large.status(), 200);
        let begun = tokio::time::Instant::now();
        // Others come and go meanwhile: the connection is as alive as can be.
        while upstream.open() > 0 && begun.elapsed() < IN_TIME {
            let answer = sender.send_request(request("/empty")).await.unwrap();
            assert_eq!(answer.status(), 204);
            tokio::time::sleep(Duration::from_millis(100)).await;
            if gateway.metric(&in_flight(&upstream)) == 0 {
                break;
            }
        }
        assert!(begun.elapsed() < IN_TIME, "{:?}", begun.elapsed());
        assert!(begun.elapsed() > Duration::from_millis(800));
        assert!(large.into_body().collect().await.is_err(), "it was reset");
        let answer = sender.send_request(request("/empty")).await.unwrap();
        assert_eq!(answer.status(), 204);
    });
}

fn in_flight(upstream: &Upstream) -> String {
    format!(
        "tollgate_upstream_server_in_flight_requests{{upstream=\"app\",server=\"127.0.0.1:{}\"}}",
        upstream.port
    )
}

#[test]
fn a_slow_http_2_client_gets_its_whole_response() {
    let upstream = Upstream::start();
    let policy = tight().replace("10KB", "1MB");
    let gateway = TestGateway::before(&policy, upstream.port);
    let body = "z".repeat(250_000);
    let events = tokio::runtime::Runtime::new().unwrap();
    events.block_on(async {
        let stream = tokio::net::TcpStream::connect(gateway.address());
        let io = TokioIo::new(stream.await.unwrap());
        let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        builder.initial_stream_window_size(16_384);
        let (mut sender, connection) = builder.handshake(io).await.unwrap();
        tokio::spawn(connection);
        let request = Request::post("http://app.example/");
        let request = request.body(http_body_util::Full::new(Bytes::from(body.clone())));
        let answer = sender.send_request(request.unwrap()).await.unwrap();
        let mut answer = answer.into_body();
        let (mut got, begun) = (0, tokio::time::Instant::now());
        while let Some(part) = answer.frame().await {
            let part = part.unwrap_or_else(|e| panic!("{e} after {got}, {:?}", begun.elapsed()));
            got += part.into_data().map_or(0, |data| data.len());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert!(begun.elapsed() > Duration::from_secs(1), "it was not slow");
        assert_eq!(got, body.len() + 2);
    });
}
