//! One limit without a policy, on a single route.

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::Request;
use http::request::Parts;
use tollgate_tower::LimitLayer;
use tower::ServiceExt;

use crate::support::{bucket, header};

fn by_api_key(parts: &Parts) -> Option<String> {
    Some(parts.headers.get("x-api-key")?.to_str().ok()?.to_owned())
}

#[tokio::test]
async fn a_route_has_its_own_limit_by_a_key_and_those_without_a_key_share_one() {
    let layer = LimitLayer::per_key(bucket("1/h", 1).with_name("rides"), by_api_key).unwrap();
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
    let policy = header(&response, "ratelimit-policy");
    assert_eq!(policy, Some("\"rides\";q=1;w=3600"));
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
