//! Parts of requests and responses that pass through unchanged.

use std::io::Write;
use tollgate_testkit::wait;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};

use crate::support::{MAX_WAIT, OPEN, TestGateway, reply};
use crate::upstream::Upstream;

#[test]
fn the_target_reaches_the_server_as_it_was_sent() {
    let upstream = Upstream::start();
    let gateway = TestGateway::before(OPEN, upstream.port);
    for target in [
        "/", "//a", "/a/../b", "/a?b=c&d", "/%61", "/a;b", "/?", "/a?b?c", "/a/", "/a%20b",
    ] {
        assert_eq!(gateway.get(target).status, 200, "{target}");
        assert_eq!(upstream.last().line, format!("GET {target} HTTP/1.1"));
    }
    // The policy rejects paths that servers would read in different ways.
    assert_eq!(gateway.get("/a%2Fb").status, 400);
    assert_ne!(upstream.last().line, "GET /a%2Fb HTTP/1.1");
    // A target that names its host loses it: servers that are not proxies expect a path.
    let whole = b"GET http://app.example/x HTTP/1.1\r\nHost: app.example\r\n\r\n";
    assert_eq!(gateway.ask(whole).status, 200);
    assert_eq!(upstream.last().line, "GET /x HTTP/1.1");
    assert_eq!(upstream.last().header("host").unwrap(), "app.example");
    for (method, more) in [("GET", ""), ("POST", "Content-Length: 1\r\n")] {
        let body = if more.is_empty() { "" } else { "x" };
        let pathless = format!(
            "{method} http://app.example?x=1 HTTP/1.1\r\nHost: app.example\r\n{more}\r\n{body}"
        );
        assert_eq!(gateway.ask(pathless.as_bytes()).status, 200);
        assert_eq!(upstream.last().line, format!("{method} /?x=1 HTTP/1.1"));
    }
}

#[test]
fn responses_keep_their_framing() {
    let upstream = Upstream::start();
    let gateway = TestGateway::before(OPEN, upstream.port);
    let chunks = gateway.get("/chunks");
    assert_eq!((chunks.status, chunks.body.as_str()), (200, "abcde"));
    assert_eq!(chunks.header("x-end"), Some("1"));
    for hop in ["keep-alive", "x-hop", "connection"] {
        assert_eq!(chunks.header(hop), None, "{}", chunks.head);
    }
    assert_eq!(gateway.get("/empty").status, 204);
    let mut stream = gateway.connect();
    stream
        .write_all(b"HEAD /h HTTP/1.1\r\nHost: a\r\n\r\nGET /g HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    let head = crate::support::read_head(&mut stream);
    assert!(head.contains("content-length: 7"), "{head}");
    assert_eq!(reply(&mut stream).body, "<>");
}

#[test]
fn http_1_0_clients_are_served() {
    let upstream = Upstream::start();
    let gateway = TestGateway::before(OPEN, upstream.port);
    let answer = gateway.ask(b"GET /old HTTP/1.0\r\n\r\n");
    assert_eq!((answer.status, answer.body), (200, "<>".into()));
    // A server may need chunks to answer, and such a client knows none.
    let answer = gateway.ask(b"GET /chunks HTTP/1.0\r\n\r\n");
    assert_eq!(answer.header("transfer-encoding"), None, "{}", answer.head);
}

#[test]
fn http_2_works_with_prior_knowledge_and_passed_on_as_http_1() {
    let upstream = Upstream::start();
    let gateway = TestGateway::before(OPEN, upstream.port);
    let events = tokio::runtime::Runtime::new().unwrap();
    events.block_on(async {
        let stream = tokio::net::TcpStream::connect(gateway.address())
            .await
            .unwrap();
        let io = TokioIo::new(stream);
        let shaken = hyper::client::conn::http2::handshake(TokioExecutor::new(), io);
        let (sender, connection) = shaken.await.unwrap();
        tokio::spawn(connection);
        let mut asked = Vec::new();
        for n in 0..50 {
            let mut sender = sender.clone();
            asked.push(tokio::spawn(async move {
                let request = hyper::Request::post(format!("http://app.example/n/{n}"))
                    .body(Full::new(Bytes::from(format!("body {n}"))))
                    .unwrap();
                let answer = tokio::time::timeout(MAX_WAIT, sender.send_request(request));
                let answer = answer.await.unwrap().unwrap();
                assert_eq!(answer.status(), 200);
                let body = answer.into_body().collect().await.unwrap().to_bytes();
                assert_eq!(body, format!("<body {n}>"));
            }));
        }
        for asked in asked {
            asked.await.unwrap();
        }
        // What HTTP/2 cannot say twice must not be said in two ways.
        let mut sender = sender.clone();
        let request = hyper::Request::get("http://app.example/")
            .header("host", "other")
            .body(Full::default())
            .unwrap();
        assert_eq!(sender.send_request(request).await.unwrap().status(), 400);
    });
    assert_eq!(upstream.count(), 50);
    assert_eq!(gateway.admitted(), 50);
    assert_eq!(upstream.last().header("host").unwrap(), "app.example");
}

#[test]
fn an_answer_that_dribbles_is_passed_on_as_it_comes() {
    let upstream = Upstream::start();
    let gateway = TestGateway::before(OPEN, upstream.port);
    let mut stream = gateway.connect();
    stream
        .write_all(b"GET /drip HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    let (_, took) = crate::support::timed(|| {
        crate::support::read_head(&mut stream);
        let mut first = [0; 6];
        std::io::Read::read_exact(&mut stream, &mut first).unwrap();
        assert_eq!(&first, b"1\r\nx\r\n");
    });
    assert!(
        took.as_millis() < 1000,
        "{took:?}: the whole takes two seconds"
    );
}

#[test]
fn a_shutdown_lets_a_request_complete() {
    let upstream = Upstream::start();
    let gateway = TestGateway::before(OPEN, upstream.port);
    let mut stream = gateway.connect();
    stream
        .write_all(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    wait("the request is there", || upstream.count() == 1);
    let _idle = gateway.connect();
    let ((), took) = crate::support::timed(|| gateway.end());
    assert_eq!(reply(&mut stream).body, "slow");
    assert!(took.as_secs() < 5, "{took:?}");
}
