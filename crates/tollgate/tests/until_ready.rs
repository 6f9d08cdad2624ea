//! `until_ready` on tokio's paused clock: no test waits, and every wait is exact.

#![allow(clippy::unwrap_used, reason = "a test may")]

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;
use tollgate::{Clock, Limiter, Moment, NotAdmitted, Span, UnkeyedLimiter};

/// The time of tokio, which is paused while a task runs and jumps to the next timer when all wait.
#[derive(Clone, Debug)]
struct TokioClock {
    start: Instant,
}

impl TokioClock {
    fn new() -> TokioClock {
        let start = Instant::now();
        TokioClock { start }
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Moment {
        Moment::from_nanos(1_000_000_000).plus(self.start.elapsed().into())
    }
}

fn limiter(limit: &str) -> Limiter<TokioClock> {
    Limiter::with_clock(limit.parse().unwrap(), TokioClock::new()).unwrap()
}

fn elapsed(limiter: &Limiter<TokioClock>) -> Duration {
    limiter.clock().start.elapsed()
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[tokio::test(start_paused = true)]
async fn each_request_passes_when_it_is_earned() {
    let limiter = limiter("5/s burst 1");
    for n in 0..5 {
        let left = limiter.until_ready("a").await.unwrap();
        assert_eq!((left.remaining, elapsed(&limiter)), (0, ms(n * 200)));
    }
    // Another key has its own allowance.
    limiter.until_ready("b").await.unwrap();
    assert_eq!(elapsed(&limiter), ms(800));
}

#[tokio::test(start_paused = true)]
async fn a_cost_waits_until_all_of_it_is_earned() {
    let limiter = limiter("5/s burst 10");
    let left = limiter.until_ready("a").with_cost(10).await.unwrap();
    assert_eq!((left.remaining, elapsed(&limiter)), (0, ms(0)));
    limiter.until_ready("a").with_cost(5).await.unwrap();
    assert_eq!(elapsed(&limiter), ms(1000));
}

#[tokio::test(start_paused = true)]
async fn a_cost_above_the_limit_fails_at_once() {
    let limiter = limiter("5/s burst 10");
    let never = limiter.until_ready("a").with_cost(11).await;
    assert_eq!(never, Err(NotAdmitted { retry_after: None }));
    assert_eq!(limiter.peek("a", 0).remaining(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_wait_beyond_the_longest_fails_at_once_and_takes_nothing() {
    let limiter = limiter("1/s burst 1");
    limiter.until_ready("a").await.unwrap();
    let late = limiter.until_ready("a").with_max_wait(ms(999)).await;
    let retry_after = Some(Span::from_secs(1));
    assert_eq!(late, Err(NotAdmitted { retry_after }));
    assert_eq!(elapsed(&limiter), ms(0));
    let in_time = limiter.until_ready("a").with_max_wait(ms(1000)).await;
    assert!(in_time.is_ok());
    assert_eq!(elapsed(&limiter), ms(1000));
}

#[tokio::test(start_paused = true)]
async fn the_longest_wait_counts_from_the_first_poll_over_all_attempts() {
    let limiter = limiter("1/s burst 2");
    limiter.until_ready("a").with_cost(2).await.unwrap();
    let waiting = limiter.until_ready("a").with_cost(2);
    let other = async {
        tokio::time::sleep(ms(1500)).await;
        limiter.check("a")
    };
    let (other, waited) = tokio::join!(other, waiting.with_max_wait(ms(2500)));
    assert!(other.is_admitted());
    // One of the two units is gone after two seconds, and comes after three.
    let retry_after = Some(Span::from_secs(1));
    assert_eq!(waited, Err(NotAdmitted { retry_after }));
    assert_eq!(elapsed(&limiter), ms(2000));
}

#[tokio::test(start_paused = true)]
async fn jitter_is_random_and_stays_within_its_bounds() {
    let mut waits = BTreeSet::new();
    for _ in 0..200 {
        let limiter = limiter("1/s burst 1");
        limiter.until_ready("a").await.unwrap();
        limiter.until_ready("a").with_jitter(ms(100)).await.unwrap();
        let waited = elapsed(&limiter);
        // The timer counts whole milliseconds.
        assert!((ms(1000)..=ms(1101)).contains(&waited), "{waited:?}");
        waits.insert(waited);
    }
    assert!(waits.len() > 30, "{waits:?}");
}

#[tokio::test(start_paused = true)]
async fn jitter_does_not_exceed_the_longest_wait() {
    for _ in 0..50 {
        let limiter = limiter("1/s burst 1");
        limiter.until_ready("a").await.unwrap();
        let ready = limiter.until_ready("a").with_jitter(Span::MAX);
        ready.with_max_wait(ms(1005)).await.unwrap();
        assert!(elapsed(&limiter) <= ms(1005));
    }
}

#[tokio::test(start_paused = true)]
async fn slots_of_a_leaky_bucket_are_served_in_order() {
    let limiter = limiter("leaky bucket 5/s queue 3");
    let wait = async || {
        let ready = limiter.until_ready("a").with_jitter(ms(500)).await;
        (elapsed(&limiter), ready.is_ok())
    };
    let waits = tokio::join!(wait(), wait(), wait());
    let at = |n| (ms(n), true);
    assert_eq!(waits, (at(0), at(200), at(400)));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_wait_gives_its_slot_back() {
    let limiter = limiter("leaky bucket 1/s queue 2");
    limiter.until_ready("a").await.unwrap();
    let dropped = tokio::time::timeout(ms(10), limiter.until_ready("a")).await;
    assert!(dropped.is_err());
    assert_eq!(
        limiter.peek("a", 1).verdict.wait(),
        Some(Span::from_millis(990))
    );
    // Too long a wait does the same.
    let late = limiter.until_ready("a").with_max_wait(ms(100)).await;
    assert!(late.is_err());
    assert_eq!(
        limiter.peek("a", 1).verdict.wait(),
        Some(Span::from_millis(990))
    );
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_was_used_is_not_given_back() {
    let limiter = limiter("leaky bucket 1/s queue 2");
    limiter.until_ready("a").await.unwrap();
    limiter.until_ready("a").await.unwrap();
    assert_eq!(elapsed(&limiter), ms(1000));
    assert_eq!(
        limiter.peek("a", 1).verdict.wait(),
        Some(Span::from_secs(1))
    );
}

#[tokio::test(start_paused = true)]
async fn tasks_can_wait_and_one_limit_for_all_waits_too() {
    let clock = TokioClock::new();
    let limiter = UnkeyedLimiter::with_clock("10/s burst 1".parse().unwrap(), clock).unwrap();
    let tasks: Vec<_> = (0..10)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move { limiter.until_ready().await })
        })
        .collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    assert_eq!(elapsed(limiter.limiter()), ms(900));
}
