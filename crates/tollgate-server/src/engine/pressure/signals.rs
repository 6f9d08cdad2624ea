//! What can be observed: processors of this machine, and how backends fare.
//!
//! Both are counted from some start on; what matters is what came since the last look.
//!
//! # Few answers
//!
//! A few answers say nothing yet; until there are more of them, what the last ones said stays said. If it
//! did not, a backend that fails the few requests it gets would look well between any two of its failures.
//! It is marked as old: the same answers must not shrink limits twice.

use std::fmt;

use tollgate::{Moment, Span};

/// Fewer answers than this say nothing; they are looked at together with the next ones.
const LEAST: u64 = 5;
/// If no answer came for so long, nobody knows how backends fare.
const FORGOTTEN_AFTER: Span = Span::from_secs(10);

/// Whoever talks to backends and knows how they fare.
pub trait Backends: fmt::Debug + Send + Sync {
    /// All backends together, since some start. Asked twice a second.
    fn observed(&self) -> BackendTotals;

    /// Names of upstreams whose servers are all down.
    fn unavailable(&self) -> Vec<String> {
        Vec::new()
    }
}

/// What was seen of backends. All of it only grows, unless it starts anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackendTotals {
    /// Requests that came to an end, be it by an answer or without one.
    pub ended: u64,
    /// Those of them that failed: no connection, no answer in time, or one that says that the backend cannot.
    pub failed: u64,
    /// Those of them that were answered, whatever the answer.
    pub answered: u64,
    /// Nanoseconds that these answers took, all together.
    pub latency_ns: u64,
}

/// What answers say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BackendStats {
    /// The time of an answer on average.
    pub(super) latency: Option<Span>,
    /// The share of failures in ten-thousandths.
    pub(super) errors: Option<u32>,
    /// Was all of this said at an earlier look?
    pub(super) is_old: bool,
}

/// What was seen of backends up to the last look.
#[derive(Clone, Copy, Debug)]
pub(super) struct BackendWindow {
    /// What has been baseline.
    baseline: BackendTotals,
    /// How much had ended when somebody looked last, and since when it is so much.
    ended: (u64, Moment),
    said: BackendStats,
}

impl BackendWindow {
    pub(super) fn new(now: BackendTotals, at: Moment) -> BackendWindow {
        BackendWindow {
            baseline: now,
            ended: (now.ended, at),
            said: BackendStats::default(),
        }
    }

    /// What the answers say that came since, or those before if they are too few.
    pub(super) fn next(&mut self, now: BackendTotals, at: Moment) -> BackendStats {
        let Some(came) = now.since(&self.baseline) else {
            // It started anew: this is where to count from.
            *self = BackendWindow::new(now, at);
            return self.said;
        };
        let (ended, since) = self.ended;
        // A clock that was set back starts it again.
        if now.ended != ended || at < since {
            self.ended = (now.ended, at);
        } else if at.since(since) >= FORGOTTEN_AFTER {
            self.said = BackendStats::default();
        }
        if came.ended < LEAST {
            self.said.is_old = true;
            return self.said;
        }
        self.baseline = now;
        let latency = came.latency_ns.checked_div(came.answered);
        self.said = BackendStats {
            latency: latency.map(Span::from_nanos),
            errors: share(came.failed.min(came.ended), came.ended),
            is_old: false,
        };
        self.said
    }
}

impl BackendTotals {
    /// What came since `before`. None if it started anew.
    fn since(&self, before: &BackendTotals) -> Option<BackendTotals> {
        Some(BackendTotals {
            ended: self.ended.checked_sub(before.ended)?,
            failed: self.failed.checked_sub(before.failed)?,
            answered: self.answered.checked_sub(before.answered)?,
            latency_ns: self.latency_ns.checked_sub(before.latency_ns)?,
        })
    }
}

/// What the processors of this machine did up to the last look, in ticks of the kernel.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Processors {
    busy: u64,
    all: u64,
}

impl Processors {
    /// The share of time that they were in use since the last look, in ten-thousandths. None where this
    /// cannot be known, and at the first look.
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

/// Reads `cpu  user nice system idle iowait irq softirq steal ...`. Waiting for disks is no use; time of
/// guests, which comes behind, is in that of users already.
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

    /// From zero on.
    fn nothing() -> BackendWindow {
        BackendWindow::new(BackendTotals::default(), at(0))
    }

    #[test]
    fn only_what_came_since_the_last_look_counts() {
        let mut seen = BackendWindow::new(observed(100, 100, 0, 0), at(0));
        let said = seen.next(observed(110, 101, 9, 450), at(500));
        assert_eq!(said.latency, Some(Span::from_millis(50)));
        assert_eq!((said.errors, said.is_old), (Some(1_000), false));
    }

    #[test]
    fn a_few_answers_wait_for_more_and_meanwhile_the_last_word_stays() {
        let mut seen = nothing();
        let said = seen.next(observed(4, 4, 0, 0), at(500));
        assert_eq!((said.latency, said.errors), (None, None), "no word yet");
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
    fn a_word_is_forgotten_ten_seconds_after_the_last_answer() {
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
    fn counters_that_start_anew_are_no_observation() {
        let mut seen = BackendWindow::new(observed(100, 0, 100, 100), at(0));
        seen.next(observed(105, 5, 100, 100), at(100));
        let said = seen.next(observed(50, 50, 0, 0), at(500));
        assert_eq!(said, BackendStats::default());
        let said = seen.next(observed(60, 50, 10, 100), at(1_000));
        assert_eq!(said.errors, Some(0));
    }

    #[test]
    fn the_line_of_the_kernel_is_read_and_nothing_else() {
        let text = "cpu  10 20 30 400 5 6 7 8 900 1000\ncpu0 1 1 1 1\n";
        let now = read(text).unwrap();
        assert_eq!((now.busy, now.all), (81, 486));
        for bad in ["", "cpu", "cpu  1 2 3", "intr 1 2 3 4 5", "cpu a b c d e"] {
            assert!(read(bad).is_none(), "{bad}");
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_machine_tells_how_busy_it_is() {
        let mut processors = Processors::default();
        assert_eq!(processors.in_use(), None, "the first look");
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
