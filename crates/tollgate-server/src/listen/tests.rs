use std::io::{Read, Write};
use std::net::TcpStream as Client;

use super::*;

/// Answers with what the path asks for.
#[derive(Clone)]
struct Echo {
    limits: ListenLimits,
}

impl Handler for Echo {
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
                    body.map_or_else(|fault| Full::from(format!("{fault:?}")), Full::from),
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
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = watch::channel(false);
    let served = tokio::spawn(serve(listener, Echo { limits }, limits, stopped));
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
async fn a_panic_is_answered_and_the_server_goes_on() {
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
async fn connections_beyond_the_bound_wait_for_their_turn() {
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
