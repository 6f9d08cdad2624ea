//! The examples, started unchanged and queried over real sockets.
#![allow(dead_code, reason = "`main` of an example is not called here")]

#[path = "../../examples/axum_limits.rs"]
mod axum_limits;
#[path = "../../examples/axum_per_client.rs"]
mod axum_per_client;
#[path = "../../examples/client_pacing.rs"]
mod client_pacing;
#[path = "../../examples/tonic_limits.rs"]
mod tonic_limits;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use prost::Message;
use tokio::net::TcpListener;
use tonic::Code;
use tonic::transport::Channel;

struct Browser {
    client: Client<HttpConnector, Empty<Bytes>>,
    base: String,
}

impl Browser {
    /// A client of the axum example.
    async fn new() -> Browser {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        Browser::of(axum_limits::app().unwrap(), listener, base)
    }

    fn of(app: axum::Router, listener: TcpListener, base: String) -> Browser {
        let app = app.into_make_service_with_connect_info::<std::net::SocketAddr>();
        tokio::spawn(async move { axum::serve(listener, app).await });
        let client = Client::builder(TokioExecutor::new()).build_http();
        Browser { client, base }
    }

    async fn get(&self, path: &str, rider: &str) -> Response<Incoming> {
        let request = Request::get(format!("{}{path}", self.base)).header("x-rider-id", rider);
        let request = request.body(Empty::new()).unwrap();
        self.client.request(request).await.unwrap()
    }
}

async fn text(response: Response<Incoming>) -> String {
    let body = response.into_body().collect().await.unwrap();
    String::from_utf8(body.to_bytes().to_vec()).unwrap()
}

#[tokio::test]
async fn the_smallest_axum_example_limits_each_client_address() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let browser = Browser::of(axum_per_client::app().unwrap(), listener, base);
    let mut statuses = Vec::new();
    for _ in 0..4 {
        statuses.push(browser.get("/", "42").await.status().as_u16());
    }
    assert_eq!(statuses, [200, 200, 200, 429]);
}

#[tokio::test]
async fn the_pacing_example_is_never_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(client_pacing::serve(listener));
    let statuses = client_pacing::call(address, 4).await.unwrap();
    assert!(statuses.iter().all(|status| *status == 200), "{statuses:?}");
    assert_eq!(statuses.len(), 4);
}

#[tokio::test]
async fn the_axum_example_limits_riders_and_addresses() {
    let browser = Browser::new().await;
    for left in ["2", "1", "0"] {
        let response = browser.get("/rides", "42").await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["x-ratelimit-remaining"], left);
        assert_eq!(text(response).await, "no rides\n");
    }
    let refused = browser.get("/rides", "42").await;
    assert_eq!(refused.status(), 429);
    assert_eq!(refused.headers()["retry-after"], "1");
    assert_eq!(
        refused.headers()["content-type"],
        "application/problem+json"
    );
    assert!(
        text(refused)
            .await
            .contains("\"violated-policies\":[\"rides\"]")
    );
    assert_eq!(browser.get("/rides", "43").await.status(), 200);

    // By address, with any rider id.
    for status in [200, 200, 429] {
        let response = browser.get("/documents", "44").await;
        assert_eq!(response.status(), status);
    }
}

#[tokio::test]
async fn the_axum_example_queues_reports() {
    let browser = Browser::new().await;
    let (first, second, third, fourth) = tokio::join!(
        browser.get("/report", "a"),
        browser.get("/report", "a"),
        browser.get("/report", "a"),
        browser.get("/report", "a"),
    );
    let mut waited = Vec::new();
    let mut rejected = Vec::new();
    for response in [first, second, third, fourth] {
        match response.status().as_u16() {
            200 => waited.push(response),
            _ => rejected.push(response),
        }
    }
    assert_eq!((waited.len(), rejected.len()), (3, 1));
    let rejected = rejected.pop().unwrap();
    assert_eq!(rejected.status(), 503);
    assert!(rejected.headers().contains_key("retry-after"));
    assert!(text(rejected).await.contains("The queue `reports`"));
    for response in waited {
        assert_eq!(text(response).await, "nothing to report\n");
    }
}

/// `google.rpc.Status`, as far as it is looked at here.
#[derive(Clone, PartialEq, Message)]
struct RpcStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

#[derive(Clone, PartialEq, Message)]
struct Any {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    retry_delay: Option<Duration>,
}

#[derive(Clone, PartialEq, Message)]
struct Duration {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

#[tokio::test]
async fn the_tonic_example_refuses_with_resource_exhausted_and_a_retry_time() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(tonic_limits::serve(listener));
    let channel = Channel::from_shared(format!("http://{address}")).unwrap();
    let channel = channel.connect().await.unwrap();
    for left in ["1", "0"] {
        let greeting = tonic_limits::greet(channel.clone(), "alice").await.unwrap();
        let remaining = greeting.metadata().get("x-ratelimit-remaining").unwrap();
        assert_eq!(remaining, left);
        assert_eq!(greeting.into_inner().text, "hello, alice");
    }
    let refused = tonic_limits::greet(channel.clone(), "alice")
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(
        refused
            .message()
            .contains("The limit `greetings` has nothing left")
    );
    let details = RpcStatus::decode(refused.details()).unwrap();
    assert_eq!((details.code, &*details.message), (8, refused.message()));
    let [any] = details.details.as_slice() else {
        panic!("one detail, not {:?}", details.details);
    };
    assert_eq!(any.type_url, "type.googleapis.com/google.rpc.RetryInfo");
    let wait = RetryInfo::decode(&*any.value).unwrap().retry_delay.unwrap();
    // One a minute, and the two that there were are gone since a moment ago.
    assert!((50..60).contains(&wait.seconds), "{wait:?}");
    let metadata = refused.metadata();
    let pushback = metadata.get("grpc-retry-pushback-ms").unwrap();
    let pushback: i64 = pushback.to_str().unwrap().parse().unwrap();
    let exact = wait.seconds * 1000 + i64::from(wait.nanos) / 1_000_000;
    assert!((pushback - exact).abs() <= 1, "{pushback} {exact}");
    assert!(metadata.get("retry-after").is_some());
    assert_eq!(metadata.get("cache-control").unwrap(), "no-store");
    // Another caller is greeted over the same connection.
    assert!(tonic_limits::greet(channel, "bob").await.is_ok());
}
