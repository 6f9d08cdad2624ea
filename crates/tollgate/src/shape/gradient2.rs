//! Gradient2: a concurrency limit from how latency moves against its own long average.
//!
//! # Theory
//!
//! `short` is the latency just seen, `long` an exponential average of it. Where the short one rises
//! above the long one a queue is growing, and the limit shrinks by the ratio; otherwise it grows by
//! the little queue it always allows:
//!
//! ```text
//! long = mean of the first 10 samples, then long * (1 - a) + short * a,  a = 2 / (long_window + 1)
//! if long > 2 * short:      long = long * 0.95, from the next sample on
//! if inflight < est / 2:    keep: the limit was not what held the load back
//! g   = clamp(tolerance * long / short, 0.5, 1)
//! new = est * g + queue
//! est = est * (1 - smoothing) + new * smoothing, clamped to [min, max]
//! ```
//!
//! The limit is `floor(est)`.
//!
//! # Invariant
//!
//! `min <= limit <= max`. One sample lowers the estimate by at most `est * smoothing / 2` and raises
//! it by at most `queue * smoothing`, so an outlier cannot do more.
//!
//! # Known drift
//!
//! - **Drops are not seen.** A backend that fails fast looks quick, and the limit grows. Nothing in
//!   here bounds that but `max`: give requests a timeout that counts as latency, or take the lesser of
//!   this and an [`Aimd`](super::aimd::Aimd).
//! - **Slow becomes normal.** Under lasting overload `long` follows `short`, and once
//!   `tolerance * long >= short` the limit grows again. With the defaults a lasting fourfold slowdown
//!   is taken for normal after some 240 samples, four minutes of one-second windows. `max` bounds it.
//! - **Slow is remembered.** After a long bad time `long` stays high and hides the first queue of the
//!   good one. The factor 0.95 bounds that: it takes effect while `long > 2 * short`, so a
//!   tenfold `long` is forgotten in some 30 samples, down to the factor of 2 that remains.
//! - **Above the load it creeps.** At `g = 1` each busy sample adds `queue * smoothing`; the limit
//!   comes to rest where `est * (1 - g) = queue`, which is above what the backend needs.
//!
//! # Why not the least latency, as Vegas has it
//!
//! Requests differ in cost, and the least latency is that of the cheapest: against it, all others
//! look queued. An average compares like with like.
//!
//! This module knows nothing of clocks, threads or requests.

use super::adaptive::{AdaptiveError, AdaptiveLimit, Range, Sample, check_smoothing};
use super::guarded::Steered;

/// How many samples are averaged plainly before the exponential average takes over.
const WARM_UP: u32 = 10;

/// A limit from the ratio of long to short latency. See the [module](self).
#[derive(Clone, Debug)]
pub struct Gradient2 {
    range: Range,
    smoothing: f64,
    tolerance: f64,
    queue: f64,
    estimate: f64,
    long: LongAverage,
}

impl Gradient2 {
    /// Starts from initial 20, min 20, max 200, smoothing 0.2, queue 4, tolerance 1.5 and a long
    /// window of 600 samples.
    pub fn builder() -> Gradient2Builder {
        Gradient2Builder {
            range: Range {
                min: 20,
                initial: 20,
                max: 200,
            },
            smoothing: 0.2,
            tolerance: 1.5,
            queue: 4,
            long_window: 600,
        }
    }
}

impl AdaptiveLimit for Gradient2 {
    fn limit(&self) -> u32 {
        // In `[min, max]`, whole numbers both, so rounding down stays in it.
        self.estimate as u32
    }

    fn sample(&mut self, sample: Sample) -> u32 {
        let short = sample.rtt_ns.max(1) as f64;
        let long = self.long.add(short);
        if long / short > 2.0 {
            self.long.value *= 0.95;
        }
        if f64::from(sample.inflight) >= self.estimate / 2.0 {
            let gradient = (self.tolerance * long / short).clamp(0.5, 1.0);
            let next = self.estimate * gradient + self.queue;
            let smoothed = self.estimate * (1.0 - self.smoothing) + next * self.smoothing;
            self.estimate = self.range.clamp(smoothed);
        }
        self.limit()
    }
}

impl Steered for Gradient2 {
    fn estimate(&self) -> f64 {
        self.estimate
    }

    fn steer(&mut self, estimate: f64, baseline_ns: u64) {
        self.estimate = self.range.clamp(estimate);
        self.long.value = baseline_ns.max(1) as f64;
        self.long.warmed = WARM_UP;
    }
}

/// A plain mean while young, an exponential one after.
#[derive(Clone, Debug)]
struct LongAverage {
    value: f64,
    /// Of the samples of the warm-up.
    sum: f64,
    warmed: u32,
    /// The weight of each new sample after the warm-up.
    share: f64,
}

impl LongAverage {
    fn add(&mut self, sample: f64) -> f64 {
        if self.warmed < WARM_UP {
            self.warmed += 1;
            self.sum += sample;
            self.value = self.sum / f64::from(self.warmed);
        } else {
            self.value = self.value * (1.0 - self.share) + sample * self.share;
        }
        self.value
    }
}

/// Builds a [`Gradient2`].
#[derive(Clone, Copy, Debug)]
#[must_use = "a builder does nothing until `build`"]
pub struct Gradient2Builder {
    range: Range,
    smoothing: f64,
    tolerance: f64,
    queue: u32,
    long_window: u32,
}

impl Gradient2Builder {
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

    /// How much of each new estimate is taken over: above 0, and 1 takes all of it.
    pub fn smoothing(mut self, smoothing: f64) -> Self {
        self.smoothing = smoothing;
        self
    }

    /// How many times the long latency the short one may be before the limit shrinks: at least 1.
    pub fn tolerance(mut self, tolerance: f64) -> Self {
        self.tolerance = tolerance;
        self
    }

    /// How many requests may always queue, and so how fast the limit grows: at least 1.
    pub fn queue(mut self, queue: u32) -> Self {
        self.queue = queue;
        self
    }

    /// Over how many samples the long latency is averaged: at least 1.
    pub fn long_window(mut self, samples: u32) -> Self {
        self.long_window = samples;
        self
    }

    /// The limit.
    ///
    /// # Errors
    ///
    /// Unless `1 <= min <= initial <= max`, `0 < smoothing <= 1`, `tolerance >= 1`, and both `queue`
    /// and `long_window` are at least 1.
    pub fn build(self) -> Result<Gradient2, AdaptiveError> {
        let range = self.range.check()?;
        let smoothing = check_smoothing(self.smoothing)?;
        let tolerance = self.tolerance;
        if !(tolerance >= 1.0 && tolerance.is_finite()) {
            return Err(AdaptiveError::Tolerance { tolerance });
        }
        if self.queue == 0 {
            return Err(AdaptiveError::ZeroQueue);
        }
        if self.long_window == 0 {
            return Err(AdaptiveError::ZeroLongWindow);
        }
        Ok(Gradient2 {
            range,
            smoothing,
            tolerance,
            queue: self.queue.into(),
            estimate: range.initial.into(),
            long: LongAverage {
                value: 0.0,
                sum: 0.0,
                warmed: 0,
                share: 2.0 / (f64::from(self.long_window) + 1.0),
            },
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::adaptive::golden;
    use super::*;

    const MS: u64 = 1_000_000;

    fn sample(rtt_ns: u64) -> Sample {
        Sample {
            rtt_ns,
            inflight: 1000,
            dropped: false,
        }
    }

    #[test]
    fn every_golden_timeline_yields_the_same_limits() {
        for (new, rows) in golden::cases("gradient2") {
            let number = |name: &str| new.find(name).unwrap() as u32;
            let mut gradient = Gradient2::builder()
                .initial(number("initial"))
                .min(number("min"))
                .max(number("max"))
                .build()
                .unwrap();
            for row in rows {
                assert_eq!(row.op, "sample");
                assert_eq!(gradient.sample(row.sample()), row.limit, "{}", row.line);
            }
        }
    }

    #[test]
    fn a_steady_backend_gets_more_and_one_that_slows_down_gets_less() {
        let mut gradient = Gradient2::builder().initial(100).build().unwrap();
        for _ in 0..20 {
            gradient.sample(sample(10 * MS));
        }
        let steady = gradient.limit();
        assert!(steady > 100);
        for _ in 0..20 {
            gradient.sample(sample(40 * MS));
        }
        assert!(gradient.limit() < steady / 2);
    }

    #[test]
    fn a_limit_that_holds_nothing_back_does_not_move() {
        let mut gradient = Gradient2::builder().initial(100).build().unwrap();
        for rtt_ms in [10, 10, 90, 1] {
            let mut idle = sample(rtt_ms * MS);
            idle.inflight = 49;
            assert_eq!(gradient.sample(idle), 100);
        }
    }

    #[test]
    fn one_outlier_takes_no_more_than_its_share() {
        let mut gradient = Gradient2::builder().initial(100).build().unwrap();
        for _ in 0..WARM_UP {
            gradient.sample(sample(MS));
        }
        // 100 + 10 * 0.8 by now, and at the worst 108 * (1 - 0.2 / 2) + 0.8.
        assert_eq!(gradient.sample(sample(u64::MAX)), 98);
    }

    #[test]
    fn the_range_holds_whatever_is_fed_in() {
        for smoothing in [1.0, 0.2, 0.000_1] {
            let mut gradient = Gradient2::builder()
                .min(7)
                .initial(8)
                .max(30)
                .smoothing(smoothing)
                .build()
                .unwrap();
            for sample in golden::absurd_samples() {
                assert!((7..=30).contains(&gradient.sample(sample)));
            }
        }
    }

    #[test]
    fn drops_are_not_seen_so_a_backend_that_fails_fast_climbs_to_max() {
        // Wrong, and known: this is the drift that the module documentation names.
        let mut gradient = Gradient2::builder().build().unwrap();
        for _ in 0..1000 {
            let mut failed = sample(MS);
            failed.dropped = true;
            gradient.sample(failed);
        }
        assert_eq!(gradient.limit(), 200);
    }

    #[test]
    fn a_lasting_fourfold_slowdown_is_taken_for_normal_after_some_240_samples() {
        // Wrong, and known: this is the drift that the module documentation names.
        let mut gradient = Gradient2::builder().build().unwrap();
        for _ in 0..1000 {
            gradient.sample(sample(10 * MS));
        }
        assert_eq!(gradient.limit(), 200);
        for _ in 0..150 {
            gradient.sample(sample(40 * MS));
        }
        assert!(gradient.limit() < 30, "{}", gradient.limit());
        let normal_again = (150..).find(|_| {
            gradient.sample(sample(40 * MS));
            gradient.tolerance * gradient.long.value >= 40e6
        });
        assert_eq!(normal_again.map(|samples| samples / 10), Some(24));
        for _ in 0..1000 {
            gradient.sample(sample(40 * MS));
        }
        assert_eq!(gradient.limit(), 200);
    }

    #[test]
    fn a_tenfold_long_latency_is_forgotten_down_to_twice_in_some_30_samples() {
        let mut gradient = Gradient2::builder().build().unwrap();
        for _ in 0..1000 {
            gradient.sample(sample(100 * MS));
        }
        let forgotten = (0..).find(|_| {
            gradient.sample(sample(10 * MS));
            gradient.long.value <= 20e6
        });
        assert_eq!(forgotten.map(|samples| samples / 10), Some(2));
    }

    #[test]
    fn settings_that_cannot_work_are_refused() {
        let builder = Gradient2::builder;
        assert!(builder().tolerance(0.9).build().is_err());
        assert!(builder().tolerance(f64::NAN).build().is_err());
        assert!(builder().tolerance(f64::INFINITY).build().is_err());
        assert!(builder().queue(0).build().is_err());
        assert!(builder().long_window(0).build().is_err());
        assert!(builder().smoothing(-0.1).build().is_err());
        assert!(builder().max(10).build().is_err());
    }
}
