//! Leaky bucket that stores its items: items arrive at any time and leave at a constant rate.
//!
//! # Theory
//!
//! [`crate::algorithm::queue`] promises slots and leaves the waiting to the caller. Here the items themselves
//! wait, so the moment of the *actual* release counts. The next release is at
//!
//! ```text
//! next = last release + (its cost) * T        T = the time for one unit
//! ```
//!
//! The level is what waits plus the part of the last item that has not drained yet (the fluid convention: a unit
//! leaves when it has drained, not when it starts). An offer passes if and only if `level + cost <= queue`. All
//! numbers are integers, in ticks as fine as the rate needs.
//!
//! # Invariant
//!
//! Releases are at least `cost * T` apart (to the nanosecond below), so any window of length `w` sees at most `1 +
//! w/T` units leave (for a cost of one), **also when the caller is late**. At most `queue` units wait.
//!
//! # What lateness costs
//!
//! By default spacing is counted from the actual release. A caller that is late by `d` delays all items behind by
//! `d`, and that part of the output is lost: a worker that is late by `d` each time gets one unit in `T + d`, not
//! in `T`. This is the price of never exceeding the rate.
//!
//! [`LeakyQueue::catch_up`] recovers it up to a bound. For lateness of up to `span`, spacing counts from when the
//! release was due. Then a stall of `d` may be followed by `min(d, span) / T` units at once, and a window sees at
//! most `1 + (w + span)/T`. With [`Span::MAX`] spacing counts from the slots alone.
//!
//! # Limits
//!
//! The queue uses no clock, thread or waker. A clock that steps back is read as paused until it has caught up.

use std::collections::VecDeque;
use std::fmt;

use crate::algorithm::LimitError;
use crate::algorithm::bucket::Bucket;
use crate::rate::Rate;
use crate::time::{Moment, Span};

/// Items that come out at a constant rate.
///
/// ```
/// use tollgate::shape::LeakyQueue;
/// use tollgate::{Moment, Span};
///
/// let mut queue = LeakyQueue::new("10/s".parse()?, 2, None)?;
/// let now = Moment::ORIGIN;
/// assert_eq!(queue.offer(now, 1, "a")?, now);
/// assert_eq!(queue.offer(now, 1, "b")?, now.plus(Span::from_millis(100)));
/// let refused = queue.offer(now, 1, "c").unwrap_err();
/// assert_eq!((refused.item, refused.retry_after), ("c", Some(Span::from_millis(100))));
///
/// assert_eq!(queue.due(now), Some("a"));
/// assert_eq!(queue.due(now), None);
/// assert_eq!(queue.due(now.plus(Span::from_millis(100))), Some("b"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct LeakyQueue<T> {
    waiting: VecDeque<Waiting<T>>,
    /// Units that wait.
    units: u64,
    /// Units that may be in it.
    capacity: u64,
    /// Ticks in a nanosecond.
    n: u64,
    /// Ticks for one unit.
    p: u64,
    max_wait: Span,
    catch_up: Span,
    /// The first tick at which the next may be released.
    free_at: u128,
    /// The latest moment that was seen.
    latest: Moment,
}

#[derive(Clone, Debug)]
struct Waiting<T> {
    item: T,
    cost: u64,
    came: Moment,
}

/// An item that was not taken in, and is given back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused<T> {
    /// The item.
    pub item: T,
    /// The shortest wait after which the queue accepts it, if the queue is drained in time and no other item
    /// arrives. `None` if it never does: it costs more than the queue holds, or would always wait too long.
    pub retry_after: Option<Span>,
}

impl<T> fmt::Display for Refused<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.retry_after {
            Some(span) => write!(f, "the queue is full; there is room in {span}"),
            None => f.write_str("this costs more than the queue ever holds; raise its capacity"),
        }
    }
}

impl<T: fmt::Debug> std::error::Error for Refused<T> {}

impl<T> LeakyQueue<T> {
    /// At most `queue` units in it, leaving at `rate`; what would wait longer than `max_wait` is refused.
    ///
    /// # Errors
    /// A queue of zero, or one that takes more than 73 years to drain.
    pub fn new(
        rate: Rate,
        queue: u64,
        max_wait: Option<Span>,
    ) -> Result<LeakyQueue<T>, LimitError> {
        if queue == 0 {
            return Err(LimitError::ZeroCapacity { what: "queue" });
        }
        let (n, p) = Bucket::new(rate, queue)?.grid();
        Ok(LeakyQueue {
            waiting: VecDeque::new(),
            units: 0,
            capacity: queue,
            n,
            p,
            max_wait: max_wait.unwrap_or(Span::MAX),
            catch_up: Span::ZERO,
            free_at: 0,
            latest: Moment::ORIGIN,
        })
    }

    /// Makes up for lateness of up to `span` by releasing more at once; see the module.
    #[must_use]
    pub fn catch_up(mut self, span: impl Into<Span>) -> LeakyQueue<T> {
        self.catch_up = span.into();
        self
    }

    /// Adds an item, and returns when it leaves if no release is late. A cost of zero counts as one, because a
    /// waiting item takes room.
    ///
    /// # Errors
    /// There is no room, or it would wait too long. The item is given back and nothing has changed.
    pub fn offer(&mut self, now: Moment, cost: u64, item: T) -> Result<Moment, Refused<T>> {
        let (now, cost) = (self.seen(now), cost.max(1));
        let (ticks, need) = (self.ticks(now), self.worth(cost));
        let depth = self.worth(self.capacity);
        let level = self.level_ticks(now);
        let refused = |item, retry_after| Err(Refused { item, retry_after });
        if need > depth {
            return refused(item, None);
        }
        if level + need > depth {
            let retry = Span::from_nanos(self.nanos(level + need - depth));
            return refused(item, Some(retry));
        }
        let oldest = self.waiting.front().map_or(now, |next| next.came);
        let due = self.free_at.max(self.ticks(oldest));
        let first = due.max(ticks.saturating_sub(self.compensated()));
        let slot = (first + self.worth(self.units)).max(ticks);
        let wait = Span::from_nanos(self.nanos(slot - ticks));
        if wait > self.max_wait {
            let too_long = wait.as_nanos() - self.max_wait.as_nanos();
            return refused(item, Some(Span::from_nanos(too_long)));
        }
        self.units += cost;
        self.waiting.push_back(Waiting {
            item,
            cost,
            came: now,
        });
        Ok(now.plus(wait))
    }

    /// The next item, if it may leave now. Call it at [`LeakyQueue::next_at`]: each item that leaves late delays
    /// those behind it.
    pub fn due(&mut self, now: Moment) -> Option<T> {
        let now = self.seen(now);
        let ticks = self.ticks(now);
        if ticks < self.free_at {
            return None;
        }
        let next = self.waiting.pop_front()?;
        self.units -= next.cost;
        // When it could have left: when it was due, but at most `catch_up` ago.
        let due = self.free_at.max(self.ticks(next.came));
        // Less than a nanosecond is not lateness: no caller could have come between two moments.
        let from = if ticks - due < u128::from(self.n) {
            due
        } else {
            due.max(ticks.saturating_sub(self.compensated()))
        };
        self.free_at = from + self.worth(next.cost);
        Some(next.item)
    }

    /// When the next item may leave; in the past if it is late already. `None` if nothing waits.
    pub fn next_at(&self) -> Option<Moment> {
        let next = self.waiting.front()?;
        Some(Moment::from_nanos(self.nanos(self.free_at)).max(next.came))
    }

    /// Units in the queue, rounded up: those that wait, and the part of the last released item that has not
    /// drained.
    pub fn level(&self, now: Moment) -> u64 {
        let level = self.level_ticks(now.max(self.latest));
        u64::try_from(level.div_ceil(u128::from(self.p))).unwrap_or(u64::MAX)
    }

    /// How long until it is empty, if no release is late.
    pub fn empty_after(&self, now: Moment) -> Span {
        Span::from_nanos(self.nanos(self.level_ticks(now.max(self.latest))))
    }

    /// Removes all waiting items at once.
    pub fn clear(&mut self) -> Vec<T> {
        self.units = 0;
        self.waiting.drain(..).map(|waiting| waiting.item).collect()
    }

    /// The number of waiting items.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether no item waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    fn seen(&mut self, now: Moment) -> Moment {
        self.latest = self.latest.max(now);
        self.latest
    }

    fn ticks(&self, now: Moment) -> u128 {
        u128::from(now.as_nanos()) * u128::from(self.n)
    }

    fn worth(&self, units: u64) -> u128 {
        u128::from(units) * u128::from(self.p)
    }

    fn compensated(&self) -> u128 {
        u128::from(self.catch_up.as_nanos()) * u128::from(self.n)
    }

    /// Rounded up: a nanosecond too early would be refused again.
    fn nanos(&self, ticks: u128) -> u64 {
        u64::try_from(ticks.div_ceil(u128::from(self.n))).unwrap_or(u64::MAX)
    }

    /// A waiting item takes room until it leaves, however late that is.
    fn level_ticks(&self, now: Moment) -> u128 {
        self.free_at.saturating_sub(self.ticks(now)) + self.worth(self.units)
    }
}

#[cfg(test)]
mod tests;
