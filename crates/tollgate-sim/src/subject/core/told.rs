//! What the core tells, in the words of the oracle.

use crate::oracle::{Answer, Verdict};
use tollgate::{Moment, QuotaStatus, Span};

/// A verdict and what is left, as one answer.
pub fn answer(verdict: tollgate::Verdict, status: QuotaStatus) -> Answer {
    Answer {
        verdict: match verdict {
            tollgate::Verdict::Pass => Verdict::Pass { delay: 0 },
            tollgate::Verdict::Wait { delay } => Verdict::Pass {
                delay: delay.as_nanos(),
            },
            tollgate::Verdict::Refuse { retry_after } => Verdict::Refuse {
                retry_after: retry_after.as_nanos(),
            },
            tollgate::Verdict::Never => Verdict::Never,
        },
        remaining: status.remaining,
        reset_after: status.full_after.as_nanos(),
        next_after: status.next_after.as_nanos(),
    }
}

/// Nanoseconds as a moment.
pub fn at(t: u64) -> Moment {
    Moment::from_nanos(t)
}

/// Nanoseconds as a span.
pub fn span(ns: u64) -> Span {
    Span::from_nanos(ns)
}

/// `n` in every `p_ns`.
///
/// # Errors
///
/// If that is no rate.
pub fn rate(n: u64, p_ns: u64) -> Result<tollgate::Rate, String> {
    tollgate::Rate::new(n, span(p_ns)).map_err(|error| error.to_string())
}
