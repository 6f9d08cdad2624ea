//! Requests that arrive in one version of HTTP and are passed on in another.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tollgate_config::Protocol;

use crate::support::{OPEN, TestGateway};
use crate::upstream::Upstream;

/// A server of HTTP/2 that keeps the authority that each request names.
pub(crate) struct Http2Upstream {
    pub(crate) port: u16,
    seen: Arc<Mutex<Vec<String>>>,
    _events: Runtime,
}

impl Http2Upstream {
    pub(crate) fn start() -> Http2Upstream {
        Http2Upstream::with(false)
    }

    /// One that ends each connection with its first answer.
    pub(crate) fn that_ends_connections() -> Http2Upstream {
        Http2Upstream::with(true)
    }

    fn with(ends: bool) -> Http2Upstream {
        let events = Runtime::new().unwrap();
        let socket = events.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let port = socket.local_addr().unwrap().port();
        let seen = Arc::<Mutex<Vec<String>>>::default();
        let kept = Arc::clone(&seen);
        events.spawn(async move {
            while let Ok((stream, _)) = socket.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&kept), ends));
            }
        });
        Http2Upstream {
            port,
            seen,
            _events: events,
        }
    }

    /// What each request named.
    pub(crate) fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
}

async fn serve(stream: TcpStream, seen: Arc<Mutex<Vec<String>>>, ends: bool) {
    let asked = Notify::new();
    let service = service_fn(|request: Request<Incoming>| {
        let authority = request.uri().authority().map(ToString::to_string);
        seen.lock().unwrap().push(authority.unwrap_or_default());
        asked.notify_one();
        async { Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"two")))) }
    });
    let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        _ = connection.as_mut() => return,
        () = asked.notified() => {}
    }
    if ends {
        connection.as_mut().graceful_shutdown();
    }
    let _ = connection.await;
}

#[test]
fn cookie_fields_are_joined_for_http_1() {
    let upstream = Upstream::start();
    let gateway = TestGateway::before(OPEN, upstream.port);
    let events = Runtime::new().unwrap();
    events.block_on(async {
        let stream = TcpStream::connect(gateway.address()).await.unwrap();
        let shaken =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
        let (mut sender, connection) = shaken.await.unwrap();
        tokio::spawn(connection);
        let request = Request::get("http://app.example/x")
            .header("cookie", "a=1")
            .header("cookie", "b=2")
            .header("cookie", "c=3")
            .body(Full::<Bytes>::default())
            .unwrap();
        assert_eq!(sender.send_request(request).await.unwrap().status(), 200);
    });
    let cookies = upstream.last().header("cookie");
    assert_eq!(cookies.as_deref(), Some("a=1; b=2; c=3"));
}

#[test]
fn a_request_without_a_host_gets_that_of_the_server_in_http_2() {
    let upstream = Http2Upstream::start();
    let change = |spec: &mut tollgate_config::UpstreamSpec| spec.protocol = Protocol::Http2;
    let gateway = TestGateway::with(OPEN, change, &[upstream.port]);
    let answer = gateway.ask(b"GET /x HTTP/1.0\r\n\r\n");
    assert_eq!((answer.status, answer.body), (200, "two".to_owned()));
    assert_eq!(upstream.seen(), [format!("127.0.0.1:{}", upstream.port)]);
    assert_eq!(gateway.get("/x").status, 200);
    assert_eq!(upstream.seen()[1], "app.example");
}

#[test]
fn a_request_without_a_host_gets_that_of_the_server_in_http_1() {
    let upstream = Upstream::start();
    let gateway = TestGateway::before(OPEN, upstream.port);
    assert_eq!(gateway.ask(b"GET /x HTTP/1.0\r\n\r\n").status, 200);
    let own = format!("127.0.0.1:{}", upstream.port);
    assert_eq!(upstream.last().header("host"), Some(own));
}

#[test]
fn a_length_that_is_repeated_or_empty_is_refused_in_http_2() {
    let upstream = Upstream::start();
    let gateway = TestGateway::before(OPEN, upstream.port);
    let events = Runtime::new().unwrap();
    let statuses = events.block_on(async {
        let mut statuses = Vec::new();
        for lengths in [&["5", "5"][..], &[""], &["0", ""]] {
            let stream = TcpStream::connect(gateway.address()).await.unwrap();
            let shaken =
                hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
            let (mut sender, connection) = shaken.await.unwrap();
            tokio::spawn(connection);
            let mut request = Request::put("http://app.example/x");
            for length in lengths {
                request = request.header("content-length", *length);
            }
            let body = match lengths[0] {
                "5" => Bytes::from_static(b"hello"),
                _ => Bytes::new(),
            };
            let sent = sender.send_request(request.body(Full::new(body)).unwrap());
            // The library may reset the stream before the gateway sees it.
            let status = sent.await.map(|response| response.status().as_u16());
            statuses.push(status.unwrap_or(400));
        }
        statuses
    });
    assert_eq!(statuses, [400, 400, 400]);
    assert_eq!(upstream.count(), 0, "{:?}", upstream.seen());
    assert_eq!(gateway.admitted(), 0);
}
