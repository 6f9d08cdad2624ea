//! Concurrency limits under test: fixed, adaptive, and adaptive without the guard.

use tollgate::Span;
use tollgate::shape::{Adaptive, Estimator};
use tollgate::shape::{AdaptiveError, AdaptiveLimit, EstimatorLimit, Sample};

/// The least limit.
pub const MIN: u32 = 2;
/// The largest limit.
pub const MAX: u32 = 1000;
/// The initial limit.
pub const INITIAL: u32 = 20;
/// A request that takes longer is abandoned.
pub const TIMEOUT_NS: u64 = 1_000_000_000;

/// The estimators, the default first.
pub const ESTIMATORS: [Estimator; 2] = [Estimator::Gradient2, Estimator::Aimd];

/// The name of an estimator in a policy file.
pub fn name(by: Estimator) -> &'static str {
    match by {
        Estimator::Aimd => "aimd",
        Estimator::Gradient2 => "gradient2",
    }
}

/// The settings of every run.
fn adaptive(by: Estimator) -> Adaptive {
    Adaptive {
        by,
        min: MIN,
        max: MAX,
        initial: INITIAL,
        timeout: Span::from_nanos(TIMEOUT_NS),
    }
}

/// A limit.
#[derive(Debug)]
pub enum Control {
    /// Always the same.
    Fixed(u32),
    /// As the product has it.
    Guarded(Box<AdaptiveLimit>),
    /// The estimator alone, without the guard.
    Unguarded(EstimatorLimit, MeanSample),
}

impl Control {
    /// The estimator as the product uses it.
    ///
    /// # Errors
    ///
    /// If the estimator does not take its settings.
    pub fn guarded(by: Estimator) -> Result<Self, AdaptiveError> {
        Ok(Self::Guarded(Box::new(AdaptiveLimit::new(&adaptive(by))?)))
    }

    /// The estimator without its guard; it gets one mean sample a second.
    ///
    /// # Errors
    ///
    /// If the estimator does not take its settings.
    pub fn unguarded(by: Estimator) -> Result<Self, AdaptiveError> {
        let limit = EstimatorLimit::new(&adaptive(by))?;
        Ok(Self::Unguarded(limit, MeanSample::default()))
    }

    /// How many may be in flight.
    pub fn limit(&self) -> u32 {
        match self {
            Self::Fixed(limit) => *limit,
            Self::Guarded(inner) => inner.limit(),
            Self::Unguarded(inner, _) => inner.limit(),
        }
    }

    /// One has left.
    pub fn sample(&mut self, now_ns: u64, sample: Sample) {
        match self {
            Self::Fixed(_) => {}
            Self::Guarded(inner) => drop(inner.sample(now_ns, sample)),
            Self::Unguarded(inner, mean) => {
                if let Some(sample) = mean.add(now_ns, sample) {
                    inner.sample(sample);
                }
            }
        }
    }

    /// Time has passed.
    pub fn tick(&mut self, now_ns: u64, oldest_running_ns: u64) {
        if let Self::Guarded(inner) = self {
            inner.tick(now_ns, oldest_running_ns);
        }
    }
}

/// Gathers the samples of at least a second, and at least ten: one that moves at every sample trembles.
#[derive(Debug, Default)]
pub struct MeanSample {
    opened_ns: u64,
    sum_ns: u128,
    count: u64,
    inflight_max: u32,
    dropped: bool,
}

impl MeanSample {
    /// The mean latency, the most in flight and whether any was dropped, once there are enough.
    fn add(&mut self, now_ns: u64, sample: Sample) -> Option<Sample> {
        if self.count == 0 {
            self.opened_ns = now_ns;
        }
        self.sum_ns += u128::from(sample.rtt_ns);
        self.count += 1;
        self.inflight_max = self.inflight_max.max(sample.inflight);
        self.dropped |= sample.dropped;
        if now_ns - self.opened_ns < 1_000_000_000 || self.count < 10 {
            return None;
        }
        let whole = std::mem::take(self);
        Some(Sample {
            rtt_ns: u64::try_from(whole.sum_ns / u128::from(whole.count)).unwrap_or(u64::MAX),
            inflight: whole.inflight_max,
            dropped: whole.dropped,
        })
    }
}
