//! The promises of a trial and their results.
//!
//! # Theory
//!
//! A count is true on every machine. A time is a promise only on an idle machine: a quick run, for shared
//! machines, prints times as information and does not fail for them.

use std::fmt::Write as _;
use std::time::Duration;

use crate::load::Responses;

/// The latency that 99.9 % of all answers stay within.
pub const IN_TIME: Duration = Duration::from_millis(15);
/// How soon the store is used again after it recovers, and abandoned after it fails.
pub const SOON: Duration = Duration::from_secs(1);

/// The promises of one trial.
#[derive(Debug, Default)]
pub struct Verdicts {
    are_times_promised: bool,
    figures: Vec<(String, String)>,
    lines: Vec<VerdictLine>,
}

#[derive(Debug)]
struct VerdictLine {
    mark: Mark,
    text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    Kept,
    Broken,
    /// A time that is not promised in this run.
    Info,
}

impl Verdicts {
    /// None yet. In a quick run times are not promised.
    pub fn new(quick: bool) -> Verdicts {
        Verdicts {
            are_times_promised: !quick,
            ..Verdicts::default()
        }
    }

    /// A number without a promise.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "a number or a text, made at the call"
    )]
    pub fn figure(&mut self, name: &str, value: impl ToString) {
        self.figures.push((name.into(), value.to_string()));
    }

    /// A promise that holds on every machine.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "a number or a text, made at the call"
    )]
    pub fn promise(&mut self, promised: &str, kept: bool, seen: impl ToString) {
        let mark = if kept { Mark::Kept } else { Mark::Broken };
        self.line(mark, promised, &seen.to_string());
    }

    /// A promise about time.
    pub fn promise_time(&mut self, promised: &str, most: Duration, seen: Option<Duration>) {
        let kept = seen.is_some_and(|seen| seen <= most);
        let mark = match (self.are_times_promised, kept) {
            (false, _) => Mark::Info,
            (true, true) => Mark::Kept,
            (true, false) => Mark::Broken,
        };
        self.line(mark, promised, &seen.map_or("never".into(), time));
    }

    /// A promise that holds on an idle machine: one about time that is not a time, such as a ratio of two.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "a number or a text, made at the call"
    )]
    pub fn promise_undisturbed(&mut self, promised: &str, kept: bool, seen: impl ToString) {
        let mark = match (self.are_times_promised, kept) {
            (false, _) => Mark::Info,
            (true, true) => Mark::Kept,
            (true, false) => Mark::Broken,
        };
        self.line(mark, promised, &seen.to_string());
    }

    /// The promise of every trial: answers, and nothing but passes and refusals.
    pub fn all_answered(&mut self, seen: &Responses) {
        let (all, none) = (seen.len(), seen.unanswered());
        self.promise(
            "every request is answered",
            none == 0 && all > 0,
            format!("{} of {all}", all - none),
        );
        let unexpected = seen.unexpected();
        self.promise(
            "every answer is 200 or 429",
            unexpected == 0,
            format!("{unexpected} others"),
        );
    }

    /// The promise of trials with the usual deadline: answers in time.
    pub fn in_time(&mut self, seen: &Responses) {
        let promised = format!("99.9 % of the answers within {}", time(IN_TIME));
        self.promise_time(&promised, IN_TIME, Some(seen.latency(99_900)));
    }

    /// Figures of latency, and how much was decided without the store.
    pub fn figures_of(&mut self, seen: &Responses) {
        self.figure("requests", seen.len());
        self.figure("admitted", seen.count(|record| record.admitted));
        self.figure("decided without the store", seen.degraded());
        let quantiles = [("p50", 50_000), ("p99", 99_000), ("p99.9", 99_900)];
        for (name, rank) in quantiles {
            self.figure(name, time(seen.latency(rank)));
        }
        self.figure("slowest", time(seen.latency(100_000)));
        self.figure("lateness of the load, p99.9", time(seen.delay(99_900)));
    }

    /// Whether no promise was broken.
    pub fn all_kept(&self) -> bool {
        self.lines.iter().all(|line| line.mark != Mark::Broken)
    }

    /// The table and the promises.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let width = self.figures.iter().map(|(name, _)| name.chars().count());
        let width = width.max().unwrap_or_default();
        for (name, value) in &self.figures {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "  {name:width$}  {value:>10}");
        }
        for line in &self.lines {
            let mark = match line.mark {
                Mark::Kept => "ok    ",
                Mark::Broken => "FAILED",
                Mark::Info => "info  ",
            };
            let _ = writeln!(text, "  {mark}  {}", line.text);
        }
        text
    }

    fn line(&mut self, mark: Mark, promised: &str, seen: &str) {
        let text = format!("{promised}: {seen}");
        self.lines.push(VerdictLine { mark, text });
    }
}

/// A time as text.
pub fn time(time: Duration) -> String {
    if time == Duration::MAX {
        return "never".into();
    }
    let micros = time.as_micros();
    match micros {
        0..1_000 => format!("{micros} µs"),
        1_000..1_000_000 => format!("{}.{} ms", micros / 1_000, micros % 1_000 / 100),
        _ => format!(
            "{}.{:02} s",
            micros / 1_000_000,
            micros % 1_000_000 / 10_000
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_promise_only_in_a_full_run() {
        for (quick, kept) in [(true, true), (false, false)] {
            let mut verdicts = Verdicts::new(quick);
            verdicts.promise_time("back within 1 s", SOON, Some(SOON * 2));
            assert_eq!(verdicts.all_kept(), kept, "{}", verdicts.text());
        }
        let mut never = Verdicts::new(false);
        never.promise_time("back within 1 s", SOON, None);
        assert!(!never.all_kept());
        assert!(never.text().contains("FAILED  back within 1 s: never"));
    }

    #[test]
    fn a_count_is_a_promise_always() {
        for quick in [true, false] {
            let mut verdicts = Verdicts::new(quick);
            verdicts.promise("nothing is lost", true, 0);
            assert!(verdicts.all_kept());
            verdicts.promise("nothing is lost", false, 1);
            assert!(!verdicts.all_kept());
        }
    }

    #[test]
    fn times_are_short() {
        assert_eq!(time(Duration::from_micros(7)), "7 µs");
        assert_eq!(time(Duration::from_micros(12_345)), "12.3 ms");
        assert_eq!(time(Duration::from_millis(1_230)), "1.23 s");
    }
}
