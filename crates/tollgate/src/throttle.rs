//! A limiter whose limits come with each call, for any number of keys.
//!
//! # Theory
//!
//! A [`Limiter`](crate::Limiter) has one limit for all keys. Here each call brings its own ([`InlineQuota`]), and
//! the state of a key is only the moment at which it is as if never used ([`crate::algorithm::inline_quota`]).
//! That moment lies in the same table as the words of all other limits, is found and swapped in the same way, and
//! expires when it has passed.
//!
//! # When there is no room
//!
//! As everywhere ([`crate::table`]), no live key is evicted. A new key shares one moment with other new keys.
//! Their quotas may differ. The moment is then the latest that any of them caused, so each gets less than its own
//! quota would give, never more. [`Throttle::overflowed`] counts them.
//!
//! # Limits
//!
//! A caller chooses its own limits, can name a key that others use, refund what it never took, or take units for a
//! century. Accept only trusted callers.

use std::sync::Arc;

use crate::algorithm::LimitError;
use crate::algorithm::inline_quota::{InlineQuota, OutOfRange, RawTat, ThrottleResult};
use crate::clock::{Clock, MonotonicClock};
use crate::key::{KeySecret, Keyed};
use crate::table::{Intent, PackedTable};
use crate::time::{Moment, Span};

/// Calls that share one reading of the clock.
const BATCH: usize = 32;
/// Greatest age of a clock reading when it is used: other calls have charged the key since, at later readings.
const LATE: Span = Span::from_millis(1);

/// Keys that are limited by the quota of each call. Cheap to clone: clones share the state.
///
/// ```
/// use tollgate::{InlineQuota, Throttle};
/// let throttle = Throttle::new(1_000)?;
/// let quota = InlineQuota::new(4, 30, 60)?; // five at once, then one every two seconds
/// let first = throttle.throttle("rider:42", quota, 1)?;
/// assert_eq!((first.is_limited, first.remaining), (false, 4));
/// assert!(throttle.throttle("rider:42", quota, 5)?.is_limited);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Throttle<C = MonotonicClock> {
    inner: Arc<Inner<C>>,
}

struct Inner<C> {
    table: PackedTable<RawTat>,
    secret: KeySecret,
    clock: C,
}

impl<C> std::fmt::Debug for Throttle<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Throttle")
    }
}

/// A call with its hash, ready to be decided.
///
/// ```
/// use tollgate::{InlineQuota, Throttle};
///
/// let throttle = Throttle::new(1_000)?;
/// let quota = InlineQuota::new(4, 30, 60)?;
/// let calls = [throttle.call("a", quota, 1), throttle.call("b", quota, 1)];
/// throttle.decide(&calls, |result| assert!(result.is_ok_and(|result| !result.is_limited)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use = "a call takes nothing until `Throttle::decide` gets it"]
pub struct PreparedCall {
    hash: u64,
    quota: InlineQuota,
    quantity: i64,
}

impl Throttle {
    /// Room for this many live keys, on the system's monotonic clock.
    ///
    /// # Errors
    /// No keys at all, or more than there is memory for.
    pub fn new(max_keys: usize) -> Result<Throttle, LimitError> {
        Throttle::with_clock(max_keys, MonotonicClock::new())
    }
}

impl<C: Clock> Throttle<C> {
    /// Room for this many live keys, on this clock, which must not be set back.
    ///
    /// # Errors
    /// As [`Throttle::new`].
    pub fn with_clock(max_keys: usize, clock: C) -> Result<Throttle<C>, LimitError> {
        Ok(Throttle {
            inner: Arc::new(Inner {
                table: PackedTable::new(RawTat, max_keys)?,
                secret: KeySecret::random(),
                clock,
            }),
        })
    }

    /// Takes `quantity` for `key` if `quota` admits it. A quantity of 0 peeks; a negative quantity refunds.
    ///
    /// # Errors
    /// See [`InlineQuota::step`]; nothing has changed then.
    pub fn throttle<K: Keyed + ?Sized>(
        &self,
        key: &K,
        quota: InlineQuota,
        quantity: i64,
    ) -> Result<ThrottleResult, OutOfRange> {
        let now = self.inner.clock.now();
        self.inner.decide(&self.call(key, quota, quantity), now).0
    }

    /// Prepares a call for [`Throttle::decide`] and prefetches its memory.
    #[inline]
    pub fn call<K: Keyed + ?Sized>(
        &self,
        key: &K,
        quota: InlineQuota,
        quantity: i64,
    ) -> PreparedCall {
        let hash = self.inner.secret.hash(key);
        let table = &self.inner.table;
        table.prefetch(table.home(hash));
        PreparedCall {
            hash,
            quota,
            quantity,
        }
    }

    /// Decides calls one after the other, and passes each result to `each`, in the same order. For many calls this
    /// is faster than single calls, because their memory was prefetched. The clock is read once for every 32.
    #[inline]
    pub fn decide(
        &self,
        calls: &[PreparedCall],
        mut each: impl FnMut(Result<ThrottleResult, OutOfRange>),
    ) {
        for calls in calls.chunks(BATCH) {
            // Most keys are in their first slot. The memory of the others is prefetched before the first call is
            // decided.
            if calls.len() > 1 {
                for call in calls {
                    self.inner.table.prefetch_unless_home(call.hash);
                }
            }
            let mut now = self.inner.clock.now();
            for call in calls {
                let (result, decided) = self.inner.decide(call, now);
                // A key is added at a later clock reading. A call behind it must not be decided at an earlier one.
                now = now.max(decided);
                each(result);
            }
        }
    }

    /// Keys in use. Counts them, so do not call it on the request path.
    pub fn live_keys(&self) -> usize {
        self.inner.table.live_keys(self.inner.clock.now())
    }

    /// The most memory that the keys can ever take, in bytes.
    pub fn memory_cap(&self) -> usize {
        self.inner.table.memory_cap()
    }

    /// Decisions made on the shared moment because there was no room for a new key.
    pub fn overflowed(&self) -> u64 {
        self.inner.table.overflowed()
    }
}

impl<C: Clock> Inner<C> {
    /// The result of a call, and the moment at which it was decided.
    #[inline]
    fn decide(
        &self,
        call: &PreparedCall,
        now: Moment,
    ) -> (Result<ThrottleResult, OutOfRange>, Moment) {
        let decided = self.decide_at(call, now);
        match &decided.0 {
            Ok(result) if result.retry_after.is_some_and(|wait| wait < LATE) => {
                self.decide_late(call)
            }
            _ => decided,
        }
    }

    /// The wait is shorter than the greatest age of a clock reading: reads the clock again and retries.
    #[cold]
    fn decide_late(&self, call: &PreparedCall) -> (Result<ThrottleResult, OutOfRange>, Moment) {
        self.decide_at(call, self.clock.fresh())
    }

    #[inline(always)]
    fn decide_at(
        &self,
        call: &PreparedCall,
        now: Moment,
    ) -> (Result<ThrottleResult, OutOfRange>, Moment) {
        let &PreparedCall {
            hash,
            quota,
            quantity,
        } = call;
        let intent = match quantity {
            0 => Intent::Read,
            _ => Intent::Write,
        };
        let fresh = || self.clock.fresh();
        let step = |_: &RawTat, tat, now| quota.step(tat, now, quantity);
        let applied = self.table.apply_step(hash, intent, now, fresh, step);
        (applied.result, applied.now)
    }
}
