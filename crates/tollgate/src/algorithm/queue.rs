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
//! Only the *last* place can be given back ([`Queue::cancel`]): moving the TAT back for any other
//! would put a later arrival on top of a slot that is promised already. Other slots stay idle.
//!
//! # Why not a list of waiting requests
//!
//! It grows with the queue and needs a lock; this is one word, and the order is the order of charges.

use super::bucket::Bucket;
use super::{Era, LimitError, OneWord, Params, Step};
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

    /// Gives up the place that a charge of `cost` took, if it is the last one: `word` must be what
    /// that charge wrote. `None` if somebody came after it; then the slot stays idle.
    pub fn cancel(&self, word: u64, written: u64, cost: u64, issued: Moment) -> Option<u64> {
        if word != written {
            return None;
        }
        self.bucket.refund(word, issued, cost, issued)
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
        self.bucket.refund(word, now, cost, issued)
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

    #[test]
    fn only_the_last_place_can_be_given_up() {
        let q = Queue::new("10/s".parse().unwrap(), 10, None).unwrap();
        let now = Moment::ORIGIN;
        let first = q.charge(None, now, 1).write.unwrap();
        let second = q.charge(Some(first), now, 1).write.unwrap();
        assert_eq!(q.cancel(second, first, 1, now), None);
        assert_eq!(q.cancel(second, second, 1, now), Some(first));
    }
}
