//! Replays golden timelines against anything that can answer them.
//!
//! # Theory
//!
//! A [`SubjectFactory`] opens a case; the [`Subject`] it returns answers the steps, in order. Every
//! step is one pass or one failure: it fails if the subject errs, or if a cell of the timeline and
//! what was observed differ. What the timeline leaves empty asserts nothing. What it states and the
//! subject does not tell is a failure too, or a subject that tells nothing would pass everything;
//! only `burst_quiet`, which has no answer to give, is excused.
//!
//! A case that cannot be opened fails all its steps, so that an algorithm nobody implemented shows.
//! The one exception is a subject that by its nature cannot express a case and says so
//! ([`CannotOpen::NotExpressible`]): its steps are counted apart, neither passed nor failed.

use crate::oracle::{Answer, Verdict};
use crate::timeline::{Case, Expect, Step, Timeline};
use std::fmt;

/// What a subject answers; `None` is what it does not tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// One if it passed, zero if not; for a burst, how many passed.
    pub allowed: Option<u64>,
    /// Units left afterwards.
    pub remaining: Option<u64>,
    /// Wait until the request would pass; -1 if it never will.
    pub retry_after: Option<i128>,
    /// Wait until the limiter is as good as new.
    pub reset_after: Option<u64>,
    /// Wait of a request that passed.
    pub delay: Option<u64>,
    /// The reason or the result in words.
    pub why: Option<String>,
}

impl From<Answer> for Observed {
    fn from(answer: Answer) -> Self {
        let (allowed, retry_after, delay, why) = match answer.verdict {
            Verdict::Pass { delay } => (1, 0, delay, None),
            Verdict::Refuse { retry_after } => (0, i128::from(retry_after), 0, None),
            Verdict::Never => (0, -1, 0, Some("impossible".to_owned())),
        };
        Self {
            allowed: Some(allowed),
            remaining: Some(answer.remaining),
            retry_after: Some(retry_after),
            reset_after: Some(answer.reset_after),
            delay: Some(delay),
            why,
        }
    }
}

/// Something that answers the steps of one case.
pub trait Subject {
    /// Does what `step` says and tells what came of it.
    ///
    /// # Errors
    ///
    /// If the step cannot be done at all; it then counts as failed.
    fn apply(&mut self, step: &Step) -> Result<Observed, String>;
}

/// Something that opens cases.
pub trait SubjectFactory {
    /// A subject for `case`, in the state of one never used.
    ///
    /// # Errors
    ///
    /// If the algorithm is not supported, its parameters make no sense, or this kind of subject
    /// cannot express it.
    fn start(&self, case: &Case) -> Result<Box<dyn Subject>, CannotOpen>;
}

/// Why a case was not opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CannotOpen {
    /// This kind of subject has no words for the case; that is no fault of the limiter.
    NotExpressible(String),
    /// The case should have been opened.
    Failed(String),
}

impl From<String> for CannotOpen {
    fn from(what: String) -> Self {
        Self::Failed(what)
    }
}

/// How a timeline went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Steps answered as expected.
    pub passed: usize,
    /// Steps answered otherwise, or not at all.
    pub failed: usize,
    /// Steps of cases that the subject cannot express.
    pub skipped: usize,
    /// What went wrong, one entry per failed step; one for a whole case that could not be opened.
    pub mismatches: Vec<Mismatch>,
    /// The cases that the subject cannot express, and why not.
    pub skips: Vec<Mismatch>,
}

/// One thing that went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The timeline.
    pub file: String,
    /// The case.
    pub case: String,
    /// The step; zero, the `new` row, if the case could not be opened.
    pub step: u64,
    /// What was expected and what was observed.
    pub what: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            file,
            case,
            step,
            what,
        } = self;
        write!(f, "{file}, case `{case}`, step {step}: {what}")
    }
}

/// Runs every case of `timeline` on a fresh subject.
pub fn replay(timeline: &Timeline, factory: &dyn SubjectFactory) -> Report {
    let mut report = Report::default();
    for case in &timeline.cases {
        let mismatch = |step: u64, what: String| Mismatch {
            file: timeline.name.clone(),
            case: case.name.clone(),
            step,
            what,
        };
        let mut subject = match factory.start(case) {
            Ok(subject) => subject,
            Err(CannotOpen::Failed(what)) => {
                report.failed += case.steps.len();
                report.mismatches.push(mismatch(0, what));
                continue;
            }
            Err(CannotOpen::NotExpressible(what)) => {
                report.skipped += case.steps.len();
                report.skips.push(mismatch(0, what));
                continue;
            }
        };
        for step in &case.steps {
            let verdict = subject
                .apply(step)
                .and_then(|observed| compare(step, &observed));
            match verdict {
                Ok(()) => report.passed += 1,
                Err(what) => {
                    report.failed += 1;
                    report.mismatches.push(mismatch(step.number, what));
                }
            }
        }
    }
    report
}

/// Whether `observed` is what `step` expects; if not, every cell that differs.
fn compare(step: &Step, observed: &Observed) -> Result<(), String> {
    let excused = step.op == "burst_quiet";
    let Expect {
        allowed,
        remaining,
        retry_after,
        reset_after,
        delay,
        why,
    } = &step.expect;
    let differences: Vec<String> = [
        cell("allowed", excused, allowed, &observed.allowed),
        cell("remaining", excused, remaining, &observed.remaining),
        cell(
            "retry_after_ns",
            excused,
            retry_after,
            &observed.retry_after,
        ),
        cell(
            "reset_after_ns",
            excused,
            reset_after,
            &observed.reset_after,
        ),
        cell("delay_ns", excused, delay, &observed.delay),
        cell("why", excused, why, &observed.why),
    ]
    .into_iter()
    .flatten()
    .collect();
    if differences.is_empty() {
        Ok(())
    } else {
        Err(format!(
            "`{}` of `{}`: {}",
            step.op,
            step.key,
            differences.join(", ")
        ))
    }
}

fn cell<T: PartialEq + fmt::Display>(
    name: &str,
    excused: bool,
    expected: &Option<T>,
    observed: &Option<T>,
) -> Option<String> {
    match (expected, observed) {
        (Some(expected), Some(observed)) if expected != observed => {
            Some(format!("`{name}` is {observed}, expected {expected}"))
        }
        (Some(expected), None) if !excused => {
            Some(format!("`{name}` is not told, expected {expected}"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::OracleFactory;
    use crate::timeline::{HEADER, TimelineError};

    fn run(rows: &str, factory: &dyn SubjectFactory) -> Result<Report, TimelineError> {
        Ok(replay(
            &Timeline::parse("t.csv", &format!("{HEADER}\n{rows}"))?,
            factory,
        ))
    }

    /// Tells nothing at all.
    struct Mute;

    impl Subject for Mute {
        fn apply(&mut self, _: &Step) -> Result<Observed, String> {
            Ok(Observed::default())
        }
    }

    impl SubjectFactory for Mute {
        fn start(&self, _: &Case) -> Result<Box<dyn Subject>, CannotOpen> {
            Ok(Box::new(Mute))
        }
    }

    #[test]
    fn a_subject_that_tells_nothing_passes_only_what_asserts_nothing() -> Result<(), TimelineError>
    {
        let report = run(
            "a,0,new,,,,x,,,,,,\n\
             a,1,check,0,k,1,,1,,,,,\n\
             a,2,check,0,k,1,,,,,,,\n\
             a,3,burst_quiet,0,k,1,count=2,2,,,,,\n",
            &Mute,
        )?;
        assert_eq!((report.passed, report.failed), (2, 1));
        assert_eq!(
            report.mismatches[0].to_string(),
            "t.csv, case `a`, step 1: `check` of `k`: `allowed` is not told, expected 1"
        );
        Ok(())
    }

    #[test]
    fn a_case_that_cannot_be_opened_fails_all_its_steps() -> Result<(), TimelineError> {
        let report = run(
            "a,0,new,,,,aimd initial=20,,,,,,\n\
             a,1,sample,,k,,,,,,,,\n\
             a,2,sample,,k,,,,,,,,\n\
             b,0,new,,,,gcra n=1 p_ns=1,,,,,,\n\
             b,1,check,0,k,1,,,,,,,\n",
            &OracleFactory,
        )?;
        assert_eq!((report.passed, report.failed), (0, 3));
        let what: Vec<&str> = report.mismatches.iter().map(|m| m.what.as_str()).collect();
        assert_eq!(
            what,
            ["the oracle does not support `aimd`", "`tau_ns` is missing"]
        );
        Ok(())
    }

    /// Has no words for anything.
    struct Wordless;

    impl SubjectFactory for Wordless {
        fn start(&self, _: &Case) -> Result<Box<dyn Subject>, CannotOpen> {
            Err(CannotOpen::NotExpressible("no words".to_owned()))
        }
    }

    #[test]
    fn a_case_that_cannot_be_expressed_neither_passes_nor_fails() -> Result<(), TimelineError> {
        let report = run("a,0,new,,,,x,,,,,,\na,1,check,0,k,1,,1,,,,,\n", &Wordless)?;
        assert_eq!((report.passed, report.failed, report.skipped), (0, 0, 1));
        assert_eq!(report.skips.len(), 1);
        Ok(())
    }

    #[test]
    fn a_wrong_cell_fails_its_step_and_the_case_goes_on() -> Result<(), TimelineError> {
        let report = run(
            "a,0,new,,,,token_bucket cap=2 n=1 p_ns=10,,,,,,\n\
             a,1,check,0,k,1,,1,2,0,10,0,\n\
             a,2,check,0,k,1,,1,0,0,20,0,\n\
             a,3,acquire,0,k,1,,,,,,,\n",
            &OracleFactory,
        )?;
        assert_eq!((report.passed, report.failed), (1, 2));
        assert_eq!(
            report.mismatches[0].what,
            "`check` of `k`: `remaining` is 1, expected 2"
        );
        Ok(())
    }
}
