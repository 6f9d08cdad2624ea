//! How fast turns are given: a token bucket that every turn is paid from.
//!
//! In any stretch of time `t` turns of at most `rate * t + burst` units are given. A request that costs
//! more than the burst would never be let go by a bucket, and the queue would stand still behind it, so
//! it is charged as much as the whole burst: it waits for a full bucket and leaves it empty.
//!
//! Timers are good to a millisecond. If a rate earns more than `burst` in one, the bucket holds as much
//! as it earns in one, because otherwise a queue that wakes once in a millisecond could never reach its
//! rate.

use tollgate::{Clock, Decision, Limit, LimitError, PressureClock, Rate, Scale, Single, Span};

use super::time::RuntimeClock;

/// What timers are good to.
const GRAIN: Span = Span::from_millis(1);

/// The rate at which turns are given.
#[derive(Debug)]
pub(super) struct Pace {
    rate: Rate,
    /// What the bucket holds.
    holds: u64,
    bucket: Single<PressureClock<RuntimeClock>>,
}

/// What was paid for a turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paid {
    decision: Decision,
    units: u64,
}

impl Pace {
    pub(super) fn new(
        rate: Rate,
        burst: u64,
        clock: RuntimeClock,
        scale: Scale,
    ) -> Result<Pace, LimitError> {
        let (limit, holds) = bucket_of(rate, burst)?;
        let clock = PressureClock::over(clock);
        clock.set_scale(scale);
        Ok(Pace {
            rate,
            holds,
            bucket: Single::with_clock(limit, clock)?,
        })
    }

    /// Another rate from now on. What was used stays used.
    pub(super) fn change(&mut self, rate: Rate, burst: u64) -> Result<(), LimitError> {
        let (limit, holds) = bucket_of(rate, burst)?;
        self.bucket.limiter().change(limit)?;
        self.rate = rate;
        self.holds = holds;
        Ok(())
    }

    pub(super) fn set_scale(&self, scale: Scale) {
        self.bucket.limiter().clock().set_scale(scale);
    }

    /// Pays for a turn.
    ///
    /// # Errors
    /// It has to wait: for so long, if nobody goes before it.
    pub(super) fn pay(&self, cost: u64) -> Result<Paid, Span> {
        let units = cost.min(self.holds);
        let decision = self.bucket.charge(units);
        if decision.is_admitted() {
            return Ok(Paid { decision, units });
        }
        Err(decision.verdict.wait().unwrap_or(GRAIN).max(GRAIN_LEAST))
    }

    /// Gives back what was paid for a turn that nobody took.
    pub(super) fn give_back(&self, paid: &Paid) {
        self.bucket.settle(&paid.decision, paid.units, 0);
    }

    /// How long the rate, as it is now, takes for so much.
    pub(super) fn time_for(&self, cost: u128) -> Span {
        let cost = u64::try_from(cost).unwrap_or(u64::MAX);
        let clock = self.bucket.limiter().clock();
        clock.real(clock.now(), self.rate.time_to_earn(cost))
    }
}

/// A wait of nothing would be no wait.
const GRAIN_LEAST: Span = Span::from_nanos(1);

fn bucket_of(rate: Rate, burst: u64) -> Result<(Limit, u64), LimitError> {
    // A burst of 0 is a mistake to be told, not mended.
    let holds = match burst {
        0 => 0,
        burst => burst.max(rate.earned_in(GRAIN)),
    };
    Ok((Limit::token_bucket(rate, holds)?, holds))
}
