//! Refusals as gRPC clients read them; a real client reads them in `examples.rs`.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use http_body_util::Full;
use tollgate::ManualClock;
use tollgate_policy::{MissingKey, QueueConcurrency, QueueRule};
use tollgate_tower::{LimitLayer, PolicyHandle, QueueLayer};
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::support::{NoBody, backend, bucket, get, header, policy, rule};

async fn hello(_: Request<NoBody>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::default()))
}

fn call(path: &str, key: Option<&str>, media: &'static str) -> Request<NoBody> {
    let mut request = get(path, key.unwrap_or_default());
    let headers = request.headers_mut();
    headers.insert("content-type", media.parse().unwrap());
    if key.is_none() {
        headers.remove("x-key");
    }
    request
}

#[tokio::test]
async fn every_kind_of_refusal_has_its_code() {
    let mut rules = policy([rule("calls", bucket("1/s", 1))]);
    rules.limits[0].missing_key = MissingKey::Deny;
    let policy_handle = PolicyHandle::with_clock(rules, ManualClock::new()).unwrap();
    let service = LimitLayer::new(policy_handle).layer(service_fn(hello));
    let ask = async |path: &str, key| {
        let request = call(path, key, "application/grpc+proto");
        let response = service.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), 200);
        response
    };
    let passed = ask("/", Some("a")).await;
    assert_eq!(header(&passed, "grpc-status"), None);
    assert_eq!(header(&passed, "x-ratelimit-remaining"), Some("0"));

    let exhausted = ask("/", Some("a")).await;
    assert_eq!(header(&exhausted, "grpc-status"), Some("8"));
    assert_eq!(header(&exhausted, "grpc-retry-pushback-ms"), Some("1000"));
    assert_eq!(header(&exhausted, "retry-after"), Some("1"));
    let media = header(&exhausted, "content-type");
    assert_eq!(media, Some("application/grpc+proto"));
    let ratelimit = header(&exhausted, "ratelimit");
    assert_eq!(ratelimit, Some("\"calls\";r=0;t=1"));
    assert!(exhausted.headers().contains_key("grpc-status-details-bin"));
    assert!(exhausted.body().is_end_stream());

    let denied = ask("/", None).await;
    assert_eq!(header(&denied, "grpc-status"), Some("7"));
    // There is no time after which it would pass.
    assert_eq!(header(&denied, "grpc-retry-pushback-ms"), Some("-1"));
    assert!(!denied.headers().contains_key("grpc-status-details-bin"));
    let invalid = ask("/a%2fb", Some("a")).await;
    assert_eq!(header(&invalid, "grpc-status"), Some("3"));
    let message = header(&invalid, "grpc-message").unwrap();
    assert!(message.contains("Servers disagree"), "{message}");
}

#[tokio::test]
async fn a_rejection_of_a_grpc_call_is_a_grpc_status() {
    let mut queue = QueueRule::new("calls", QueueConcurrency::Fixed(1));
    queue.per_flow = 1;
    let mut rules = policy([]);
    rules.queues = vec![queue];
    let (backend, mut arrived) = backend();
    let mut service = QueueLayer::new(PolicyHandle::new(rules).unwrap()).layer(backend);
    let ask = || call("/", Some("a"), "application/grpc");
    let _first = tokio::spawn(service.ready().await.unwrap().call(ask()));
    let _at_work = arrived.recv().await.unwrap();
    let _second = service.ready().await.unwrap().call(ask());
    let rejected = service.ready().await.unwrap().call(ask()).await.unwrap();
    assert_eq!(rejected.status(), 200);
    assert_eq!(header(&rejected, "grpc-status"), Some("8"));
    let message = header(&rejected, "grpc-message").unwrap();
    assert!(message.starts_with("The queue `calls` holds"), "{message}");
    assert!(rejected.headers().contains_key("grpc-status-details-bin"));
    assert!(rejected.headers().contains_key("retry-after"));
}
