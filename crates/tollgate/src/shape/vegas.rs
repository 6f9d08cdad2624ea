//! Vegas: a concurrency limit from how many requests seem to be queuing.
//!
//! # Theory
//!
//! As TCP Vegas does with its window. `noload` is the latency of an idle backend, taken to be the
//! least seen. Of `est` requests in flight at latency `rtt`, those beyond `est * noload/rtt` must be
//! waiting somewhere (Little's law):
//!
//! ```text
//! queue = ceil(est * (1 - noload/rtt))        lg = max(1, floor(log10 est))
//!
//! rtt < noload, or first:  noload = rtt, keep est
//! dropped:                 est - lg
//! 2 * inflight < est:      keep: the limit was not what held the load back
//! queue <= lg:             est + 6 lg
//! queue <  3 lg:           est + lg
//! queue >  6 lg:           est - lg
//! else                     keep
//! ```
//!
//! clamped to `[min, max]`, then smoothed; the limit is `floor(est)`. A *probe* sets `noload` to the
//! present latency, so that a backend that became slower for good is not taken for a queue. Built
//! [`with_seed`](VegasBuilder::with_seed) it probes by itself, at a random moment in each second half
//! of `30 * est` samples (random, so that many clients do not all probe at once); built without, only
//! when [`probe`](Vegas::probe) is called.
//!
//! # Invariant
//!
//! `min <= limit <= max`, and one sample moves the estimate by at most `6 lg`.
//!
//! # Known drift
//!
//! - **Noload too high.** A probe under load takes the queue for the backend's own latency; the queue
//!   then looks empty and the limit climbs, deeper into the queue, to the next probe, which takes
//!   that deeper queue for normal. Only `max` bounds it.
//! - **Noload too low.** One freak fast answer makes all others look queued, and the limit sinks by
//!   `lg` per sample until only `6 lg` seem queued. So latency alone never takes it below 6, nor below
//!   `min`; only drops do. The next probe bounds how long it lasts, at most `30 * est` samples; without
//!   a seed only the caller's own probes do.
//! - **A fast failure is believed.** A dropped sample with `rtt < noload` sets `noload` and does not
//!   lower the limit. Feed it through [`Windowed`](super::adaptive::Windowed): it leaves out the
//!   very fast, and one fast failure among many samples hardly moves their mean.
//!
//! # Why not always
//!
//! The least latency means something only if all requests cost about the same. Where they do not,
//! [`Gradient2`](super::gradient2::Gradient2) compares averages instead.
//!
//! This module knows nothing of clocks, threads or requests. Its randomness is its own, from the
//! seed: the same seed and samples give the same limits.

use super::adaptive::{AdaptiveError, AdaptiveLimit, Range, Sample, check_smoothing};
use super::guarded::Steered;

/// Probes happen at a random point of the second half of this many samples per unit of limit.
const PROBE_MULTIPLIER: f64 = 30.0;

/// A limit from the estimated queue. See the [module](self).
#[derive(Clone, Debug)]
pub struct Vegas {
    range: Range,
    smoothing: f64,
    estimate: f64,
    noload_ns: Option<u64>,
    prober: Option<Prober>,
}

impl Vegas {
    /// Starts from initial 20, min 1, max 1000, no smoothing and no probing of its own.
    pub fn builder() -> VegasBuilder {
        VegasBuilder {
            range: Range {
                min: 1,
                initial: 20,
                max: 1000,
            },
            smoothing: 1.0,
            seed: None,
        }
    }

    /// Takes this latency for that of an idle backend from now on. The limit stays.
    ///
    /// Best called with a latency measured while little was in flight.
    pub fn probe(&mut self, rtt_ns: u64) -> u32 {
        self.noload_ns = Some(rtt_ns.max(1));
        if let Some(prober) = &mut self.prober {
            prober.restart();
        }
        self.limit()
    }

    /// The latency taken for that of an idle backend, once there is one.
    pub fn noload_ns(&self) -> Option<u64> {
        self.noload_ns
    }

    /// The estimate after a sample that is not slower than `noload`, before clamping.
    fn next(&self, sample: Sample, noload_ns: u64, rtt_ns: u64) -> f64 {
        let estimate = self.estimate;
        // Below 10 the logarithm is 0; a step of 0 would never get anywhere.
        let lg = f64::from((estimate as u32).max(1).ilog10().max(1));
        let queue = (estimate * (1.0 - noload_ns as f64 / rtt_ns as f64)).ceil();
        if sample.dropped {
            estimate - lg
        } else if f64::from(sample.inflight) * 2.0 < estimate {
            estimate
        } else if queue <= lg {
            estimate + 6.0 * lg
        } else if queue < 3.0 * lg {
            estimate + lg
        } else if queue > 6.0 * lg {
            estimate - lg
        } else {
            estimate
        }
    }
}

impl AdaptiveLimit for Vegas {
    fn limit(&self) -> u32 {
        // In `[min, max]`, whole numbers both, so rounding down stays in it.
        self.estimate as u32
    }

    fn sample(&mut self, sample: Sample) -> u32 {
        let rtt_ns = sample.rtt_ns.max(1);
        let estimate = self.estimate;
        if self.prober.as_mut().is_some_and(|p| p.is_due(estimate)) {
            return self.probe(rtt_ns);
        }
        match self.noload_ns {
            Some(noload_ns) if rtt_ns >= noload_ns => {
                let next = self.next(sample, noload_ns, rtt_ns);
                // Keeping must keep exactly, and smoothing may round.
                if next != estimate {
                    let next = self.range.clamp(next);
                    let smoothed = (1.0 - self.smoothing) * estimate + self.smoothing * next;
                    self.estimate = self.range.clamp(smoothed);
                }
            }
            _ => self.noload_ns = Some(rtt_ns),
        }
        self.limit()
    }
}

impl Steered for Vegas {
    fn estimate(&self) -> f64 {
        self.estimate
    }

    fn steer(&mut self, estimate: f64, baseline_ns: u64) {
        self.estimate = self.range.clamp(estimate);
        self.noload_ns = Some(baseline_ns.max(1));
    }
}

/// Decides when to probe.
#[derive(Clone, Debug)]
struct Prober {
    /// State of the SplitMix64 generator.
    state: u64,
    /// Where in `[0.5, 1)` of a full period the next probe is.
    jitter: f64,
    /// Since the last probe.
    samples: u64,
}

impl Prober {
    fn new(seed: u64) -> Self {
        let mut prober = Self {
            state: seed,
            jitter: 0.5,
            samples: 0,
        };
        prober.restart();
        prober
    }

    /// Counts one sample; whether it is the one to probe with.
    fn is_due(&mut self, estimate: f64) -> bool {
        self.samples = self.samples.saturating_add(1);
        self.jitter * PROBE_MULTIPLIER * estimate <= self.samples as f64
    }

    fn restart(&mut self) {
        self.samples = 0;
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        // The upper 53 bits are a number in `[0, 1)` that an `f64` holds exactly.
        self.jitter = 0.5 + 0.5 * ((z >> 11) as f64 / (1_u64 << 53) as f64);
    }
}

/// Builds a [`Vegas`].
#[derive(Clone, Copy, Debug)]
#[must_use = "a builder does nothing until `build`"]
pub struct VegasBuilder {
    range: Range,
    smoothing: f64,
    seed: Option<u64>,
}

impl VegasBuilder {
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

    /// Lets it probe by itself, at moments drawn from this seed. Give each client another.
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// The limit.
    ///
    /// # Errors
    ///
    /// Unless `1 <= min <= initial <= max` and `0 < smoothing <= 1`.
    pub fn build(self) -> Result<Vegas, AdaptiveError> {
        let range = self.range.check()?;
        Ok(Vegas {
            range,
            smoothing: check_smoothing(self.smoothing)?,
            estimate: range.initial.into(),
            noload_ns: None,
            prober: self.seed.map(Prober::new),
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::super::adaptive::golden;
    use super::*;

    fn sample(rtt_ns: u64, inflight: u32) -> Sample {
        Sample {
            rtt_ns,
            inflight,
            dropped: false,
        }
    }

    #[test]
    fn every_golden_timeline_yields_the_same_limits() {
        for (new, rows) in golden::cases("vegas") {
            let mut builder = Vegas::builder();
            if let Some(initial) = new.find("initial") {
                builder = builder.initial(initial as u32);
            }
            if let Some(max) = new.find("max") {
                builder = builder.max(max as u32);
            }
            let mut vegas = builder.build().unwrap();
            for row in rows {
                let limit = match row.op.as_str() {
                    "sample" => vegas.sample(row.sample()),
                    "probe" => vegas.probe(row.find("rtt_ns").unwrap()),
                    other => panic!("unknown op `{other}`"),
                };
                assert_eq!(limit, row.limit, "{}", row.line);
            }
        }
    }

    #[test]
    fn a_backend_that_does_not_queue_gets_more_and_one_that_does_gets_less() {
        let mut vegas = Vegas::builder().build().unwrap();
        vegas.sample(sample(1000, 20));
        assert_eq!(vegas.sample(sample(1000, 20)), 26);
        assert_eq!(vegas.sample(sample(2000, 26)), 25);
        assert_eq!(vegas.sample(sample(1000, 12)), 25, "not held back by it");
    }

    #[test]
    fn the_range_holds_whatever_is_fed_in() {
        for smoothing in [1.0, 0.3, 0.000_1] {
            let mut vegas = Vegas::builder()
                .min(7)
                .initial(8)
                .max(30)
                .smoothing(smoothing)
                .with_seed(1)
                .build()
                .unwrap();
            for sample in golden::absurd_samples() {
                assert!((7..=30).contains(&vegas.sample(sample)));
            }
        }
    }

    #[test]
    fn without_a_seed_it_never_probes_by_itself() {
        let mut vegas = Vegas::builder().build().unwrap();
        vegas.sample(sample(1000, 20));
        for _ in 0..10_000 {
            vegas.sample(sample(5000, 20));
        }
        assert_eq!(vegas.noload_ns(), Some(1000));
        // The drift of a noload that is too low comes to rest where `est * (1 - 1/5)` is about 6.
        assert_eq!(vegas.limit(), 7);
    }

    #[test]
    fn with_a_seed_it_probes_between_half_and_all_of_the_period() {
        let mut periods = std::collections::BTreeSet::new();
        for seed in 0..100 {
            // A limit that cannot move, so that the period is 30 * 20 samples.
            let mut vegas = Vegas::builder()
                .min(20)
                .max(20)
                .with_seed(seed)
                .build()
                .unwrap();
            vegas.sample(sample(1000, 20));
            let probed = (2..).find(|_| {
                vegas.sample(sample(5000, 20));
                vegas.noload_ns() == Some(5000)
            });
            let probed = probed.unwrap();
            assert!((300..=600).contains(&probed), "{probed}");
            periods.insert(probed);
        }
        assert!(periods.len() > 50, "clients do not probe together");
    }

    #[test]
    fn the_same_seed_gives_the_same_limits() {
        let build = || Vegas::builder().with_seed(42).build().unwrap();
        let (mut one, mut other) = (build(), build());
        for sample in golden::absurd_samples() {
            assert_eq!(one.sample(sample), other.sample(sample));
        }
    }

    #[test]
    fn probing_under_load_takes_the_queue_for_normal_and_only_max_stops_the_climb() {
        // Wrong, and known: this is the drift that the module documentation names.
        let mut vegas = Vegas::builder().max(100).build().unwrap();
        vegas.probe(9_000_000);
        for _ in 0..1000 {
            vegas.sample(sample(9_000_000, 1000));
        }
        assert_eq!(vegas.limit(), 100);
    }

    #[test]
    fn settings_that_cannot_work_are_refused() {
        assert!(Vegas::builder().min(0).build().is_err());
        assert!(Vegas::builder().max(19).build().is_err());
        assert!(Vegas::builder().smoothing(1.1).build().is_err());
    }
}
