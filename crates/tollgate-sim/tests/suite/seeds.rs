//! The well-known examples of rate limiting, through the public interface.

use std::error::Error;
use tollgate::{Limit, Limiter, ManualClock, Moment, Span, Verdict};

type TestResult = Result<(), Box<dyn Error>>;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

/// A limiter and the clock that it reads.
fn limiter(limit: Limit) -> Result<(Limiter<ManualClock>, ManualClock), Box<dyn Error>> {
    let clock = ManualClock::new();
    let limiter = Limiter::with_clock(limit.with_max_keys(64), clock.clone())?;
    Ok((limiter, clock))
}

fn at(ns: u64) -> Moment {
    Moment::from_nanos(ns)
}

fn refused(ns: u64) -> Verdict {
    Verdict::Refuse {
        retry_after: Span::from_nanos(ns),
    }
}

#[test]
fn opening_the_app_sends_ten_requests_at_once_and_the_eleventh_waits_a_fifth_of_a_second()
-> TestResult {
    let (bucket, clock) = limiter(Limit::token_bucket("5/s".parse()?, 10)?)?;
    for left in (0..10).rev() {
        let decision = bucket.charge("rider", 1);
        assert!(decision.is_admitted());
        assert_eq!(decision.remaining(), left);
    }
    assert_eq!(bucket.check("rider"), refused(200 * MS));
    clock.set(at(200 * MS - 1));
    assert_eq!(bucket.check("rider"), refused(1));
    clock.set(at(200 * MS));
    assert_eq!(bucket.check("rider"), Verdict::Pass);
    // Idle for two seconds and more, it is full and no fuller.
    clock.set(at(2_200 * MS));
    assert_eq!(bucket.peek("rider", 0).remaining(), 10);
    clock.set(at(3_600 * SECOND));
    assert_eq!(bucket.peek("rider", 0).remaining(), 10);
    Ok(())
}

#[test]
fn a_bucket_refills_before_it_is_charged() -> TestResult {
    let (bucket, clock) = limiter(Limit::token_bucket("5/s".parse()?, 10)?)?;
    for _ in 0..6 {
        let _ = bucket.check("rider");
    }
    clock.set(at(100 * MS));
    let half = bucket.charge("rider", 1);
    // Three and a half are left: three whole ones, and the fourth in a tenth of a second.
    assert_eq!(half.remaining(), 3);
    assert_eq!(half.status.next_after, Span::from_millis(100));
    clock.set(at(200 * MS));
    assert_eq!(bucket.charge("rider", 1).remaining(), 3);
    Ok(())
}

#[test]
fn a_queue_of_5000_that_drains_3000_a_second_spills_1700_of_the_fourth_wave() -> TestResult {
    let (queue, clock) = limiter(Limit::leaky_bucket("3000/s".parse()?, 5000)?)?;
    let mut spilled = Vec::new();
    let mut last_wait = Span::ZERO;
    for (second, arrivals) in [(0, 4000), (1, 2500), (2, 3200), (3, 6000)] {
        clock.set(at(second * SECOND));
        let mut over = 0;
        for _ in 0..arrivals {
            match queue.check("orders") {
                Verdict::Refuse { .. } => over += 1,
                admitted => last_wait = admitted.wait().unwrap_or_default(),
            }
        }
        spilled.push(over);
    }
    assert_eq!(spilled, [0, 0, 0, 1700]);
    assert_eq!(last_wait, Span::from_nanos(1_666_333_334));
    // Full at three seconds, empty 5000/3000 of a second later.
    assert_eq!(
        queue.peek("orders", 0).status.full_after,
        Span::from_nanos(1_666_666_667)
    );
    Ok(())
}

/// One request a second from 12:00:50 to 12:01:09; how many pass.
fn across_the_boundary(limit: Limit) -> Result<usize, Box<dyn Error>> {
    let (limiter, clock) = limiter(limit)?;
    let noon = 12 * 3600;
    let passes = |second: u64| {
        clock.set(at((noon + second) * SECOND));
        limiter.check("client").is_admitted()
    };
    Ok((50..70).filter(|&second| passes(second)).count())
}

#[test]
fn a_fixed_window_of_10_a_minute_admits_20_in_20_seconds_across_its_boundary() -> TestResult {
    assert_eq!(
        across_the_boundary(Limit::fixed_window("10/min".parse()?)?)?,
        20
    );
    Ok(())
}

#[test]
fn a_sliding_log_of_10_a_minute_admits_10_in_any_20_seconds() -> TestResult {
    assert_eq!(
        across_the_boundary(Limit::sliding_log("10/min".parse()?)?)?,
        10
    );
    Ok(())
}

#[test]
fn a_log_frees_its_place_exactly_one_window_later() -> TestResult {
    let (log, clock) = limiter(Limit::sliding_log("1/min".parse()?)?)?;
    assert_eq!(log.check("client"), Verdict::Pass);
    clock.set(at(60 * SECOND - 1));
    assert_eq!(log.check("client"), refused(1));
    clock.set(at(60 * SECOND));
    assert_eq!(log.check("client"), Verdict::Pass);
    Ok(())
}

#[test]
fn an_estimate_of_49_and_a_half_leaves_no_room_for_one_more_of_50() -> TestResult {
    // Two counters are what a large limit gets, so everything is 2000 times as much.
    const TIMES: u64 = 2_000;
    let (counter, clock) = limiter(Limit::sliding_window("100000/min".parse()?)?)?;
    // 42 in the minute before, 18 in this one; at 15 s into it 18 + 42 * 0.75 = 49.5.
    clock.set(at(30 * SECOND));
    assert!(counter.charge("client", 42 * TIMES).is_admitted());
    clock.set(at(75 * SECOND));
    assert!(counter.charge("client", 18 * TIMES).is_admitted());
    let full = counter.charge("client", TIMES);
    assert_eq!(full.verdict, refused(714_285_715));
    assert_eq!(full.remaining(), TIMES / 2);
    clock.set(at(75_714_285_714));
    assert!(!counter.charge("client", TIMES).is_admitted());
    clock.set(at(75_714_285_715));
    assert_eq!(counter.charge("client", TIMES).verdict, Verdict::Pass);
    Ok(())
}
