//! Adaptive concurrency limit: an estimator, and a guard that keeps it from drifting.
//!
//! # Theory
//!
//! By Little's law a backend needs `rate * latency` requests at once: the rate it reaches, and the latency it has
//! *without a queue*. The first can be counted. The second, the *baseline*, can be seen only while few are in
//! flight. The estimators infer it from ordinary traffic, and each errs in its own way. The guard measures it, and
//! leaves to the estimator only the choice between
//!
//! ```text
//! lower edge   while latency <= 1.15 * baseline nothing queues: grow by a tenth per window
//! upper edge   no growth above 1.25 * rate * baseline, nor above rate * baseline + 1 if that is more
//! ```
//!
//! The rate of a window may be off by one request. With few in flight that is as much as the step from 4 to 5. So
//! while nothing queues, the limit may grow by one if one request more would keep all places busy. Otherwise a
//! limit could be stuck at its least value.
//!
//! | drift | of | what the guard does |
//! |---|---|---|
//! | queues are never seen | `aimd` | the upper edge |
//! | slow becomes normal | `gradient2` | the baseline is measured by a *probe*, and handed to the estimator |
//! | drops are not seen | `gradient2` | they shrink the limit, whatever the estimator says |
//! | grows without demand | all | no growth unless the number in flight came near the limit |
//! | a stall ends no request, so nothing is learned | all | [`tick`](AdaptiveLimit::tick) shrinks |
//! | one failure in a thousand is taken for overload | `aimd` | a window is bad by its share of failures |
//!
//! **A probe** lets fewer start for a short time: five eighths of the limit, for six latencies, at least 200 ms
//! and rarely more than 1 s. Nothing is dropped or interrupted; requests only wait slightly longer in the queue.
//! Requests that started in that time give the baseline. Probes run only while the limit holds the load back:
//! every 10 s, and at once (but not within 1 s of the last) when latency rises above 1.5 times the baseline. The
//! verdict may lower the limit to the upper edge, by half at the most; and by three tenths at least if latency
//! fell together with the number in flight. Since `1.25 * 5/8 < 1`, a limit that is too high falls with each
//! probe, even if the probe itself was still too high to see the backend without a queue.
//!
//! **Between probes latency alone lowers the limit by no more than a seventh.** A backend that became three times
//! slower looks like one with a queue, and only a probe distinguishes the two. Until then the estimator has to
//! wait for the next verdict.
//!
//! **Drops.** The share of failures in a window is by number or by time, whichever is greater: a request that hung
//! until its timeout is one of many, but it held its place all the while. From 5 % by number or 25 % by time the
//! limit shrinks by half that share. Only failures that started after the last shrink count, so one overload
//! counts once. Above the value it shrank to, the limit grows slowly for 10 s: by no more than a tenth in the time
//! that a failure takes to show, the timeout. (Not so if hardly anything succeeded: then the limit was not the
//! cause.)
//!
//! # Invariant
//!
//! `min <= limit() <= max` at all times, for any input. Every number is finite: latencies are whole, divisors are
//! at least 1, and NaN becomes `min`.
//!
//! # Limits
//!
//! - Failures that are unrelated to load still shrink the limit if they are many.
//! - A limit whose `min` is above what the backend bears is probed at `min`, and stays near it.
//! - The guard only computes how many may run. The caller holds the waiting requests.
//!
//! This module does not use clocks, threads or requests.

mod probe;
mod window;

#[cfg(test)]
mod tests;

use self::probe::Probe;
use self::window::SampleWindow;
use super::adaptive::{Adaptive, Estimator};
use super::adaptive::{AdaptiveError, Range, Sample};
use super::unguarded::EstimatorLimit;

/// Samples faster than this are ignored.
///
/// Nothing that reached a backend is so fast. A cached response or a refused connection is, and it holds no
/// significant concurrency.
const RTT_MIN_NS: u64 = 100_000;

/// The share of a new window in the smoothed latency and rate.
const SMOOTHING: f64 = 0.25;
/// Below this many times the baseline, nothing queues.
const UNQUEUED: f64 = 1.15;
/// Above this many times the baseline, a probe checks whether the baseline still holds.
const SUSPECT: f64 = 1.5;
/// Upper edge of the limit, as a multiple of the need.
const HEADROOM: f64 = 1.25;
/// Least upper edge above the need, so that a limit of 1 can grow.
const SPARE: f64 = 1.0;
/// Share of the limit in requests that do not queue at which all places count as busy.
const AT_WORK: f64 = 0.95;
/// Growth per window while nothing queues.
const GROWTH: f64 = 0.1;
/// Least share of the limit that remains until a verdict, whatever the estimator says.
const LEFT: f64 = 0.85;
/// Latency below this share of the baseline invalidates the baseline.
const STALE: f64 = 0.9;
/// Latency in a probe above this share of the latency before it: nothing queued before.
const SAME: f64 = 0.87;
/// Latency in a probe below this share of the latency before it: requests queued even then.
const STILL_QUEUED: f64 = 0.73;
/// Latency in a probe above this many times the baseline: the baseline does not hold, or there is a queue.
const FAR: f64 = 1.4;
/// The rate of a window with this many samples is accurate enough.
const MANY_SAMPLES: u64 = 100;
/// How long growth stays slow above the value that failures have set.
const CAREFUL_NS: u64 = 10_000_000_000;
/// With a share of failures above this, the value that they set carries no information.
const HOPELESS: f64 = 0.9;
/// Longest interval between probes while the limit holds the load back.
const PROBE_EVERY_NS: u64 = 10_000_000_000;
/// Shortest interval between probes.
const PROBE_REST_NS: u64 = 1_000_000_000;
/// A request has been running for this long: then quick responses of others say nothing.
const HANGING_NS: u64 = 100_000_000;
/// Nothing finished for this long, and for four latencies: a stall.
const STALL_NS: u64 = 1_000_000_000;

/// A concurrency limit that follows the observed backend, with bounded drift. See the [module](self).
///
/// ```
/// use tollgate::Span;
/// use tollgate::shape::{Adaptive, AdaptiveLimit, Estimator, Sample};
///
/// let timeout = Span::from_secs(1);
/// let bounds = Adaptive { by: Estimator::Aimd, min: 1, max: 100, initial: 10, timeout };
/// let mut limit = AdaptiveLimit::new(&bounds)?;
/// let sample = Sample { rtt_ns: 5_000_000, inflight: 10, dropped: false };
/// assert!((1..=100).contains(&limit.sample(1_000_000_000, sample)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct AdaptiveLimit {
    by: Estimator,
    inner: EstimatorLimit,
    range: Range,
    timeout_ns: u64,
    /// In the range. Callers see this value, or less during a probe.
    estimate: f64,
    /// Latency without a queue, after the first samples.
    baseline_ns: Option<f64>,
    pace: Option<Pace>,
    window: SampleWindow,
    /// Samples too quick to come from a backend, since the last other sample.
    quick: SampleWindow,
    /// The age of the oldest running request at the last tick.
    oldest_ns: u64,
    probe: Probe,
    /// When the next probe is due, once anything was seen.
    probe_due_ns: Option<u64>,
    probe_rested_ns: u64,
    /// The estimate at the last verdict, or the greatest since.
    judged: f64,
    has_verdict: bool,
    /// The last verdict found a queue even in the probe.
    is_descending: bool,
    ceiling: Option<Ceiling>,
    /// Failures that started before this moment have been handled already.
    shrunk_ns: u64,
    stall: Stall,
    last_ns: u64,
}

/// The value that failures have set.
#[derive(Clone, Copy, Debug)]
struct Ceiling {
    estimate: f64,
    until_ns: u64,
}

/// Smoothed over some windows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    rtt_ns: f64,
    per_ns: f64,
}

/// State of the time since the last completion.
#[derive(Clone, Copy, Debug, Default)]
struct Stall {
    /// The last completion, or the last time the limit shrank during the stall.
    since_ns: Option<u64>,
    /// The estimate before this stall, if there is one.
    before: Option<f64>,
}

impl AdaptiveLimit {
    /// The limit that `adaptive` describes.
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
        let inner = EstimatorLimit::new(adaptive)?;
        let range = Range { min, initial, max };
        Ok(Self {
            by,
            estimate: range.clamp(inner.estimate()),
            range,
            timeout_ns: timeout.as_nanos(),
            baseline_ns: None,
            pace: None,
            window: SampleWindow::default(),
            quick: SampleWindow::default(),
            oldest_ns: 0,
            probe: Probe::default(),
            probe_due_ns: None,
            probe_rested_ns: 0,
            judged: range.clamp(inner.estimate()),
            has_verdict: false,
            is_descending: false,
            ceiling: None,
            shrunk_ns: 0,
            stall: Stall::default(),
            last_ns: 0,
            inner,
        })
    }

    /// Continues with other settings. What was learned is kept, as far as the new range allows, if the estimator
    /// is the same. Otherwise the limit starts from the new `initial`.
    ///
    /// # Errors
    ///
    /// As [`AdaptiveLimit::new`]. Nothing changes then.
    pub fn change(&mut self, adaptive: &Adaptive) -> Result<(), AdaptiveError> {
        let mut next = Self::new(adaptive)?;
        if next.by == self.by {
            next.adopt_state(self);
        }
        *self = next;
        Ok(())
    }

    /// The number of requests that may be in flight now, between `min` and `max`.
    pub fn limit(&self) -> u32 {
        let level = if self.probe.is_lowering() {
            self.estimate * probe::LEVEL
        } else {
            self.estimate
        };
        // In `[min, max]`, whole numbers both, so rounding down stays in it.
        self.range.clamp(level) as u32
    }

    /// Records one request that finished at `now_ns`, and returns the limit.
    pub fn sample(&mut self, now_ns: u64, sample: Sample) -> u32 {
        self.turn_to(now_ns);
        let dropped = sample.dropped || sample.rtt_ns > self.timeout_ns;
        // A response that no backend produced carries no information; a refused connection does.
        if sample.rtt_ns < RTT_MIN_NS && !dropped {
            self.quick.add(now_ns, sample, false);
            self.advance(now_ns);
            return self.limit();
        }
        self.quick = SampleWindow::default();
        let started_ns = now_ns.saturating_sub(sample.rtt_ns);
        // The limit has shrunk already for failures that started before the last shrink.
        if !dropped || started_ns >= self.shrunk_ns {
            self.window.add(now_ns, sample, dropped);
        }
        if !dropped {
            self.probe.add(started_ns, sample.rtt_ns);
            self.stall = Stall::default();
        }
        self.stall.since_ns = Some(now_ns);
        self.advance(now_ns);
        self.limit()
    }

    /// Advances time, ideally about ten times a second, and returns the limit.
    ///
    /// `oldest_running_ns` is the age of the oldest request in flight, 0 if there is none. If nothing has finished
    /// for that long either, the backend stalls. The limit then shrinks once a second, to half at the most,
    /// because the load after a stall is unknown.
    pub fn tick(&mut self, now_ns: u64, oldest_running_ns: u64) -> u32 {
        self.turn_to(now_ns);
        self.oldest_ns = oldest_running_ns;
        let since_ns = *self.stall.since_ns.get_or_insert(now_ns);
        let timeout = self.pace.map_or(0, |pace| (pace.rtt_ns * 4.0) as u64);
        let quiet_ns = now_ns.saturating_sub(since_ns).min(oldest_running_ns);
        if quiet_ns >= timeout.max(STALL_NS) {
            let before = *self.stall.before.get_or_insert(self.estimate);
            // Failures may have lowered the limit below half already. A stall does not raise it.
            let least = (before / 2.0).min(self.estimate);
            self.move_to((self.estimate * 0.7).max(least));
            self.stall.since_ns = Some(now_ns);
            self.window = SampleWindow::default();
            self.probe.stop();
        }
        self.advance(now_ns);
        self.limit()
    }

    /// Restarts all spans when the clock was set back. What was learned stays.
    fn turn_to(&mut self, now_ns: u64) {
        if now_ns < self.last_ns {
            self.window = SampleWindow::default();
            self.quick = SampleWindow::default();
            self.probe.stop();
            self.probe_due_ns = self.probe_due_ns.map(|_| now_ns);
            self.probe_rested_ns = now_ns;
            self.shrunk_ns = self.shrunk_ns.min(now_ns);
            self.ceiling = None;
            self.stall = Stall::default();
        }
        self.last_ns = now_ns;
    }

    fn advance(&mut self, now_ns: u64) {
        if self.probe.ends_lowering(now_ns) {
            // Completions during the probe say nothing about the restored limit.
            self.window = SampleWindow::default();
        }
        if let Some(verdict) = self.probe.verdict(now_ns) {
            self.judge(now_ns, verdict);
        }
        let latency_ns = self.pace.map_or(0, |pace| pace.rtt_ns as u64);
        if self.window.is_due(now_ns, latency_ns) {
            let window = std::mem::take(&mut self.window);
            self.close(now_ns, &window);
        }
        if self.quick.is_due(now_ns, 0) {
            let quick = std::mem::take(&mut self.quick);
            self.close_quick(now_ns, &quick);
        }
    }

    /// Handles a window of only quick responses while nothing hangs: nothing queues at their source. They carry no
    /// information about the latency of the backend.
    fn close_quick(&mut self, now_ns: u64, quick: &SampleWindow) {
        let limit = f64::from(self.limit());
        let is_held_back = f64::from(quick.inflight_max()) >= limit * 0.9;
        if !is_held_back || self.probe.is_lowering() || self.oldest_ns >= HANGING_NS {
            return;
        }
        let careful = self.careful(now_ns, quick.age_ns(now_ns));
        self.move_to(grown(self.estimate).min(careful).max(self.estimate));
        self.judged = self.judged.max(self.estimate);
    }

    /// Learns from a complete window.
    fn close(&mut self, now_ns: u64, window: &SampleWindow) {
        if let Some(share) = window.bad_share() {
            self.probe.stop();
            self.shrunk_ns = now_ns;
            self.move_to(self.estimate * (1.0 - share / 2.0));
            self.judged = self.estimate;
            self.ceiling = (share < HOPELESS).then_some(Ceiling {
                estimate: self.estimate,
                until_ns: now_ns.saturating_add(CAREFUL_NS),
            });
            return;
        }
        let Some((rtt_ns, per_ns)) = window.pace(now_ns) else {
            return;
        };
        if self.probe.is_lowering() {
            return;
        }
        let Some(pace) = &mut self.pace else {
            // In the first window only the quick requests have finished: too little information.
            self.pace = Some(Pace { rtt_ns, per_ns });
            return;
        };
        pace.rtt_ns += (rtt_ns - pace.rtt_ns) * SMOOTHING;
        pace.per_ns += (per_ns - pace.per_ns) * SMOOTHING;
        let pace = *pace;
        let limit = f64::from(self.limit());
        let inflight = f64::from(window.inflight_max());
        let baseline = self.baseline_ns.get_or_insert(rtt_ns);
        // Latency below the baseline is not possible; and few in flight make no queue.
        if pace.rtt_ns < *baseline * 0.7 {
            *baseline = pace.rtt_ns;
        } else if pace.rtt_ns < *baseline || inflight * 2.0 <= limit {
            *baseline += (pace.rtt_ns - *baseline) / 8.0;
        }
        let baseline = *baseline;
        let due_ns = *self
            .probe_due_ns
            .get_or_insert(now_ns.saturating_add(PROBE_REST_NS));
        if inflight < limit * 0.9 {
            return;
        }

        // The smoothed rate lags behind while the limit grows, but a small window is mostly noise.
        let per_ns = if window.samples() >= MANY_SAMPLES {
            pace.per_ns.max(per_ns)
        } else {
            pace.per_ns
        };
        let is_queued = pace.rtt_ns > baseline * UNQUEUED;
        let mut edge = edge(per_ns * baseline);
        self.inner.steer(self.estimate, baseline as u64);
        let before = self.inner.estimate();
        self.inner.sample(Sample {
            rtt_ns: pace.rtt_ns as u64,
            inflight: window.inflight_max(),
            dropped: false,
        });
        let mut next = self.estimate + (self.inner.estimate() - before);
        if !is_queued {
            next = next.max(grown(self.estimate));
            let off_by_one = baseline / (window.age_ns(now_ns).max(1) as f64);
            if per_ns * baseline + off_by_one >= limit * AT_WORK {
                edge = edge.max(limit + SPARE);
            }
        }
        if next <= self.estimate {
            next = next.max(self.judged * LEFT).min(self.estimate);
        } else if pace.rtt_ns < baseline * STALE {
            next = self.estimate;
        } else {
            let careful = self.careful(now_ns, window.age_ns(now_ns));
            next = next.min(edge).min(careful).max(self.estimate);
        }
        self.move_to(next);
        self.judged = self.judged.max(self.estimate);

        let is_suspect =
            pace.rtt_ns > baseline * SUSPECT || (is_queued && self.estimate <= self.judged * LEFT);
        if self.probe.is_idle()
            && now_ns >= self.probe_rested_ns
            && (now_ns >= due_ns || is_suspect)
        {
            // Far from the target a rough measurement suffices; near it noise must not decide.
            let is_rough = !self.has_verdict || self.is_descending;
            self.probe.begin(now_ns, pace, is_rough);
        }
    }

    /// How far the limit may grow in a window of this length after failures.
    fn careful(&self, now_ns: u64, age_ns: u64) -> f64 {
        match self.ceiling {
            Some(ceiling) if now_ns < ceiling.until_ns => {
                let share = (age_ns as f64 / self.timeout_ns as f64).min(1.0);
                ceiling.estimate.max(self.estimate * (1.0 + GROWTH * share))
            }
            _ => f64::INFINITY,
        }
    }

    /// Adopts the measured baseline, and lowers the limit to what the baseline and the rate allow.
    fn judge(&mut self, now_ns: u64, verdict: probe::ProbeResult) {
        let had = self.estimate;
        if let Some(measured) = verdict.baseline_ns {
            let seen = verdict.before.rtt_ns;
            let mut baseline = self.weigh(measured, seen);
            let mut most = edge(verdict.before.per_ns * baseline);
            // Near the known baseline this is noise; far from it, or without one, it is not.
            let old = self
                .baseline_ns
                .filter(|_| self.has_verdict && !self.is_descending);
            let is_far = old.is_none_or(|old| measured > old * FAR);
            self.is_descending = is_far && measured < seen * STILL_QUEUED;
            if self.is_descending {
                // Fewer in flight made it that much quicker: there was a queue even in the probe, and the baseline
                // is lower than what was measured. The next probe measures by how much.
                most = most.min(had * 0.7);
                baseline = measured * 0.8;
            }
            if most < had {
                self.move_to(most.max(had / 2.0));
            }
            self.baseline_ns = Some(baseline);
        }
        self.judged = self.estimate;
        self.has_verdict = true;
        let rest_ns = PROBE_REST_NS.max(verdict.took_ns);
        let wait_ns = if self.estimate < had * 0.9 {
            rest_ns
        } else {
            PROBE_EVERY_NS.max(verdict.took_ns.saturating_mul(20))
        };
        self.probe_rested_ns = now_ns.saturating_add(rest_ns);
        self.probe_due_ns = Some(now_ns.saturating_add(wait_ns));
    }

    /// The baseline after a probe that measured this, where latency was `seen` before it.
    fn weigh(&self, measured: f64, seen: f64) -> f64 {
        // Nothing queued before either: the latency before the probe is as good.
        let measured = if measured > seen * SAME {
            (measured + seen) / 2.0
        } else {
            measured
        };
        // The first baseline was not probed, and one with a queue in the probe is an estimate.
        let old = self
            .baseline_ns
            .filter(|_| self.has_verdict && !self.is_descending);
        match old {
            // Nearly equal: half of the difference is noise.
            Some(old) if (0.7..1.4).contains(&(measured / old.max(1.0))) => (old + measured) / 2.0,
            _ => measured,
        }
    }

    fn move_to(&mut self, estimate: f64) {
        self.estimate = self.range.clamp(estimate);
    }

    /// Continues with the state of another limit, as far as the own range allows.
    fn adopt_state(&mut self, other: &Self) {
        self.estimate = self.range.clamp(other.estimate);
        self.baseline_ns = other.baseline_ns;
        self.pace = other.pace;
        self.judged = self.estimate;
        self.has_verdict = other.has_verdict;
        self.ceiling = other.ceiling;
        self.probe_due_ns = other.probe_due_ns;
        self.probe_rested_ns = other.probe_rested_ns;
        self.shrunk_ns = other.shrunk_ns;
        self.stall = other.stall;
        self.last_ns = other.last_ns;
    }
}

/// The estimate after a window in which nothing queued.
fn grown(estimate: f64) -> f64 {
    estimate + (estimate * GROWTH).max(0.5)
}

/// The upper edge of the limit of a backend that needs this many at once.
fn edge(need: f64) -> f64 {
    (need * HEADROOM).max(need + SPARE)
}
