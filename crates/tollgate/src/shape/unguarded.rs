//! Estimators of a concurrency limit without the guard against drift.
//!
//! An enum rather than a trait object: a plain value that can be cloned, printed and sent. A queue in front
//! of a backend uses [`AdaptiveLimit`](super::AdaptiveLimit), which holds one of these.
//!
//! This module does not use clocks, threads or requests.

use super::adaptive::{Adaptive, Estimator};
use super::adaptive::{AdaptiveError, Range, Sample};
use super::aimd::Aimd;
use super::gradient2::Gradient2;

/// A concurrency limit that learns from finished requests. It drifts.
#[derive(Clone, Debug)]
pub struct EstimatorLimit(Kind);

#[derive(Clone, Debug)]
enum Kind {
    /// By failures alone.
    Aimd(Aimd),
    /// By latency against what is usual.
    Gradient2(Gradient2),
}

impl EstimatorLimit {
    /// The estimator that `adaptive` names.
    ///
    /// # Errors
    ///
    /// Unless `1 <= min <= initial <= max` and the timeout is above 0.
    pub fn new(adaptive: &Adaptive) -> Result<Self, AdaptiveError> {
        let &Adaptive {
            by,
            min,
            max,
            initial,
            timeout,
        } = adaptive;
        let range = Range { min, initial, max }.check()?;
        if timeout.is_zero() {
            return Err(AdaptiveError::ZeroTimeout);
        }
        Ok(Self(match by {
            Estimator::Aimd => Kind::Aimd(Aimd::new(range, timeout.as_nanos())),
            Estimator::Gradient2 => Kind::Gradient2(Gradient2::new(range)),
        }))
    }

    /// How many requests may be in flight now.
    pub fn limit(&self) -> u32 {
        match &self.0 {
            Kind::Aimd(inner) => inner.limit(),
            Kind::Gradient2(inner) => inner.limit(),
        }
    }

    /// Learns from one finished request, and returns the new limit.
    pub fn sample(&mut self, sample: Sample) -> u32 {
        match &mut self.0 {
            Kind::Aimd(inner) => inner.sample(sample),
            Kind::Gradient2(inner) => inner.sample(sample),
        }
    }

    /// The estimate behind the limit, with its fraction.
    pub(super) fn estimate(&self) -> f64 {
        match &self.0 {
            Kind::Aimd(inner) => inner.limit().into(),
            Kind::Gradient2(inner) => inner.estimate(),
        }
    }

    /// Continues from this estimate, with this latency as the baseline.
    pub(super) fn steer(&mut self, estimate: f64, baseline_ns: u64) {
        match &mut self.0 {
            Kind::Aimd(inner) => inner.steer(estimate),
            Kind::Gradient2(inner) => inner.steer(estimate, baseline_ns),
        }
    }
}
