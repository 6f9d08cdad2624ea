//! One limit without a policy, as it is put on a single route.

use std::net::SocketAddr;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::routing::get;
use http::Request;
use http::request::Parts;
use tollgate_tower::LimitLayer;
use tollgate_tower::facts::by_client;
use tower::ServiceExt;

use crate::support::{bucket, header};

fn by_api_key(parts: &Parts) -> Option<String> {
    Some(parts.headers.get("x-api-key")?.to_str().ok()?.to_owned())
}

#[tokio::test]
async fn a_route_has_its_own_limit_by_a_key_and_those_without_a_key_share_one() {
    let layer = LimitLayer::single(bucket("1/h", 1).named("rides"), by_api_key).unwrap();
    let app = Router::new()
        .route("/rides", get(async || "rides").layer(layer))
        .route("/free", get(async || "free"));
    let status = async |path: &str, key: Option<&str>| {
        let mut request = Request::get(path);
        if let Some(key) = key {
            request = request.header("x-api-key", key);
        }
        let request = request.body(Body::empty()).unwrap();
        let response = app.clone().oneshot(request).await.unwrap();
        (response.status().as_u16(), response)
    };
    let (first, response) = status("/rides", Some("a")).await;
    assert_eq!(first, 200);
    let told = header(&response, "ratelimit-policy");
    assert_eq!(told, Some("\"rides\";q=1;w=3600"));
    assert_eq!(status("/rides", Some("a")).await.0, 429);
    assert_eq!(status("/rides", Some("b")).await.0, 200);
    assert_eq!(status("/rides", None).await.0, 200);
    assert_eq!(status("/rides", None).await.0, 429);
    for _ in 0..3 {
        let (free, response) = status("/free", Some("a")).await;
        assert_eq!(free, 200);
        assert_eq!(header(&response, "ratelimit"), None);
    }
}

#[tokio::test]
async fn a_route_may_be_limited_by_the_address_that_axum_knows() {
    let layer = LimitLayer::single(bucket("1/h", 1), by_client).unwrap();
    let layer = layer.with_peer(|e| Some(e.get::<ConnectInfo<SocketAddr>>()?.0.ip()));
    let app = Router::new().route("/", get(async || "hello")).layer(layer);
    let status = async |address: &str| {
        let mut request = Request::get("/").body(Body::empty()).unwrap();
        let address: SocketAddr = address.parse().unwrap();
        request.extensions_mut().insert(ConnectInfo(address));
        app.clone()
            .oneshot(request)
            .await
            .unwrap()
            .status()
            .as_u16()
    };
    assert_eq!(status("192.0.2.1:1000").await, 200);
    assert_eq!(status("192.0.2.1:2000").await, 429);
    assert_eq!(status("[2001:db8::1]:1").await, 200);
    // The same network of 64 bits is the same client.
    assert_eq!(status("[2001:db8::2]:1").await, 429);
    assert_eq!(status("[2001:db8:0:1::2]:1").await, 200);
}
