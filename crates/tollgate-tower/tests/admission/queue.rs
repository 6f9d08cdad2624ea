//! The promises of an admission queue, on a paused clock.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::{Instant, advance, sleep};
use tollgate::shape::{Adaptive, Estimator};
use tollgate::{Scale, Span};
use tollgate_policy::{QueueConcurrency, QueuePlace, QueueRule, Source, TierWeights};
use tollgate_tower::admission::{
    Acquire, AdmissionQueue, BackendOutcome, QueueError, QueuePermit, QueueSet, RejectReason,
    Rejected,
};

fn rule(at_once: u32) -> QueueRule {
    QueueRule::new("api", QueueConcurrency::Fixed(at_once))
}

fn paced(rate: &str, burst: u64) -> QueueRule {
    QueueRule {
        at_once: None,
        rate: Some((rate.parse().unwrap(), burst)),
        ..rule(1)
    }
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

fn costing(cost: u64) -> QueuePlace {
    QueuePlace { cost, ..place(1) }
}

fn poll(acquire: &mut Acquire) -> Poll<Result<QueuePermit, Rejected>> {
    Pin::new(acquire).poll(&mut Context::from_waker(Waker::noop()))
}

/// A permit that must be granted at once.
fn enter_now(queue: &AdmissionQueue, place: &QueuePlace) -> QueuePermit {
    match poll(&mut queue.acquire(place)) {
        Poll::Ready(Ok(permit)) => permit,
        other => panic!("no permit at once: {other:?}"),
    }
}

/// A request that has to wait.
fn enqueue(queue: &AdmissionQueue, place: &QueuePlace) -> Acquire {
    let mut acquire = queue.acquire(place);
    assert!(poll(&mut acquire).is_pending());
    acquire
}

fn refused(queue: &AdmissionQueue, place: &QueuePlace) -> Rejected {
    match poll(&mut queue.acquire(place)) {
        Poll::Ready(Err(rejected)) => rejected,
        other => panic!("not refused: {other:?}"),
    }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[tokio::test(start_paused = true)]
async fn a_free_permit_is_granted_at_the_first_poll_and_the_next_request_waits() {
    let queue = AdmissionQueue::new(&rule(1)).unwrap();
    let unpolled = queue.acquire(&place(9));
    let first = enter_now(&queue, &place(1));
    assert_eq!(first.waited(), Duration::ZERO);
    let mut second = enqueue(&queue, &place(2));
    drop(unpolled);
    let report = queue.stats();
    assert_eq!((report.waiting, report.in_flight), (1, 1));
    assert_eq!(report.concurrency_limit, Some(1));
    advance(ms(30)).await;
    first.finish(BackendOutcome::Answered);
    let Poll::Ready(Ok(second)) = poll(&mut second) else {
        panic!("its permit has come")
    };
    assert_eq!(second.waited(), ms(30));
    drop(second);
    let report = queue.stats();
    assert_eq!((report.waiting, report.in_flight), (0, 0));
    assert_eq!(report.served_without_tier.requests, 2);
    assert_eq!((report.waits.counts[0], report.waits.counts[4]), (1, 1));
    assert_eq!(report.waits.sum, ms(30));
    assert_eq!(report.unserved.by_reason().map(|(_, count)| count), [0; 5]);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_request_leaves_the_queue_or_passes_its_permit_on() {
    let queue = AdmissionQueue::new(&rule(1)).unwrap();
    let held = enter_now(&queue, &place(1));
    let impatient = enqueue(&queue, &place(2));
    let unlucky = enqueue(&queue, &place(3));
    let mut last = enqueue(&queue, &place(4));
    drop(impatient);
    assert_eq!(queue.stats().waiting, 2);
    // The permit is granted to the request that is never polled again.
    held.finish(BackendOutcome::Answered);
    assert!(poll(&mut last).is_pending());
    assert_eq!(queue.stats().in_flight, 1);
    drop(unlucky);
    assert!(poll(&mut last).is_ready());
    let report = queue.stats();
    assert_eq!(
        (
            report.unserved.cancelled,
            report.served_without_tier.requests
        ),
        (2, 2)
    );
    assert_eq!((report.waiting, report.in_flight), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_request_is_rejected_after_max_wait_without_being_polled() {
    let mut rule = rule(1);
    rule.max_wait = Span::from_millis(100);
    let queue = AdmissionQueue::new(&rule).unwrap();
    let _held = enter_now(&queue, &place(1));
    let begin = Instant::now();
    let early = queue.acquire(&place(2));
    let late = async {
        sleep(ms(40)).await;
        let rejected = queue.acquire(&place(3)).await.unwrap_err();
        (rejected, begin.elapsed())
    };
    let (early, (late, after)) =
        tokio::join!(async { (early.await.unwrap_err(), begin.elapsed()) }, late);
    assert_eq!(
        (early.0.reason, late.reason),
        (RejectReason::MaxWait, RejectReason::MaxWait)
    );
    assert!((ms(100)..=ms(102)).contains(&early.1), "{:?}", early.1);
    assert!((ms(140)..=ms(142)).contains(&after), "{after:?}");
    assert!(late.retry_after <= Span::from_millis(100));
    assert!(late.retry_after >= Span::from_millis(1));
    let report = queue.stats();
    assert_eq!((report.unserved.max_wait, report.waiting), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn a_max_wait_of_zero_rejects_at_the_first_poll() {
    let mut rule = rule(1);
    rule.max_wait = Span::ZERO;
    let queue = AdmissionQueue::new(&rule).unwrap();
    let held = enter_now(&queue, &place(1));
    assert_eq!(refused(&queue, &place(2)).reason, RejectReason::MaxWait);
    drop(held);
    drop(enter_now(&queue, &place(2)));
}

#[tokio::test(start_paused = true)]
async fn the_bounds_of_flow_and_queue_have_their_own_reasons_and_the_largest_flow_is_displaced() {
    let mut rule = rule(1);
    (rule.per_flow, rule.total) = (2, 3);
    let queue = AdmissionQueue::new(&rule).unwrap();
    let _held = enter_now(&queue, &place(1));
    let _one = enqueue(&queue, &place(1));
    let mut two = enqueue(&queue, &place(1));
    assert_eq!(refused(&queue, &place(1)).reason, RejectReason::FlowFull);
    let _three = enqueue(&queue, &place(2));
    assert_eq!(refused(&queue, &place(2)).reason, RejectReason::QueueFull);
    let _four = enqueue(&queue, &place(3));
    let Poll::Ready(Err(rejected)) = poll(&mut two) else {
        panic!("it had to make room")
    };
    assert_eq!(rejected.reason, RejectReason::Displaced);
    let unserved = queue.stats().unserved;
    assert_eq!((unserved.flow_full, unserved.queue_full), (1, 1));
    assert_eq!((unserved.displaced, queue.stats().waiting), (1, 3));
}

#[tokio::test(start_paused = true)]
async fn no_window_dispatches_more_than_rate_and_burst() {
    let mut rule = paced("100/s", 5);
    rule.per_flow = 400;
    let queue = AdmissionQueue::new(&rule).unwrap();
    let begin = Instant::now();
    let enter = |_| {
        let acquire = queue.acquire(&place(1));
        tokio::spawn(async move {
            let permit = acquire.await.unwrap();
            let at = begin.elapsed();
            permit.finish(BackendOutcome::Answered);
            at
        })
    };
    let tasks: Vec<_> = (0..300).map(enter).collect();
    let mut times = Vec::new();
    for task in tasks {
        times.push(task.await.unwrap());
    }
    times.sort();
    for (i, from) in times.iter().enumerate() {
        for (j, to) in times.iter().enumerate().skip(i) {
            let allowed = 5 + (*to - *from).as_millis() / 10;
            assert!((j - i) as u128 <= allowed, "{i}..={j}: {from:?} to {to:?}");
        }
    }
    // Nor less, but for a millisecond of the timer at each permit.
    assert!(times[299] <= ms(2950 + 300), "{:?}", times[299]);
}

#[tokio::test(start_paused = true)]
async fn a_rate_above_the_timer_granularity_is_reached() {
    let mut rule = paced("5000/s", 1);
    rule.per_flow = 1000;
    let queue = AdmissionQueue::new(&rule).unwrap();
    let begin = Instant::now();
    let enter = |_| tokio::spawn(queue.acquire(&place(1)));
    let tasks: Vec<_> = (0..1000).map(enter).collect();
    for task in tasks {
        task.await
            .unwrap()
            .unwrap()
            .finish(BackendOutcome::Answered);
    }
    let took = begin.elapsed();
    assert!((ms(198)..=ms(230)).contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_cost_above_the_burst_empties_the_bucket_and_does_not_hang() {
    let queue = AdmissionQueue::new(&paced("10/s", 5)).unwrap();
    let begin = Instant::now();
    drop(enter_now(&queue, &costing(50)));
    queue
        .acquire(&costing(1))
        .await
        .unwrap()
        .finish(BackendOutcome::Answered);
    assert!((ms(100)..=ms(102)).contains(&begin.elapsed()));
    queue
        .acquire(&costing(50))
        .await
        .unwrap()
        .finish(BackendOutcome::Answered);
    assert!((ms(600)..=ms(604)).contains(&begin.elapsed()));
}

#[tokio::test(start_paused = true)]
async fn rate_and_concurrency_limit_both_apply() {
    let mut rule = paced("10/s", 1);
    rule.at_once = Some(QueueConcurrency::Fixed(1));
    let queue = AdmissionQueue::new(&rule).unwrap();
    let held = enter_now(&queue, &place(1));
    let mut next = enqueue(&queue, &place(1));
    sleep(ms(500)).await;
    assert!(
        poll(&mut next).is_pending(),
        "the rate agrees, the place does not"
    );
    held.finish(BackendOutcome::Answered);
    let Poll::Ready(Ok(permit)) = poll(&mut next) else {
        panic!("now both agree")
    };
    permit.finish(BackendOutcome::Answered);
    let mut next = enqueue(&queue, &place(1));
    sleep(ms(98)).await;
    assert!(
        poll(&mut next).is_pending(),
        "the place agrees, the rate does not"
    );
    sleep(ms(4)).await;
    assert!(poll(&mut next).is_ready());
}

#[tokio::test(start_paused = true)]
async fn a_permit_that_was_never_taken_is_refunded_to_the_rate() {
    let queue = AdmissionQueue::new(&paced("10/s", 1)).unwrap();
    drop(enter_now(&queue, &place(1)));
    let gone = enqueue(&queue, &place(1));
    sleep(ms(102)).await;
    assert_eq!(queue.stats().in_flight, 1, "it was given the permit");
    drop(gone);
    drop(enter_now(&queue, &place(1)));
}

#[tokio::test(start_paused = true)]
async fn with_a_rate_alone_retry_after_is_exact() {
    let mut rule = paced("10/s", 1);
    rule.per_flow = 3;
    let queue = AdmissionQueue::new(&rule).unwrap();
    drop(enter_now(&queue, &place(1)));
    let _waiting: Vec<_> = (0..3).map(|_| enqueue(&queue, &place(1))).collect();
    let rejected = refused(&queue, &place(1));
    assert_eq!(rejected.retry_after, Span::from_millis(300));
    queue.set_scale(Scale::from_q16(65_536 / 2));
    let rejected = refused(&queue, &place(1));
    assert_eq!(rejected.retry_after, Span::from_millis(600));
}

#[tokio::test(start_paused = true)]
async fn retry_after_follows_recent_dispatches() {
    let mut rule = rule(1);
    rule.per_flow = 20;
    let queue = AdmissionQueue::new(&rule).unwrap();
    let mut held = enter_now(&queue, &place(1));
    let mut waiting: Vec<_> = (0..20).map(|_| enqueue(&queue, &place(1))).collect();
    let rejected = refused(&queue, &place(1));
    assert_eq!(rejected.retry_after, rule.max_wait, "nothing is known yet");
    for _ in 0..10 {
        sleep(ms(50)).await;
        held.finish(BackendOutcome::Answered);
        let Poll::Ready(Ok(permit)) = poll(&mut waiting.remove(0)) else {
            panic!("its permit has come")
        };
        held = permit;
        waiting.push(enqueue(&queue, &place(1)));
    }
    let retry_after = refused(&queue, &place(1)).retry_after;
    let near = Span::from_millis(990)..=Span::from_millis(1030);
    assert!(
        near.contains(&retry_after),
        "20 times 50 ms, not {retry_after:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn scaling_lowers_the_limit_and_restores_it() {
    let queue = AdmissionQueue::new(&rule(10)).unwrap();
    let mut held: Vec<_> = (0..10).map(|_| enter_now(&queue, &place(1))).collect();
    queue.set_scale(Scale::from_q16(65_536 / 2));
    assert_eq!(queue.stats().concurrency_limit, Some(5));
    assert_eq!(queue.stats().in_flight, 10, "no request is stopped");
    let mut waiting = enqueue(&queue, &place(1));
    held.truncate(5);
    assert!(poll(&mut waiting).is_pending());
    held.truncate(4);
    assert!(poll(&mut waiting).is_ready());
    queue.set_scale(Scale::from_q16(0));
    assert_eq!(queue.stats().concurrency_limit, Some(1), "never a stop");
    held.truncate(1);
    let mut waiting = enqueue(&queue, &place(1));
    queue.set_scale(Scale::ONE);
    assert!(poll(&mut waiting).is_ready());
    assert_eq!(queue.stats().concurrency_limit, Some(10));
}

#[tokio::test(start_paused = true)]
async fn scaling_slows_the_rate_and_restores_it() {
    let queue = AdmissionQueue::new(&paced("10/s", 1)).unwrap();
    drop(enter_now(&queue, &place(1)));
    queue.set_scale(Scale::from_q16(65_536 / 4));
    let begin = Instant::now();
    drop(queue.acquire(&place(1)).await);
    assert!((ms(400)..=ms(402)).contains(&begin.elapsed()));
    // A change while a request waits applies from then on.
    let acquire = tokio::spawn(queue.acquire(&place(1)));
    sleep(ms(200)).await;
    queue.set_scale(Scale::ONE);
    drop(acquire.await.unwrap());
    assert!(
        (ms(648)..=ms(656)).contains(&begin.elapsed()),
        "{:?}",
        begin.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_new_rule_admits_more_and_waiting_requests_keep_waiting() {
    let before = QueueSet::new(&[rule(1)], None).unwrap();
    let queue = before.get(0).unwrap().clone();
    let _held = enter_now(&queue, &place(1));
    let mut first = enqueue(&queue, &place(1));
    let mut second = enqueue(&queue, &place(1));
    let mut more = rule(2);
    (more.per_flow, more.total) = (1, 1);
    let after = QueueSet::new(&[more.clone()], Some(&before)).unwrap();
    assert!(poll(&mut first).is_pending(), "not active yet");
    after.apply();
    let Poll::Ready(Ok(first)) = poll(&mut first) else {
        panic!("there are two places now")
    };
    assert!(poll(&mut second).is_pending());
    assert_eq!(refused(&queue, &place(1)).reason, RejectReason::FlowFull);
    // A rate on top, and then nothing but a rate.
    more.rate = Some(("10/s".parse().unwrap(), 1));
    queue.change(&more);
    first.finish(BackendOutcome::Answered);
    assert!(poll(&mut second).is_ready(), "the new bucket is full");
    more.at_once = None;
    queue.change(&more);
    assert_eq!(queue.stats().concurrency_limit, None);
    let mut third = enqueue(&queue, &place(1));
    more.rate = None;
    more.at_once = Some(QueueConcurrency::Fixed(0));
    queue.change(&more);
    assert!(
        poll(&mut third).is_ready(),
        "a width of 0 is not obeyed, no rate is"
    );
}

#[tokio::test(start_paused = true)]
async fn a_shorter_max_wait_applies_to_waiting_requests() {
    let mut patient = rule(1);
    let queue = AdmissionQueue::new(&patient).unwrap();
    let _held = enter_now(&queue, &place(1));
    let begin = Instant::now();
    let waiting = tokio::spawn(queue.acquire(&place(1)));
    sleep(ms(50)).await;
    patient.max_wait = Span::from_millis(200);
    queue.change(&patient);
    assert_eq!(
        waiting.await.unwrap().unwrap_err().reason,
        RejectReason::MaxWait
    );
    assert!((ms(200)..=ms(202)).contains(&begin.elapsed()));
}

#[tokio::test(start_paused = true)]
async fn served_requests_are_counted_by_tier() {
    let mut rule = rule(10);
    rule.weights = Some(TierWeights {
        source: Source::Header("plan".into()),
        members: None,
        tiers: vec![(Arc::from("free"), 1), (Arc::from("paid"), 4)],
    });
    let queue = AdmissionQueue::new(&rule).unwrap();
    for (tier, cost) in [
        (Some(0), 1),
        (Some(1), 7),
        (Some(1), 8),
        (None, 3),
        (Some(9), 1),
    ] {
        drop(enter_now(
            &queue,
            &QueuePlace {
                tier,
                ..costing(cost)
            },
        ));
    }
    let report = queue.stats();
    let served: Vec<_> = report.served.iter().map(|s| (s.requests, s.cost)).collect();
    assert_eq!(served, [(1, 1), (2, 15)]);
    assert_eq!(
        (
            report.served_without_tier.requests,
            report.served_without_tier.cost
        ),
        (2, 4)
    );
}

#[tokio::test(start_paused = true)]
async fn a_tier_keeps_its_counter_in_any_order_of_the_rule() {
    let weighted = |names: &[&str]| {
        let mut rule = rule(1);
        rule.weights = Some(TierWeights {
            source: Source::Header("plan".into()),
            members: None,
            tiers: names.iter().map(|name| (Arc::from(*name), 1)).collect(),
        });
        rule
    };
    let of = |tier| QueuePlace {
        tier: Some(tier),
        ..costing(1)
    };
    let served = |queue: &AdmissionQueue| -> Vec<u64> {
        let report = queue.stats();
        report.served.iter().map(|served| served.requests).collect()
    };
    let queue = AdmissionQueue::new(&weighted(&["free", "paid"])).unwrap();
    drop(enter_now(&queue, &of(0)));
    let held = enter_now(&queue, &of(1));
    let waiting = tokio::spawn(queue.acquire(&of(1)));
    tokio::task::yield_now().await;
    queue.change(&weighted(&["new", "paid", "free"]));
    assert_eq!(served(&queue), [0, 1, 1]);
    // A request keeps the tier that it arrived with.
    drop(held);
    drop(waiting.await.unwrap().unwrap());
    assert_eq!(served(&queue), [0, 2, 1]);
    queue.change(&weighted(&["paid"]));
    assert_eq!(served(&queue), [2]);
    queue.change(&weighted(&["free", "paid"]));
    assert_eq!(served(&queue), [1, 2]);
}

#[test]
fn an_unusable_queue_is_an_error() {
    let problem_of = |rule: &QueueRule| {
        let QueueError { queue, problem, .. } = AdmissionQueue::new(rule).unwrap_err();
        assert_eq!(&*queue, "api");
        problem
    };
    assert!(problem_of(&rule(0)).contains("`depth` is 0"));
    let mut neither = rule(1);
    neither.at_once = None;
    assert!(problem_of(&neither).contains("neither `at_once` nor `rate`"));
    assert!(
        problem_of(&paced("1/s", 0)).contains("burst"),
        "{}",
        problem_of(&paced("1/s", 0))
    );
    let adaptive = Adaptive {
        by: Estimator::Aimd,
        min: 5,
        max: 4,
        initial: 4,
        timeout: Span::from_secs(1),
    };
    assert!(
        problem_of(&QueueRule::new("api", QueueConcurrency::Adaptive(adaptive)))
            .contains("`min` is 5")
    );
}

#[test]
fn a_timer_task_whose_runtime_ends_is_replaced() {
    let mut rule = rule(1);
    rule.max_wait = Span::from_millis(150);
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_time().build().unwrap()
    };
    let queue = AdmissionQueue::new(&rule).unwrap();
    let _held = enter_now(&queue, &place(1));
    let (first, second) = (runtime(), runtime());
    let abandoned = first.spawn(queue.acquire(&place(1)));
    first.block_on(async { sleep(ms(5)).await });
    let waiting = second.spawn(queue.acquire(&place(2)));
    second.block_on(async { sleep(ms(5)).await });
    assert_eq!(queue.stats().waiting, 2);
    drop(first);
    let result = second.block_on(async {
        let limit = Duration::from_secs(5);
        tokio::time::timeout(limit, waiting).await.unwrap().unwrap()
    });
    assert_eq!(result.unwrap_err().reason, RejectReason::MaxWait);
    drop(abandoned);
}

#[tokio::test(start_paused = true)]
async fn a_future_polled_after_completion_stays_pending() {
    let queue = AdmissionQueue::new(&rule(1)).unwrap();
    let mut acquire = pin!(queue.acquire(&place(1)));
    let permit = acquire.as_mut().await;
    assert!(
        acquire
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_pending()
    );
    drop(permit);
    assert_eq!(queue.stats().in_flight, 0);
}
