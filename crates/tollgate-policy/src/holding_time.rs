//! Observes how long the permits of a concurrency limit are held.
//!
//! # Theory
//!
//! A refused request passes after the next release, not when a permit expires. With `n` permits held for a mean time `h`, one is
//! released every `h / n` on average. The mean is an exponentially weighted one over released permits, with weight 1/8.
//!
//! # Bounds
//! The estimate is at least one second and at most the time that the limit itself reports, after which a permit
//! has expired. Without any release it is one second. It is no guarantee: other requests may take the permit.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tollgate::Span;

/// The shortest estimate: clients that return earlier only add load.
const MIN: Span = Span::from_secs(1);

/// The mean holding time of released permits, in nanoseconds; 0 before the first release.
#[derive(Debug, Default)]
pub(super) struct HoldingTime(AtomicU64);

impl HoldingTime {
    /// Counts a released permit. Concurrent updates may be lost: it is an estimate.
    pub(super) fn record(&self, held: Span) {
        let (mean, held) = (self.0.load(Relaxed), held.as_nanos());
        let mean = match mean {
            0 => held.max(1),
            mean => (mean - mean / 8).saturating_add(held / 8).max(1),
        };
        self.0.store(mean, Relaxed);
    }

    /// When a permit out of `permits` may be released, at most `bound`.
    pub(super) fn until_release(&self, permits: u64, bound: Span) -> Span {
        let nanos = self.0.load(Relaxed).checked_div(permits).unwrap_or(0);
        Span::from_nanos(nanos).max(MIN).min(bound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_expected_after_the_mean_holding_time_by_permits_and_within_bounds() {
        let (seconds, bound) = (Span::from_secs, Span::from_secs(32));
        let holding = HoldingTime::default();
        assert_eq!(holding.until_release(1, bound), seconds(1), "none observed");
        holding.record(seconds(20));
        assert_eq!(holding.until_release(4, bound), seconds(5));
        assert_eq!(holding.until_release(100, bound), seconds(1));
        assert_eq!(holding.until_release(4, seconds(2)), seconds(2));
        for _ in 0..100 {
            holding.record(seconds(40));
        }
        let estimate = holding.until_release(4, bound);
        assert!(
            estimate > seconds(9) && estimate <= seconds(10),
            "{estimate}"
        );
        holding.record(Span::from_nanos(u64::MAX));
        assert_eq!(holding.until_release(1, bound), bound);
    }
}
