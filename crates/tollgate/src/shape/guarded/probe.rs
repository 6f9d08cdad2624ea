//! Measures the latency of a backend without a queue by letting fewer requests start for a short time.
//!
//! Only requests that *started* while the limit was lowered count, and the probe waits for them after the limit is
//! restored. Requests that also finished in that time would contain too many quick ones.

use super::Pace;

/// Share of the limit during a probe.
pub(super) const LEVEL: f64 = 0.625;
/// Latencies that a probe lasts.
const LATENCIES: f64 = 6.0;
const LEAST_NS: f64 = 200e6;
const MOST_NS: f64 = 1e9;
/// The probe is extended up to this, so that the surplus can finish.
const DRAIN_MOST_NS: f64 = 3e9;
/// How many latencies the probe waits for the last of them. Slower requests are missing, so this must be long
/// where most are quick and a few slow: the mean of the quick ones is far below that of all.
const WAIT: f64 = 6.0;
/// Fewer samples than this give no result.
const LEAST_SAMPLES: u64 = 5;
/// This many samples make the mean accurate: with a usual spread of latencies within about a tenth.
const GOOD_SAMPLES: f64 = 200.0;
/// Longest probe for accuracy alone: its cost must stay below its gain.
const GOOD_MOST_NS: f64 = 500e6;
/// Longest probe, for backends that need it to finish the least number of samples.
const FEW_MOST_NS: f64 = 10e9;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Probe {
    on: Option<Run>,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    began_ns: u64,
    raise_ns: u64,
    end_ns: u64,
    is_lowering: bool,
    before: Pace,
    samples: u64,
    sum_ns: u128,
}

/// The result of a probe.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProbeResult {
    /// `None` if too few finished.
    pub(super) baseline_ns: Option<f64>,
    /// The latency and rate at the full limit.
    pub(super) before: Pace,
    pub(super) took_ns: u64,
}

impl Probe {
    /// Starts a probe after this pace. A rough probe is as short as possible.
    pub(super) fn begin(&mut self, now_ns: u64, before: Pace, is_rough: bool) {
        let rtt_ns = before.rtt_ns;
        let drain_ns = (rtt_ns * 1.5).min(DRAIN_MOST_NS);
        let time_of = |samples: f64| samples / (before.per_ns * LEVEL).max(f64::MIN_POSITIVE);
        let good_ns = if is_rough {
            0.0
        } else {
            time_of(GOOD_SAMPLES).min(GOOD_MOST_NS)
        };
        let few_ns = time_of(LEAST_SAMPLES as f64 + 1.0).min(FEW_MOST_NS);
        let low_ns = (rtt_ns * LATENCIES).max(good_ns).clamp(LEAST_NS, MOST_NS);
        let low_ns = low_ns.max(drain_ns).max(few_ns);
        let raise_ns = now_ns.saturating_add(low_ns as u64);
        self.on = Some(Run {
            began_ns: now_ns,
            raise_ns,
            end_ns: raise_ns.saturating_add((rtt_ns * WAIT) as u64),
            is_lowering: true,
            before,
            samples: 0,
            sum_ns: 0,
        });
    }

    pub(super) fn stop(&mut self) {
        self.on = None;
    }

    pub(super) fn is_idle(&self) -> bool {
        self.on.is_none()
    }

    pub(super) fn is_lowering(&self) -> bool {
        self.on.is_some_and(|run| run.is_lowering)
    }

    pub(super) fn add(&mut self, started_ns: u64, rtt_ns: u64) {
        if let Some(run) = &mut self.on
            && (run.began_ns..run.raise_ns).contains(&started_ns)
        {
            run.samples = run.samples.saturating_add(1);
            run.sum_ns = run.sum_ns.saturating_add(rtt_ns.max(1).into());
        }
    }

    /// Whether the limit is restored at this moment.
    pub(super) fn ends_lowering(&mut self, now_ns: u64) -> bool {
        match &mut self.on {
            Some(run) if run.is_lowering && now_ns >= run.raise_ns => {
                run.is_lowering = false;
                true
            }
            _ => false,
        }
    }

    /// The result, returned once: when all requests that started in the probe had time to finish.
    pub(super) fn verdict(&mut self, now_ns: u64) -> Option<ProbeResult> {
        let run = self.on.filter(|run| now_ns >= run.end_ns)?;
        self.on = None;
        let took_ns = run.raise_ns.saturating_sub(run.began_ns);
        let mean_ns = run.sum_ns as f64 / (run.samples.max(1) as f64);
        Some(ProbeResult {
            baseline_ns: (run.samples >= LEAST_SAMPLES).then_some(mean_ns),
            before: run.before,
            took_ns,
        })
    }
}
