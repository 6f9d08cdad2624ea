//! Signals of load shedding: CPU use of this machine, and latency and errors of backends.
//!
//! Sources count from some start. A sample is the difference to the previous one.
//!
//! # Few answers
//!
//! Fewer than [`MIN_ANSWERS`] answers are no sample. Until there are more, the previous statistics stay. Otherwise a backend that
//! fails its few requests would look healthy between two failures. Such statistics are marked as old: the same answers must
//! not lower the scale twice.

use std::fmt;

use tollgate::{Moment, Span};

/// Minimum of answers for a sample. Fewer are added to the next sample.
const MIN_ANSWERS: u64 = 5;
/// Statistics expire after this time without an answer.
const EXPIRY: Span = Span::from_secs(10);

/// A source of backend statistics: the gateway.
pub trait Backends: fmt::Debug + Send + Sync {
    /// Totals of all backends since some start. Called twice a second.
    fn observed(&self) -> BackendTotals;

    /// Names of upstreams whose servers are all down.
    fn unavailable(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns `true` if no server of any upstream is up.
    fn is_none_up(&self) -> bool {
        false
    }
}

/// Totals of all backends. They only grow, unless they restart from zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackendTotals {
    /// Requests that ended, with an answer or without.
    pub ended: u64,
    /// Failed requests: no connection, no answer in time, or an answer that reports overload or failure.
    pub failed: u64,
    /// Requests with any answer.
    pub answered: u64,
    /// Sum of the latencies of these answers, in nanoseconds.
    pub latency_ns: u64,
}

/// Statistics of a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BackendStats {
    /// Average latency.
    pub(super) latency: Option<Span>,
    /// The share of failures in ten-thousandths.
    pub(super) errors: Option<u32>,
    /// Whether it repeats an earlier sample.
    pub(super) is_old: bool,
}

/// The state between two samples.
#[derive(Clone, Copy, Debug)]
pub(super) struct BackendWindow {
    /// Totals at the last sample.
    baseline: BackendTotals,
    /// Requests that had ended at the last call, and since when the number is unchanged.
    ended: (u64, Moment),
    stats: BackendStats,
}

impl BackendWindow {
    pub(super) fn new(now: BackendTotals, at: Moment) -> BackendWindow {
        BackendWindow {
            baseline: now,
            ended: (now.ended, at),
            stats: BackendStats::default(),
        }
    }

    /// Statistics of the answers since the last sample, or the previous statistics if there are too few.
    pub(super) fn next(&mut self, now: BackendTotals, at: Moment) -> BackendStats {
        let Some(came) = now.since(&self.baseline) else {
            // The totals restarted: a new baseline.
            *self = BackendWindow::new(now, at);
            return self.stats;
        };
        let (ended, since) = self.ended;
        // A clock that was set back restarts the expiry.
        if now.ended != ended || at < since {
            self.ended = (now.ended, at);
        } else if at.since(since) >= EXPIRY {
            self.stats = BackendStats::default();
        }
        if came.ended < MIN_ANSWERS {
            self.stats.is_old = true;
            return self.stats;
        }
        self.baseline = now;
        let latency = came.latency_ns.checked_div(came.answered);
        self.stats = BackendStats {
            latency: latency.map(Span::from_nanos),
            errors: share(came.failed.min(came.ended), came.ended),
            is_old: false,
        };
        self.stats
    }
}

impl BackendTotals {
    /// The difference to `before`, or `None` if the totals restarted.
    fn since(&self, before: &BackendTotals) -> Option<BackendTotals> {
        Some(BackendTotals {
            ended: self.ended.checked_sub(before.ended)?,
            failed: self.failed.checked_sub(before.failed)?,
            answered: self.answered.checked_sub(before.answered)?,
            latency_ns: self.latency_ns.checked_sub(before.latency_ns)?,
        })
    }
}

/// CPU time of this machine up to the last sample, in kernel ticks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Processors {
    busy: u64,
    all: u64,
}

impl Processors {
    /// The busy share since the last sample, in ten-thousandths. `None` where the system does not provide it, and at the first
    /// sample.
    pub(super) fn in_use(&mut self) -> Option<u32> {
        let now = read(&kernel_statistics()?)?;
        let before = std::mem::replace(self, now);
        if before.all == 0 {
            return None;
        }
        let all = now.all.checked_sub(before.all)?;
        share(now.busy.checked_sub(before.busy)?.min(all), all)
    }
}

#[cfg(target_os = "linux")]
fn kernel_statistics() -> Option<String> {
    std::fs::read_to_string("/proc/stat").ok()
}

#[cfg(not(target_os = "linux"))]
fn kernel_statistics() -> Option<String> {
    None
}

/// Reads `cpu  user nice system idle iowait irq softirq steal ...`. Waiting for disks counts as idle. The later columns, time of
/// virtual machines, are part of user time already.
fn read(text: &str) -> Option<Processors> {
    let mut words = text.lines().next()?.split_ascii_whitespace();
    if words.next()? != "cpu" {
        return None;
    }
    let times: Vec<u64> = words.take(8).map_while(|word| word.parse().ok()).collect();
    let idle = times.get(3)?.saturating_add(*times.get(4)?);
    let all = times
        .iter()
        .fold(0u64, |sum, time| sum.saturating_add(*time));
    Some(Processors {
        busy: all.saturating_sub(idle),
        all,
    })
}

/// `part` of `whole` in ten-thousandths.
fn share(part: u64, whole: u64) -> Option<u32> {
    let share = (u128::from(part) * 10_000).checked_div(u128::from(whole))?;
    u32::try_from(share).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observed(ended: u64, failed: u64, answered: u64, latency_ms: u64) -> BackendTotals {
        BackendTotals {
            ended,
            failed,
            answered,
            latency_ns: latency_ms * 1_000_000,
        }
    }

    fn at(ms: u64) -> Moment {
        Moment::from_nanos(ms * 1_000_000)
    }

    /// A window that starts at zero.
    fn nothing() -> BackendWindow {
        BackendWindow::new(BackendTotals::default(), at(0))
    }

    #[test]
    fn only_requests_since_the_last_step_count() {
        let mut seen = BackendWindow::new(observed(100, 100, 0, 0), at(0));
        let said = seen.next(observed(110, 101, 9, 450), at(500));
        assert_eq!(said.latency, Some(Span::from_millis(50)));
        assert_eq!((said.errors, said.is_old), (Some(1_000), false));
    }

    #[test]
    fn few_answers_keep_the_last_statistics() {
        let mut seen = nothing();
        let said = seen.next(observed(4, 4, 0, 0), at(500));
        assert_eq!((said.latency, said.errors), (None, None), "no sample yet");
        let said = seen.next(observed(8, 4, 4, 40), at(1_000));
        assert_eq!((said.errors, said.is_old), (Some(5_000), false));
        for (ended, ms) in [(8, 1_500), (9, 2_000), (12, 2_500)] {
            let old = seen.next(observed(ended, 4, ended - 4, 40), at(ms));
            assert_eq!((old.latency, old.errors), (said.latency, said.errors));
            assert!(old.is_old, "{ended}");
        }
        let said = seen.next(observed(13, 4, 9, 40), at(3_000));
        assert_eq!((said.errors, said.is_old), (Some(0), false));
    }

    #[test]
    fn statistics_expire_ten_seconds_after_the_last_answer() {
        let mut seen = nothing();
        seen.next(observed(5, 5, 0, 0), at(500));
        seen.next(observed(6, 6, 0, 0), at(9_000));
        let said = seen.next(observed(6, 6, 0, 0), at(18_999));
        assert_eq!(said.errors, Some(10_000));
        let said = seen.next(observed(6, 6, 0, 0), at(19_000));
        assert_eq!((said.latency, said.errors), (None, None));
        // What came before the silence still counts with what comes after it.
        let said = seen.next(observed(10, 6, 4, 40), at(60_000));
        assert_eq!(said.errors, Some(2_000));
    }

    #[test]
    fn backends_that_answer_nothing_have_no_latency_but_failures() {
        let said = nothing().next(observed(9, 9, 0, 0), at(500));
        assert_eq!((said.latency, said.errors), (None, Some(10_000)));
    }

    #[test]
    fn counters_that_restart_give_no_statistics() {
        let mut seen = BackendWindow::new(observed(100, 0, 100, 100), at(0));
        seen.next(observed(105, 5, 100, 100), at(100));
        let said = seen.next(observed(50, 50, 0, 0), at(500));
        assert_eq!(said, BackendStats::default());
        let said = seen.next(observed(60, 50, 10, 100), at(1_000));
        assert_eq!(said.errors, Some(0));
    }

    #[test]
    fn only_the_cpu_line_of_the_kernel_is_parsed() {
        let text = "cpu  10 20 30 400 5 6 7 8 900 1000\ncpu0 1 1 1 1\n";
        let now = read(text).unwrap();
        assert_eq!((now.busy, now.all), (81, 486));
        for bad in ["", "cpu", "cpu  1 2 3", "intr 1 2 3 4 5", "cpu a b c d e"] {
            assert!(read(bad).is_none(), "{bad}");
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_share_of_busy_processors_is_measured() {
        let mut processors = Processors::default();
        assert_eq!(processors.in_use(), None, "the first sample");
        assert!(processors.all > 0);
        // Burn enough for ticks of the kernel to pass. A single one may still be counted as idle.
        let mut number = 1u64;
        let shares = (0..1000).map(|_| {
            for _ in 0..20_000_000 {
                number = std::hint::black_box(number.wrapping_mul(3));
            }
            processors.in_use()
        });
        let share = shares.flatten().find(|share| *share > 0);
        assert!(matches!(share, Some(1..=10_000)), "{share:?}");
    }
}
