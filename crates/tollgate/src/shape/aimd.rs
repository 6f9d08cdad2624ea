//! Additive increase, multiplicative decrease: a concurrency limit that needs to see only failures.
//!
//! # Theory
//!
//! As TCP Reno does with its window. For each sample
//!
//! ```text
//! dropped, or rtt > timeout:   limit = floor(limit * backoff)
//! else 2 * inflight >= limit:  limit = limit + 1
//! else                         keep: the limit was not what held the load back
//! ```
//!
//! clamped to `[min, max]`. Adding slowly and giving up a share quickly is what makes several clients
//! of one backend converge on equal parts.
//!
//! # Invariant
//!
//! `min <= limit <= max`. After a failure the limit is strictly lower, unless it was `min`: `backoff`
//! is below 1, and rounding is down.
//!
//! # Known drift
//!
//! - While nothing fails it grows, one per busy sample, until it finds the failure: it probes by
//!   causing harm. `max` bounds how far, and `timeout` turns slow into failed before the backend does.
//! - Fed sample by sample, one bad moment with `n` requests in flight is `n` failures and so
//!   `backoff^n`: from 200, 21 failures at 0.9 reach the default `min`. `min` bounds it; fed
//!   through [`Windowed`](super::adaptive::Windowed) a bad second counts once.
//!
//! # Why not watch latency
//!
//! [`Gradient2`](super::gradient2::Gradient2) does, and acts before anything fails. Where latencies
//! differ wildly by request, or cannot be seen, only failures are left.
//!
//! This module knows nothing of clocks, threads or requests.

use super::adaptive::{AdaptiveError, AdaptiveLimit, Range, Sample};
use super::guarded::Steered;

/// A limit that grows by one and shrinks by a share. See the [module](self).
#[derive(Clone, Debug)]
pub struct Aimd {
    range: Range,
    backoff: f64,
    timeout_ns: u64,
    limit: u32,
}

impl Aimd {
    /// Starts from initial 20, min 20, max 200, backoff 0.9 and a timeout of 5 s.
    pub fn builder() -> AimdBuilder {
        AimdBuilder {
            range: Range {
                min: 20,
                initial: 20,
                max: 200,
            },
            backoff: 0.9,
            timeout_ns: 5_000_000_000,
        }
    }
}

impl AdaptiveLimit for Aimd {
    fn limit(&self) -> u32 {
        self.limit
    }

    fn sample(&mut self, sample: Sample) -> u32 {
        let next = if sample.dropped || sample.rtt_ns > self.timeout_ns {
            (f64::from(self.limit) * self.backoff) as u32
        } else if u64::from(sample.inflight) * 2 >= u64::from(self.limit) {
            self.limit.saturating_add(1)
        } else {
            self.limit
        };
        self.limit = next.max(self.range.min).min(self.range.max);
        self.limit
    }
}

impl Steered for Aimd {
    fn estimate(&self) -> f64 {
        self.limit.into()
    }

    fn steer(&mut self, estimate: f64, _baseline_ns: u64) {
        // Clamped to whole numbers that fit, and rounded down between them.
        self.limit = self.range.clamp(estimate) as u32;
    }
}

/// Builds an [`Aimd`].
#[derive(Clone, Copy, Debug)]
#[must_use = "a builder does nothing until `build`"]
pub struct AimdBuilder {
    range: Range,
    backoff: f64,
    timeout_ns: u64,
}

impl AimdBuilder {
    /// The limit to start from.
    pub fn initial(mut self, initial: u32) -> Self {
        self.range.initial = initial;
        self
    }

    /// The least limit, at least 1.
    pub fn min(mut self, min: u32) -> Self {
        self.range.min = min;
        self
    }

    /// The greatest limit.
    pub fn max(mut self, max: u32) -> Self {
        self.range.max = max;
        self
    }

    /// What is left of the limit after a failure: at least 0.5, below 1.
    pub fn backoff(mut self, backoff: f64) -> Self {
        self.backoff = backoff;
        self
    }

    /// A latency above this counts as a failure.
    pub fn timeout_ns(mut self, timeout_ns: u64) -> Self {
        self.timeout_ns = timeout_ns;
        self
    }

    /// The limit.
    ///
    /// # Errors
    ///
    /// Unless `1 <= min <= initial <= max`, `0.5 <= backoff < 1` and the timeout is above 0.
    pub fn build(self) -> Result<Aimd, AdaptiveError> {
        let range = self.range.check()?;
        if !(0.5..1.0).contains(&self.backoff) {
            return Err(AdaptiveError::Backoff {
                backoff: self.backoff,
            });
        }
        if self.timeout_ns == 0 {
            return Err(AdaptiveError::ZeroTimeout);
        }
        Ok(Aimd {
            range,
            backoff: self.backoff,
            timeout_ns: self.timeout_ns,
            limit: range.initial,
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::adaptive::golden;
    use super::*;

    fn sample(inflight: u32, dropped: bool) -> Sample {
        Sample {
            rtt_ns: 10_000_000,
            inflight,
            dropped,
        }
    }

    #[test]
    fn every_golden_timeline_yields_the_same_limits() {
        for (new, rows) in golden::cases("aimd") {
            let number = |name: &str| new.find(name).unwrap() as u32;
            let mut aimd = Aimd::builder()
                .initial(number("initial"))
                .min(number("min"))
                .max(number("max"))
                .backoff(f64::from(number("backoff_pct")) / 100.0)
                .timeout_ns(new.find("timeout_ns").unwrap())
                .build()
                .unwrap();
            for row in rows {
                assert_eq!(row.op, "sample");
                assert_eq!(aimd.sample(row.sample()), row.limit, "{}", row.line);
            }
        }
    }

    #[test]
    fn a_failure_always_lowers_a_limit_above_its_least() {
        for backoff in [0.5, 0.9, 0.999_999] {
            let mut aimd = Aimd::builder()
                .min(1)
                .initial(200)
                .backoff(backoff)
                .build()
                .unwrap();
            while aimd.limit() > 1 {
                let before = aimd.limit();
                assert!(aimd.sample(sample(0, true)) < before);
            }
            assert_eq!(aimd.sample(sample(0, true)), 1);
        }
    }

    #[test]
    fn a_limit_that_holds_nothing_back_does_not_grow() {
        let mut aimd = Aimd::builder().initial(21).build().unwrap();
        assert_eq!(aimd.sample(sample(10, false)), 21);
        assert_eq!(aimd.sample(sample(11, false)), 22);
    }

    #[test]
    fn slower_than_the_timeout_is_a_failure_and_as_slow_is_not() {
        let mut aimd = Aimd::builder().initial(100).build().unwrap();
        let mut slow = sample(100, false);
        slow.rtt_ns = 5_000_000_000;
        assert_eq!(aimd.sample(slow), 101);
        slow.rtt_ns += 1;
        assert_eq!(aimd.sample(slow), 90);
    }

    #[test]
    fn the_range_holds_whatever_is_fed_in() {
        let mut aimd = Aimd::builder().min(7).initial(8).max(9).build().unwrap();
        for sample in golden::absurd_samples() {
            assert!((7..=9).contains(&aimd.sample(sample)));
        }
        let mut widest = Aimd::builder()
            .min(u32::MAX - 1)
            .initial(u32::MAX)
            .max(u32::MAX)
            .build()
            .unwrap();
        for sample in golden::absurd_samples() {
            assert!(widest.sample(sample) >= u32::MAX - 1);
        }
    }

    #[test]
    fn twenty_one_failures_take_the_limit_from_the_top_to_the_bottom() {
        let mut aimd = Aimd::builder().initial(200).build().unwrap();
        let fell = (1..).find(|_| aimd.sample(sample(0, true)) == 20);
        assert_eq!(fell, Some(21));
    }

    #[test]
    fn settings_that_cannot_work_are_refused() {
        let backoff = |backoff| Aimd::builder().backoff(backoff).build().err();
        assert_eq!(backoff(1.0), Some(AdaptiveError::Backoff { backoff: 1.0 }));
        assert!(backoff(0.49).is_some());
        assert!(backoff(f64::NAN).is_some());
        assert_eq!(backoff(0.5), None);
        assert_eq!(
            Aimd::builder().timeout_ns(0).build().err(),
            Some(AdaptiveError::ZeroTimeout)
        );
        assert!(Aimd::builder().initial(19).build().is_err());
    }
}
