//! How fast turns are given: a token bucket that every turn is paid from.
//!
//! # Theory
//!
//! A request that costs more than the burst would never be let go by a bucket, and the queue would stand
//! still behind it, so it is charged as much as the whole burst: it waits for a full bucket and leaves it
//! empty.
//!
//! Timers come late, by a millisecond or more. If a turn were paid for when the timer came, everything
//! that the bucket earned beyond its burst meanwhile would be lost, at every turn: 300 a second became 230.
//! So while somebody waits, a turn is paid for at the moment when it was *due*, up to [`LATE`] ago, and
//! what is due next counts from there.
//!
//! Under pressure the rate itself is slower and the burst stays: a bucket that holds a single unit cannot hold
//! a part of it.
//!
//! # Invariant
//!
//! In any stretch of time `t` turns of at most `rate * (t + LATE) + burst` units are given; by the moments
//! they are paid at, at most `rate * t + burst`. A queue that nobody waits in earns nothing by being late.

use tollgate::algorithm::OneWord;
use tollgate::algorithm::bucket::Bucket;
use tollgate::{LimitError, Moment, Rate, Scale, Span, Verdict};

/// What lateness is made good for.
pub(super) const LATE: Span = Span::from_millis(10);

/// The rate at which turns are given.
#[derive(Debug)]
pub(super) struct Pace {
    rate: Rate,
    burst: u64,
    /// With the rate that pressure leaves.
    bucket: Bucket,
    scale: Scale,
    word: Option<u64>,
}

/// What was paid for a turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paid {
    at: Moment,
    units: u64,
}

impl Paid {
    /// When it was due.
    pub(super) fn at(&self) -> Moment {
        self.at
    }
}

impl Pace {
    pub(super) fn new(rate: Rate, burst: u64, scale: Scale) -> Result<Pace, LimitError> {
        Ok(Pace {
            rate,
            burst,
            bucket: Bucket::new(slowed(rate, scale), burst)?,
            scale,
            word: None,
        })
    }

    /// Another rate from now on. What was used stays used.
    pub(super) fn change(&mut self, rate: Rate, burst: u64, now: Moment) -> Result<(), LimitError> {
        let mut next = Pace::new(rate, burst, self.scale)?;
        next.go_on_from(self, now);
        *self = next;
        Ok(())
    }

    /// Another part of the rate from now on. What was used stays used.
    pub(super) fn set_scale(&mut self, scale: Scale, now: Moment) {
        // A rate so slow that it cannot be is as good as the slowest that can.
        if let Ok(mut next) = Pace::new(self.rate, self.burst, scale) {
            next.go_on_from(self, now);
            *self = next;
        }
    }

    fn go_on_from(&mut self, before: &Pace, now: Moment) {
        let convert = |word| self.bucket.convert(&before.bucket, word, now);
        self.word = before.word.and_then(convert);
    }

    /// Pays for a turn that was due at `due`, or is now if it was not waited for.
    ///
    /// # Errors
    /// It has to wait until then, if nobody goes before it.
    pub(super) fn pay(
        &mut self,
        now: Moment,
        due: Option<Moment>,
        cost: u64,
    ) -> Result<Paid, Moment> {
        let units = cost.min(self.burst);
        let earliest = Moment::from_nanos(now.as_nanos().saturating_sub(LATE.as_nanos()));
        let mut at = due.map_or(now, |due| due.max(earliest).min(now));
        // The second time at the moment that the first one named.
        for _ in 0..2 {
            let step = self.bucket.charge(self.word, at, units);
            if let Some(word) = step.write {
                self.word = Some(word);
            }
            match step.verdict {
                Verdict::Pass | Verdict::Wait { .. } => return Ok(Paid { at, units }),
                Verdict::Refuse { retry_after } => at = at.plus(retry_after),
                Verdict::Never => return Err(now.plus(LATE)),
            }
            if at > now {
                break;
            }
        }
        Err(at)
    }

    /// Gives back what was paid for a turn that nobody took.
    pub(super) fn give_back(&mut self, now: Moment, paid: &Paid) {
        let back = |word| self.bucket.refund(word, now, paid.units, paid.at);
        if let Some(word) = self.word.and_then(back) {
            self.word = Some(word);
        }
    }

    /// How long the rate, as it is now, takes for so much.
    pub(super) fn time_for(&self, cost: u128) -> Span {
        let cost = u64::try_from(cost).unwrap_or(u64::MAX);
        slowed(self.rate, self.scale).time_to_earn(cost)
    }
}

/// What pressure leaves of a rate: the same units in a longer time.
fn slowed(rate: Rate, scale: Scale) -> Rate {
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
    fn a_late_timer_costs_no_rate_while_somebody_waits() {
        let mut pace = Pace::new("100/s".parse().unwrap(), 1, Scale::ONE).unwrap();
        let (mut due, mut turns) = (None, 0);
        // A timer that comes 7 ms late every time.
        let mut now = ms(0);
        while now < ms(10_000) {
            match pace.pay(now, due, 1) {
                Ok(paid) => {
                    turns += 1;
                    due = Some(paid.at);
                }
                Err(at) => {
                    due = Some(at);
                    now = at.plus(Span::from_millis(7));
                }
            }
        }
        assert_eq!(turns, 1000);
    }

    #[test]
    fn who_comes_after_a_pause_finds_one_burst_and_no_more() {
        let mut pace = Pace::new("100/s".parse().unwrap(), 2, Scale::ONE).unwrap();
        for now in [ms(0), ms(5_000), ms(5_100)] {
            assert!(pace.pay(now, None, 1).is_ok());
            assert!(pace.pay(now, None, 1).is_ok());
            assert_eq!(
                pace.pay(now, None, 1).unwrap_err(),
                now.plus(Span::from_millis(10))
            );
        }
    }

    #[test]
    fn lateness_is_made_good_only_so_far() {
        let mut pace = Pace::new("1000/s".parse().unwrap(), 1, Scale::ONE).unwrap();
        assert!(pace.pay(ms(0), None, 1).is_ok());
        let mut due = pace.pay(ms(0), None, 1).unwrap_err();
        let (now, mut turns) = (ms(500), 0);
        while let Ok(paid) = pace.pay(now, Some(due), 1) {
            turns += 1;
            due = paid.at;
        }
        // One for each of the last ten milliseconds, and the one that was saved.
        assert_eq!(turns, 11);
    }

    #[test]
    fn half_the_scale_is_half_the_rate_and_what_was_not_used_comes_back() {
        let mut pace = Pace::new("100/s".parse().unwrap(), 1, Scale::ONE).unwrap();
        pace.set_scale(Scale::from_q16(1 << 15), ms(0));
        assert!(pace.pay(ms(0), None, 1).is_ok());
        assert_eq!(pace.pay(ms(0), None, 1).unwrap_err(), ms(20));
        assert_eq!(pace.time_for(10), Span::from_millis(200));
        pace.set_scale(Scale::ONE, ms(900));
        let paid = pace.pay(ms(1000), None, 1).unwrap();
        pace.give_back(ms(1000), &paid);
        assert!(pace.pay(ms(1000), None, 1).is_ok());
    }
}
