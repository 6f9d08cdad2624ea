//! Queues: waiting, rejected and served requests, and their responses.

use bytes::Bytes;
use http_body_util::BodyExt;
use tollgate_policy::{KeyPart, QueueConcurrency, QueueRule, Source};
use tollgate_tower::admission::{BackendOutcome, QueueStats};
use tollgate_tower::{LimitLayer, PolicyHandle, PolicySource, QueueLayer, TunnelGuard};
use tower::{Layer, Service, ServiceExt};

use crate::support::{
    Backend, Broken, backend, bucket, get, header, policy, remaining, rule, text,
};

fn queued(at_once: u32, per_flow: usize) -> PolicyHandle {
    let mut queue = QueueRule::new("api", QueueConcurrency::Fixed(at_once));
    queue.flow = vec![KeyPart::new(Source::Header("x-key".into()))];
    queue.per_flow = per_flow;
    let mut rules = policy([rule("units", bucket("1/h", 100))]);
    rules.queues = vec![queue];
    PolicyHandle::new(rules).unwrap()
}

fn report(policy_handle: &PolicyHandle) -> QueueStats {
    let policy = policy_handle.active_policy();
    let queue = policy.queues().get(0).unwrap();
    queue.stats()
}

fn counts(policy_handle: &PolicyHandle) -> (usize, usize) {
    let report = report(policy_handle);
    (report.waiting, report.in_flight)
}

async fn call(
    service: &mut tollgate_tower::QueueService<Backend, PolicyHandle>,
    key: &str,
) -> tokio::task::JoinHandle<
    Result<http::Response<tollgate_tower::GuardedBody<crate::support::Fed>>, Broken>,
> {
    tokio::spawn(service.ready().await.unwrap().call(get("/", key)))
}

#[tokio::test]
async fn a_permit_is_held_until_the_body_ends_and_then_the_next_request_goes() {
    let policy_handle = queued(1, 10);
    let (backend, mut arrived) = backend();
    let mut service = QueueLayer::new(policy_handle.clone()).layer(backend.clone());
    let first = call(&mut service, "a").await;
    let second = call(&mut service, "b").await;
    let feed = arrived.recv().await.unwrap().answer(200);
    let mut first = first.await.unwrap().unwrap();
    assert_eq!(header(&first, "x-tollgate-waited"), None);
    assert_eq!(counts(&policy_handle), (1, 1));
    assert_eq!(backend.calls(), 1);
    feed.send(Bytes::from("some")).await.unwrap();
    assert!(first.body_mut().frame().await.is_some());
    assert_eq!(counts(&policy_handle), (1, 1));
    drop(feed);
    assert!(first.body_mut().frame().await.is_none());
    drop(arrived.recv().await.unwrap().answer(200));
    assert_eq!(text(second.await.unwrap().unwrap()).await, "");
    assert_eq!(counts(&policy_handle), (0, 0));
}

#[tokio::test]
async fn a_rejection_names_the_queue_and_a_retry_time() {
    let policy_handle = queued(1, 1);
    let (backend, _arrived) = backend();
    let mut service = QueueLayer::new(policy_handle.clone()).layer(backend.clone());
    let _first = call(&mut service, "a").await;
    let _second = call(&mut service, "a").await;
    tokio::task::yield_now().await;
    let rejected = call(&mut service, "a").await.await.unwrap().unwrap();
    assert_eq!(rejected.status(), 503);
    let wait: u64 = header(&rejected, "retry-after").unwrap().parse().unwrap();
    assert!((1..=60).contains(&wait), "{wait}");
    assert_eq!(header(&rejected, "cache-control"), Some("no-store"));
    let body = text(rejected).await;
    let title = "\"title\":\"The queue `api` holds as many requests of this client as it may\"";
    assert!(body.contains(title), "{body}");
    assert!(body.contains("\"queue\":\"api\""), "{body}");
    assert_eq!(backend.calls(), 1);
    assert_eq!(counts(&policy_handle), (1, 1));
}

#[tokio::test]
async fn a_dropped_request_leaves_the_queue() {
    let policy_handle = queued(1, 10);
    let (backend, mut arrived) = backend();
    let mut service = QueueLayer::new(policy_handle.clone()).layer(backend.clone());
    let first = call(&mut service, "a").await;
    let leaves = call(&mut service, "b").await;
    let third = call(&mut service, "c").await;
    let at_work = arrived.recv().await.unwrap();
    tokio::task::yield_now().await;
    assert_eq!(counts(&policy_handle), (2, 1));
    leaves.abort();
    assert!(leaves.await.unwrap_err().is_cancelled());
    // Dropped while the service is at work: the next one goes.
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    assert!(at_work.answer.is_closed());
    let next = arrived.recv().await.unwrap();
    assert_eq!(next.request.headers()["x-key"], "c");
    drop(next.answer(200));
    drop(third.await.unwrap().unwrap());
    assert_eq!(counts(&policy_handle), (0, 0));
    assert_eq!(backend.calls(), 2);
}

#[tokio::test]
async fn a_failing_service_releases_its_permit() {
    let policy_handle = queued(1, 10);
    let (backend, mut arrived) = backend();
    let mut service = QueueLayer::new(policy_handle.clone()).layer(backend);
    let first = call(&mut service, "a").await;
    let second = call(&mut service, "a").await;
    let at_work = arrived.recv().await.unwrap();
    assert!(at_work.answer.send(Err(Broken)).is_ok());
    assert_eq!(first.await.unwrap().err(), Some(Broken));
    drop(arrived.recv().await.unwrap().answer(200));
    assert!(second.await.unwrap().is_ok());
    assert_eq!(counts(&policy_handle), (0, 0));
}

#[tokio::test]
async fn a_tunnel_keeps_its_queue_permit_and_its_concurrency_permit() {
    let policy_handle = queued(1, 10);
    let mut rules = policy_handle.active_policy().gate().policy().clone();
    rules
        .limits
        .push(rule("places", crate::support::at_once(1)));
    policy_handle.replace(rules).unwrap();
    let (backend, mut arrived) = backend();
    let service = QueueLayer::new(policy_handle.clone()).layer(backend);
    let service = LimitLayer::new(policy_handle.clone()).layer(service);
    let response = tokio::spawn(service.oneshot(get("/", "a")));
    drop(arrived.recv().await.unwrap().answer(101));
    let mut response = response.await.unwrap().unwrap();
    let kept = response.extensions_mut().remove::<TunnelGuard>();
    assert!(kept.is_some());
    drop(response);
    let places = || remaining(&policy_handle, "places", "a");
    assert_eq!((counts(&policy_handle), places()), ((0, 1), 0));
    drop(kept);
    assert_eq!((counts(&policy_handle), places()), ((0, 0), 1));
}

#[tokio::test]
async fn a_request_without_a_queue_continues_at_once() {
    let policy_handle = PolicyHandle::new(policy([])).unwrap();
    let (backend, mut arrived) = backend();
    let mut service = QueueLayer::new(policy_handle).layer(backend);
    let all = [call(&mut service, "a").await, call(&mut service, "a").await];
    for _ in &all {
        drop(arrived.recv().await.unwrap().answer(200));
    }
    for response in all {
        assert_eq!(response.await.unwrap().unwrap().status(), 200);
    }
}

#[test]
fn only_overload_statuses_count_as_overloaded() {
    let head = |status: u16, grpc: Option<&str>| {
        let mut response = http::Response::builder().status(status);
        if let Some(code) = grpc {
            response = response.header("grpc-status", code);
        }
        let (head, ()) = response.body(()).unwrap().into_parts();
        tollgate_tower::queue::classify(&head)
    };
    for status in [200, 404, 429, 500, 501, 505] {
        assert_eq!(head(status, None), BackendOutcome::Answered, "{status}");
    }
    for status in [502, 503, 504] {
        assert_eq!(head(status, None), BackendOutcome::Overloaded, "{status}");
    }
    assert_eq!(head(200, Some("0")), BackendOutcome::Answered);
    assert_eq!(head(200, Some("8")), BackendOutcome::Answered);
    assert_eq!(head(200, Some("4")), BackendOutcome::Overloaded);
    assert_eq!(head(200, Some("14")), BackendOutcome::Overloaded);
}

#[test]
fn a_response_without_a_backend_sample_is_ignored() {
    for status in [400, 408, 413, 503] {
        let mut response = http::Response::builder().status(status).body(()).unwrap();
        response
            .extensions_mut()
            .insert(tollgate_tower::queue::NoBackendSample);
        let (head, ()) = response.into_parts();
        let outcome = tollgate_tower::queue::classify(&head);
        assert_eq!(outcome, BackendOutcome::Ignored, "{status}");
    }
}

#[tokio::test]
async fn only_timed_requests_have_a_service_timer() {
    let adaptive = tollgate::shape::Adaptive {
        by: tollgate::shape::Estimator::Aimd,
        min: 1,
        max: 10,
        initial: 1,
        timeout: tollgate::Span::from_secs(1),
    };
    for (at_once, is_timed) in [
        (QueueConcurrency::Adaptive(adaptive), true),
        (QueueConcurrency::Fixed(1), false),
    ] {
        let mut rules = policy([]);
        rules.queues = vec![QueueRule::new("api", at_once)];
        let policy_handle = PolicyHandle::new(rules).unwrap();
        let (backend, mut arrived) = backend();
        let mut service = QueueLayer::new(policy_handle).layer(backend);
        // The second one waits for its permit, the first one does not.
        let all = [call(&mut service, "a").await, call(&mut service, "a").await];
        for response in all {
            let at_work = arrived.recv().await.unwrap();
            let extensions = at_work.request.extensions();
            let sent = extensions.get::<tollgate_tower::ServiceTimer>();
            assert_eq!(sent.is_some(), is_timed);
            drop(at_work.answer(200));
            drop(response.await.unwrap().unwrap());
        }
    }
}
