//! Leaky bucket as a queue: requests start at a constant rate, each in its exact slot.
//!
//! # Theory
//!
//! Virtual scheduling on the word of [`super::bucket`]: the backlog is the work already promised. A request that
//! is admitted starts when that work is done, `delay` from now, and work leaves at exactly the rate. The decision
//! needs no worker, no timer and no list; the caller sleeps for `delay`.
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
//! # Giving up a slot
//!
//! The TAT moves back only if no slot behind the released one is promised, because a later arrival would overlap
//! that slot. The word proves that a slot is the last one: the slot began `delay` after it was charged, and `TAT
//! == issued + delay + cost * T`. Then the unused part is refunded ([`PackedAlgorithm::refund_charge`]). Any other
//! slot stays idle, which wastes at most `cost * T` of the output, once. Slots never move.
//!
//! # Why not a list of waiting requests
//!
//! It grows with the queue and needs a lock; this is one word, and the order is the order of charges.

use super::bucket::Bucket;
use super::scale::Scale;
use super::{EncodedLimit, Epoch, LimitError, PackedAlgorithm, Refund, Step};
use crate::decision::{QuotaStatus, Verdict};
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

    /// A queue on the clock of this bucket; see [`Bucket::from_ticks`].
    pub const fn from_bucket(bucket: Bucket, max_wait: Span) -> Queue {
        Queue { bucket, max_wait }
    }

    /// The same queue, in place of one that may have `units` waiting: their slots stay theirs.
    #[must_use]
    pub fn with_backlog(self, units: u64) -> Queue {
        Queue {
            bucket: self.bucket.with_backlog(units),
            ..self
        }
    }
}

impl PackedAlgorithm for Queue {
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
        let refund = Refund {
            charged: cost,
            kept: 0,
            issued,
            delay: Span::ZERO,
        };
        self.refund_charge(word, now, &refund)
    }

    /// Gives back what was not used if the slot of the charge is the last one. The slot begins `delay` after `issued`.
    fn refund_charge(&self, word: u64, now: Moment, refund: &Refund) -> Option<u64> {
        self.bucket.refund_last(word, now, refund)
    }

    fn charge_saturating(&self, word: Option<u64>, now: Moment, cost: u64) -> (Option<u64>, u64) {
        self.bucket.charge_saturating(word, now, cost)
    }

    fn status(&self, word: Option<u64>, now: Moment) -> QuotaStatus {
        self.bucket.status(word, now)
    }

    #[inline]
    fn is_unused(&self, word: u64, now: Moment) -> bool {
        self.bucket.is_unused(word, now)
    }

    fn epoch(&self, now: Moment) -> Epoch {
        self.bucket.epoch(now)
    }

    fn repair_after_clock_step(&self, word: u64, now: Moment) -> u64 {
        self.bucket.repair_after_clock_step(word, now)
    }

    fn convert(&self, old: &Self, word: u64, now: Moment) -> Option<u64> {
        self.bucket.convert(&old.bucket, word, now)
    }

    fn scaled(&self, scale: Scale) -> Self {
        Queue {
            bucket: self.bucket.scaled(scale),
            ..*self
        }
    }

    fn capacity(&self) -> u64 {
        self.bucket.capacity()
    }

    #[inline(always)]
    fn encode(&self) -> EncodedLimit {
        let [n, unscaled, depth, _] = self.bucket.encode();
        [n, unscaled, depth, self.max_wait.as_nanos()]
    }

    #[inline(always)]
    fn from_encoded(params: &EncodedLimit) -> Self {
        Queue {
            bucket: Bucket::from_encoded(params),
            max_wait: Span::from_nanos(params[3]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refund_last(
        queue: &Queue,
        word: u64,
        now: Moment,
        (charged, kept): (u64, u64),
        (issued, delay): (Moment, Span),
    ) -> Option<u64> {
        let refund = Refund {
            charged,
            kept,
            issued,
            delay,
        };
        queue.refund_charge(word, now, &refund)
    }

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
            "the elapsed part of the slot is lost"
        );
        assert_eq!(
            q.refund(first, Moment::from_nanos(100_000_000), 1, now),
            None
        );
    }

    /// What is given back of each slot of a queue with one slot of each of these costs, if it is the only one
    /// given back: the new word.
    fn refunded(q: &Queue, now: Moment, costs: &[u64]) -> Vec<Option<u64>> {
        let mut word = None;
        let delays: Vec<Span> = costs
            .iter()
            .map(|cost| {
                let step = q.charge(word, now, *cost);
                word = step.write;
                step.verdict.wait().unwrap()
            })
            .collect();
        let word = word.unwrap();
        let slots = costs.iter().zip(delays);
        slots
            .map(|(cost, delay)| refund_last(q, word, now, (*cost, 0), (now, delay)))
            .collect()
    }

    #[test]
    fn a_slot_that_has_not_begun_is_given_back_only_if_it_is_the_last() {
        let now = Moment::from_nanos(5);
        let at = |ns: u64| Some(now.as_nanos() + ns);
        assert_eq!(
            refunded(&queue("10/s"), now, &[1, 1, 2]),
            [None, None, at(200_000_000)]
        );
        // A third of a microsecond has no whole nanoseconds: what is left is rounded up to one.
        let thirds = Queue::new("3000000/s".parse().unwrap(), 10, None).unwrap();
        assert_eq!(
            refunded(&thirds, now, &[1, 1, 1]),
            [None, None, at(667).map(|ns| ns * 3)]
        );
    }

    #[test]
    fn a_last_slot_gives_back_what_was_not_used_and_what_has_not_passed() {
        let (q, now) = (queue("10/s"), Moment::ORIGIN);
        let first = q.charge(None, now, 1).write.unwrap();
        let second = q.charge(Some(first), now, 3).write.unwrap();
        let slot = (now, Span::from_millis(100));
        let ms = |ms: u64| Moment::from_nanos(ms * 1_000_000);
        let back = |at: u64, kept: u64| refund_last(&q, second, ms(at), (3, kept), slot);
        assert_eq!(back(50, 0), Some(ms(100).as_nanos()));
        assert_eq!(back(50, 2), Some(ms(300).as_nanos()));
        assert_eq!(back(250, 0), Some(ms(250).as_nanos()), "it has begun");
        assert_eq!(back(250, 2), Some(ms(300).as_nanos()));
        assert_eq!(back(400, 0), None, "it is over");
        // Another slot, or a slot of another queue.
        let wrong = (now, Span::from_millis(99));
        assert_eq!(refund_last(&q, second, ms(50), (3, 0), wrong), None);
        assert_eq!(
            refund_last(&queue("20/s"), second, ms(50), (3, 0), slot),
            None
        );
    }

    #[test]
    fn under_pressure_only_what_was_paid_for_alone_comes_back() {
        let (q, now) = (queue("10/s"), Moment::ORIGIN);
        let half = q.scaled(Scale::from_q16(1 << 15));
        let first = q.charge(None, now, 1).write.unwrap();
        let second = half.charge(Some(first), now, 1).write.unwrap();
        assert_eq!(second - first, 200_000_000, "twice the price");
        // What one unit is worth without pressure is less than was paid: another may have paid the rest.
        let slot = (now, Span::from_millis(100));
        for limit in [q, half] {
            assert_eq!(refund_last(&limit, second, now, (1, 0), slot), None);
        }
    }

    /// One slot: its first tick, the tick after it, and what a caller knows of it.
    struct Taken {
        start: u64,
        finish: u64,
        cost: u64,
        slot: (Moment, Span),
    }

    #[test]
    fn slots_never_overlap_whichever_are_given_back() {
        let mut seed = 7_u64;
        let mut roll = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        // The last one has several units in a nanosecond.
        for rate in ["10/s", "3000/s", "7/3us", "3000000/s", "5000000000/s"] {
            let q = Queue::new(rate.parse().unwrap(), 10, None).unwrap();
            let unit = q.bucket.worth(1).unwrap();
            let unit_ns = (unit / q.bucket.grid().0).max(1);
            let (mut now, mut word) = (Moment::ORIGIN, None);
            let (mut taken, mut given_back): (Vec<Taken>, _) = (Vec::new(), 0);
            for _ in 0..20_000 {
                now = now.plus(Span::from_nanos(roll(unit_ns)));
                if roll(3) == 0 && !taken.is_empty() {
                    let gone = taken.swap_remove(roll(taken.len() as u64) as usize);
                    let kept = roll(gone.cost);
                    let back = refund_last(&q, word.unwrap(), now, (gone.cost, kept), gone.slot);
                    if let Some(back) = back {
                        assert!(
                            taken.iter().all(|other| other.finish <= gone.start),
                            "{rate}"
                        );
                        assert!(
                            back >= gone.start + kept * unit,
                            "{rate}: what is kept stays"
                        );
                        (word, given_back) = (Some(back), given_back + 1);
                    }
                    continue;
                }
                let cost = 1 + roll(3);
                let step = q.charge(word, now, cost);
                let (Some(delay), Some(finish)) = (step.verdict.wait(), step.write) else {
                    continue;
                };
                let start = finish - cost * unit;
                let behind = taken.iter().map(|other| other.finish).max();
                assert!(behind.is_none_or(|finish| start >= finish), "{rate}");
                taken.push(Taken {
                    start,
                    finish,
                    cost,
                    slot: (now, delay),
                });
                word = Some(finish);
                let ticks = now.as_nanos() * q.bucket.grid().0;
                taken.retain(|slot| slot.finish > ticks);
            }
            assert!(given_back > 0, "{rate}");
        }
    }
}
