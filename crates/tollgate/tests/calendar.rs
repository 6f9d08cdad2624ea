//! Limits whose windows are periods of a calendar, on a clock whose cheap reading is late.
#![allow(clippy::unwrap_used)]

use tollgate::KeySecret;
use tollgate::Periods;
use tollgate::{Algorithm, Clock, Decision, Gate, Limit, Limiter, Moment, Span, Verdict};

const HOUR: u64 = 3_600_000_000_000;

/// A cheap reading that is a millisecond late, as that of a coarse clock may be.
#[derive(Clone, Debug)]
struct LateClock {
    exact: Moment,
}

impl Clock for LateClock {
    fn now(&self) -> Moment {
        self.exact.minus(Span::from_millis(1))
    }

    fn fresh(&self) -> Moment {
        self.exact
    }
}

fn at_hour(hour: u64) -> Moment {
    Moment::from_nanos(hour * HOUR)
}

/// Days of 24, 23, 24 and 25 hours; the second begins at hour 124.
fn days() -> Periods {
    let starts = [100, 124, 147, 171, 196].map(at_hour);
    Periods::new("day", &starts, Span::from_nanos(24 * HOUR)).unwrap()
}

/// One unit a day, ten hours into the second day, which ends 13 hours later.
fn daily_limiter() -> Limiter<LateClock> {
    let periods = days();
    let limit = Limit::new(Algorithm::FixedWindow {
        limit: 1,
        window: periods.window(),
        anchor: Span::ZERO,
    });
    let clock = LateClock {
        exact: at_hour(134),
    };
    Limiter::with_periods(
        limit.unwrap(),
        Some(periods),
        clock,
        KeySecret::from_seed(1),
    )
    .unwrap()
}

/// The decision reports the end of the day, exact to the millisecond by which the clock is late.
fn assert_ends_with_the_day(decision: &Decision, what: &str) {
    let late = Span::from_millis(1).as_nanos();
    let day_ends = 13 * HOUR..=13 * HOUR + late;
    let reset = decision.status.full_after.as_nanos();
    assert!(day_ends.contains(&reset), "{what}: {decision:?}");
    if let Verdict::Refuse { retry_after } = decision.verdict {
        assert!(day_ends.contains(&retry_after.as_nanos()), "{what}");
    }
}

#[test]
fn a_new_key_gets_the_same_period_end_as_a_known_one() {
    let limiter = daily_limiter();
    for what in ["new", "known"] {
        assert_ends_with_the_day(&limiter.charge("a", 1), what);
    }
    let peek = limiter.peek("b", 1);
    assert_ends_with_the_day(&peek, "peek");
}

#[test]
fn a_calendar_follows_a_wall_clock_that_was_set_and_gives_one_allowance_for_a_step() {
    let limiter = daily_limiter();
    assert!(limiter.check("a").is_admitted());
    // The clock started a day early: it is ten hours into the third day.
    let day = i64::try_from(23 * HOUR).unwrap();
    limiter.set_wall_clock_ahead(day);
    let decision = limiter.charge("a", 1);
    assert!(decision.is_admitted());
    let reset = decision.status.full_after.as_nanos();
    assert!((14 * HOUR..15 * HOUR).contains(&reset), "{reset}");
    // What is dated in moments of the clock stays so.
    assert_eq!(decision.issued.as_nanos() / HOUR, 133);
    let _ = limiter.settle("a", &decision, 1, 0);
    assert!(limiter.check("a").is_admitted());
    // Back and forth: the window that is ahead remains.
    for ahead in [0, day, 0, day] {
        limiter.set_wall_clock_ahead(ahead);
        assert!(!limiter.check("a").is_admitted());
    }
    // A new key has the day that it is.
    assert!(limiter.check("b").is_admitted());
}

#[test]
fn a_gate_reports_the_period_end_of_a_new_key() {
    let limiter = daily_limiter();
    let mut gate = Gate::with_clock(limiter.clock().clone());
    let daily = gate.adopt(limiter);
    let wide = gate.add(Limit::token_bucket("5/s".parse().unwrap(), 10).unwrap());
    let wide = wide.unwrap();
    for what in ["new", "known"] {
        let charges = [gate.charge(daily, "a", 1), gate.charge(wide, "a", 1)];
        let admission = gate.admit(&charges);
        assert_eq!(admission.binding, Some(daily), "{what}");
        assert_ends_with_the_day(&admission.decision, what);
    }
}

#[test]
fn the_charge_of_a_new_key_can_be_refunded() {
    let limiter = daily_limiter();
    let decision = limiter.charge("a", 1);
    assert!(decision.is_admitted());
    let _ = limiter.settle("a", &decision, 1, 0);
    assert_eq!(limiter.peek("a", 0).remaining(), 1);
}
