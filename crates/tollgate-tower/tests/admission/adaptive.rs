//! Adaptive concurrency limits through the queue, on a paused clock.

use std::time::Duration;

use tokio::time::sleep;
use tollgate::Span;
use tollgate::shape::{Adaptive, Estimator};
use tollgate_policy::{QueueConcurrency, QueuePlace, QueueRule};
use tollgate_tower::admission::{AdmissionQueue, BackendOutcome};

const MIN: u32 = 4;
const MAX: u32 = 30;

fn rule(by: Estimator) -> QueueRule {
    let adaptive = Adaptive {
        by,
        min: MIN,
        max: MAX,
        initial: 10,
        timeout: Span::from_secs(2),
    };
    QueueRule::new("api", QueueConcurrency::Adaptive(adaptive))
}

fn limit(queue: &AdmissionQueue) -> u32 {
    queue.stats().concurrency_limit.unwrap()
}

fn place() -> QueuePlace {
    QueuePlace {
        queue: 0,
        flow: 1,
        tier: None,
        weight: 1,
        cost: 1,
    }
}

/// Keeps every place busy for `seconds`; checks the range all the time. The greatest limit of the last five
/// seconds: now and then fewer may start for up to one of them, to measure, and that says nothing here.
async fn load(queue: &AdmissionQueue, seconds: u64, took_ms: u64, outcome: BackendOutcome) -> u32 {
    let workers: Vec<_> = (0..60)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move {
                loop {
                    let Ok(permit) = queue.acquire(&place()).await else {
                        continue;
                    };
                    sleep(Duration::from_millis(took_ms)).await;
                    permit.finish(outcome);
                    let limit = limit(&queue);
                    assert!((MIN..=MAX).contains(&limit), "{limit}");
                }
            })
        })
        .collect();
    sleep(Duration::from_secs(seconds - 5)).await;
    let mut greatest = 0;
    for _ in 0..100 {
        sleep(Duration::from_millis(50)).await;
        greatest = greatest.max(limit(queue));
    }
    for worker in &workers {
        assert!(!worker.is_finished(), "a check of the range failed");
        worker.abort();
    }
    for worker in workers {
        assert!(worker.await.unwrap_err().is_cancelled());
    }
    let report = queue.stats();
    assert_eq!((report.waiting, report.in_flight), (0, 0));
    greatest
}

#[tokio::test(start_paused = true)]
async fn overload_lowers_the_limit_to_min_and_answers_raise_it_to_max() {
    for by in [Estimator::Aimd, Estimator::Gradient2] {
        let queue = AdmissionQueue::new(&rule(by)).unwrap();
        assert_eq!(limit(&queue), 10);
        let failing = load(&queue, 40, 20, BackendOutcome::Overloaded).await;
        assert_eq!(failing, MIN, "{by:?}");
        // However much is served at once it takes 20 ms, so nothing but the range ends its growth.
        let well = load(&queue, 60, 20, BackendOutcome::Answered).await;
        assert_eq!(well, MAX, "{by:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn ignored_outcomes_do_not_change_the_limit() {
    for by in [Estimator::Aimd, Estimator::Gradient2] {
        let queue = AdmissionQueue::new(&rule(by)).unwrap();
        load(&queue, 20, 20, BackendOutcome::Ignored).await;
        assert_eq!(limit(&queue), 10, "{by:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn every_estimator_moves_and_keeps_its_range() {
    for by in [Estimator::Aimd, Estimator::Gradient2] {
        let queue = AdmissionQueue::new(&rule(by)).unwrap();
        let quick = load(&queue, 30, 20, BackendOutcome::Answered).await;
        assert_ne!(quick, 10, "{by:?}");
        load(&queue, 30, 1900, BackendOutcome::Answered).await;
        let failing = load(&queue, 30, 20, BackendOutcome::Overloaded).await;
        assert_eq!(failing, MIN, "{by:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hanging_request_counts_as_overloaded_while_it_hangs() {
    let mut rule = rule(Estimator::Aimd);
    rule.at_once = Some(QueueConcurrency::Adaptive(Adaptive {
        by: Estimator::Aimd,
        min: 1,
        max: MAX,
        initial: 10,
        timeout: Span::from_secs(2),
    }));
    let queue = AdmissionQueue::new(&rule).unwrap();
    let mut held = Vec::new();
    for _ in 0..10 {
        held.push(queue.acquire(&place()).await.unwrap());
        sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(limit(&queue), 10);
    // Nothing has ended for more than a second: that alone takes it to half at the most.
    sleep(Duration::from_millis(1400)).await;
    let stalled = limit(&queue);
    assert!((5..10).contains(&stalled), "{stalled}");
    // They have timed out and failed, though they continue.
    sleep(Duration::from_secs(2)).await;
    let failed = limit(&queue);
    assert!(failed < 5, "{failed}");
    assert_eq!(queue.stats().in_flight, 10);
    // Each counts once: answering now says nothing more.
    for permit in held.drain(..) {
        permit.finish(BackendOutcome::Answered);
        sleep(Duration::from_millis(150)).await;
    }
    assert_eq!(limit(&queue), failed);
}

#[tokio::test(start_paused = true)]
async fn a_sample_is_recorded_at_the_head_and_the_permit_held_to_the_end() {
    let queue = AdmissionQueue::new(&rule(Estimator::Aimd)).unwrap();
    let mut held = Vec::new();
    // Ten within less than a second are a window: all ten have entered before it is judged.
    for _ in 0..10 {
        let mut permit = queue.acquire(&place()).await.unwrap();
        assert_eq!(limit(&queue), 10);
        sleep(Duration::from_millis(20)).await;
        permit.record(BackendOutcome::Overloaded);
        // Only the first report counts. Were this one counted too, only half would have failed.
        permit.record(BackendOutcome::Answered);
        held.push(permit);
    }
    assert_eq!(limit(&queue), 5, "everything failed");
    assert_eq!(queue.stats().in_flight, 10);
    held.clear();
    assert_eq!(queue.stats().in_flight, 0);
    assert_eq!(limit(&queue), 5);
}

#[tokio::test(start_paused = true)]
async fn an_adaptive_limit_is_kept_under_a_rule_of_the_same_estimator() {
    let queue = AdmissionQueue::new(&rule(Estimator::Aimd)).unwrap();
    let well = load(&queue, 60, 20, BackendOutcome::Answered).await;
    assert_eq!(well, MAX);
    // If it was just being measured, that ends with the next one that comes.
    sleep(Duration::from_secs(15)).await;
    let permit = queue.acquire(&place()).await.unwrap();
    permit.finish(BackendOutcome::Ignored);
    assert_eq!(limit(&queue), MAX);
    let changed = |min, max, initial, by| {
        let mut rule = rule(by);
        rule.at_once = Some(QueueConcurrency::Adaptive(Adaptive {
            by,
            min,
            max,
            initial,
            timeout: Span::from_secs(2),
        }));
        queue.change(&rule);
        limit(&queue)
    };
    assert_eq!(changed(MIN, MAX, 5, Estimator::Aimd), MAX);
    assert_eq!(changed(2, 100, 5, Estimator::Aimd), MAX);
    assert_eq!(changed(2, 20, 5, Estimator::Aimd), 20);
    assert_eq!(
        changed(2, 20, 5, Estimator::Gradient2),
        5,
        "another kind begins anew"
    );
}

#[tokio::test(start_paused = true)]
async fn a_slow_upload_is_no_sample_of_the_backend() {
    let queue = AdmissionQueue::new(&rule(Estimator::Aimd)).unwrap();
    let mut held = Vec::new();
    for _ in 0..10 {
        let permit = queue.acquire(&place()).await.unwrap();
        let mut sent = permit.service_timer().unwrap();
        sent.pause();
        held.push((permit, sent));
        sleep(Duration::from_millis(150)).await;
    }
    // Five times the timeout, in which nothing was asked of the backend yet.
    sleep(Duration::from_secs(10)).await;
    assert_eq!(limit(&queue), 10);
    for (permit, sent) in held.drain(..) {
        sent.restart();
        sleep(Duration::from_millis(150)).await;
        permit.finish(BackendOutcome::Answered);
    }
    assert!(limit(&queue) >= 10, "{}", limit(&queue));
}

#[tokio::test(start_paused = true)]
async fn a_slow_upload_that_then_hangs_times_out_from_its_restart() {
    let queue = AdmissionQueue::new(&rule(Estimator::Aimd)).unwrap();
    let mut held = Vec::new();
    for _ in 0..10 {
        let permit = queue.acquire(&place()).await.unwrap();
        let mut sent = permit.service_timer().unwrap();
        sent.pause();
        held.push((permit, sent));
    }
    sleep(Duration::from_secs(10)).await;
    let mut hang = Vec::new();
    for (permit, sent) in held {
        sent.restart();
        hang.push(permit);
        sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(limit(&queue), 10, "their time has just begun");
    sleep(Duration::from_secs(4)).await;
    assert!(limit(&queue) < 10, "all ten are still in flight");
}

#[tokio::test(start_paused = true)]
async fn an_overload_during_upload_counts_and_an_answer_does_not() {
    for (outcome, expected) in [
        (BackendOutcome::Overloaded, 9),
        (BackendOutcome::Answered, 10),
    ] {
        let queue = AdmissionQueue::new(&rule(Estimator::Aimd)).unwrap();
        let mut late = Vec::new();
        for _ in 0..10 {
            let permit = queue.acquire(&place()).await.unwrap();
            let mut sent = permit.service_timer().unwrap();
            sent.pause();
            // Longer than the timeout, which would make it a failure.
            sleep(Duration::from_millis(2500)).await;
            permit.finish(outcome);
            late.push(sent);
        }
        let after = limit(&queue);
        match outcome {
            BackendOutcome::Overloaded => assert!(after <= expected, "{after}"),
            _ => assert_eq!(after, expected),
        }
        // A timer of a released permit has no effect, though its slot is reused by now.
        let permit = queue.acquire(&place()).await.unwrap();
        late.into_iter().for_each(|sent| sent.restart());
        permit.finish(BackendOutcome::Ignored);
        assert_eq!(limit(&queue), after);
    }
}
