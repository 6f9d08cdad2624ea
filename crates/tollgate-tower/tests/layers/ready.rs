//! Capacity of an inner service: a request that is refused or waits reserves none.

use std::convert::Infallible;

use bytes::Bytes;
use http::Response;
use http_body_util::Full;
use tollgate_policy::{QueueConcurrency, QueueRule};
use tollgate_tower::{LimitLayer, QueueLayer};
use tower::limit::ConcurrencyLimit;
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::support::{backend, bucket, get, policy, policy_handle, rule};

async fn hello<R>(_: R) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::default()))
}

#[tokio::test]
async fn a_refused_request_reserves_no_capacity_of_the_inner_service() {
    let (policy_handle, _clock) = policy_handle([rule("rides", bucket("1/s", 1))]);
    let one_place = ConcurrencyLimit::new(service_fn(hello), 1);
    let mut first = LimitLayer::new(policy_handle.clone()).layer(one_place.clone());
    let mut other = one_place;
    for status in [200, 429] {
        let ready = first.ready().await.unwrap();
        assert_eq!(ready.call(get("/", "a")).await.unwrap().status(), status);
    }
    // `first` is idle now; if it kept the capacity of the refused request, no other request could ever go.
    let free = tokio::time::timeout(std::time::Duration::from_secs(5), other.ready());
    assert!(free.await.is_ok(), "the place is still taken");
}

#[tokio::test]
async fn a_waiting_request_reserves_no_capacity_of_the_inner_service() {
    let mut rules = policy([]);
    rules.queues = vec![QueueRule::new("all", QueueConcurrency::Fixed(1))];
    let policy_handle = tollgate_tower::PolicyHandle::new(rules).unwrap();
    let (backend, mut arrived) = backend();
    let places = ConcurrencyLimit::new(backend, 2);
    let mut service = QueueLayer::new(policy_handle).layer(places.clone());
    let first = service.ready().await.unwrap().call(get("/", "a"));
    let first = tokio::spawn(first);
    let _at_work = arrived.recv().await.unwrap();
    let waits = service.ready().await.unwrap().call(get("/", "a"));
    let waits = tokio::spawn(waits);
    // One place is taken by the first; the second waits for its permit and needs none yet.
    let mut other = places;
    let free = tokio::time::timeout(std::time::Duration::from_secs(5), other.ready());
    assert!(free.await.is_ok(), "the place is taken by one that waits");
    assert!(!waits.is_finished());
    waits.abort();
    first.abort();
}
