//! Samples that finished within a short span.
//!
//! A window lasts as long as a request does, so that it shows the effect of the last move and not of the one
//! before: at least 100 ms, at most 1 s. It needs ten samples before it closes, and one after a second, so that a
//! slow backend is measured too.

use super::super::adaptive::Sample;

/// Longest window, if anything finished.
const MOST_NS: u64 = 1_000_000_000;
/// Fewest samples of a window that is shorter than that.
const SAMPLES: u64 = 10;
/// Shortest window.
const LEAST_NS: u64 = 100_000_000;
/// Share of failures by number, in percent, that indicates overload.
const BAD_BY_NUMBER: f64 = 0.05;
/// Share of failures by time, in percent, that indicates overload.
const BAD_BY_TIME: f64 = 0.25;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SampleWindow {
    opened_ns: Option<u64>,
    good: u64,
    /// Wide enough for any number of the longest latencies.
    good_sum_ns: u128,
    bad: u64,
    bad_sum_ns: u128,
    inflight_max: u32,
}

impl SampleWindow {
    pub(super) fn add(&mut self, now_ns: u64, sample: Sample, dropped: bool) {
        self.opened_ns.get_or_insert(now_ns);
        let (count, sum_ns) = if dropped {
            (&mut self.bad, &mut self.bad_sum_ns)
        } else {
            (&mut self.good, &mut self.good_sum_ns)
        };
        *count = count.saturating_add(1);
        *sum_ns = sum_ns.saturating_add(sample.rtt_ns.max(1).into());
        self.inflight_max = self.inflight_max.max(sample.inflight);
    }

    pub(super) fn inflight_max(&self) -> u32 {
        self.inflight_max
    }

    pub(super) fn is_due(&self, now_ns: u64, latency_ns: u64) -> bool {
        let Some(opened_ns) = self.opened_ns else {
            return false;
        };
        let age_ns = now_ns.saturating_sub(opened_ns);
        let samples = self.samples();
        let is_full = age_ns >= latency_ns.clamp(LEAST_NS, MOST_NS) && samples >= SAMPLES;
        is_full || (age_ns >= MOST_NS && samples > 0)
    }

    /// The share of failures, by number or by time, if it indicates overload.
    pub(super) fn bad_share(&self) -> Option<f64> {
        let share = |bad: f64, good: f64| bad / (bad + good).max(1.0);
        let by_number = share(self.bad as f64, self.good as f64);
        let by_time = share(self.bad_sum_ns as f64, self.good_sum_ns as f64);
        (by_number >= BAD_BY_NUMBER || by_time >= BAD_BY_TIME)
            .then_some(by_number.max(by_time).min(1.0))
    }

    pub(super) fn samples(&self) -> u64 {
        self.good.saturating_add(self.bad)
    }

    pub(super) fn age_ns(&self, now_ns: u64) -> u64 {
        self.opened_ns
            .map_or(0, |opened_ns| now_ns.saturating_sub(opened_ns))
    }

    /// Mean latency, and successful completions per nanosecond.
    pub(super) fn pace(&self, now_ns: u64) -> Option<(f64, f64)> {
        let age_ns = now_ns.saturating_sub(self.opened_ns?).max(1);
        let good = self.good as f64;
        // The first of them opened the window, so it was served before.
        let served = (good - 1.0).max(1.0);
        (self.good > 0).then(|| (self.good_sum_ns as f64 / good, served / age_ns as f64))
    }
}
