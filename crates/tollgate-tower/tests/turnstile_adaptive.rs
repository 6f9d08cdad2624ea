//! A number of places that is learned, through the turnstile, on a clock that stands still until moved.

#![allow(clippy::unwrap_used, reason = "a test may")]

use std::time::Duration;

use tokio::time::sleep;
use tollgate::Span;
use tollgate::shape::{Adaptive, Estimator};
use tollgate_policy::{QueueConcurrency, QueuePlace, QueueRule};
use tollgate_tower::turnstile::{Outcome, Turnstile};

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

fn limit(turnstile: &Turnstile) -> u32 {
    turnstile.report().at_once.unwrap()
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
async fn load(turnstile: &Turnstile, seconds: u64, took_ms: u64, outcome: Outcome) -> u32 {
    let workers: Vec<_> = (0..60)
        .map(|_| {
            let turnstile = turnstile.clone();
            tokio::spawn(async move {
                loop {
                    let Ok(turn) = turnstile.enter(&place()).await else {
                        continue;
                    };
                    sleep(Duration::from_millis(took_ms)).await;
                    turn.finish(outcome);
                    let limit = limit(&turnstile);
                    assert!((MIN..=MAX).contains(&limit), "{limit}");
                }
            })
        })
        .collect();
    sleep(Duration::from_secs(seconds - 5)).await;
    let mut greatest = 0;
    for _ in 0..100 {
        sleep(Duration::from_millis(50)).await;
        greatest = greatest.max(limit(turnstile));
    }
    for worker in &workers {
        assert!(!worker.is_finished(), "a check of the range failed");
        worker.abort();
    }
    for worker in workers {
        assert!(worker.await.unwrap_err().is_cancelled());
    }
    let report = turnstile.report();
    assert_eq!((report.waiting, report.under_way), (0, 0));
    greatest
}

#[tokio::test(start_paused = true)]
async fn failures_bring_it_to_its_least_and_answers_to_its_most() {
    for by in [Estimator::Aimd, Estimator::Gradient2] {
        let turnstile = Turnstile::new(&rule(by)).unwrap();
        assert_eq!(limit(&turnstile), 10);
        let failing = load(&turnstile, 40, 20, Outcome::Failed).await;
        assert_eq!(failing, MIN, "{by:?}");
        // However much is served at once it takes 20 ms, so nothing but the range ends its growth.
        let well = load(&turnstile, 60, 20, Outcome::Answered).await;
        assert_eq!(well, MAX, "{by:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_learned_from_what_nobody_knows() {
    for by in [Estimator::Aimd, Estimator::Gradient2] {
        let turnstile = Turnstile::new(&rule(by)).unwrap();
        load(&turnstile, 20, 20, Outcome::Unknown).await;
        assert_eq!(limit(&turnstile), 10, "{by:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn every_estimator_moves_and_keeps_its_range() {
    for by in [Estimator::Aimd, Estimator::Gradient2] {
        let turnstile = Turnstile::new(&rule(by)).unwrap();
        let quick = load(&turnstile, 30, 20, Outcome::Answered).await;
        assert_ne!(quick, 10, "{by:?}");
        load(&turnstile, 30, 1900, Outcome::Answered).await;
        let failing = load(&turnstile, 30, 20, Outcome::Failed).await;
        assert_eq!(failing, MIN, "{by:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_hangs_counts_as_failed_while_it_still_hangs() {
    let mut rule = rule(Estimator::Aimd);
    rule.at_once = Some(QueueConcurrency::Adaptive(Adaptive {
        by: Estimator::Aimd,
        min: 1,
        max: MAX,
        initial: 10,
        timeout: Span::from_secs(2),
    }));
    let turnstile = Turnstile::new(&rule).unwrap();
    let mut held = Vec::new();
    for _ in 0..10 {
        held.push(turnstile.enter(&place()).await.unwrap());
        sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(limit(&turnstile), 10);
    // Nothing has ended for more than a second: that alone takes it to half at the most.
    sleep(Duration::from_millis(1400)).await;
    let stalled = limit(&turnstile);
    assert!((5..10).contains(&stalled), "{stalled}");
    // Their time is over, and they have failed, though they go on.
    sleep(Duration::from_secs(2)).await;
    let failed = limit(&turnstile);
    assert!(failed < 5, "{failed}");
    assert_eq!(turnstile.report().under_way, 10);
    // Each counts once: answering now says nothing more.
    for turn in held.drain(..) {
        turn.finish(Outcome::Answered);
        sleep(Duration::from_millis(150)).await;
    }
    assert_eq!(limit(&turnstile), failed);
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_learned_from_at_its_head_and_its_place_is_held_to_its_end() {
    let turnstile = Turnstile::new(&rule(Estimator::Aimd)).unwrap();
    let mut held = Vec::new();
    // Ten within less than a second are a window: all ten have entered before it is judged.
    for _ in 0..10 {
        let mut turn = turnstile.enter(&place()).await.unwrap();
        assert_eq!(limit(&turnstile), 10);
        sleep(Duration::from_millis(20)).await;
        turn.answered(Outcome::Failed);
        // The first to tell is believed. Were this one counted too, only half would have failed.
        turn.answered(Outcome::Answered);
        held.push(turn);
    }
    assert_eq!(limit(&turnstile), 5, "everything failed");
    assert_eq!(turnstile.report().under_way, 10);
    held.clear();
    assert_eq!(turnstile.report().under_way, 0);
    assert_eq!(limit(&turnstile), 5);
}

#[tokio::test(start_paused = true)]
async fn what_was_learned_stays_under_another_rule_of_the_same_kind() {
    let turnstile = Turnstile::new(&rule(Estimator::Aimd)).unwrap();
    let well = load(&turnstile, 60, 20, Outcome::Answered).await;
    assert_eq!(well, MAX);
    // If it was just being measured, that ends with the next one that comes.
    sleep(Duration::from_secs(15)).await;
    let turn = turnstile.enter(&place()).await.unwrap();
    turn.finish(Outcome::Unknown);
    assert_eq!(limit(&turnstile), MAX);
    let changed = |min, max, initial, by| {
        let mut rule = rule(by);
        rule.at_once = Some(QueueConcurrency::Adaptive(Adaptive {
            by,
            min,
            max,
            initial,
            timeout: Span::from_secs(2),
        }));
        turnstile.change(&rule);
        limit(&turnstile)
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
async fn a_client_that_sends_slowly_is_not_held_against_the_backend() {
    let turnstile = Turnstile::new(&rule(Estimator::Aimd)).unwrap();
    let mut held = Vec::new();
    for _ in 0..10 {
        let turn = turnstile.enter(&place()).await.unwrap();
        let mut sent = turn.sent_whole().unwrap();
        sent.later();
        held.push((turn, sent));
        sleep(Duration::from_millis(150)).await;
    }
    // Five times the timeout, in which nothing was asked of the backend yet.
    sleep(Duration::from_secs(10)).await;
    assert_eq!(limit(&turnstile), 10);
    for (turn, sent) in held.drain(..) {
        sent.now();
        sleep(Duration::from_millis(150)).await;
        turn.finish(Outcome::Answered);
    }
    assert!(limit(&turnstile) >= 10, "{}", limit(&turnstile));
}

#[tokio::test(start_paused = true)]
async fn what_was_sent_slowly_and_then_hangs_counts_as_failed_from_when_it_was_sent() {
    let turnstile = Turnstile::new(&rule(Estimator::Aimd)).unwrap();
    let mut held = Vec::new();
    for _ in 0..10 {
        let turn = turnstile.enter(&place()).await.unwrap();
        let mut sent = turn.sent_whole().unwrap();
        sent.later();
        held.push((turn, sent));
    }
    sleep(Duration::from_secs(10)).await;
    let mut hang = Vec::new();
    for (turn, sent) in held {
        sent.now();
        hang.push(turn);
        sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(limit(&turnstile), 10, "their time has just begun");
    sleep(Duration::from_secs(4)).await;
    assert!(limit(&turnstile) < 10, "all ten are still under way");
}

#[tokio::test(start_paused = true)]
async fn a_failure_before_all_was_sent_counts_and_an_answer_does_not() {
    for (outcome, expected) in [(Outcome::Failed, 9), (Outcome::Answered, 10)] {
        let turnstile = Turnstile::new(&rule(Estimator::Aimd)).unwrap();
        let mut late = Vec::new();
        for _ in 0..10 {
            let turn = turnstile.enter(&place()).await.unwrap();
            let mut sent = turn.sent_whole().unwrap();
            sent.later();
            // Longer than the timeout, which would make it a failure.
            sleep(Duration::from_millis(2500)).await;
            turn.finish(outcome);
            late.push(sent);
        }
        let after = limit(&turnstile);
        match outcome {
            Outcome::Failed => assert!(after <= expected, "{after}"),
            _ => assert_eq!(after, expected),
        }
        // What is told after the end is not listened to, though its place is another's by now.
        let turn = turnstile.enter(&place()).await.unwrap();
        late.into_iter().for_each(|sent| sent.now());
        turn.finish(Outcome::Unknown);
        assert_eq!(limit(&turnstile), after);
    }
}
