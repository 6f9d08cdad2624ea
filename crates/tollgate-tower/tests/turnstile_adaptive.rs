//! A number of places that is learned, through the turnstile, on a clock that stands still until moved.

#![allow(clippy::unwrap_used, reason = "a test may")]

use std::time::Duration;

use tokio::time::sleep;
use tollgate::Span;
use tollgate::policy::{Adaptive, AtOnce, Estimator, Place, QueueRule};
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
    QueueRule::new("api", AtOnce::Adaptive(adaptive))
}

fn limit(turnstile: &Turnstile) -> u32 {
    turnstile.report().at_once.unwrap()
}

fn place() -> Place {
    Place {
        queue: 0,
        flow: 1,
        tier: None,
        weight: 1,
        cost: 1,
    }
}

/// Keeps every place busy for `seconds`; checks the range all the time.
async fn load(turnstile: &Turnstile, seconds: u64, took_ms: u64, outcome: Outcome) {
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
    sleep(Duration::from_secs(seconds)).await;
    for worker in &workers {
        assert!(!worker.is_finished(), "a check of the range failed");
        worker.abort();
    }
    for worker in workers {
        assert!(worker.await.unwrap_err().is_cancelled());
    }
    let report = turnstile.report();
    assert_eq!((report.waiting, report.under_way), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn failures_bring_it_to_its_least_and_answers_to_its_most() {
    let turnstile = Turnstile::new(&rule(Estimator::Aimd)).unwrap();
    assert_eq!(limit(&turnstile), 10);
    load(&turnstile, 40, 20, Outcome::Failed).await;
    assert_eq!(limit(&turnstile), MIN);
    load(&turnstile, 60, 20, Outcome::Answered).await;
    assert_eq!(limit(&turnstile), MAX);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_learned_from_what_nobody_knows() {
    for by in [Estimator::Aimd, Estimator::Vegas, Estimator::Gradient2] {
        let turnstile = Turnstile::new(&rule(by)).unwrap();
        load(&turnstile, 20, 20, Outcome::Unknown).await;
        assert_eq!(limit(&turnstile), 10, "{by:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn every_estimator_moves_and_keeps_its_range() {
    for by in [Estimator::Aimd, Estimator::Vegas, Estimator::Gradient2] {
        let turnstile = Turnstile::new(&rule(by)).unwrap();
        load(&turnstile, 30, 20, Outcome::Answered).await;
        assert_ne!(limit(&turnstile), 10, "{by:?}");
        load(&turnstile, 30, 1900, Outcome::Answered).await;
        load(&turnstile, 30, 20, Outcome::Failed).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_hangs_counts_as_failed_while_it_still_hangs() {
    let turnstile = Turnstile::new(&rule(Estimator::Aimd)).unwrap();
    let mut held = Vec::new();
    // Spread over more than a window, which closes with the first sample a second after its first.
    for _ in 0..10 {
        held.push(turnstile.enter(&place()).await.unwrap());
        sleep(Duration::from_millis(150)).await;
    }
    assert_eq!(limit(&turnstile), 10);
    sleep(Duration::from_secs(3)).await;
    assert_eq!(limit(&turnstile), 9, "all ten are still under way");
    assert_eq!(turnstile.report().under_way, 10);
    // Each counts once: answering now says nothing more.
    for turn in held.drain(..) {
        turn.finish(Outcome::Answered);
        sleep(Duration::from_millis(150)).await;
    }
    assert_eq!(limit(&turnstile), 9);
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_learned_from_at_its_head_and_its_place_is_held_to_its_end() {
    let turnstile = Turnstile::new(&rule(Estimator::Aimd)).unwrap();
    let mut held = Vec::new();
    for _ in 0..10 {
        let mut turn = turnstile.enter(&place()).await.unwrap();
        sleep(Duration::from_millis(150)).await;
        turn.answered(Outcome::Failed);
        turn.answered(Outcome::Answered);
        held.push(turn);
    }
    assert_eq!(limit(&turnstile), 9);
    assert_eq!(turnstile.report().under_way, 10);
    held.clear();
    assert_eq!(turnstile.report().under_way, 0);
}

#[tokio::test(start_paused = true)]
async fn what_was_learned_stays_under_another_rule_of_the_same_kind() {
    let turnstile = Turnstile::new(&rule(Estimator::Aimd)).unwrap();
    load(&turnstile, 60, 20, Outcome::Answered).await;
    assert_eq!(limit(&turnstile), MAX);
    let changed = |min, max, initial, by| {
        let mut rule = rule(by);
        rule.at_once = Some(AtOnce::Adaptive(Adaptive {
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
        changed(2, 20, 5, Estimator::Vegas),
        5,
        "another kind begins anew"
    );
}
