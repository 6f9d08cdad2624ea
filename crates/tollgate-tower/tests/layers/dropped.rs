//! Permits and units that are returned when a request ends early, in each of its phases.

use bytes::Bytes;
use http_body_util::BodyExt;
use tollgate::{Limit, ManualClock};
use tollgate_policy::LimitRule;
use tollgate_tower::{LimitLayer, PolicyHandle, TunnelGuard};
use tower::{Layer, Service, ServiceExt};

use crate::support::{Broken, at_once, backend, bucket, get, policy_handle, remaining, rule};

/// What a limit has left for the key `a`.
fn left(policy_handle: &PolicyHandle<ManualClock>, name: &str) -> u64 {
    remaining(policy_handle, name, "a")
}

/// Units and places, two of each.
fn both() -> [LimitRule; 2] {
    [rule("units", bucket("1/h", 2)), rule("places", at_once(2))]
}

#[tokio::test]
async fn a_permit_is_held_until_the_body_ends() {
    let (policy_handle, _clock) = policy_handle(both());
    let (backend, mut arrived) = backend();
    let mut service = LimitLayer::new(policy_handle.clone()).layer(backend);
    let response = service.ready().await.unwrap().call(get("/", "a"));
    let response = tokio::spawn(response);
    let arrived = arrived.recv().await.unwrap();
    assert_eq!(
        (
            left(&policy_handle, "units"),
            left(&policy_handle, "places")
        ),
        (1, 1)
    );

    let feed = arrived.answer(200);
    let mut body = response.await.unwrap().unwrap().into_body();
    feed.send(Bytes::from("some")).await.unwrap();
    let frame = body.frame().await.unwrap().unwrap();
    assert_eq!(frame.into_data().unwrap(), "some");
    assert_eq!(left(&policy_handle, "places"), 1);
    drop(feed);
    assert!(body.frame().await.is_none());
    // The body is still here, and yet the place is free: it has ended.
    assert_eq!(
        (
            left(&policy_handle, "units"),
            left(&policy_handle, "places")
        ),
        (1, 2)
    );
}

#[tokio::test]
async fn a_body_that_has_ended_holds_no_guard() {
    let (policy_handle, _clock) = policy_handle(both());
    let hello = tower::service_fn(async |_: http::Request<_>| {
        let body = http_body_util::Empty::<Bytes>::new();
        Ok::<_, Broken>(http::Response::new(body))
    });
    let service = LimitLayer::new(policy_handle.clone()).layer(hello);
    let response = service.oneshot(get("/", "a")).await.unwrap();
    assert_eq!(left(&policy_handle, "places"), 2);
    drop(response);
    assert_eq!(left(&policy_handle, "places"), 2);
}

#[tokio::test]
async fn a_dropped_body_releases_its_permit() {
    let (policy_handle, _clock) = policy_handle(both());
    let (backend, mut arrived) = backend();
    let mut service = LimitLayer::new(policy_handle.clone()).layer(backend);
    let response = tokio::spawn(service.ready().await.unwrap().call(get("/", "a")));
    let _feed = arrived.recv().await.unwrap().answer(200);
    let response = response.await.unwrap().unwrap();
    assert_eq!(left(&policy_handle, "places"), 1);
    drop(response);
    assert_eq!(
        (
            left(&policy_handle, "units"),
            left(&policy_handle, "places")
        ),
        (1, 2)
    );
}

#[tokio::test]
async fn a_future_dropped_in_flight_releases_its_permit_and_stays_charged() {
    let (policy_handle, _clock) = policy_handle(both());
    let (backend, mut arrived) = backend();
    let mut service = LimitLayer::new(policy_handle.clone()).layer(backend);
    let future = service.ready().await.unwrap().call(get("/", "a"));
    let arrived = arrived.recv().await.unwrap();
    drop(future);
    assert!(arrived.answer.is_closed());
    assert_eq!(
        (
            left(&policy_handle, "units"),
            left(&policy_handle, "places")
        ),
        (1, 2)
    );
}

#[tokio::test]
async fn a_failing_service_releases_the_permit_and_stays_charged() {
    let (policy_handle, _clock) = policy_handle(both());
    let (backend, mut arrived) = backend();
    let mut service = LimitLayer::new(policy_handle.clone()).layer(backend);
    let response = tokio::spawn(service.ready().await.unwrap().call(get("/", "a")));
    let arrived = arrived.recv().await.unwrap();
    assert!(arrived.answer.send(Err(Broken)).is_ok());
    assert_eq!(response.await.unwrap().err(), Some(Broken));
    assert_eq!(
        (
            left(&policy_handle, "units"),
            left(&policy_handle, "places")
        ),
        (1, 2)
    );
}

#[tokio::test]
async fn a_refused_request_takes_nothing() {
    let (policy_handle, _clock) = policy_handle(both());
    let (backend, mut arrived) = backend();
    let mut service = LimitLayer::new(policy_handle.clone()).layer(backend.clone());
    for _ in 0..2 {
        drop(service.ready().await.unwrap().call(get("/", "a")));
        arrived.recv().await.unwrap();
    }
    let refused = service.ready().await.unwrap().call(get("/", "a")).await;
    assert_eq!(refused.unwrap().status(), 429);
    assert_eq!(backend.calls(), 2);
    assert_eq!(
        (
            left(&policy_handle, "units"),
            left(&policy_handle, "places")
        ),
        (0, 2)
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_dropped_before_its_slot_is_refunded() {
    let line = Limit::leaky_bucket("1/s".parse().unwrap(), 10).unwrap();
    let rules = both().into_iter().chain([rule("line", line)]);
    let (policy_handle, _clock) = policy_handle(rules);
    let (backend, _arrived) = backend();
    let mut service = LimitLayer::new(policy_handle.clone()).layer(backend.clone());
    let first = service.ready().await.unwrap().call(get("/", "a"));
    let slots = left(&policy_handle, "line");
    let waits = tokio::spawn(service.ready().await.unwrap().call(get("/", "a")));
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    assert!(!waits.is_finished());
    assert_eq!(
        (
            left(&policy_handle, "units"),
            left(&policy_handle, "places")
        ),
        (0, 0)
    );
    waits.abort();
    assert!(waits.await.unwrap_err().is_cancelled());
    // The first one keeps what is its own; the second has left no trace.
    assert_eq!(
        (
            left(&policy_handle, "units"),
            left(&policy_handle, "places")
        ),
        (1, 1)
    );
    assert_eq!(left(&policy_handle, "line"), slots);
    assert_eq!(backend.calls(), 1);
    drop(first);
    assert_eq!(
        (
            left(&policy_handle, "units"),
            left(&policy_handle, "places")
        ),
        (1, 2)
    );
}

#[tokio::test(start_paused = true)]
async fn a_dropped_slot_with_later_slots_stays_idle() {
    let line = Limit::leaky_bucket("10/s".parse().unwrap(), 10).unwrap();
    let rules = [rule("units", bucket("1/h", 10)), rule("line", line)];
    let (policy_handle, _clock) = policy_handle(rules);
    let hello = tower::service_fn(async |_: http::Request<_>| {
        let body = http_body_util::Empty::<Bytes>::new();
        Ok::<_, Broken>(http::Response::new(body))
    });
    let mut service = LimitLayer::new(policy_handle.clone()).layer(hello);
    let begun = tokio::time::Instant::now();
    let mut waits = Vec::new();
    for _ in 0..4 {
        let response = service.ready().await.unwrap().call(get("/", "a"));
        waits.push(tokio::spawn(async move {
            response.await.unwrap();
            begun.elapsed().as_millis()
        }));
    }
    waits[1].abort();
    tokio::task::yield_now().await;
    assert_eq!(
        (left(&policy_handle, "units"), left(&policy_handle, "line")),
        (7, 6)
    );
    waits[3].abort();
    tokio::task::yield_now().await;
    // The last one is free again.
    assert_eq!(
        (left(&policy_handle, "units"), left(&policy_handle, "line")),
        (8, 7)
    );
    let mut went = Vec::new();
    for wait in waits {
        went.push(wait.await.ok());
    }
    assert!(
        matches!(went[..], [Some(0), None, Some(200..=201), None]),
        "{went:?}"
    );
}

#[tokio::test]
async fn a_tunnel_keeps_its_permit_while_its_guard_is_kept() {
    let (policy_handle, _clock) = policy_handle([rule("places", at_once(2))]);
    let (backend, mut arrived) = backend();
    let mut service = LimitLayer::new(policy_handle.clone()).layer(backend);
    let response = tokio::spawn(service.ready().await.unwrap().call(get("/", "a")));
    drop(arrived.recv().await.unwrap().answer(101));
    let mut response = response.await.unwrap().unwrap();
    let kept = response.extensions_mut().remove::<TunnelGuard>();
    assert!(kept.is_some());
    drop(response);
    assert_eq!(left(&policy_handle, "places"), 1);
    drop(kept);
    assert_eq!(left(&policy_handle, "places"), 2);

    // Without that it ends with the head of the response.
    let response = tokio::spawn(service.ready().await.unwrap().call(get("/", "a")));
    drop(arrived.recv().await.unwrap().answer(101));
    let response = response.await.unwrap().unwrap();
    assert_eq!(left(&policy_handle, "places"), 1);
    drop(response);
    assert_eq!(left(&policy_handle, "places"), 2);
}
