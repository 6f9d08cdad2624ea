//! The product's answers in the oracle's types, and the oracle's numbers in the product's types.

use crate::oracle::{OracleDecision, OracleVerdict};
use crate::parameters::Parameters;
use tollgate::{Algorithm, Decision, Moment, QuotaStatus, Span};

/// A verdict and what is left, as one answer.
pub fn answer(verdict: tollgate::Verdict, status: QuotaStatus) -> OracleDecision {
    OracleDecision {
        verdict: match verdict {
            tollgate::Verdict::Pass => OracleVerdict::Pass { delay: 0 },
            tollgate::Verdict::Wait { delay } => OracleVerdict::Pass {
                delay: delay.as_nanos(),
            },
            tollgate::Verdict::Refuse { retry_after } => OracleVerdict::Refuse {
                retry_after: retry_after.as_nanos(),
            },
            tollgate::Verdict::Never => OracleVerdict::Never,
        },
        remaining: status.remaining,
        reset_after: status.full_after.as_nanos(),
        next_after: status.next_after.as_nanos(),
    }
}

/// A decision as an answer.
pub fn answer_of(decision: &Decision) -> OracleDecision {
    answer(decision.verdict, decision.status)
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

/// The numbers of a bucket.
///
/// # Errors
///
/// If `algorithm` is no bucket.
pub fn bucket_parameters(algorithm: &Algorithm) -> Result<Parameters, String> {
    match *algorithm {
        Algorithm::TokenBucket { rate, burst } => Ok(Parameters::TokenBucket {
            cap: burst,
            n: rate.units(),
            p_ns: rate.per().as_nanos(),
        }),
        Algorithm::Gcra { rate, tolerance } => Ok(Parameters::Gcra {
            n: rate.units(),
            p_ns: rate.per().as_nanos(),
            tau_ns: tolerance.as_nanos(),
        }),
        other => Err(format!("{other:?} is no bucket")),
    }
}
