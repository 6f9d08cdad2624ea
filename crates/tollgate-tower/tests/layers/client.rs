//! Limits by the client's address, with and without an address.

use std::net::SocketAddr;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::routing::get;
use http::{Extensions, Request, Response};
use tollgate_policy::{
    KeyPart, LimitRule, ListRule, Match, Policy, QueueConcurrency, QueueRule, Source,
};
use tollgate_tower::{LimitLayer, PeerAddr, PolicyHandle, QueueLayer};
use tower::ServiceExt;

use crate::support::{bucket, header, policy, rule, text};

const PEER: PeerAddr = PeerAddr(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST));

fn with_peer(extensions: &mut Extensions) {
    extensions.insert(PEER);
}

fn by_address() -> KeyPart {
    KeyPart::new(Source::Address { v4: 32, v6: 64 })
}

async fn send(app: &Router, extend: impl FnOnce(&mut Extensions)) -> Response<Body> {
    let mut request = Request::get("/").body(Body::empty()).unwrap();
    extend(request.extensions_mut());
    app.clone().oneshot(request).await.unwrap()
}

async fn status(app: &Router, extend: impl FnOnce(&mut Extensions)) -> u16 {
    send(app, extend).await.status().as_u16()
}

/// An app behind the limits and the queues of a policy.
fn app(policy: Policy) -> Router {
    let policy = PolicyHandle::new(policy).unwrap();
    Router::new()
        .route("/", get(async || "hello"))
        .layer(QueueLayer::new(policy.clone()))
        .layer(LimitLayer::new(policy))
}

/// Two requests of each address pass `app`, and a network of 64 bits is one IPv6 client.
async fn assert_limits_by_connect_info(app: &Router) {
    let status = async |address: &str| {
        let address: SocketAddr = address.parse().unwrap();
        status(app, |extensions| {
            extensions.insert(ConnectInfo(address));
        })
        .await
    };
    assert_eq!(status("192.0.2.1:1000").await, 200);
    assert_eq!(status("192.0.2.1:2000").await, 429);
    assert_eq!(status("[2001:db8::1]:1").await, 200);
    assert_eq!(status("[2001:db8::2]:1").await, 429);
    assert_eq!(status("[2001:db8:0:1::2]:1").await, 200);
}

#[tokio::test]
async fn a_peer_function_finds_the_address_that_axum_knows() {
    let layer = LimitLayer::per_client(bucket("1/h", 1)).unwrap();
    let layer = layer.with_peer(|e| Some(e.get::<ConnectInfo<SocketAddr>>()?.0.ip()));
    let app = Router::new().route("/", get(async || "hello")).layer(layer);
    assert_limits_by_connect_info(&app).await;
}

#[cfg(feature = "axum")]
#[tokio::test]
async fn the_feature_axum_finds_the_address_without_a_peer_function() {
    let layer = LimitLayer::per_client(bucket("1/h", 1)).unwrap();
    let app = Router::new().route("/", get(async || "hello")).layer(layer);
    assert_limits_by_connect_info(&app).await;
}

#[tokio::test]
async fn a_limit_by_address_answers_500_without_an_address_and_never_shares_one_bucket() {
    let layer = LimitLayer::per_client(bucket("1/h", 1)).unwrap();
    let app = Router::new().route("/", get(async || "hello")).layer(layer);
    for _ in 0..3 {
        let response = send(&app, |_| {}).await;
        assert_eq!(response.status(), 500);
        let media = header(&response, "content-type");
        assert_eq!(media, Some("application/problem+json"));
        let text = text(response).await;
        assert!(
            text.contains("with_peer") && text.contains("PeerAddr"),
            "{text}"
        );
    }
    assert_eq!(status(&app, with_peer).await, 200);
    assert_eq!(status(&app, with_peer).await, 429);
}

#[tokio::test]
async fn a_grpc_call_without_an_address_is_answered_internal() {
    let layer = LimitLayer::per_client(bucket("1/h", 1)).unwrap();
    let app = Router::new().route("/", get(async || "hello")).layer(layer);
    let request = Request::get("/").header("content-type", "application/grpc");
    let request = request.body(Body::empty()).unwrap();
    let response = app.oneshot(request).await.unwrap();
    assert_eq!(header(&response, "grpc-status"), Some("13"));
}

#[tokio::test]
async fn every_part_of_a_policy_that_depends_on_the_address_demands_one() {
    let network = || Match {
        addresses: ["10.0.0.0/8".parse().unwrap()].into_iter().collect(),
        ..Match::default()
    };
    let with_limit = |change: fn(&mut LimitRule, Match)| {
        let mut rule = rule("rides", bucket("1/h", 9));
        change(&mut rule, network());
        policy([rule])
    };
    let with_queue = |change: fn(&mut QueueRule, Match)| {
        let mut queue = QueueRule::new("api", QueueConcurrency::Fixed(1));
        change(&mut queue, network());
        Policy {
            queues: vec![queue],
            ..Policy::default()
        }
    };
    let list = || ListRule {
        name: "office".into(),
        matches: network(),
        except: Vec::new(),
        reason: None,
        expires: None,
    };
    let depends = [
        with_limit(|limit, _| limit.key = vec![by_address()]),
        with_limit(|limit, network| limit.matches = network),
        with_limit(|limit, network| limit.except = vec![network]),
        with_queue(|queue, _| queue.flow = vec![by_address()]),
        with_queue(|queue, network| queue.matches = network),
        Policy {
            deny: vec![list()],
            ..Policy::default()
        },
        Policy {
            allow: vec![list()],
            ..Policy::default()
        },
    ];
    for (number, policy) in depends.into_iter().enumerate() {
        let app = app(policy);
        assert_eq!(status(&app, |_| {}).await, 500, "{number}");
        assert_eq!(status(&app, with_peer).await, 200, "{number}");
    }
    let app = app(policy([rule("rides", bucket("1/h", 9))]));
    assert_eq!(status(&app, |_| {}).await, 200, "keyed by a header");
}

#[tokio::test]
async fn a_queue_by_address_answers_500_without_an_address() {
    let mut queue = QueueRule::new("api", QueueConcurrency::Fixed(1));
    queue.flow = vec![by_address()];
    let policy = PolicyHandle::new(Policy {
        queues: vec![queue],
        ..Policy::default()
    });
    let app = Router::new()
        .route("/", get(async || "hello"))
        .layer(QueueLayer::new(policy.unwrap()));
    assert_eq!(status(&app, |_| {}).await, 500);
    assert_eq!(status(&app, with_peer).await, 200);
}
