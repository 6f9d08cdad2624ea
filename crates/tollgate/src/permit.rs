//! Concurrency limits whose permits return when they are dropped.

use std::fmt;

use crate::algorithm::{LimitError, Refund};
use crate::clock::{Clock, MonotonicClock};
use crate::decision::NotAdmitted;
use crate::key::Keyed;
use crate::limit::Limit;
use crate::limiter::Limiter;
use crate::table::KeyOp;
use crate::time::{Moment, Span};

/// Limits how many operations run at once for each key, instead of how often they start.
///
/// ```
/// use std::time::Duration;
/// use tollgate::ConcurrencyLimiter;
///
/// let uploads = ConcurrencyLimiter::new(2, Duration::from_secs(30))?;
/// let first = uploads.acquire("alice")?;
/// let second = uploads.acquire("alice")?;
/// assert!(uploads.acquire("alice").is_err());
/// drop(first); // done, or crashed in this process: the place is free again
/// assert!(uploads.acquire("alice").is_ok());
/// # drop(second);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A permit that is neither dropped nor renewed counts for at least the `ttl` and at most half as long
/// again (a fifth, up to 255 at once).
#[derive(Clone, Debug)]
pub struct ConcurrencyLimiter<C = MonotonicClock> {
    limiter: Limiter<C>,
}

impl ConcurrencyLimiter {
    /// At most `limit` at once for each key, on the system's monotonic clock.
    ///
    /// # Errors
    /// A limit of zero or above 65 535, or a `ttl` of zero.
    pub fn new(limit: u64, ttl: impl Into<Span>) -> Result<ConcurrencyLimiter, LimitError> {
        ConcurrencyLimiter::with_clock(limit, ttl, MonotonicClock::new())
    }
}

impl<C: Clock> ConcurrencyLimiter<C> {
    /// At most `limit` at once for each key, on this clock.
    ///
    /// # Errors
    /// As [`ConcurrencyLimiter::new`].
    pub fn with_clock(
        limit: u64,
        ttl: impl Into<Span>,
        clock: C,
    ) -> Result<ConcurrencyLimiter<C>, LimitError> {
        let limiter = Limiter::with_clock(Limit::concurrency(limit, ttl)?, clock)?;
        Ok(ConcurrencyLimiter { limiter })
    }

    /// Takes a permit for `key`. Dropping it returns it.
    ///
    /// # Errors
    /// All permits are taken. The wait of the error is an upper bound: a permit may be released earlier.
    pub fn acquire<K: Keyed + ?Sized>(&self, key: &K) -> Result<Permit<C>, NotAdmitted> {
        let decision = self.limiter.charge(key, 1);
        decision.verdict.into_result()?;
        Ok(Permit {
            limiter: self.limiter.clone(),
            hash: self.limiter.key_hash(key),
            issued: decision.issued,
        })
    }

    /// The limiter behind it, to change the limit or to see what is left.
    pub fn limiter(&self) -> &Limiter<C> {
        &self.limiter
    }
}

/// A permit that is held until this value is dropped.
///
/// ```
/// use std::time::Duration;
/// use tollgate::ConcurrencyLimiter;
///
/// let jobs = ConcurrencyLimiter::new(1, Duration::from_secs(30))?;
/// let mut permit = jobs.acquire("alice")?;
/// // A job that may take longer than 30 seconds renews its permit, and stops if it was lost.
/// if !permit.renew() { /* stop */ }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropping the permit gives its place back"]
pub struct Permit<C: Clock = MonotonicClock> {
    limiter: Limiter<C>,
    hash: u64,
    /// When it was granted or last renewed.
    issued: Moment,
}

impl<C: Clock> fmt::Debug for Permit<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("issued", &self.issued)
            .finish_non_exhaustive()
    }
}

impl<C: Clock> Permit<C> {
    /// Restarts the `ttl`. Returns false if the permit had expired: another holder may have its place now, so this
    /// holder must stop.
    #[must_use = "the holder of a lost permit must stop"]
    pub fn renew(&mut self) -> bool {
        let renew = KeyOp::Renew {
            issued: self.issued,
        };
        let decision = self.limiter.apply(self.hash, &renew).decision;
        if decision.is_admitted() {
            self.issued = decision.issued;
        }
        decision.is_admitted()
    }
}

impl<C: Clock> Drop for Permit<C> {
    fn drop(&mut self) {
        let release = KeyOp::Refund(Refund {
            charged: 1,
            kept: 0,
            issued: self.issued,
            delay: Span::ZERO,
        });
        // A dropped permit cannot use the result of a release.
        let _ = self.limiter.apply(self.hash, &release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    fn limiter(limit: u64) -> (ConcurrencyLimiter<ManualClock>, ManualClock) {
        let clock = ManualClock::new();
        let limiter = ConcurrencyLimiter::with_clock(limit, Span::from_secs(10), clock.clone());
        (limiter.unwrap(), clock)
    }

    #[test]
    fn dropping_a_permit_frees_its_place() {
        let (limiter, clock) = limiter(1);
        for _ in 0..100 {
            let permit = limiter.acquire("a").unwrap();
            assert!(limiter.acquire("a").is_err());
            assert!(
                limiter.acquire("b").is_ok(),
                "another key has its own permits"
            );
            clock.advance(Span::from_secs(3));
            drop(permit);
        }
    }

    #[test]
    fn a_permit_that_is_forgotten_expires() {
        let (limiter, clock) = limiter(1);
        std::mem::forget(limiter.acquire("a").unwrap());
        clock.advance(Span::from_secs(10));
        assert!(limiter.acquire("a").is_err());
        clock.advance(Span::from_secs(2));
        assert!(limiter.acquire("a").is_ok());
    }

    #[test]
    fn a_permit_that_expired_is_lost_and_gives_nothing_back() {
        let (limiter, clock) = limiter(1);
        let mut old = limiter.acquire("a").unwrap();
        clock.advance(Span::from_secs(5));
        assert!(old.renew());
        clock.advance(Span::from_secs(20));
        let _new = limiter.acquire("a").unwrap();
        assert!(!old.renew());
        drop(old);
        assert!(
            limiter.acquire("a").is_err(),
            "the permit belongs to the new holder"
        );
    }
}
