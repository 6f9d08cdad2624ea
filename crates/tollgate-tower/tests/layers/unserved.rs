//! Refunds of requests that pass their limits and are not served.

use http::Response;
use tollgate::{Limit, ManualClock, Span};
use tollgate_policy::{KeyPart, Policy, QueueConcurrency, QueueRule, Source};
use tollgate_tower::{
    GuardedBody, LimitLayer, LimitService, PolicyHandle, PolicySource, QueueLayer, QueueService,
};
use tower::{Layer, Service, ServiceExt};

use crate::support::{
    Backend, Broken, Fed, at_once, backend, bucket, get, policy, remaining, rule,
};

type Served =
    LimitService<QueueService<Backend, PolicyHandle<ManualClock>>, PolicyHandle<ManualClock>>;
type Answered = Result<Response<GuardedBody<GuardedBody<Fed>>>, Broken>;

/// Ten units and ten places for each key, and one permit at a time.
fn one_at_a_time() -> Policy {
    let mut queue = QueueRule::new("api", QueueConcurrency::Fixed(1));
    queue.flow = vec![KeyPart::new(Source::Header("x-key".into()))];
    queue.per_flow = 1;
    queue.max_wait = Span::from_secs(1);
    let mut rules = policy([
        rule("units", bucket("1/h", 10)),
        rule("places", at_once(10)),
    ]);
    rules.queues = vec![queue];
    rules
}

fn of(rules: Policy) -> PolicyHandle<ManualClock> {
    PolicyHandle::with_clock(rules, ManualClock::new()).unwrap()
}

fn around(policy_handle: &PolicyHandle<ManualClock>, backend: Backend) -> Served {
    let queue = QueueLayer::new(policy_handle.clone()).layer(backend);
    LimitLayer::new(policy_handle.clone()).layer(queue)
}

/// Units and places that the key `a` has left.
fn left(policy_handle: &PolicyHandle<ManualClock>) -> (u64, u64) {
    let of = |name| remaining(policy_handle, name, "a");
    (of("units"), of("places"))
}

async fn call(service: &mut Served) -> tokio::task::JoinHandle<Answered> {
    let response = tokio::spawn(service.ready().await.unwrap().call(get("/", "a")));
    tokio::task::yield_now().await;
    response
}

#[tokio::test]
async fn a_request_rejected_by_a_full_queue_is_refunded() {
    let policy_handle = of(one_at_a_time());
    let (backend, _arrived) = backend();
    let mut service = around(&policy_handle, backend.clone());
    let _at_work = call(&mut service).await;
    let _waits = call(&mut service).await;
    assert_eq!(left(&policy_handle), (8, 8));
    for _ in 0..20 {
        let rejected = call(&mut service).await.await.unwrap().unwrap();
        assert_eq!(rejected.status(), 503);
        assert_eq!(
            left(&policy_handle),
            (8, 8),
            "also while the answer is still read"
        );
    }
    assert_eq!(backend.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_request_above_max_wait_is_refunded() {
    let policy_handle = of(one_at_a_time());
    let (backend, _arrived) = backend();
    let mut service = around(&policy_handle, backend.clone());
    let _at_work = call(&mut service).await;
    let waits = call(&mut service).await;
    assert_eq!(left(&policy_handle), (8, 8));
    assert_eq!(waits.await.unwrap().unwrap().status(), 503);
    assert_eq!(left(&policy_handle), (9, 9));
}

#[tokio::test]
async fn a_request_dropped_in_the_queue_is_refunded_and_one_in_flight_is_not() {
    let policy_handle = of(one_at_a_time());
    let (backend, mut arrived) = backend();
    let mut service = around(&policy_handle, backend.clone());
    let at_work = call(&mut service).await;
    let leaves = call(&mut service).await;
    assert_eq!(left(&policy_handle), (8, 8));
    leaves.abort();
    assert!(leaves.await.unwrap_err().is_cancelled());
    assert_eq!(left(&policy_handle), (9, 9));
    at_work.abort();
    assert!(at_work.await.unwrap_err().is_cancelled());
    assert_eq!(left(&policy_handle), (9, 10));

    // One that has waited first, and leaves when its permit has come.
    let first = call(&mut service).await;
    let waits = call(&mut service).await;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    for _ in 0..3 {
        arrived.recv().await.unwrap();
    }
    assert_eq!(left(&policy_handle), (7, 9));
    waits.abort();
    assert!(waits.await.unwrap_err().is_cancelled());
    assert_eq!(left(&policy_handle), (7, 10));
}

#[tokio::test]
async fn a_request_served_after_a_wait_stays_charged_and_holds_its_permit() {
    let policy_handle = of(one_at_a_time());
    let (backend, mut arrived) = backend();
    let mut service = around(&policy_handle, backend);
    let first = call(&mut service).await;
    let second = call(&mut service).await;
    drop(arrived.recv().await.unwrap().answer(200));
    drop(first.await.unwrap().unwrap());
    assert_eq!(left(&policy_handle), (8, 9));
    let feed = arrived.recv().await.unwrap().answer(200);
    let second = second.await.unwrap().unwrap();
    assert_eq!(left(&policy_handle), (8, 9));
    drop((feed, second));
    assert_eq!(left(&policy_handle), (8, 10));
}

#[tokio::test(start_paused = true)]
async fn a_request_dropped_in_the_queue_after_its_slot_is_refunded() {
    let mut rules = one_at_a_time();
    let line = Limit::leaky_bucket("1000/s".parse().unwrap(), 10).unwrap();
    rules.limits.push(rule("line", line));
    let policy_handle = of(rules);
    let (backend, mut arrived) = backend();
    let mut service = around(&policy_handle, backend.clone());
    let at_work = call(&mut service).await;
    let _arrived = arrived.recv().await.unwrap();
    let waits = call(&mut service).await;
    let waiting = || {
        policy_handle
            .active_policy()
            .queues()
            .get(0)
            .unwrap()
            .stats()
            .waiting
    };
    assert_eq!(waiting(), 0, "its slot has not come");
    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    assert_eq!(waiting(), 1);
    assert_eq!(left(&policy_handle), (8, 8));
    waits.abort();
    assert!(waits.await.unwrap_err().is_cancelled());
    assert_eq!(left(&policy_handle), (9, 9));
    assert!(!at_work.is_finished());
    assert_eq!(backend.calls(), 1);
}

#[tokio::test]
async fn nested_limits_are_both_refunded() {
    let inner = of(one_at_a_time());
    let outer = of(one_at_a_time());
    let (backend, _arrived) = backend();
    let service = around(&inner, backend);
    let service = LimitLayer::new(outer.clone()).layer(service);
    let at_work = tokio::spawn(service.clone().oneshot(get("/", "a")));
    let waits = tokio::spawn(service.oneshot(get("/", "a")));
    tokio::task::yield_now().await;
    assert_eq!((left(&outer), left(&inner)), ((8, 8), (8, 8)));
    waits.abort();
    assert!(waits.await.unwrap_err().is_cancelled());
    assert_eq!((left(&outer), left(&inner)), ((9, 9), (9, 9)));
    at_work.abort();
    assert!(at_work.await.unwrap_err().is_cancelled());
    assert_eq!((left(&outer), left(&inner)), ((9, 10), (9, 10)));
}

#[tokio::test]
async fn without_a_queue_layer_the_call_counts_as_served() {
    let policy_handle = of(one_at_a_time());
    let (backend, mut arrived) = backend();
    let mut service = LimitLayer::new(policy_handle.clone()).layer(backend);
    let future = service.ready().await.unwrap().call(get("/", "a"));
    arrived.recv().await.unwrap();
    assert_eq!(left(&policy_handle), (9, 9));
    drop(future);
    assert_eq!(left(&policy_handle), (9, 10));
}
