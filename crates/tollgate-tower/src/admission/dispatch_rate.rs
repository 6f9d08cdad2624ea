//! The dispatch rate of a queue: a token bucket that each dispatch is charged to.
//!
//! # Theory
//!
//! A bucket never admits a request that costs more than its burst, and the queue would stall behind it. Such a request is
//! charged the whole burst: it waits for a full bucket and leaves it empty.
//!
//! Timers fire late, by a millisecond or more. If a dispatch were charged when the timer fires, the bucket would lose
//! what it earned beyond its burst in the meantime: 300/s became 230/s. So while requests wait, a dispatch is charged at
//! the moment when it was *due*, up to [`LATE`] ago, and the next one is due from there.
//!
//! Load shedding slows the rate and keeps the burst, because a bucket of a single unit cannot hold a fraction.
//!
//! # Invariant
//!
//! | in any stretch of time `t` | at most |
//! |---|---|
//! | by the moments of the charges | `rate * t + burst` units |
//! | by the clock | `rate * (t + LATE) + burst` units |
//!
//! An empty queue earns nothing by being late.

use tollgate::algorithm::PackedAlgorithm;
use tollgate::algorithm::bucket::Bucket;
use tollgate::{LimitError, Moment, Rate, Scale, Span, Verdict};

/// The lateness that is compensated.
pub(super) const LATE: Span = Span::from_millis(10);

/// The rate at which requests are dispatched.
#[derive(Debug)]
pub(super) struct DispatchRate {
    rate: Rate,
    burst: u64,
    /// At the scaled rate.
    bucket: Bucket,
    scale: Scale,
    word: Option<u64>,
}

/// The charge of one dispatch.
#[derive(Clone, Copy, Debug)]
pub(super) struct RateCharge {
    at: Moment,
    units: u64,
}

impl RateCharge {
    /// When the dispatch was due.
    pub(super) fn at(&self) -> Moment {
        self.at
    }
}

impl DispatchRate {
    pub(super) fn new(rate: Rate, burst: u64, scale: Scale) -> Result<DispatchRate, LimitError> {
        Ok(DispatchRate {
            rate,
            burst,
            bucket: Bucket::new(scaled(rate, scale), burst)?,
            scale,
            word: None,
        })
    }

    /// Applies another rate. What was charged stays charged.
    pub(super) fn change(&mut self, rate: Rate, burst: u64, now: Moment) -> Result<(), LimitError> {
        let mut next = DispatchRate::new(rate, burst, self.scale)?;
        next.convert_from(self, now);
        *self = next;
        Ok(())
    }

    /// Applies another scale. What was charged stays charged.
    pub(super) fn set_scale(&mut self, scale: Scale, now: Moment) {
        // A rate too slow to represent: keep the slowest one that was possible.
        if let Ok(mut next) = DispatchRate::new(self.rate, self.burst, scale) {
            next.convert_from(self, now);
            *self = next;
        }
    }

    fn convert_from(&mut self, before: &DispatchRate, now: Moment) {
        let convert = |word| self.bucket.convert(&before.bucket, word, now);
        self.word = before.word.and_then(convert);
    }

    /// Charges a dispatch that was due at `due`; `None`: it did not wait.
    ///
    /// # Errors
    /// The moment when the rate allows it, if no other dispatch comes first.
    pub(super) fn charge(
        &mut self,
        now: Moment,
        due: Option<Moment>,
        cost: u64,
    ) -> Result<RateCharge, Moment> {
        let units = cost.min(self.burst);
        let earliest = Moment::from_nanos(now.as_nanos().saturating_sub(LATE.as_nanos()));
        let mut at = due.map_or(now, |due| due.max(earliest).min(now));
        // The second attempt is at the moment that the first one returned.
        for _ in 0..2 {
            let step = self.bucket.charge(self.word, at, units);
            if let Some(word) = step.write {
                self.word = Some(word);
            }
            match step.verdict {
                Verdict::Pass | Verdict::Wait { .. } => return Ok(RateCharge { at, units }),
                Verdict::Refuse { retry_after } => at = at.plus(retry_after),
                Verdict::Never => return Err(now.plus(LATE)),
            }
            if at > now {
                break;
            }
        }
        Err(at)
    }

    /// Refunds the charge of a dispatch that was not used.
    pub(super) fn refund(&mut self, now: Moment, charge: &RateCharge) {
        let back = |word| self.bucket.refund(word, now, charge.units, charge.at);
        if let Some(word) = self.word.and_then(back) {
            self.word = Some(word);
        }
    }

    /// How long the scaled rate takes to earn `cost`.
    pub(super) fn time_to_earn(&self, cost: u128) -> Span {
        let cost = u64::try_from(cost).unwrap_or(u64::MAX);
        scaled(self.rate, self.scale).time_to_earn(cost)
    }
}

/// The scaled rate: the same units in a longer time.
fn scaled(rate: Rate, scale: Scale) -> Rate {
    let longer = (u128::from(rate.per().as_nanos()) << 16).div_ceil(u128::from(scale.as_q16()));
    let longer = Span::from_nanos(u64::try_from(longer).unwrap_or(u64::MAX));
    Rate::new(rate.units(), longer).unwrap_or(rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Moment {
        Moment::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn a_late_timer_loses_no_rate_while_requests_wait() {
        let mut rate = DispatchRate::new("100/s".parse().unwrap(), 1, Scale::ONE).unwrap();
        let (mut due, mut dispatches) = (None, 0);
        // A timer that fires 7 ms late every time.
        let mut now = ms(0);
        while now < ms(10_000) {
            match rate.charge(now, due, 1) {
                Ok(charge) => {
                    dispatches += 1;
                    due = Some(charge.at);
                }
                Err(at) => {
                    due = Some(at);
                    now = at.plus(Span::from_millis(7));
                }
            }
        }
        assert_eq!(dispatches, 1000);
    }

    #[test]
    fn a_pause_earns_one_burst_and_no_more() {
        let mut rate = DispatchRate::new("100/s".parse().unwrap(), 2, Scale::ONE).unwrap();
        for now in [ms(0), ms(5_000), ms(5_100)] {
            assert!(rate.charge(now, None, 1).is_ok());
            assert!(rate.charge(now, None, 1).is_ok());
            assert_eq!(
                rate.charge(now, None, 1).unwrap_err(),
                now.plus(Span::from_millis(10))
            );
        }
    }

    #[test]
    fn only_bounded_lateness_is_compensated() {
        let mut rate = DispatchRate::new("1000/s".parse().unwrap(), 1, Scale::ONE).unwrap();
        assert!(rate.charge(ms(0), None, 1).is_ok());
        let mut due = rate.charge(ms(0), None, 1).unwrap_err();
        let (now, mut dispatches) = (ms(500), 0);
        while let Ok(charge) = rate.charge(now, Some(due), 1) {
            dispatches += 1;
            due = charge.at;
        }
        // One for each of the last ten milliseconds, and the one that was saved.
        assert_eq!(dispatches, 11);
    }

    #[test]
    fn half_the_scale_is_half_the_rate_and_unused_charges_are_refunded() {
        let mut rate = DispatchRate::new("100/s".parse().unwrap(), 1, Scale::ONE).unwrap();
        rate.set_scale(Scale::from_q16(1 << 15), ms(0));
        assert!(rate.charge(ms(0), None, 1).is_ok());
        assert_eq!(rate.charge(ms(0), None, 1).unwrap_err(), ms(20));
        assert_eq!(rate.time_to_earn(10), Span::from_millis(200));
        rate.set_scale(Scale::ONE, ms(900));
        let charge = rate.charge(ms(1000), None, 1).unwrap();
        rate.refund(ms(1000), &charge);
        assert!(rate.charge(ms(1000), None, 1).is_ok());
    }
}
