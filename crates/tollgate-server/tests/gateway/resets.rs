//! HTTP/2 clients that reset their streams again and again.

use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tollgate_testkit::wait;

use crate::support::{TestGateway, pause};
use crate::upstream::Upstream;

const BURST: u64 = 30;

async fn client(gateway: &TestGateway) -> SendRequest<Full<Bytes>> {
    let stream = tokio::net::TcpStream::connect(gateway.address());
    let io = TokioIo::new(stream.await.unwrap());
    let (sender, connection) = handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    sender
}

fn request(path: &str) -> Request<Full<Bytes>> {
    let request = Request::get(format!("http://app.example{path}"));
    request.body(Full::default()).unwrap()
}

fn gateway(upstream: &Upstream) -> TestGateway {
    let limit = format!("{{ name: all, allow: 1/h, burst: {BURST} }}");
    let policy = format!("default: pass\nlimits:\n  - {limit}\n");
    TestGateway::before(&policy, upstream.port)
}

#[test]
fn each_reset_request_was_charged() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream);
    let events = tokio::runtime::Runtime::new().unwrap();
    events.block_on(async {
        let mut client = client(&gateway).await;
        for number in 0..BURST {
            let asked = tokio::spawn(client.send_request(request("/hang")));
            tokio::task::block_in_place(|| {
                wait("it is there", || upstream.count() as u64 > number);
            });
            asked.abort();
        }
        // All was used up by requests of which none was answered.
        let answer = client.send_request(request("/")).await.unwrap();
        assert_eq!(answer.status(), 429);
    });
    assert_eq!(gateway.admitted(), BURST);
    assert_eq!(upstream.count() as u64, BURST);
    wait("all were ended at the server", || upstream.open() == 0);
}

#[test]
fn a_flood_of_resets_passes_no_limit() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream);
    let events = tokio::runtime::Runtime::new().unwrap();
    events.block_on(async {
        for _ in 0..5 {
            let mut client = client(&gateway).await;
            for _ in 0..300 {
                let asked = client.send_request(request("/hang"));
                // Long enough to be sent, seldom long enough to be answered.
                let _ = tokio::time::timeout(std::time::Duration::from_micros(50), asked).await;
                if client.is_closed() {
                    break;
                }
            }
        }
    });
    pause(100);
    let admitted = gateway.admitted();
    assert!((1..=BURST).contains(&admitted), "{admitted}");
    assert!(upstream.count() as u64 <= admitted);
    let status = gateway.get("/").status;
    assert!(matches!(status, 200 | 429), "{status}");
    wait("all were ended at the server", || upstream.open() <= 1);
    let in_flight = format!(
        "tollgate_upstream_server_in_flight_requests{{upstream=\"app\",server=\"127.0.0.1:{}\"}}",
        upstream.port
    );
    wait("nothing is left behind", || gateway.metric(&in_flight) == 0);
}
