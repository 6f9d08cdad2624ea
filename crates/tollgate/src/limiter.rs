//! A limiter: one limit for any number of keys.

use std::sync::{Arc, Mutex, PoisonError};

use crate::algorithm::scale::Scale;
use crate::algorithm::{LimitError, Refund};
use crate::calendar::Periods;
use crate::clock::{Clock, MonotonicClock};
use crate::decision::{Decision, Verdict};
use crate::key::{KeySecret, Keyed};
use crate::limit::Limit;
use crate::snapshot::SnapshotWriter;
use crate::table::{KeyOp, KeyOutcome, KeyTable};
use crate::time::Span;

/// Keys that are hashed and fetched together before the first of them is decided: enough to hide the
/// way to memory, few enough to stay in the processor's own buffers.
const BATCH: usize = 32;

/// One limit, enforced for each key by itself. Cheap to clone: clones share the state.
///
/// ```
/// use tollgate::{Limit, Limiter};
///
/// let limiter = Limiter::new(Limit::token_bucket("5/s".parse()?, 10)?)?;
/// assert!(limiter.check("rider:42").is_admitted());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Strings, bytes, numbers, addresses and tuples are keys ([`Keyed`]). Keys are not stored, only
/// 48 bits of a keyed hash and a place. [`Limit::with_max_keys`] sets how many there is room for.
#[derive(Clone, Debug)]
pub struct Limiter<C = MonotonicClock> {
    inner: Arc<Inner<C>>,
}

pub(crate) struct Inner<C> {
    table: KeyTable,
    secret: KeySecret,
    clock: C,
    limit: Mutex<Limit>,
}

impl<C> std::fmt::Debug for Inner<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let limit = self.limit.lock().unwrap_or_else(PoisonError::into_inner);
        f.debug_tuple("Limiter").field(&limit.to_string()).finish()
    }
}

/// The result of settling a charge.
///
/// ```
/// use tollgate::{Limiter, ManualClock};
///
/// let limiter = Limiter::with_clock("1/s burst 10".parse()?, ManualClock::new())?;
/// let decision = limiter.charge("a", 8);
/// assert_eq!(limiter.settle("a", &decision, 8, 12).unpaid, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "`unpaid` units were used and not charged"]
pub struct Settled {
    /// Units that were used and could not be taken, because nothing was left. They are never taken.
    pub unpaid: u64,
}

impl Limiter {
    /// Enforces `limit` on the system's monotonic clock.
    ///
    /// # Errors
    /// A `max_keys` of zero, or more than there is memory for.
    pub fn new(limit: Limit) -> Result<Limiter, LimitError> {
        Limiter::with_clock(limit, MonotonicClock::new())
    }
}

impl<C: Clock> Limiter<C> {
    /// Enforces `limit` on this clock.
    ///
    /// # Errors
    /// As [`Limiter::new`].
    pub fn with_clock(limit: Limit, clock: C) -> Result<Limiter<C>, LimitError> {
        Limiter::with_secret(limit, clock, KeySecret::random())
    }

    /// Enforces `limit` with a given key secret, so that a simulation can be replayed.
    ///
    /// # Errors
    /// As [`Limiter::new`].
    pub fn with_secret(
        limit: Limit,
        clock: C,
        secret: KeySecret,
    ) -> Result<Limiter<C>, LimitError> {
        Limiter::with_periods(limit, None, clock, secret)
    }

    /// Enforces a fixed window of [`Periods::window`] whose windows are these periods, on a clock that
    /// counts from 1970.
    ///
    /// # Errors
    /// As [`Limiter::new`], or periods with a limit that is not a fixed window.
    pub fn with_periods(
        limit: Limit,
        periods: Option<Periods>,
        clock: C,
        secret: KeySecret,
    ) -> Result<Limiter<C>, LimitError> {
        let table = KeyTable::new(&limit)?.with_periods(periods)?;
        Ok(Limiter::with_table(limit, table, clock, secret))
    }

    pub(crate) fn with_table(
        limit: Limit,
        table: KeyTable,
        clock: C,
        secret: KeySecret,
    ) -> Limiter<C> {
        Limiter {
            inner: Arc::new(Inner {
                table,
                secret,
                clock,
                limit: Mutex::new(limit),
            }),
        }
    }

    /// Takes one unit for `key`, if it may pass. The fastest operation; [`Limiter::charge`] also reports what is
    /// left.
    #[inline]
    pub fn check<K: Keyed + ?Sized>(&self, key: &K) -> Verdict {
        self.check_n(key, 1)
    }

    /// Takes `cost` units for `key`, if they may pass: [`Limiter::check`] for a cost. A cost of zero peeks.
    #[inline]
    pub fn check_n<K: Keyed + ?Sized>(&self, key: &K, cost: u64) -> Verdict {
        let inner = &*self.inner;
        let hash = inner.secret.hash(key);
        let (now, fresh) = (|| inner.clock.now(), || inner.clock.fresh());
        inner.table.check(hash, now, fresh, cost)
    }

    /// Takes one unit for each of `keys`, as if they were checked one after the other, and writes the results to
    /// `verdicts`; the shorter of the two sets the number. Faster than one by one when the keys are many, because
    /// their memory is fetched together. The clock is read once for every 32.
    pub fn check_batch<K: Keyed>(&self, keys: &[K], verdicts: &mut [Verdict]) {
        let inner = &*self.inner;
        for (keys, verdicts) in keys.chunks(BATCH).zip(verdicts.chunks_mut(BATCH)) {
            let count = keys.len().min(verdicts.len());
            let verdicts = &mut verdicts[..count];
            let mut hashes = [0; BATCH];
            for (hash, key) in hashes.iter_mut().zip(keys) {
                *hash = inner.secret.hash(key);
            }
            let clock = &inner.clock;
            let (now, fresh) = (|| clock.now(), || clock.fresh());
            inner.table.check_batch(&hashes, now, fresh, verdicts);
        }
    }

    /// Takes `cost` units for `key`, if they may pass, and reports what is left.
    ///
    /// ```
    /// use tollgate::{Limit, Limiter, ManualClock, Span, Verdict};
    /// let clock = ManualClock::new();
    /// let limiter = Limiter::with_clock(Limit::token_bucket("5/s".parse()?, 10)?, clock)?;
    /// assert_eq!(limiter.charge("a", 7).remaining(), 3);
    /// let refused = limiter.charge("a", 4);
    /// assert_eq!(refused.verdict, Verdict::Refuse { retry_after: Span::from_millis(200) });
    /// assert_eq!(limiter.charge("a", 11).verdict, Verdict::Never);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn charge<K: Keyed + ?Sized>(&self, key: &K, cost: u64) -> Decision {
        let inner = &*self.inner;
        let hash = inner.secret.hash(key);
        let (now, fresh) = (|| inner.clock.now(), || inner.clock.fresh());
        inner.table.charge(hash, now, fresh, cost, None)
    }

    /// Reports what a charge would do, and takes nothing.
    pub fn peek<K: Keyed + ?Sized>(&self, key: &K, cost: u64) -> Decision {
        let peek = KeyOp::Peek { cost, max: None };
        self.apply(self.key_hash(key), &peek).decision
    }

    /// The hash by which [`Limiter::apply`] and [`LimitCharge`](crate::LimitCharge) name a key.
    pub fn key_hash<K: Keyed + ?Sized>(&self, key: &K) -> u64 {
        self.inner.secret.hash(key)
    }

    /// Applies an operation to the key with this hash. For callers that hash a key once and use it on several
    /// limiters with one [`KeySecret`].
    pub fn apply(&self, hash: u64, op: &KeyOp) -> KeyOutcome {
        let inner = &*self.inner;
        let now = if op.needs_fresh_clock() {
            inner.clock.fresh()
        } else {
            inner.clock.now()
        };
        inner.table.apply(op, hash, now, || inner.clock.fresh())
    }

    /// Whether it is a leaky bucket, which assigns slots.
    pub fn is_leaky_bucket(&self) -> bool {
        self.inner.table.is_leaky_bucket()
    }

    /// Corrects a charge whose cost is known only afterwards: `charged` was taken by the charge that
    /// gave `decision`, `actual` was used. Too much is given back *strictly*: what the limit has earned
    /// since is not given a second time, so a late refund returns less. Too little is taken now as far
    /// as there is something left.
    ///
    /// A leaky bucket refunds only a charge that began at once and has no later slot behind it, because later
    /// slots are promised already; see [`crate::algorithm::queue`].
    ///
    /// ```
    /// use tollgate::{Limit, Limiter, ManualClock, Span};
    /// let clock = ManualClock::new();
    /// let limiter = Limiter::with_clock(Limit::token_bucket("1/s".parse()?, 10)?, clock.clone())?;
    /// let decision = limiter.charge("a", 8);
    /// limiter.settle("a", &decision, 8, 3);
    /// assert_eq!(limiter.peek("a", 0).remaining(), 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn settle<K: Keyed + ?Sized>(
        &self,
        key: &K,
        decision: &Decision,
        charged: u64,
        actual: u64,
    ) -> Settled {
        let charged = if decision.is_admitted() { charged } else { 0 };
        let hash = self.key_hash(key);
        if actual < charged {
            let refund = KeyOp::Refund(Refund {
                charged,
                kept: actual,
                issued: decision.issued,
                delay: Span::ZERO,
            });
            // A refund reports no units.
            let _ = self.apply(hash, &refund);
        }
        let unpaid = match actual.saturating_sub(charged) {
            0 => 0,
            cost => self.apply(hash, &KeyOp::ChargeRemaining { cost }).units,
        };
        Settled { unpaid }
    }

    /// Whether the other limiter is a clone of this one.
    pub fn shares_state_with(&self, other: &Limiter<C>) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// How long to sleep before retrying `cost`; zero if it would pass now, `None` if it never will.
    pub fn wait_for<K: Keyed + ?Sized>(&self, key: &K, cost: u64) -> Option<Span> {
        self.peek(key, cost).verdict.wait()
    }

    /// Activates another limit of the same algorithm for all clones, while requests are decided. Usage is kept: a
    /// key that had used seven has used seven. `max_keys` stays as it was.
    ///
    /// # Errors
    /// A limit of another algorithm; nothing has changed then.
    pub fn change(&self, to: Limit) -> Result<(), LimitError> {
        let inner = &*self.inner;
        let compiled = to.compiled()?;
        let mut limit = inner.limit.lock().unwrap_or_else(PoisonError::into_inner);
        inner.table.change(&compiled, inner.clock.fresh())?;
        *limit = to.with_max_keys(limit.max_keys());
        Ok(())
    }

    /// Has periods of a calendar follow a wall clock that is `nanos` ahead of the limiter's clock. Without it they follow
    /// the clock as it was set when it started. Other limits do not look at it.
    ///
    /// Each key has the allowance of a new period after a step into one, so the caller bounds how often there are steps.
    /// A step back gives nothing: a key keeps its count.
    pub fn set_wall_clock_ahead(&self, nanos: i64) {
        self.inner.table.set_wall_clock_ahead(nanos);
    }

    /// Scales the limit for all keys, from the next charge on, until another scale is set. Costs the same for one
    /// key as for a million, and nothing stored changes: [`Scale::ONE`] restores the plain limit. Reported
    /// remainders and waits hold under the scale. [`crate::algorithm::scale`] defines the effect on each
    /// algorithm.
    ///
    /// ```
    /// use tollgate::{Limit, Limiter, ManualClock, Scale};
    /// let limiter = Limiter::with_clock(Limit::token_bucket("5/s".parse()?, 10)?, ManualClock::new())?;
    /// limiter.set_scale(Scale::from_q16(32_768)); // one half
    /// assert_eq!(limiter.charge("a", 1).remaining(), 4);
    /// limiter.set_scale(Scale::ONE);
    /// assert_eq!(limiter.peek("a", 0).remaining(), 8); // one unit cost two
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_scale(&self, scale: Scale) {
        self.inner.table.set_scale(scale);
    }

    /// The current scale; see [`Limiter::set_scale`].
    pub fn scale(&self) -> Scale {
        self.inner.table.scale()
    }

    /// The active limit, without its scale.
    pub fn limit(&self) -> Limit {
        self.inner
            .limit
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The clock.
    pub fn clock(&self) -> &C {
        &self.inner.clock
    }

    /// The greatest cost that can ever pass.
    pub fn capacity(&self) -> u64 {
        self.inner.table.capacity()
    }

    /// Keys in use. Counts them, so do not call it on the request path.
    pub fn live_keys(&self) -> usize {
        self.inner.table.live_keys(self.inner.clock.now())
    }

    /// The most memory that this limiter can ever take for its keys, in bytes.
    pub fn memory_cap(&self) -> usize {
        self.inner.table.memory_cap()
    }

    /// Decisions that were made on a shared allowance because there was no room for a new key. If this
    /// grows, raise `max_keys`.
    pub fn overflowed(&self) -> u64 {
        self.inner.table.overflowed()
    }

    /// The calendar periods of its windows, if it follows a calendar.
    pub fn periods(&self) -> Option<&Periods> {
        self.inner.table.periods()
    }

    pub(crate) fn table(&self) -> &KeyTable {
        &self.inner.table
    }

    /// Writes all keys.
    pub(crate) fn save_keys(&self, to: &mut SnapshotWriter) {
        // Held, so that the limit is the one that the words mean.
        let limit = &self.inner.limit;
        let _limit = limit.lock().unwrap_or_else(PoisonError::into_inner);
        self.inner.table.save(self.inner.clock.fresh(), to);
    }
}

/// A limiter without keys: one limit for all requests.
///
/// ```
/// use tollgate::{Limit, UnkeyedLimiter};
/// let uploads = UnkeyedLimiter::new(Limit::token_bucket("100/min".parse()?, 5)?)?;
/// assert!(uploads.check().is_admitted());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct UnkeyedLimiter<C = MonotonicClock> {
    limiter: Limiter<C>,
}

impl UnkeyedLimiter {
    /// Enforces `limit` on the system's monotonic clock.
    ///
    /// # Errors
    /// Never for a limit that was checked; the memory for one key can always be had.
    pub fn new(limit: Limit) -> Result<UnkeyedLimiter, LimitError> {
        UnkeyedLimiter::with_clock(limit, MonotonicClock::new())
    }
}

impl<C: Clock> UnkeyedLimiter<C> {
    /// Enforces `limit` on this clock.
    ///
    /// # Errors
    /// As [`UnkeyedLimiter::new`].
    pub fn with_clock(limit: Limit, clock: C) -> Result<UnkeyedLimiter<C>, LimitError> {
        let limiter = Limiter::with_clock(limit.with_max_keys(1), clock)?;
        Ok(UnkeyedLimiter { limiter })
    }

    /// Takes one unit, if it may pass.
    #[inline]
    pub fn check(&self) -> Verdict {
        self.limiter.check(&())
    }

    /// Takes `cost` units, if they may pass: [`UnkeyedLimiter::check`] for a cost.
    #[inline]
    pub fn check_n(&self, cost: u64) -> Verdict {
        self.limiter.check_n(&(), cost)
    }

    /// Takes `cost` units, if they may pass, and reports what is left.
    pub fn charge(&self, cost: u64) -> Decision {
        self.limiter.charge(&(), cost)
    }

    /// Reports what a charge would do, and takes nothing.
    pub fn peek(&self, cost: u64) -> Decision {
        self.limiter.peek(&(), cost)
    }

    /// Corrects a charge whose cost is known only afterwards; see [`Limiter::settle`].
    pub fn settle(&self, decision: &Decision, charged: u64, actual: u64) -> Settled {
        self.limiter.settle(&(), decision, charged, actual)
    }

    /// The keyed limiter behind it, whose only key is `()`.
    pub fn limiter(&self) -> &Limiter<C> {
        &self.limiter
    }
}
