//! Tests of the lifecycle of connections, over real sockets.

use std::io::{Read, Write};
use std::net::TcpStream as Client;

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::{Request, Response};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::ListenLimits;
use super::http1::body;
use super::http1::fast_path::{self, Respond};
use super::http1::response::ResponseBuffer;
use super::http1::server::{Handler, serve};

/// Answers with what the path asks for.
#[derive(Clone)]
struct Echo<const FAST: bool> {
    limits: ListenLimits,
}

impl<const FAST: bool> Handler for Echo<FAST> {
    const HAS_FAST_PATH: bool = FAST;

    fn respond(
        &self,
        request: &fast_path::Request<'_>,
        _peer: IpAddr,
        response: &mut ResponseBuffer,
    ) -> Respond {
        match request.target {
            "/fast" => {
                response.write_text(|text| text.push_str("fast"));
                Respond::Ready
            }
            _ => Respond::Declined,
        }
    }

    async fn handle(&self, request: Request<Incoming>, peer: IpAddr) -> Response<Full<Bytes>> {
        assert!(peer.is_loopback());
        match request.uri().path() {
            "/panic" => panic!("as asked"),
            "/slow" => {
                sleep(Duration::from_millis(300)).await;
                Response::new(Full::from("slow"))
            }
            _ => {
                let body = body::read_body(request.into_body(), self.limits.body).await;
                Response::new(
                    body.map_or_else(|error| Full::from(format!("{error:?}")), Full::from),
                )
            }
        }
    }
}

struct Server {
    address: std::net::SocketAddr,
    stop: watch::Sender<bool>,
    served: tokio::task::JoinHandle<()>,
}

async fn start(limits: ListenLimits) -> Server {
    start_with(Echo::<false> { limits }, limits).await
}

async fn start_fast(limits: ListenLimits) -> Server {
    start_with(Echo::<true> { limits }, limits).await
}

async fn start_with(echo: impl Handler, limits: ListenLimits) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = watch::channel(false);
    let served = tokio::spawn(serve(listener, echo, limits, stopped));
    Server {
        address,
        stop,
        served,
    }
}

/// Sends and reads to the end, on a thread that may block.
async fn talk(address: std::net::SocketAddr, sent: &[u8]) -> String {
    let sent = sent.to_vec();
    let talk = move || {
        let mut client = Client::connect(address).unwrap();
        client
            .set_read_timeout(Some(Duration::from_secs(8)))
            .unwrap();
        client.write_all(&sent).unwrap();
        let mut answer = Vec::new();
        let _ = client.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    };
    tokio::task::spawn_blocking(talk).await.unwrap()
}

const CLOSE: &str = "host: x\r\nconnection: close\r\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_is_answered_and_the_server_continues() {
    let server = start(ListenLimits::default()).await;
    let asked = format!("GET /panic HTTP/1.1\r\n{CLOSE}\r\n");
    assert!(
        talk(server.address, asked.as_bytes())
            .await
            .starts_with("HTTP/1.1 500")
    );
    let asked = format!("POST / HTTP/1.1\r\n{CLOSE}content-length: 2\r\n\r\nhi");
    assert!(
        talk(server.address, asked.as_bytes())
            .await
            .ends_with("\r\n\r\nhi")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pipelined_requests_are_answered_in_order() {
    let server = start(ListenLimits::default()).await;
    let mut asked = String::new();
    for n in 0..50 {
        asked += &format!("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\n<{n:02}");
    }
    asked += &format!("POST / HTTP/1.1\r\n{CLOSE}content-length: 3\r\n\r\nend");
    let answer = talk(server.address, asked.as_bytes()).await;
    let places: Vec<_> = (0..50)
        .map(|n| answer.find(&format!("<{n:02}")).unwrap())
        .collect();
    assert!(places.is_sorted(), "{places:?}");
    assert!(answer.ends_with("end"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chunked_body_is_read_and_bounded() {
    let limits = ListenLimits::default();
    let server = start(limits).await;
    let asked = format!(
        "POST / HTTP/1.1\r\n{CLOSE}transfer-encoding: chunked\r\n\r\n2\r\nab\r\n3\r\ncde\r\n0\r\n\r\n"
    );
    assert!(
        talk(server.address, asked.as_bytes())
            .await
            .ends_with("abcde")
    );
    let mut asked =
        format!("POST / HTTP/1.1\r\n{CLOSE}transfer-encoding: chunked\r\n\r\n").into_bytes();
    for _ in 0..20 {
        asked.extend_from_slice(b"1000\r\n");
        asked.extend_from_slice(&[b'x'; 4096]);
        asked.extend_from_slice(b"\r\n");
    }
    asked.extend_from_slice(b"0\r\n\r\n");
    assert!(talk(server.address, &asked).await.ends_with("TooLarge"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_does_not_come_is_not_waited_for() {
    let mut limits = ListenLimits::default();
    limits.body.time = Duration::from_millis(50);
    let server = start(limits).await;
    let asked = format!("POST / HTTP/1.1\r\n{CLOSE}content-length: 9\r\n\r\nhi");
    assert!(
        talk(server.address, asked.as_bytes())
            .await
            .ends_with("TooSlow")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_that_does_not_end_ends_the_connection() {
    let limits = ListenLimits {
        head: Duration::from_secs(1),
        ..ListenLimits::default()
    };
    let server = start(limits).await;
    let begun = Instant::now();
    assert_eq!(talk(server.address, b"GET / HTTP/1.1\r\nx: ").await, "");
    assert!(begun.elapsed() < Duration::from_secs(4));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_connection_outlives_the_bound_of_heads_and_ends_at_its_own() {
    let limits = ListenLimits {
        head: Duration::from_millis(1),
        idle: Duration::from_secs(2),
        ..ListenLimits::default()
    };
    let server = start(limits).await;
    let begun = Instant::now();
    let asked = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\nhi";
    assert!(talk(server.address, asked).await.ends_with("hi"));
    let lasted = begun.elapsed();
    assert!(lasted > Duration::from_millis(1_500), "{lasted:?}");
    assert!(lasted < Duration::from_secs(6), "{lasted:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopping_ends_idle_connections_and_lets_requests_end() {
    let server = start(ListenLimits::default()).await;
    let idle = Client::connect(server.address).unwrap();
    let asked = "GET /slow HTTP/1.1\r\nhost: x\r\n\r\n";
    let in_flight = tokio::spawn(async move { talk(server.address, asked.as_bytes()).await });
    sleep(Duration::from_millis(100)).await;
    let begun = Instant::now();
    server.stop.send(true).unwrap();
    server.served.await.unwrap();
    assert!(in_flight.await.unwrap().ends_with("slow"));
    assert!(
        begun.elapsed() < Duration::from_secs(3),
        "{:?}",
        begun.elapsed()
    );
    assert!(Client::connect(server.address).is_err());
    drop(idle);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_beyond_the_bound_wait_to_be_accepted() {
    let limits = ListenLimits {
        connections: 1,
        ..ListenLimits::default()
    };
    let server = start(limits).await;
    let first = Client::connect(server.address).unwrap();
    sleep(Duration::from_millis(50)).await;
    let asked = format!("POST / HTTP/1.1\r\n{CLOSE}content-length: 2\r\n\r\nhi");
    let second = tokio::spawn(async move { talk(server.address, asked.as_bytes()).await });
    sleep(Duration::from_millis(100)).await;
    assert!(!second.is_finished());
    drop(first);
    assert!(second.await.unwrap().ends_with("hi"));
}

/// Sends a beginning, then byte after byte, until the other end closes; how long that took.
async fn dribble(address: std::net::SocketAddr, begin: &'static str) -> Duration {
    let begun = Instant::now();
    let dribble = move || {
        let mut client = Client::connect(address).unwrap();
        let pause = Duration::from_millis(100);
        client.set_read_timeout(Some(pause)).unwrap();
        client.write_all(begin.as_bytes()).unwrap();
        let mut byte = [0];
        for _ in 0..100 {
            // The pause is the waiting for an answer that does not come.
            match client.read(&mut byte) {
                Ok(_) => return,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
            if client.write_all(b"x").is_err() {
                return;
            }
        }
    };
    tokio::task::spawn_blocking(dribble).await.unwrap();
    begun.elapsed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_that_dribbles_gains_no_time_on_either_path() {
    let limits = ListenLimits {
        head: Duration::from_secs(1),
        ..ListenLimits::default()
    };
    for server in [start(limits).await, start_fast(limits).await] {
        let lasted = dribble(server.address, "GET / HTTP/1.1\r\nx: ").await;
        assert!(lasted < Duration::from_secs(5), "{lasted:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_dribbles_gains_no_time_on_either_path() {
    let mut limits = ListenLimits::default();
    limits.body.time = Duration::from_secs(1);
    for server in [start(limits).await, start_fast(limits).await] {
        let begin = "POST /fast HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n";
        let lasted = dribble(server.address, begin).await;
        assert!(lasted < Duration::from_secs(5), "{lasted:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_connection_on_the_fast_path_ends_at_its_bound() {
    let limits = ListenLimits {
        idle: Duration::from_secs(1),
        ..ListenLimits::default()
    };
    let server = start_fast(limits).await;
    let begun = Instant::now();
    let asked = b"GET /fast HTTP/1.1\r\nhost: x\r\n\r\n";
    assert!(talk(server.address, asked).await.ends_with("fast"));
    assert!(begun.elapsed() < Duration::from_secs(5));
}

/// The event loop was blocked, as on a busy machine: connections and the tick are due at once.
#[tokio::test]
#[expect(
    clippy::disallowed_methods,
    reason = "the thread is meant to be blocked"
)]
async fn a_connection_accepted_with_the_tick_is_tracked() {
    let limits = ListenLimits {
        head: Duration::from_secs(1),
        idle: Duration::from_secs(1),
        ..ListenLimits::default()
    };
    let server = start_fast(limits).await;
    tokio::task::yield_now().await;
    let address = server.address;
    let clients: Vec<_> = (0..20).map(|_| Client::connect(address).unwrap()).collect();
    std::thread::sleep(Duration::from_millis(1_100));
    sleep(Duration::from_secs(4)).await;
    for mut client in clients {
        let timeout = Some(Duration::from_millis(10));
        client.set_read_timeout(timeout).unwrap();
        assert_eq!(client.read(&mut [0]).unwrap(), 0, "it was ended");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_stalls_after_the_fast_path_is_reported() {
    let mut limits = ListenLimits::default();
    limits.body.time = Duration::from_secs(2);
    let limits = ListenLimits {
        head: Duration::from_secs(1),
        ..limits
    };
    let server = start_fast(limits).await;
    let mut asked = String::from("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 60000\r\n\r\n");
    asked.push_str(&"x".repeat(20_000));
    assert!(
        talk(server.address, asked.as_bytes())
            .await
            .contains("TooSlow")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_sends_nothing_has_the_time_of_a_head() {
    let limits = ListenLimits {
        head: Duration::from_secs(1),
        ..ListenLimits::default()
    };
    for server in [start(limits).await, start_fast(limits).await] {
        let begun = Instant::now();
        assert_eq!(talk(server.address, b"").await, "");
        assert!(begun.elapsed() < Duration::from_secs(5));
    }
}
