//! Additive increase, multiplicative decrease: a concurrency limit that uses only failures.
//!
//! # Theory
//!
//! Like the congestion window of TCP Reno. For each sample
//!
//! ```text
//! dropped, or rtt > timeout:   limit = floor(limit * 0.9)
//! else 2 * inflight >= limit:  limit = limit + 1
//! else                         keep: the limit was not what held the load back
//! ```
//!
//! clamped to `[min, max]`. Adding slowly and giving up a share quickly is what makes several clients
//! of one backend converge on equal parts.
//!
//! # Invariant
//!
//! `min <= limit <= max`. After a failure the limit is strictly lower, unless it was `min`: the factor
//! is below 1, and rounding is down.
//!
//! # Known drift
//!
//! - While nothing fails it grows, one per busy sample, until requests fail: it probes by causing failures. `max`
//!   bounds how far, and `timeout` counts slow requests as failed before the backend fails.
//! - Fed sample by sample, one overload with `n` requests in flight is `n` failures and so `0.9^n`: from 200, 21
//!   failures reach a `min` of 20. `min` bounds it; the guard counts one overload once.
//!
//! # Why not use latency
//!
//! [`gradient2`](super::gradient2) does, and acts before anything fails. Where latencies
//! differ wildly by request, or cannot be seen, only failures are left.
//!
//! This module does not use clocks, threads or requests.

use super::adaptive::{Range, Sample};

/// The factor applied to the limit after a failure.
const BACKOFF: f64 = 0.9;

/// A limit that grows by one and shrinks by a share. See the [module](self).
#[derive(Clone, Debug)]
pub(super) struct Aimd {
    range: Range,
    timeout_ns: u64,
    limit: u32,
}

impl Aimd {
    /// Starts from the initial limit of `range`. A latency above `timeout_ns` counts as a failure.
    pub(super) fn new(range: Range, timeout_ns: u64) -> Self {
        Self {
            range,
            timeout_ns,
            limit: range.initial,
        }
    }

    /// The limit.
    pub(super) fn limit(&self) -> u32 {
        self.limit
    }

    /// Updates the limit by one sample, and returns it.
    pub(super) fn sample(&mut self, sample: Sample) -> u32 {
        let next = if sample.dropped || sample.rtt_ns > self.timeout_ns {
            (f64::from(self.limit) * BACKOFF) as u32
        } else if u64::from(sample.inflight) * 2 >= u64::from(self.limit) {
            self.limit.saturating_add(1)
        } else {
            self.limit
        };
        self.limit = next.max(self.range.min).min(self.range.max);
        self.limit
    }

    /// Sets the limit to an estimate from outside, clamped to the range.
    pub(super) fn steer(&mut self, estimate: f64) {
        // Clamped to whole numbers that fit, and rounded down between them.
        self.limit = self.range.clamp(estimate) as u32;
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::adaptive::golden;
    use super::*;

    fn aimd(min: u32, initial: u32, max: u32) -> Aimd {
        let range = Range { min, initial, max };
        Aimd::new(range.check().unwrap(), 5_000_000_000)
    }

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
            assert_eq!(number("backoff_pct"), 90);
            let mut aimd = aimd(number("min"), number("initial"), number("max"));
            aimd.timeout_ns = new.find("timeout_ns").unwrap();
            for row in rows {
                assert_eq!(row.op, "sample");
                assert_eq!(aimd.sample(row.sample()), row.limit, "{}", row.line);
            }
        }
    }

    #[test]
    fn a_failure_always_lowers_a_limit_above_its_least() {
        let mut aimd = aimd(1, 200, 200);
        while aimd.limit() > 1 {
            let before = aimd.limit();
            assert!(aimd.sample(sample(0, true)) < before);
        }
        assert_eq!(aimd.sample(sample(0, true)), 1);
    }

    #[test]
    fn a_limit_that_holds_nothing_back_does_not_grow() {
        let mut aimd = aimd(20, 21, 200);
        assert_eq!(aimd.sample(sample(10, false)), 21);
        assert_eq!(aimd.sample(sample(11, false)), 22);
    }

    #[test]
    fn slower_than_the_timeout_is_a_failure_and_as_slow_is_not() {
        let mut aimd = aimd(20, 100, 200);
        let mut slow = sample(100, false);
        slow.rtt_ns = 5_000_000_000;
        assert_eq!(aimd.sample(slow), 101);
        slow.rtt_ns += 1;
        assert_eq!(aimd.sample(slow), 90);
    }

    #[test]
    fn the_range_holds_for_any_input() {
        let mut narrow = aimd(7, 8, 9);
        for sample in golden::absurd_samples() {
            assert!((7..=9).contains(&narrow.sample(sample)));
        }
        let mut widest = aimd(u32::MAX - 1, u32::MAX, u32::MAX);
        for sample in golden::absurd_samples() {
            assert!(widest.sample(sample) >= u32::MAX - 1);
        }
    }

    #[test]
    fn twenty_one_failures_take_the_limit_from_the_top_to_the_bottom() {
        let mut aimd = aimd(20, 200, 200);
        let fell = (1..).find(|_| aimd.sample(sample(0, true)) == 20);
        assert_eq!(fell, Some(21));
    }
}
