//! Leaky bucket as a queue: requests leave at a constant rate, each at its exact slot.
//!
//! # Theory
//!
//! Virtual scheduling on the word of [`super::bucket`]: the backlog is the work already promised, so
//! a request that is taken starts when that is done, `delay` from now, and work leaves at exactly the
//! rate. No worker, no timer and no list are needed for the decision; the caller sleeps `delay`.
//!
//! # Invariant
//!
//! At most `queue` units are waiting or in service, and starts are at least `cost * T` apart (to the
//! nanosecond below). So any window of length `w` sees at most `1 + w/T` units start, and admits at
//! most `queue + w/T`.
//!
//! # Bounds on waiting
//!
//! A request that does not fit the queue is refused until enough has drained. With `max_wait`, one
//! that fits but would wait longer is refused too, until the wait has become that short.
//!
//! # Giving up a place
//!
//! Moving the TAT back is safe only if nobody is promised a slot behind the place, or if everybody who
//! is moves up with it: a later arrival would be put on top of a slot that is promised already. So:
//!
//! - *Settling* knows when a charge was made and what it took, not where it stands. The word proves that
//!   it is the last one only if it began at once and nobody came since: `TAT == issued + cost * T`. Then
//!   what was not used comes back ([`Queue::refund_last`]); otherwise nothing does.
//! - A [`Slot`] knows exactly where it stands, and its owner may know who is behind it. If what the word
//!   says is exactly the end of the slot and the costs behind it, those are all there are: the word is
//!   lowered by the slot's time ([`Queue::leave`]), and all behind it begin that much earlier. That this
//!   is done by one swap from the very word that was compared is what makes it safe in races.
//!
//! Other slots stay idle: each at most `cost * T` of the output, once.
//!
//! # Why not a list of waiting requests
//!
//! It grows with the queue and needs a lock; this is one word, and the order is the order of charges.

use super::bucket::Bucket;
use super::scale::Scale;
use super::{Era, LimitError, OneWord, Params, RESERVED, Step};
use crate::decision::{Standing, Verdict};
use crate::rate::Rate;
use crate::time::{Moment, Span};

/// A compiled queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    bucket: Bucket,
    /// No bound is [`Span::MAX`]: longer than any bucket is deep.
    max_wait: Span,
}

impl Queue {
    /// At most `queue` units waiting or in service, leaving at `rate`, none later than `max_wait`.
    ///
    /// # Errors
    /// A queue of zero, or one that takes more than 73 years to drain.
    pub fn new(rate: Rate, queue: u64, max_wait: Option<Span>) -> Result<Queue, LimitError> {
        if queue == 0 {
            return Err(LimitError::ZeroCapacity { what: "queue" });
        }
        Ok(Queue {
            bucket: Bucket::new(rate, queue)?,
            max_wait: max_wait.unwrap_or(Span::MAX),
        })
    }

    /// The slot of a charge of `cost` that wrote `word`.
    pub(crate) fn slot(&self, word: u64, cost: u64) -> Slot {
        Slot {
            finish: word,
            cost,
            // What it paid; it passed, so the bucket holds as much.
            length: self.bucket.worth(cost).unwrap_or(0),
            grid: self.bucket.grid(),
        }
    }

    /// Gives back what a charge of `charged` at `issued` took beyond `kept`, if it began at once and nobody
    /// came behind it.
    pub fn refund_last(
        &self,
        word: u64,
        now: Moment,
        (charged, kept): (u64, u64),
        issued: Moment,
    ) -> Option<u64> {
        self.bucket.refund_alone(word, now, (charged, kept), issued)
    }

    /// Gives up a slot that has the slots `behind` behind it, all of whose owners will move up by what is
    /// returned: the new word and the ticks that became free. None if the word says otherwise (somebody
    /// else is behind it, or the limit was changed), or if the slot is over; then nothing may move.
    ///
    /// A slot that has begun gives back what is left of it. Slots have the lengths that they paid for, so
    /// it does not matter under which pressure each was taken.
    pub fn leave(
        &self,
        slot: &Slot,
        word: u64,
        now: Moment,
        behind: Behind,
    ) -> Option<(u64, Freed)> {
        if slot.grid != self.bucket.grid() || word != slot.finish.wrapping_add(behind.ticks) {
            return None;
        }
        let freed = slot.length.min(slot.left(now));
        let lower = word.wrapping_sub(freed);
        // The reserved word stands for one tick later, which those behind would not know of.
        (freed > 0 && lower != RESERVED).then_some((lower, Freed { ticks: freed }))
    }
}

/// Where a charge stands in a queue: from when to when, exactly, in the ticks of its bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The tick at which it is over: the word that the charge wrote.
    finish: u64,
    /// What it takes, in units.
    cost: u64,
    /// Ticks that it takes.
    length: u64,
    /// Ticks in a nanosecond, and ticks that a unit is worth without pressure.
    grid: (u64, u64),
}

/// The slots behind one, added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Behind {
    ticks: u64,
}

impl Behind {
    /// With one slot more.
    #[must_use]
    pub const fn and(self, slot: &Slot) -> Behind {
        Behind {
            ticks: self.ticks.saturating_add(slot.length),
        }
    }
}

/// Time that became free when somebody left a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freed {
    ticks: u64,
}

impl Slot {
    /// What it takes, in units.
    pub const fn cost(&self) -> u64 {
        self.cost
    }

    /// When it begins, rounded up to a nanosecond; `now` if that is past.
    pub const fn starts(&self, now: Moment) -> Moment {
        let ticks = now.as_nanos().wrapping_mul(self.grid.0);
        let ahead = self.finish.wrapping_sub(self.length).wrapping_sub(ticks);
        if ahead > i64::MAX as u64 {
            return now;
        }
        now.plus(Span::from_nanos(ahead.div_ceil(self.grid.0)))
    }

    /// Ticks until it is over.
    const fn left(&self, now: Moment) -> u64 {
        let left = self
            .finish
            .wrapping_sub(now.as_nanos().wrapping_mul(self.grid.0));
        if left > i64::MAX as u64 { 0 } else { left }
    }

    /// Does it come after the other one in the same queue?
    pub const fn is_behind(&self, other: &Slot) -> bool {
        let ahead = self.finish.wrapping_sub(other.finish);
        ahead > 0 && ahead <= i64::MAX as u64
    }

    /// Begins earlier by what became free before it.
    pub const fn move_up(&mut self, by: Freed) {
        self.finish = self.finish.wrapping_sub(by.ticks);
    }
}

impl OneWord for Queue {
    #[inline(always)]
    fn charge(&self, word: Option<u64>, now: Moment, cost: u64) -> Step {
        let step = self.bucket.charge(word, now, cost);
        if step.verdict != Verdict::Pass || cost == 0 {
            return step;
        }
        let delay = self.bucket.drain_ns(word, now);
        if delay > self.max_wait.as_nanos() {
            return Step {
                verdict: Verdict::refuse(delay - self.max_wait.as_nanos()),
                write: None,
            };
        }
        Step {
            verdict: Verdict::after(delay),
            write: step.write,
        }
    }

    fn refund(&self, word: u64, now: Moment, cost: u64, issued: Moment) -> Option<u64> {
        self.bucket.refund_alone(word, now, (cost, 0), issued)
    }

    fn force(&self, word: Option<u64>, now: Moment, cost: u64) -> (Option<u64>, u64) {
        self.bucket.force(word, now, cost)
    }

    fn standing(&self, word: Option<u64>, now: Moment) -> Standing {
        self.bucket.standing(word, now)
    }

    #[inline]
    fn is_fresh(&self, word: u64, now: Moment) -> bool {
        self.bucket.is_fresh(word, now)
    }

    fn era(&self, now: Moment) -> Era {
        self.bucket.era(now)
    }

    fn heal(&self, word: u64, now: Moment) -> u64 {
        self.bucket.heal(word, now)
    }

    fn convert(&self, old: &Self, word: u64, now: Moment) -> Option<u64> {
        self.bucket.convert(&old.bucket, word, now)
    }

    fn under(&self, scale: Scale) -> Self {
        Queue {
            bucket: self.bucket.under(scale),
            ..*self
        }
    }

    fn capacity(&self) -> u64 {
        self.bucket.capacity()
    }

    #[inline(always)]
    fn to_params(&self) -> Params {
        let mut params = self.bucket.to_params();
        params[3] = self.max_wait.as_nanos();
        params
    }

    #[inline(always)]
    fn from_params(params: &Params) -> Self {
        Queue {
            bucket: Bucket::from_params(params),
            max_wait: Span::from_nanos(params[3]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(rate: &str) -> Queue {
        Queue::new(rate.parse().unwrap(), 10, None).unwrap()
    }

    #[test]
    fn settling_gives_back_only_a_charge_that_began_at_once_and_is_the_last() {
        let (q, now) = (queue("10/s"), Moment::ORIGIN);
        let first = q.charge(None, now, 1).write.unwrap();
        let second = q.charge(Some(first), now, 1).write.unwrap();
        assert_eq!(
            q.refund(second, now, 1, now),
            None,
            "one is behind it, or it waits"
        );
        assert_eq!(q.refund(first, now, 1, now), Some(0));
        let later = Moment::from_nanos(40_000_000);
        assert_eq!(
            q.refund(first, later, 1, now),
            Some(40_000_000),
            "what has passed is gone"
        );
        assert_eq!(
            q.refund(first, Moment::from_nanos(100_000_000), 1, now),
            None
        );
    }

    #[test]
    fn a_slot_is_left_only_if_everybody_behind_it_is_known() {
        let (q, now) = (queue("3000/s"), Moment::ORIGIN);
        let mut word = None;
        let slots: Vec<Slot> = [1, 2, 3]
            .map(|cost| {
                word = q.charge(word, now, cost).write;
                q.slot(word.unwrap(), cost)
            })
            .into();
        let word = word.unwrap();
        let starts: Vec<u64> = slots.iter().map(|s| s.starts(now).as_nanos()).collect();
        assert_eq!(starts, [0, 333_334, 1_000_000]);
        let none = Behind::default();
        for wrong in [none, none.and(&slots[0]), none.and(&slots[1])] {
            assert_eq!(q.leave(&slots[1], word, now, wrong), None);
        }
        let behind = none.and(&slots[2]);
        let (lower, freed) = q.leave(&slots[1], word, now, behind).unwrap();
        assert_eq!(lower, word - 2_000_000);
        let mut last = slots[2];
        last.move_up(freed);
        assert_eq!(last.starts(now).as_nanos(), 333_334);
        assert_eq!(q.leave(&last, lower, now, none).unwrap().0, 1_000_000);
    }

    #[test]
    fn a_slot_that_has_begun_gives_back_what_is_left_and_one_that_is_over_nothing() {
        let (q, now) = (queue("10/s"), Moment::ORIGIN);
        let word = q.charge(None, now, 1).write.unwrap();
        let slot = q.slot(word, 1);
        let left = |ms: u64| {
            q.leave(
                &slot,
                word,
                Moment::from_nanos(ms * 1_000_000),
                Behind::default(),
            )
        };
        assert_eq!(left(30).unwrap().0, 30_000_000);
        assert_eq!(left(100), None);
        assert_eq!(left(1_000), None);
    }

    #[test]
    fn a_slot_of_another_rate_is_not_given_back() {
        let now = Moment::ORIGIN;
        let word = queue("10/s").charge(None, now, 1).write.unwrap();
        let slot = queue("10/s").slot(word, 1);
        assert_eq!(
            queue("20/s").leave(&slot, word, now, Behind::default()),
            None
        );
    }

    #[test]
    fn slots_taken_under_pressure_are_left_at_the_length_they_paid_for() {
        let (q, now) = (queue("10/s"), Moment::ORIGIN);
        let half = q.under(Scale::from_q16(1 << 15));
        let first = q.charge(None, now, 1).write.unwrap();
        let second = half.charge(Some(first), now, 1).write.unwrap();
        let (one, two) = (q.slot(first, 1), half.slot(second, 1));
        assert_eq!(second - first, 200_000_000, "twice the price");
        for in_force in [q, half] {
            let behind = Behind::default().and(&two);
            let (lower, freed) = in_force.leave(&one, second, now, behind).unwrap();
            assert_eq!(lower, 200_000_000);
            let mut moved = two;
            moved.move_up(freed);
            assert_eq!(moved.starts(now), now);
        }
        // One that paid less is not behind it.
        let plain = Behind::default().and(&q.slot(second, 1));
        assert_eq!(q.leave(&one, second, now, plain), None);
    }
}
