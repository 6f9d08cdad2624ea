//! The progress line of a run, on a terminal only.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use tollgate_load::LoadPlan;

use super::table::grouped;

/// Parts of the bar.
const WIDTH: usize = 24;

/// The progress line, if it is shown.
#[derive(Debug)]
pub(super) struct Progress {
    is_shown: bool,
    /// The duration and number of requests of the run.
    length: Option<Duration>,
    requests: Option<u64>,
}

impl Progress {
    pub(super) fn new(is_quiet: bool, plan: &LoadPlan) -> Progress {
        Progress {
            is_shown: !is_quiet && io::stderr().is_terminal(),
            length: plan.run_time().map(|length| length + plan.warm_up),
            requests: plan.requests,
        }
    }

    pub(super) fn show(&mut self, answers: u64, passed: Duration) {
        if self.is_shown {
            // An error of the terminal is no reason to stop.
            let _ = write!(io::stderr(), "\r\x1b[K{}", self.line(answers, passed));
            let _ = io::stderr().flush();
        }
    }

    /// Removes the line.
    pub(super) fn clear(&self) {
        if self.is_shown {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }

    fn line(&self, answers: u64, passed: Duration) -> String {
        let by_time = self
            .length
            .map(|length| passed.as_secs_f64() / length.as_secs_f64());
        let by_number = self
            .requests
            .map(|requests| answers as f64 / requests as f64);
        let share = by_time.into_iter().chain(by_number).fold(0.0, f64::max);
        let share = share.clamp(0.0, 1.0);
        let full = ((share * WIDTH as f64) as usize).min(WIDTH);
        let per_second = match passed.as_secs_f64() {
            seconds if seconds > 0.0 => answers as f64 / seconds,
            _ => 0.0,
        };
        format!(
            "[{}{}] {:3.0} %  {} answers, {} a second",
            "#".repeat(full),
            ".".repeat(WIDTH - full),
            share * 100.0,
            grouped(answers),
            grouped(per_second as u64)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_is_as_full_as_the_time_or_the_number_that_is_further() {
        let mut progress = Progress {
            is_shown: false,
            length: Some(Duration::from_secs(10)),
            requests: None,
        };
        let half = "[############............]  50 %  5,000 answers, 1,000 a second";
        assert_eq!(progress.line(5000, Duration::from_secs(5)), half);
        progress.requests = Some(5000);
        assert!(
            progress
                .line(5000, Duration::from_secs(5))
                .contains("100 %")
        );
        assert!(progress.line(0, Duration::ZERO).starts_with("[...."));
    }
}
