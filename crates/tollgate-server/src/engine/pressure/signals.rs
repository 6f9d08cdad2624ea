//! What can be observed: processors of this machine, and how backends fare.
//!
//! Both are counted from some start on; what matters is what came since the last look.

use std::fmt;

use tollgate::Span;

/// Fewer answers than this say nothing; they are looked at together with the next ones.
const LEAST: u64 = 5;

/// Whoever talks to backends and knows how they fare.
pub trait Backends: fmt::Debug + Send + Sync {
    /// All backends together, since some start. Asked twice a second.
    fn observed(&self) -> Observed;
}

/// What was seen of backends. All of it only grows, unless it starts anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// Requests that came to an end, be it by an answer or without one.
    pub ended: u64,
    /// Those of them that failed: no connection, no answer in time, or one that says that the backend cannot.
    pub failed: u64,
    /// Those of them that were answered, whatever the answer.
    pub answered: u64,
    /// Nanoseconds that these answers took, all together.
    pub latency_ns: u64,
}

/// What was seen of backends up to the last look.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen(Observed);

impl From<Observed> for Seen {
    fn from(now: Observed) -> Seen {
        Seen(now)
    }
}

impl Seen {
    /// What came since: the time of an answer on average, and the share of failures in ten-thousandths.
    pub(super) fn next(&mut self, now: Observed) -> (Option<Span>, Option<u32>) {
        let before = self.0;
        let since = |now: u64, before: u64| now.checked_sub(before);
        let difference = (|| {
            Some(Observed {
                ended: since(now.ended, before.ended)?,
                failed: since(now.failed, before.failed)?,
                answered: since(now.answered, before.answered)?,
                latency_ns: since(now.latency_ns, before.latency_ns)?,
            })
        })();
        let Some(came) = difference else {
            // It started anew: this is where to count from.
            self.0 = now;
            return (None, None);
        };
        if came.ended < LEAST {
            return (None, None);
        }
        self.0 = now;
        let latency = came.latency_ns.checked_div(came.answered);
        (
            latency.map(Span::from_nanos),
            share(came.failed.min(came.ended), came.ended),
        )
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

    fn observed(ended: u64, failed: u64, answered: u64, latency_ms: u64) -> Observed {
        Observed {
            ended,
            failed,
            answered,
            latency_ns: latency_ms * 1_000_000,
        }
    }

    #[test]
    fn only_what_came_since_the_last_look_counts() {
        let mut seen = Seen::from(observed(100, 100, 0, 0));
        let (latency, errors) = seen.next(observed(110, 101, 9, 450));
        assert_eq!(latency, Some(Span::from_millis(50)));
        assert_eq!(errors, Some(1_000));
        assert_eq!(seen.next(observed(110, 101, 9, 450)), (None, None));
    }

    #[test]
    fn a_few_answers_wait_for_more() {
        let mut seen = Seen::default();
        assert_eq!(seen.next(observed(4, 4, 0, 0)), (None, None));
        assert_eq!(seen.next(observed(8, 4, 4, 40)).1, Some(5_000));
    }

    #[test]
    fn backends_that_answer_nothing_have_no_latency_but_failures() {
        let mut seen = Seen::default();
        assert_eq!(seen.next(observed(9, 9, 0, 0)), (None, Some(10_000)));
    }

    #[test]
    fn counters_that_start_anew_are_no_observation() {
        let mut seen = Seen::from(observed(100, 0, 100, 100));
        assert_eq!(seen.next(observed(50, 50, 0, 0)), (None, None));
        assert_eq!(seen.next(observed(60, 50, 10, 100)).1, Some(0));
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
        // Burn enough for a tick of the kernel to pass.
        let mut number = 1u64;
        let share = loop {
            for _ in 0..20_000_000 {
                number = std::hint::black_box(number.wrapping_mul(3));
            }
            if let Some(share) = processors.in_use() {
                break share;
            }
        };
        assert!((1..=10_000).contains(&share), "{share}");
    }
}
