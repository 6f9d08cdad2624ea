//! Decisions: what happens to a request, and the numbers that a client can use.
//!
//! Plain data. A decision is always complete. How it was reached (which algorithm, which store) does not show,
//! except for its [`Origin`].

use std::fmt;

use crate::time::{Moment, Span};

/// What happens to the request.
///
/// ```
/// use tollgate::{Limiter, Verdict};
///
/// let limiter = Limiter::new("5/s burst 10".parse()?)?;
/// match limiter.check("rider:42") {
///     Verdict::Pass => { /* continue */ }
///     Verdict::Wait { delay } => { /* leaky bucket only: continue after `delay` */ }
///     Verdict::Refuse { retry_after } => { /* respond with 429 and `Retry-After` */ }
///     Verdict::Never => { /* the cost is above what the limit holds */ }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "a request that is not admitted must not continue"]
pub enum Verdict {
    /// The request may pass now.
    Pass,
    /// The request has a slot in the queue and may pass after `delay`. The slot is taken already.
    Wait {
        /// How long to wait before going on.
        delay: Span,
    },
    /// The request is refused, and nothing was taken.
    Refuse {
        /// The shortest wait after which the same request passes if nothing else happens.
        retry_after: Span,
    },
    /// The request can never pass: its cost is above what the limit ever holds. An error of the caller.
    Never,
}

impl Verdict {
    /// Was the request admitted, now or after its delay?
    #[inline]
    pub const fn is_admitted(self) -> bool {
        matches!(self, Verdict::Pass | Verdict::Wait { .. })
    }

    /// How long to sleep: before continuing if admitted, before retrying if refused. `None` if a retry cannot
    /// succeed.
    #[inline]
    pub const fn wait(self) -> Option<Span> {
        match self {
            Verdict::Pass => Some(Span::ZERO),
            Verdict::Wait { delay } => Some(delay),
            Verdict::Refuse { retry_after } => Some(retry_after),
            Verdict::Never => None,
        }
    }

    /// The verdict as a result, for `?`: how long to wait before going on, which is zero except for a leaky bucket.
    ///
    /// ```
    /// use tollgate::{Limiter, NotAdmitted};
    ///
    /// fn ride(limiter: &Limiter, rider: &str) -> Result<(), NotAdmitted> {
    ///     limiter.check(rider).into_result()?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// The request is not admitted.
    #[inline]
    pub const fn into_result(self) -> Result<Span, NotAdmitted> {
        match self {
            Verdict::Pass => Ok(Span::ZERO),
            Verdict::Wait { delay } => Ok(delay),
            Verdict::Refuse { retry_after } => Err(NotAdmitted {
                retry_after: Some(retry_after),
            }),
            Verdict::Never => Err(NotAdmitted { retry_after: None }),
        }
    }

    /// The stricter of two verdicts that a request must satisfy together, and of two waits the longer.
    pub fn stricter(self, other: Verdict) -> Verdict {
        let rank = |verdict: Verdict| match verdict {
            Verdict::Pass => 0,
            Verdict::Wait { .. } => 1,
            Verdict::Refuse { .. } => 2,
            Verdict::Never => 3,
        };
        match (rank(self), self.wait()) >= (rank(other), other.wait()) {
            true => self,
            false => other,
        }
    }

    /// A slot that begins at once is a plain pass.
    #[inline]
    pub(crate) const fn after(delay_ns: u64) -> Verdict {
        if delay_ns == 0 {
            Verdict::Pass
        } else {
            Verdict::Wait {
                delay: Span::from_nanos(delay_ns),
            }
        }
    }

    #[inline]
    pub(crate) const fn refuse(retry_ns: u64) -> Verdict {
        Verdict::Refuse {
            retry_after: Span::from_nanos(retry_ns),
        }
    }
}

/// The error of a request that is not admitted.
///
/// ```
/// use tollgate::{Limiter, ManualClock, Span};
///
/// let limiter = Limiter::with_clock("5/s burst 1".parse()?, ManualClock::new())?;
/// assert_eq!(limiter.check("a").into_result(), Ok(Span::ZERO));
/// let error = limiter.check("a").into_result().unwrap_err();
/// assert_eq!(error.retry_after, Some(Span::from_millis(200)));
/// assert_eq!(error.to_string(), "rate limit exceeded; retry after 200ms");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NotAdmitted {
    /// The shortest wait after which the same request passes if nothing else happens. None if it never passes, because
    /// its cost is above what the limit holds.
    pub retry_after: Option<Span>,
}

impl fmt::Display for NotAdmitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.retry_after {
            Some(wait) => write!(f, "rate limit exceeded; retry after {wait}"),
            None => f.write_str(
                "the cost is above what the limit holds, so no wait helps; lower the cost or raise the limit",
            ),
        }
    }
}

impl std::error::Error for NotAdmitted {}

/// What is left of a limit for one key at one moment.
///
/// ```
/// use tollgate::{Limiter, ManualClock, Span};
///
/// let limiter = Limiter::with_clock("5/s burst 10".parse()?, ManualClock::new())?;
/// let status = limiter.charge("a", 5).status;
/// assert_eq!(status.remaining, 5);
/// assert_eq!(status.next_after, Span::from_millis(200));
/// assert_eq!(status.full_after, Span::from_secs(1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct QuotaStatus {
    /// Whole units that a request at this same moment could still take.
    pub remaining: u64,
    /// How long until the key is as if never used.
    pub full_after: Span,
    /// How long until `remaining` grows; nothing if it is at its most.
    pub next_after: Span,
}

/// Where a decision was made.
///
/// ```
/// use tollgate::{Limiter, Origin};
///
/// let limiter = Limiter::new("5/s".parse()?)?;
/// assert_eq!(limiter.charge("a", 1).origin, Origin::Fresh);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Origin {
    /// The key's own state.
    #[default]
    Fresh,
    /// The store was full of live keys, and this new key was decided on the allowance that all such keys share.
    /// Never more generous than an allowance of its own.
    Overflow,
    /// This node decided from a lease or from synced usage, without asking the shared store.
    Leased,
    /// The shared store did not answer, and this node decided without it.
    Degraded,
}

/// The decision on one request by one limit: the verdict, and the numbers that a client needs.
///
/// ```
/// use tollgate::Limiter;
///
/// let limiter = Limiter::new("5/s burst 10".parse()?)?;
/// let decision = limiter.charge("rider:42", 3);
/// assert!(decision.is_admitted());
/// assert_eq!(decision.remaining(), 7);
/// println!("full again after {}", decision.status.full_after);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "a request that is not admitted must not continue"]
pub struct Decision {
    /// What happens to the request.
    pub verdict: Verdict,
    /// What is left afterwards.
    pub status: QuotaStatus,
    /// The moment at which the charge was made. Settling needs it.
    pub issued: Moment,
    /// Where the decision was made.
    pub origin: Origin,
}

impl Decision {
    /// The decision on a request that no limit applies to.
    pub fn unlimited(now: Moment) -> Decision {
        Decision {
            verdict: Verdict::Pass,
            status: QuotaStatus {
                remaining: u64::MAX,
                ..QuotaStatus::default()
            },
            issued: now,
            origin: Origin::Fresh,
        }
    }

    /// Was the request admitted, now or after its delay?
    pub const fn is_admitted(&self) -> bool {
        self.verdict.is_admitted()
    }

    /// Whole units that a request at this same moment could still take.
    pub const fn remaining(&self) -> u64 {
        self.status.remaining
    }
}
