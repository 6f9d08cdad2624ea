//! Limits that come with the call, for any number of keys.
//!
//! # Theory
//!
//! A [`Limiter`](crate::Limiter) has one limit for all keys. Here each call names its own ([`InlineQuota`]), and a
//! key is nothing but the moment at which it is as if never used ([`crate::algorithm::inline_quota`]). That moment
//! lies in the same table as the words of all other limits, is found and swapped in the same way, and is
//! forgotten when it is over.
//!
//! # When there is no room
//!
//! As everywhere ([`crate::table`]): no live key is ever pushed out, and a newcomer shares one
//! moment with other newcomers. Their quotas may differ; the moment is then the latest that any of them
//! caused, so each gets less than its own quota would give, never more. [`Throttle::overflowed`] counts them.
//!
//! # What it does not know
//!
//! Whether a caller may choose its own limits. Whoever can call can also name a key that others use, give
//! back what it never took, or take for a century: it is for callers that are trusted.

use std::sync::Arc;

use crate::algorithm::LimitError;
use crate::algorithm::inline_quota::{InlineQuota, OutOfRange, RawTat, ThrottleResult};
use crate::clock::{Clock, MonotonicClock};
use crate::key::{KeySecret, Keyed};
use crate::table::{Intent, PackedTable};
use crate::time::{Moment, Span};

/// Calls that are decided at one context of the clock.
const BATCH: usize = 32;
/// A context of the clock may be so old when it is used: others have charged the key since, at later ones.
const LATE: Span = Span::from_millis(1);

/// Keys that are limited by what each call says. Cheap to clone: clones share the state.
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

/// A call that is about to be decided.
#[derive(Clone, Copy, Debug)]
pub struct PreparedCall {
    hash: u64,
    quota: InlineQuota,
    quantity: i64,
}

impl Throttle {
    /// Room for so many live keys, on the system's monotonic clock.
    ///
    /// # Errors
    /// No keys at all, or more than there is memory for.
    pub fn new(max_keys: usize) -> Result<Throttle, LimitError> {
        Throttle::with_clock(max_keys, MonotonicClock::new())
    }
}

impl<C: Clock> Throttle<C> {
    /// Room for so many live keys, on this clock, which must not be set back.
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

    /// Takes `quantity` for `key` if it may pass under `quota`; 0 asks, a negative quantity gives back.
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

    /// A call to be decided together with others, soon: its memory is asked for now.
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

    /// Decides calls one after the other, and tells each what it came to, in the same order. Faster than one
    /// by one when they are many, because their memory was fetched meanwhile. The clock is read once for
    /// every 32.
    #[inline]
    pub fn decide(
        &self,
        calls: &[PreparedCall],
        mut each: impl FnMut(Result<ThrottleResult, OutOfRange>),
    ) {
        for calls in calls.chunks(BATCH) {
            // Most keys are where they were looked for. The others' memory is asked for before the first is decided.
            if calls.len() > 1 {
                for call in calls {
                    self.inner.table.prefetch_unless_home(call.hash);
                }
            }
            let mut now = self.inner.clock.now();
            for call in calls {
                let (told, decided) = self.inner.decide(call, now);
                // A key that was added is added at a later context. Who comes behind it must not come before.
                now = now.max(decided);
                each(told);
            }
        }
    }

    /// Keys that are in use. Counts them, so it is not for the way of a request.
    pub fn live_keys(&self) -> usize {
        self.inner.table.live_keys(self.inner.clock.now())
    }

    /// The most memory that this can ever take for its keys, in bytes.
    pub fn memory_cap(&self) -> usize {
        self.inner.table.memory_cap()
    }

    /// Decisions that were made on a shared moment because there was no room for a new key.
    pub fn overflowed(&self) -> u64 {
        self.inner.table.overflowed()
    }
}

impl<C: Clock> Inner<C> {
    /// What a call comes to, and the moment that it was decided at.
    #[inline]
    fn decide(
        &self,
        call: &PreparedCall,
        now: Moment,
    ) -> (Result<ThrottleResult, OutOfRange>, Moment) {
        let decided = self.decide_at(call, now);
        match &decided.0 {
            Ok(told) if told.retry_after.is_some_and(|wait| wait < LATE) => self.decide_late(call),
            _ => decided,
        }
    }

    /// Refused for less than the context of the clock may be old: read it again, and ask again.
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
