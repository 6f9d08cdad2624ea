//! The concurrency limit of one flow, on a paused clock.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::{advance, sleep};
use tollgate::{Scale, Span};
use tollgate_policy::{QueueConcurrency, QueuePlace, QueueRule};
use tollgate_tower::admission::{
    Acquire, AdmissionQueue, BackendOutcome, QueuePermit, RejectReason, Rejected,
};

fn rule(at_once: u32, of_one: u32) -> QueueRule {
    QueueRule {
        at_once_per_flow: Some(of_one),
        ..QueueRule::new("api", QueueConcurrency::Fixed(at_once))
    }
}

fn queue(rule: &QueueRule) -> AdmissionQueue {
    AdmissionQueue::new(rule).unwrap()
}

fn place(flow: u64) -> QueuePlace {
    QueuePlace {
        queue: 0,
        flow,
        tier: None,
        weight: 1,
        cost: 1,
    }
}

fn poll(acquire: &mut Acquire) -> Poll<Result<QueuePermit, Rejected>> {
    Pin::new(acquire).poll(&mut Context::from_waker(Waker::noop()))
}

/// A permit that must be there.
fn taken(acquire: &mut Acquire) -> QueuePermit {
    match poll(acquire) {
        Poll::Ready(Ok(permit)) => permit,
        other => panic!("no permit: {other:?}"),
    }
}

fn enter_now(queue: &AdmissionQueue, flow: u64) -> QueuePermit {
    taken(&mut queue.acquire(&place(flow)))
}

/// A request that has to wait.
fn enqueue(queue: &AdmissionQueue, flow: u64) -> Acquire {
    let mut acquire = queue.acquire(&place(flow));
    assert!(poll(&mut acquire).is_pending());
    acquire
}

fn refused(queue: &AdmissionQueue, flow: u64) -> Rejected {
    match poll(&mut queue.acquire(&place(flow))) {
        Poll::Ready(Err(rejected)) => rejected,
        other => panic!("not refused: {other:?}"),
    }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[tokio::test(start_paused = true)]
async fn a_flow_that_holds_its_permits_leaves_the_others_running() {
    let queue = queue(&QueueRule {
        max_wait: Span::from_secs(3600),
        ..rule(8, 3)
    });
    let held: Vec<QueuePermit> = (0..3).map(|_| enter_now(&queue, 1)).collect();
    let waits: Vec<Acquire> = (0..50).map(|_| enqueue(&queue, 1)).collect();
    assert_eq!(queue.stats().saturated_flows, Some(1));
    let most = Arc::new(AtomicUsize::new(0));
    let served = Arc::new(AtomicUsize::new(0));
    let client = |at: u64| {
        let (queue, most, served) = (queue.clone(), Arc::clone(&most), Arc::clone(&served));
        tokio::spawn(async move {
            loop {
                let permit = queue.acquire(&place(2 + at % 4)).await.unwrap();
                most.fetch_max(queue.stats().in_flight, Relaxed);
                served.fetch_add(1, Relaxed);
                sleep(ms(10)).await;
                permit.finish(BackendOutcome::Answered);
            }
        })
    };
    let clients: Vec<_> = (0..20).map(client).collect();
    sleep(ms(10_000)).await;
    clients.iter().for_each(|client| client.abort());
    // Five places, each for 10 ms: all of them, all the time.
    let served = served.load(Relaxed);
    assert!((4990..=5010).contains(&served), "{served}");
    assert_eq!(most.load(Relaxed), 8);
    drop((held, waits));
}

#[tokio::test(start_paused = true)]
async fn a_flow_at_its_limit_continues_only_when_one_of_its_own_permits_ends() {
    let queue = queue(&rule(4, 1));
    let first = enter_now(&queue, 1);
    let other = enter_now(&queue, 2);
    let mut next = enqueue(&queue, 1);
    let mut last = enqueue(&queue, 1);
    other.finish(BackendOutcome::Answered);
    assert!(
        poll(&mut next).is_pending(),
        "there is room, but not for it"
    );
    // Others pass by at once.
    let other = enter_now(&queue, 2);
    assert_eq!(other.waited(), Duration::ZERO);
    advance(ms(40)).await;
    first.finish(BackendOutcome::Answered);
    assert_eq!(queue.stats().in_flight, 2);
    let next = taken(&mut next);
    assert_eq!(next.waited(), ms(40));
    assert!(poll(&mut last).is_pending());
    drop(next);
    drop(taken(&mut last));
    let report = queue.stats();
    assert_eq!((report.waiting, report.in_flight), (0, 1));
    assert_eq!(report.saturated_flows, Some(1), "the other one");
    drop(other);
    assert_eq!(queue.stats().saturated_flows, Some(0));
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_request_lets_the_next_of_its_flow_go() {
    let queue = queue(&rule(4, 1));
    let held = enter_now(&queue, 1);
    let impatient = enqueue(&queue, 1);
    let unlucky = enqueue(&queue, 1);
    let mut last = enqueue(&queue, 1);
    drop(impatient);
    // Granted to the request that is never polled again.
    held.finish(BackendOutcome::Answered);
    assert!(poll(&mut last).is_pending());
    drop(unlucky);
    drop(taken(&mut last));
    let report = queue.stats();
    assert_eq!((report.waiting, report.in_flight), (0, 0));
    assert_eq!(
        (report.unserved.cancelled, report.saturated_flows),
        (2, Some(0))
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_of_a_limited_flow_is_rejected_after_max_wait() {
    let queue = queue(&rule(4, 1));
    let _held = enter_now(&queue, 1);
    let acquire = queue.acquire(&place(1));
    let rejected = acquire.await.unwrap_err();
    assert_eq!(rejected.reason, RejectReason::MaxWait);
    let report = queue.stats();
    assert_eq!((report.waiting, report.in_flight), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn flows_at_their_limit_block_no_other_flow() {
    let queue = queue(&QueueRule {
        total: 1,
        ..rule(3, 1)
    });
    let _held = enter_now(&queue, 1);
    let mut waits = enqueue(&queue, 1);
    // The waiting room is full, but it needs none.
    let second = enter_now(&queue, 2);
    assert_eq!(refused(&queue, 2).reason, RejectReason::QueueFull);
    let _third = enter_now(&queue, 3);
    assert_eq!(refused(&queue, 4).reason, RejectReason::QueueFull);
    drop(second);
    let _fourth = enter_now(&queue, 4);
    assert!(poll(&mut waits).is_pending());
}

#[tokio::test(start_paused = true)]
async fn a_changed_rule_limits_flows_and_stops_no_request() {
    let queue = queue(&rule(6, 1));
    let mut held = vec![enter_now(&queue, 1)];
    let mut waits: Vec<Acquire> = (0..6).map(|_| enqueue(&queue, 1)).collect();
    queue.change(&rule(6, 3));
    held.extend(waits.drain(..2).map(|mut acquire| taken(&mut acquire)));
    assert!(poll(&mut waits[0]).is_pending());
    queue.change(&rule(6, 2));
    assert_eq!(queue.stats().in_flight, 3);
    held.pop();
    assert!(poll(&mut waits[0]).is_pending(), "two are still in flight");
    held.pop();
    held.push(taken(&mut waits.remove(0)));
    // A part of a rule that cannot be changes nothing.
    queue.change(&rule(6, 0));
    assert!(poll(&mut waits[0]).is_pending());
    queue.change(&QueueRule {
        at_once_per_flow: None,
        ..rule(6, 1)
    });
    assert_eq!(queue.stats().saturated_flows, None);
    held.extend(waits.drain(..).map(|mut acquire| taken(&mut acquire)));
    assert_eq!((held.len(), queue.stats().waiting), (5, 0));
    assert!(AdmissionQueue::new(&rule(6, 0)).is_err());
}

#[tokio::test(start_paused = true)]
async fn scaling_keeps_the_share_of_one_flow() {
    let queue = queue(&rule(8, 4));
    queue.set_scale(Scale::from_q16(1 << 15));
    let mut held: Vec<QueuePermit> = (0..2).map(|_| enter_now(&queue, 1)).collect();
    let mut waits = enqueue(&queue, 1);
    held.extend((0..2).map(|_| enter_now(&queue, 2)));
    assert_eq!(queue.stats().concurrency_limit, Some(4));
    // Never none, however much pressure there is.
    queue.set_scale(Scale::from_q16(1));
    held.clear();
    held.push(taken(&mut waits));
    let mut waits = enqueue(&queue, 1);
    queue.set_scale(Scale::ONE);
    held.push(taken(&mut waits));
    held.extend((0..2).map(|_| enter_now(&queue, 1)));
    drop(enqueue(&queue, 1));
}

#[tokio::test(start_paused = true)]
async fn a_flow_limit_with_a_rate_alone_bounds_requests_in_flight() {
    let queue = queue(&QueueRule {
        at_once: None,
        rate: Some(("10/s".parse().unwrap(), 2)),
        ..rule(1, 1)
    });
    let held = enter_now(&queue, 1);
    let mut waits = enqueue(&queue, 1);
    // Who waits for its bound has paid nothing: the second of the burst is there for another.
    let other = enter_now(&queue, 2);
    sleep(ms(1000)).await;
    assert!(poll(&mut waits).is_pending());
    held.finish(BackendOutcome::Answered);
    let second = taken(&mut waits);
    let mut third = enqueue(&queue, 1);
    second.finish(BackendOutcome::Answered);
    // Two had gone together before; this is the burst of the time since.
    let third = taken(&mut third);
    let mut fourth = enqueue(&queue, 1);
    third.finish(BackendOutcome::Answered);
    assert!(poll(&mut fourth).is_pending(), "now it waits for the rate");
    let fourth = fourth.await.unwrap();
    assert!((ms(95)..ms(105)).contains(&fourth.waited()));
    drop(other);
}

#[tokio::test(start_paused = true)]
async fn a_rejection_estimates_the_wait_from_recent_dispatches() {
    let queue = queue(&QueueRule {
        per_flow: 5,
        max_wait: Span::from_secs(60),
        ..rule(8, 1)
    });
    let mut held = enter_now(&queue, 1);
    let mut waits: std::collections::VecDeque<Acquire> =
        (0..5).map(|_| enqueue(&queue, 1)).collect();
    for _ in 0..30 {
        // Requests of other flows pass and give no estimate for this one.
        for _ in 0..100 {
            enter_now(&queue, 2).finish(BackendOutcome::Answered);
            advance(ms(10)).await;
        }
        held.finish(BackendOutcome::Answered);
        held = taken(&mut waits.pop_front().unwrap());
        waits.push_back(enqueue(&queue, 1));
    }
    // One goes each second, and five wait.
    let rejected = refused(&queue, 1);
    assert_eq!(rejected.reason, RejectReason::FlowFull);
    let retry_after = Duration::from(rejected.retry_after);
    assert!(
        (ms(4900)..ms(5100)).contains(&retry_after),
        "{retry_after:?}"
    );
}
