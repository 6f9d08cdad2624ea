//! Limits that each call names: burst, count and period are arguments, and the state is one moment.
//!
//! # Theory
//!
//! The meter of [`super::bucket`] keeps one number for a key, the *theoretical arrival time* (TAT). A TAT means
//! the same under every rate: the time until the key is as if never used. So the store need not keep the rate.
//! Each call brings its own [`InlineQuota`]. With the interval `T` between two units and the tolerance `D = T *
//! (max_burst + 1)`, a quantity `q` at `now` gives
//!
//! ```text
//! base = max(TAT, now)          new = base + q*T          limited  if and only if  now < new - D
//! ```
//!
//! and unless the call is limited the TAT becomes `new`. A quantity of 0 peeks and writes nothing. A negative
//! quantity refunds. `T` is `period / count` in whole nanoseconds, rounded down, as clients of this protocol
//! expect.
//!
//! The quota may change between two calls. The TAT keeps its value: a key that was charged at a slow rate waits
//! for that slow rate, also under a fast one. So a caller gains nothing by alternating quotas.
//!
//! # Invariant
//!
//! Under one quota a pass leaves `TAT <= now + D`, and each unit moves it by `T`: any window of length
//! `w` admits at most `max_burst + 1 + w/T`. A word is written only if it lies at `now` or later, and never beyond
//! [`LATEST`]. A word at or before `now` is an unused key under any quota. So a store can expire keys and reuse
//! their slots without knowing a rate.
//!
//! # Why the word does not wrap
//!
//! [`super::bucket`] counts in fractions of a nanosecond, to be exact for every ratio, and therefore needs epochs.
//! Here the ratio differs from call to call, so no grid fits all. A word is plain nanoseconds of the clock, which
//! last for centuries.
//!
//! # Limits
//!
//! A clock that is set back cannot be repaired, because how far ahead a TAT may lie depends on quotas that are not
//! stored. Use a monotonic clock.

use super::scale::Scale;
use super::{EncodedLimit, Epoch, PackedAlgorithm, Step};
use crate::decision::{QuotaStatus, Verdict};
use crate::time::{Moment, Span};

const NANOS: u128 = 1_000_000_000;

/// The last moment that a TAT may be: the largest signed number of nanoseconds, 292 years from the origin.
pub const LATEST: u64 = i64::MAX as u64;

/// Burst, count and period of one call.
///
/// ```
/// use tollgate::{Span, InlineQuota};
/// let quota = InlineQuota::new(15, 30, 60)?;
/// assert_eq!((quota.limit(), quota.interval()), (16, Span::from_secs(2)));
/// # Ok::<(), tollgate::InlineQuotaError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InlineQuota {
    /// Nanoseconds between two units; zero if more than one comes in each.
    interval: u64,
    /// Units that pass at once.
    limit: u64,
    /// `interval * limit`. At most 2^126.
    tolerance: u128,
}

/// Why numbers make no quota.
///
/// ```
/// use tollgate::{InlineQuota, InlineQuotaError};
///
/// assert_eq!(InlineQuota::new(4, 0, 60), Err(InlineQuotaError::Zero));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InlineQuotaError {
    /// A count or a period of zero is no rate.
    Zero,
    /// Something is negative that cannot be.
    Negative {
        /// What it is called.
        what: &'static str,
    },
}

impl std::fmt::Display for InlineQuotaError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Zero => {
                f.write_str("a count or a period of 0 is no rate; write 1 or more for both")
            }
            Self::Negative { what } => {
                write!(f, "the {what} is negative; write 0 or more")
            }
        }
    }
}

impl std::error::Error for InlineQuotaError {}

/// Why a call changes nothing although its quota would admit it.
///
/// ```
/// use tollgate::{InlineQuota, OutOfRange, Throttle};
///
/// let quota = InlineQuota::new(4, 30, 60)?;
/// let refund = Throttle::new(1_000)?.throttle("a", quota, -1);
/// assert_eq!(refund, Err(OutOfRange::NothingOut));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OutOfRange {
    /// The quantity is worth more time than the clock has.
    TooFar,
    /// More would be given back than is out.
    NothingOut,
}

impl std::fmt::Display for OutOfRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::TooFar => "this quantity takes longer to earn than the clock runs; lower it",
            Self::NothingOut => "more would be given back than was taken; give back less",
        })
    }
}

impl std::error::Error for OutOfRange {}

/// Result of one call.
///
/// ```
/// use tollgate::{InlineQuota, Throttle};
///
/// let quota = InlineQuota::new(4, 30, 60)?;
/// let result = Throttle::new(1_000)?.throttle("a", quota, 2)?;
/// assert_eq!((result.is_limited, result.limit, result.remaining), (false, 5, 3));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a request that is limited must not continue"]
pub struct ThrottleResult {
    /// The call is refused, and nothing was taken.
    pub is_limited: bool,
    /// Units that pass at once under this quota.
    pub limit: u64,
    /// Units that a call under this quota could still take now.
    pub remaining: u64,
    /// When the same call would pass, if it is limited. None if it is not, or if no waiting helps.
    pub retry_after: Option<Span>,
    /// How long until the key is as if never used.
    pub reset_after: Span,
}

impl InlineQuota {
    /// `max_burst` more than one at once, `count` in each `period` of seconds.
    ///
    /// # Errors
    /// A count or a period of zero, or a negative number.
    pub fn new(max_burst: i64, count: i64, period: i64) -> Result<InlineQuota, InlineQuotaError> {
        let positive = |number: i64, what| {
            u64::try_from(number).map_err(|_| InlineQuotaError::Negative { what })
        };
        let limit = positive(max_burst, "burst")?.saturating_add(1);
        let (count, period) = (positive(count, "count")?, positive(period, "period")?);
        if count == 0 || period == 0 {
            return Err(InlineQuotaError::Zero);
        }
        let interval = match period.checked_mul(NANOS as u64) {
            Some(period) => period / count,
            None => u64::try_from(u128::from(period) * NANOS / u128::from(count)).unwrap_or(LATEST),
        };
        let interval = interval.min(LATEST);
        Ok(InlineQuota {
            interval,
            limit,
            tolerance: u128::from(interval) * u128::from(limit),
        })
    }

    /// Units that pass at once.
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// The time between two units.
    pub const fn interval(&self) -> Span {
        Span::from_nanos(self.interval)
    }

    /// Decides `quantity` at `now` for a key whose TAT is `tat`. Returns the result, and the TAT to write, if any.
    ///
    /// # Errors
    /// The new TAT would not be a moment of the clock, or one that is over. Nothing is to be written then.
    #[inline]
    pub fn step(
        &self,
        tat: Option<u64>,
        now: Moment,
        quantity: i64,
    ) -> (Result<ThrottleResult, OutOfRange>, Option<u64>) {
        let now = now.as_nanos();
        let base = tat.map_or(now, |tat| tat.max(now));
        let worth = u128::from(self.interval) * u128::from(quantity.unsigned_abs());
        let Some(worth) = u64::try_from(worth).ok().filter(|worth| *worth <= LATEST) else {
            return (Err(OutOfRange::TooFar), None);
        };
        if quantity < 0 {
            return self.give_back(base, now, worth);
        }
        let new = u128::from(base) + u128::from(worth);
        let bound = u128::from(now) + self.tolerance;
        if new > bound {
            let never = u128::from(worth) > self.tolerance;
            let wait = || Span::from_nanos(u64::try_from(new - bound).unwrap_or(LATEST));
            return (
                Ok(self.result_at(base, now, true, (!never).then(wait))),
                None,
            );
        }
        let Some(new) = u64::try_from(new).ok().filter(|new| *new <= LATEST) else {
            return (Err(OutOfRange::TooFar), None);
        };
        // A quantity of zero leaves no state to write.
        let write = (worth > 0).then_some(new);
        (Ok(self.result_at(new, now, false, None)), write)
    }

    #[cold]
    fn give_back(
        &self,
        base: u64,
        now: u64,
        worth: u64,
    ) -> (Result<ThrottleResult, OutOfRange>, Option<u64>) {
        let Some(new) = base.checked_sub(worth).filter(|new| *new >= now) else {
            return (Err(OutOfRange::NothingOut), None);
        };
        let bound = u128::from(now) + self.tolerance;
        if u128::from(new) > bound {
            // Charged under another quota: even then it would be beyond these.
            let wait = u64::try_from(u128::from(new) - bound).unwrap_or(LATEST);
            let wait = Some(Span::from_nanos(wait));
            return (Ok(self.result_at(base, now, true, wait)), None);
        }
        let write = (worth > 0).then_some(new);
        (Ok(self.result_at(new, now, false, None)), write)
    }

    /// The numbers to report when the TAT is `tat`, which is not before `now`.
    #[inline]
    fn result_at(
        &self,
        tat: u64,
        now: u64,
        is_limited: bool,
        retry_after: Option<Span>,
    ) -> ThrottleResult {
        let backlog = tat - now;
        let free = self.tolerance.saturating_sub(u128::from(backlog));
        let remaining = match (u64::try_from(free), self.interval) {
            // More than one in a nanosecond: none is ever missing.
            (_, 0) => self.limit,
            (Ok(free), interval) => free / interval,
            (Err(_), interval) => u64::try_from(free / u128::from(interval)).unwrap_or(self.limit),
        };
        ThrottleResult {
            is_limited,
            limit: self.limit,
            remaining,
            retry_after,
            reset_after: Span::from_nanos(backlog),
        }
    }
}

/// The TATs of keys whose quota comes with the call, as the store keeps them. The store can decide which of them
/// have expired, and nothing else.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawTat;

impl PackedAlgorithm for RawTat {
    /// Nothing is charged without a quota.
    fn charge(&self, _word: Option<u64>, _now: Moment, _cost: u64) -> Step {
        Step {
            verdict: Verdict::Never,
            write: None,
        }
    }

    fn refund(&self, _word: u64, _now: Moment, _cost: u64, _issued: Moment) -> Option<u64> {
        None
    }

    fn charge_saturating(&self, _word: Option<u64>, _now: Moment, cost: u64) -> (Option<u64>, u64) {
        (None, cost)
    }

    fn status(&self, word: Option<u64>, now: Moment) -> QuotaStatus {
        let backlog = word.map_or(0, |tat| tat.saturating_sub(now.as_nanos()));
        QuotaStatus {
            remaining: 0,
            full_after: Span::from_nanos(backlog),
            next_after: Span::ZERO,
        }
    }

    #[inline]
    fn is_unused(&self, word: u64, now: Moment) -> bool {
        word <= now.as_nanos()
    }

    /// One epoch: words do not wrap.
    fn epoch(&self, _now: Moment) -> Epoch {
        Epoch {
            number: 0,
            from: 0,
            lasts: u64::MAX,
        }
    }

    fn repair_after_clock_step(&self, word: u64, _now: Moment) -> u64 {
        word
    }

    fn convert(&self, _old: &Self, word: u64, now: Moment) -> Option<u64> {
        (!self.is_unused(word, now)).then_some(word)
    }

    fn scaled(&self, _scale: Scale) -> Self {
        *self
    }

    fn capacity(&self) -> u64 {
        u64::MAX
    }

    #[inline(always)]
    fn encode(&self) -> EncodedLimit {
        [0; 4]
    }

    #[inline(always)]
    fn from_encoded(_params: &EncodedLimit) -> Self {
        RawTat
    }
}

#[cfg(test)]
#[path = "inline_quota/tests.rs"]
mod tests;
