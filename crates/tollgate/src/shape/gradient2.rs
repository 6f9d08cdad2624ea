//! Gradient2: a concurrency limit from the latency relative to its own long average.
//!
//! # Theory
//!
//! `short` is the latest latency, `long` an exponential average of it. Where `short` rises above `long` a queue is
//! growing, and the limit shrinks by the ratio. Otherwise it grows by the small queue that it always allows:
//!
//! ```text
//! long = mean of the first 10 samples, then long * (1 - a) + short * a,  a = 2 / 601
//! if long > 2 * short:      long = long * 0.95, from the next sample on
//! if inflight < est / 2:    keep: the limit was not what held the load back
//! g   = clamp(1.5 * long / short, 0.5, 1)
//! new = est * g + 4
//! est = est * 0.8 + new * 0.2, clamped to [min, max]
//! ```
//!
//! The limit is `floor(est)`.
//!
//! # Invariant
//!
//! `min <= limit <= max`. One sample lowers the estimate by at most a tenth and raises it by at most 0.8, so an
//! outlier has no larger effect.
//!
//! # Known drift
//!
//! - **Drops are not seen.** A backend that fails fast looks quick, and the limit grows. Only `max` bounds that:
//!   give requests a timeout that counts as latency, or take the lesser of this and that of [`aimd`](super::aimd).
//! - **Slow becomes normal.** Under lasting overload `long` follows `short`, and once `1.5 * long >= short` the
//!   limit grows again. A lasting fourfold slowdown is taken for normal after some 240 samples, four minutes of
//!   one-second windows. `max` bounds it.
//! - **Slow is remembered.** After a long overload `long` stays high and hides the first queue afterwards. The
//!   factor 0.95 bounds that: it takes effect while `long > 2 * short`, so a tenfold `long` is forgotten in some
//!   30 samples, down to the factor of 2 that remains.
//! - **Above the load it creeps.** At `g = 1` each busy sample adds 0.8. The limit comes to rest where `est * (1 -
//!   g) = 4`, which is above what the backend needs.
//! # Why not the least latency
//!
//! Requests differ in cost, and the least latency is that of the cheapest: against it, all others
//! look queued. An average compares like with like.
//!
//! This module does not use clocks, threads or requests.

use super::adaptive::{Range, Sample};

/// How many samples are averaged plainly before the exponential average takes over.
const WARM_UP: u32 = 10;
/// The weight of each new sample in the long latency after that: an average over 600.
const LONG_SHARE: f64 = 2.0 / 601.0;
/// The weight of each new estimate.
const SMOOTHING: f64 = 0.2;
/// The ratio of short to long latency at which the limit starts to shrink.
const TOLERANCE: f64 = 1.5;
/// How many requests may always queue, and so how fast the limit grows.
const QUEUE: f64 = 4.0;

/// A limit from the ratio of long to short latency. See the [module](self).
#[derive(Clone, Debug)]
pub(super) struct Gradient2 {
    range: Range,
    estimate: f64,
    long: LongAverage,
}

impl Gradient2 {
    /// Starts from the initial limit of `range`.
    pub(super) fn new(range: Range) -> Self {
        Self {
            range,
            estimate: range.initial.into(),
            long: LongAverage::default(),
        }
    }

    pub(super) fn limit(&self) -> u32 {
        // In `[min, max]`, whole numbers both, so rounding down stays in it.
        self.estimate as u32
    }

    pub(super) fn sample(&mut self, sample: Sample) -> u32 {
        let short = sample.rtt_ns.max(1) as f64;
        let long = self.long.add(short);
        if long / short > 2.0 {
            self.long.value *= 0.95;
        }
        if f64::from(sample.inflight) >= self.estimate / 2.0 {
            let gradient = (TOLERANCE * long / short).clamp(0.5, 1.0);
            let next = self.estimate * gradient + QUEUE;
            let smoothed = self.estimate * (1.0 - SMOOTHING) + next * SMOOTHING;
            self.estimate = self.range.clamp(smoothed);
        }
        self.limit()
    }

    pub(super) fn estimate(&self) -> f64 {
        self.estimate
    }

    pub(super) fn steer(&mut self, estimate: f64, baseline_ns: u64) {
        self.estimate = self.range.clamp(estimate);
        self.long.value = baseline_ns.max(1) as f64;
        self.long.warmed = WARM_UP;
    }
}

/// A plain mean while young, an exponential one after.
#[derive(Clone, Debug, Default)]
struct LongAverage {
    value: f64,
    /// Of the samples of the warm-up.
    sum: f64,
    warmed: u32,
}

impl LongAverage {
    fn add(&mut self, sample: f64) -> f64 {
        if self.warmed < WARM_UP {
            self.warmed += 1;
            self.sum += sample;
            self.value = self.sum / f64::from(self.warmed);
        } else {
            self.value = self.value * (1.0 - LONG_SHARE) + sample * LONG_SHARE;
        }
        self.value
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::adaptive::golden;
    use super::*;

    const MS: u64 = 1_000_000;

    fn gradient(min: u32, initial: u32, max: u32) -> Gradient2 {
        Gradient2::new(Range { min, initial, max }.check().unwrap())
    }

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
            let mut gradient = gradient(number("min"), number("initial"), number("max"));
            for row in rows {
                assert_eq!(row.op, "sample");
                assert_eq!(gradient.sample(row.sample()), row.limit, "{}", row.line);
            }
        }
    }

    #[test]
    fn a_steady_backend_gets_more_and_one_that_slows_down_gets_less() {
        let mut gradient = gradient(20, 100, 200);
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
        let mut gradient = gradient(20, 100, 200);
        for rtt_ms in [10, 10, 90, 1] {
            let mut idle = sample(rtt_ms * MS);
            idle.inflight = 49;
            assert_eq!(gradient.sample(idle), 100);
        }
    }

    #[test]
    fn one_outlier_takes_no_more_than_its_share() {
        let mut gradient = gradient(20, 100, 200);
        for _ in 0..WARM_UP {
            gradient.sample(sample(MS));
        }
        // 100 + 10 * 0.8 by now, and at the worst 108 * (1 - 0.2 / 2) + 0.8.
        assert_eq!(gradient.sample(sample(u64::MAX)), 98);
    }

    #[test]
    fn the_range_holds_for_any_input() {
        let mut gradient = gradient(7, 8, 30);
        for sample in golden::absurd_samples() {
            assert!((7..=30).contains(&gradient.sample(sample)));
        }
    }

    #[test]
    fn drops_are_not_seen_so_a_backend_that_fails_fast_climbs_to_max() {
        // Wrong, and known: this is the drift that the module documentation names.
        let mut gradient = gradient(20, 20, 200);
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
        let mut gradient = gradient(20, 20, 200);
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
            TOLERANCE * gradient.long.value >= 40e6
        });
        assert_eq!(normal_again.map(|samples| samples / 10), Some(24));
        for _ in 0..1000 {
            gradient.sample(sample(40 * MS));
        }
        assert_eq!(gradient.limit(), 200);
    }

    #[test]
    fn a_tenfold_long_latency_is_forgotten_down_to_twice_in_some_30_samples() {
        let mut gradient = gradient(20, 20, 200);
        for _ in 0..1000 {
            gradient.sample(sample(100 * MS));
        }
        let forgotten = (0..).find(|_| {
            gradient.sample(sample(10 * MS));
            gradient.long.value <= 20e6
        });
        assert_eq!(forgotten.map(|samples| samples / 10), Some(2));
    }
}
