//! Calendar periods: days, weeks and months as fixed windows.
//!
//! # Theory
//!
//! A fixed window cuts time into equal parts, but months are not equal. So a calendar limit runs on *window time*:
//! period number `i` begins there at `i * window`, `window` being the longest period. The end of a shorter period
//! is skipped. In window time all periods are equal, and the fixed window counts them as any others. Reported
//! spans are converted back to clock time.
//!
//! The caller computes the period starts beforehand (time zones, daylight saving time, short months). This module
//! only looks them up, so it decides with integers and knows no calendar.
//!
//! # Invariant
//!
//! Window time never runs backward when the clock does not. Two moments lie in one window if and only if they lie
//! in one period.

use std::sync::Arc;

use crate::decision::{Decision, QuotaStatus, Verdict};
use crate::time::{Moment, Span};

/// The periods of a calendar: when each begins, on a clock that counts from 1970.
///
/// ```
/// use tollgate::{Moment, Periods, Span};
///
/// let starts = [0, 31, 59].map(|day| Moment::from_nanos(day * 86_400_000_000_000));
/// let months = Periods::new("month", &starts, Span::from_secs(30 * 86_400)).unwrap();
/// let january = months.bounds_at(Moment::ORIGIN);
/// assert_eq!((january.from, january.to), (starts[0], starts[1]));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Periods {
    name: Arc<str>,
    /// Nanoseconds since 1970, rising. The last one only ends the period before it.
    starts: Arc<[u64]>,
    window: u64,
    nominal: Span,
}

/// Bounds of a period and of the one after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeriodBounds {
    /// Index of the period.
    pub number: u64,
    /// Start of the period.
    pub from: Moment,
    /// End of the period and start of the next one.
    pub to: Moment,
    /// End of the next period.
    pub next: Moment,
}

impl Periods {
    /// Periods that begin at these moments, each ending where the next begins. `name` is the display name,
    /// `nominal` the nominal length. `None` if there is no whole period, or if the starts do not rise.
    pub fn new(name: &str, starts: &[Moment], nominal: Span) -> Option<Periods> {
        let starts: Arc<[u64]> = starts.iter().map(|start| start.as_nanos()).collect();
        let lengths = starts.windows(2).map(|pair| pair[1].checked_sub(pair[0]));
        let longest = lengths
            .map(|l| l.filter(|l| *l > 0))
            .collect::<Option<Vec<u64>>>()?;
        let window = longest.into_iter().max()?;
        // Window time must not run past the end of the clock.
        window.checked_mul(starts.len() as u64 + 1)?;
        Some(Periods {
            name: Arc::from(name),
            starts,
            window,
            nominal,
        })
    }

    /// The display name: `month in Europe/Berlin`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The window of these periods in window time.
    pub fn window(&self) -> Span {
        Span::from_nanos(self.window)
    }

    /// The nominal length of a period.
    pub fn nominal(&self) -> Span {
        self.nominal
    }

    /// The bounds of the period that `now` lies in and the end of the next one, for a store that cannot look them
    /// up.
    pub fn bounds_at(&self, now: Moment) -> PeriodBounds {
        let at = self.period_at(now.as_nanos());
        let start = |i: usize| self.starts.get(i).copied();
        let from = start(at).unwrap_or(0);
        let to = start(at + 1).unwrap_or(from.saturating_add(self.window));
        PeriodBounds {
            number: at as u64,
            from: Moment::from_nanos(from),
            to: Moment::from_nanos(to),
            next: Moment::from_nanos(start(at + 2).unwrap_or(to.saturating_add(self.window))),
        }
    }

    /// Converts a moment of the clock to window time.
    pub fn window_time(&self, now: Moment) -> Moment {
        let now = now.as_nanos();
        let at = self.period_at(now);
        let start = self.starts.get(at).copied().unwrap_or(0);
        let into = now.saturating_sub(start).min(self.window - 1);
        Moment::from_nanos(at as u64 * self.window + into)
    }

    /// Converts window time back to a moment of the clock.
    fn clock_time(&self, at: Moment) -> Moment {
        let (period, into) = self.split(at);
        let start = self.starts.get(period).copied().unwrap_or(0);
        Moment::from_nanos(start.saturating_add(into))
    }

    /// The index of the period at a window time, and the offset into it.
    fn split(&self, at: Moment) -> (usize, u64) {
        let (period, into) = (at.as_nanos() / self.window, at.as_nanos() % self.window);
        (usize::try_from(period).unwrap_or(usize::MAX), into)
    }

    /// The length on the clock of a span that begins at `at`, both in window time.
    fn span_in_clock_time(&self, at: Moment, span: Span) -> Span {
        let (period, into) = self.split(at);
        if into.saturating_add(span.as_nanos()) < self.window {
            return span;
        }
        // It reaches to the end of the period: that end is known. What lies beyond does not matter,
        // because a new window is always unused.
        match (
            self.starts.get(period),
            self.starts.get(period.saturating_add(1)),
        ) {
            (Some(start), Some(end)) => Span::from_nanos((end - start).saturating_sub(into)),
            _ => span,
        }
    }

    /// A verdict made at `at`, a window time, in spans of the clock.
    pub fn verdict_in_clock_time(&self, verdict: Verdict, at: Moment) -> Verdict {
        match verdict {
            Verdict::Refuse { retry_after } => Verdict::Refuse {
                retry_after: self.span_in_clock_time(at, retry_after),
            },
            Verdict::Wait { delay } => Verdict::Wait {
                delay: self.span_in_clock_time(at, delay),
            },
            other => other,
        }
    }

    /// A status read at `at`, a window time, in spans of the clock.
    pub fn status_in_clock_time(&self, status: QuotaStatus, at: Moment) -> QuotaStatus {
        QuotaStatus {
            remaining: status.remaining,
            full_after: self.span_in_clock_time(at, status.full_after),
            next_after: self.span_in_clock_time(at, status.next_after),
        }
    }

    /// A decision made on window time, in spans and moments of the clock. Spans count from the moment at which it
    /// was made, which is later than the caller's reading of the clock where a key was added.
    pub(crate) fn decision_in_clock_time(&self, decision: Decision) -> Decision {
        let at = decision.issued;
        Decision {
            verdict: self.verdict_in_clock_time(decision.verdict, at),
            status: self.status_in_clock_time(decision.status, at),
            issued: self.clock_time(at),
            ..decision
        }
    }

    /// The period that `now` lies in; the first or the last whole one if it lies outside of all.
    fn period_at(&self, now: u64) -> usize {
        let begun = self.starts.partition_point(|start| *start <= now);
        begun.saturating_sub(1).min(self.starts.len() - 2)
    }
}

impl std::fmt::Debug for Periods {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Periods({})", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 24 * 3600 * 1_000_000_000;

    fn at(ns: u64) -> Moment {
        Moment::from_nanos(ns)
    }

    /// January, February and March of a year that begins 100 days after the origin.
    fn months() -> Periods {
        let starts = [100, 131, 159, 190].map(|day| at(day * DAY));
        Periods::new("month", &starts, Span::from_nanos(30 * DAY)).unwrap()
    }

    #[test]
    fn every_period_is_one_window_of_window_time() {
        let months = months();
        for (day, window) in [(100, 0), (130, 0), (131, 1), (158, 1), (159, 2), (189, 2)] {
            let face = months.window_time(at(day * DAY)).as_nanos();
            assert_eq!(face / months.window, window, "day {day}");
        }
        assert_eq!(months.window_time(at(131 * DAY)), at(31 * DAY));
        assert_eq!(months.window_time(at(131 * DAY - 1)), at(31 * DAY - 1));
    }

    #[test]
    fn the_end_of_a_short_month_is_reported_in_clock_time() {
        let months = months();
        let now = at(140 * DAY); // the ninth day of a month of 28
        let face = months.window_time(now);
        let to_the_end = Span::from_nanos(months.window - face.as_nanos() % months.window);
        assert_eq!(
            months.span_in_clock_time(face, to_the_end),
            Span::from_nanos(19 * DAY)
        );
        let short = Span::from_nanos(DAY);
        assert_eq!(months.span_in_clock_time(face, short), short);
    }

    #[test]
    fn window_time_never_runs_backward_and_ends_with_the_last_period() {
        let months = months();
        let mut last = months.window_time(at(0));
        for hour in 0..200 * 24 {
            let face = months.window_time(at(hour * DAY / 24));
            assert!(face >= last);
            last = face;
        }
        assert_eq!(last, at(3 * months.window - 1));
    }

    #[test]
    fn periods_that_do_not_rise_are_none() {
        let nominal = Span::from_nanos(DAY);
        assert!(Periods::new("day", &[], nominal).is_none());
        assert!(Periods::new("day", &[at(5)], nominal).is_none());
        assert!(Periods::new("day", &[at(5), at(5)], nominal).is_none());
        assert!(Periods::new("day", &[at(5), at(4)], nominal).is_none());
    }
}
