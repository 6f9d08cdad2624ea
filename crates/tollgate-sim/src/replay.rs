//! Replays golden timelines against anything that can answer them.
//!
//! # Theory
//!
//! A function opens a case; the [`CaseRunner`] that it returns answers the steps, in order. Every
//! step is one pass or one failure: it fails if the subject errs, or if a cell of the timeline and
//! what was observed differ. What the timeline leaves empty asserts nothing. What it states and the
//! subject does not report is a failure too, or a subject that reports nothing would pass everything.
//! Only `burst_quiet`, which has no answer to give, is exempt.
//!
//! A case that cannot be opened fails all its steps, so that a missing algorithm shows.
//! The one exception is a case that the interface under test cannot express
//! ([`CannotOpen::NotExpressible`]): its steps are counted apart, neither passed nor failed.

use crate::timeline::{Observation, Timeline, TimelineCase, TimelineStep};
use std::fmt;

/// Something that answers the steps of one case.
pub trait CaseRunner {
    /// Runs `step` and reports its result.
    ///
    /// # Errors
    ///
    /// If the step cannot be run; it then counts as failed.
    fn apply(&mut self, step: &TimelineStep) -> Result<Observation, String>;
}

/// A subject in its initial state, or why there is none.
pub type Opened = Result<Box<dyn CaseRunner>, CannotOpen>;

/// Why a case was not opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CannotOpen {
    /// The interface under test cannot express the case; that is no fault of the limiter.
    NotExpressible(String),
    /// The case should have been opened.
    Failed(String),
}

impl CannotOpen {
    /// The interface under test cannot express the case.
    pub fn not_expressible(why: &str) -> Self {
        Self::NotExpressible(why.to_owned())
    }
}

impl fmt::Display for CannotOpen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::NotExpressible(why) | Self::Failed(why)) = self;
        f.write_str(why)
    }
}

impl From<String> for CannotOpen {
    fn from(what: String) -> Self {
        Self::Failed(what)
    }
}

/// Opens a case on what is tested.
pub type OpenCase = fn(&TimelineCase) -> Opened;

/// How a timeline went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayReport {
    /// Steps answered as expected.
    pub passed: usize,
    /// Steps answered otherwise, or that returned an error.
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
pub fn replay(timeline: &Timeline, open: &dyn Fn(&TimelineCase) -> Opened) -> ReplayReport {
    let mut report = ReplayReport::default();
    for case in &timeline.cases {
        let mismatch = |step: u64, what: String| Mismatch {
            file: timeline.name.clone(),
            case: case.name.clone(),
            step,
            what,
        };
        let mut subject = match open(case) {
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

/// Compares `observed` with what `step` expects and lists every cell that differs.
fn compare(step: &TimelineStep, observed: &Observation) -> Result<(), String> {
    let exempt = step.op == "burst_quiet";
    let (expect, is) = (cells(&step.expect), cells(observed));
    let mut differences = Vec::new();
    for ((name, expected), (_, observed)) in expect.into_iter().zip(is) {
        match (expected, observed) {
            (Some(expected), Some(observed)) if expected != observed => {
                differences.push(format!("`{name}` is {observed}, expected {expected}"));
            }
            (Some(expected), None) if !exempt => {
                differences.push(format!("`{name}` is not reported, expected {expected}"));
            }
            _ => {}
        }
    }
    if differences.is_empty() {
        return Ok(());
    }
    let (op, key) = (&step.op, &step.key);
    Err(format!("`{op}` of `{key}`: {}", differences.join(", ")))
}

/// The cells by column, as text; equal texts are equal values.
fn cells(of: &Observation) -> [(&'static str, Option<String>); 6] {
    let text = |number: Option<u64>| number.map(|number| number.to_string());
    [
        ("allowed", text(of.allowed)),
        ("remaining", text(of.remaining)),
        (
            "retry_after_ns",
            of.retry_after.map(|wait| wait.to_string()),
        ),
        ("reset_after_ns", text(of.reset_after)),
        ("delay_ns", text(of.delay)),
        ("why", of.why.clone()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::open_oracle;
    use crate::timeline::HEADER;

    fn run(rows: &str, open: &dyn Fn(&TimelineCase) -> Opened) -> ReplayReport {
        let timeline = Timeline::parse("t.csv", &format!("{HEADER}\n{rows}"));
        replay(&timeline.unwrap(), open)
    }

    /// Reports nothing at all.
    struct SilentRunner;

    impl CaseRunner for SilentRunner {
        fn apply(&mut self, _: &TimelineStep) -> Result<Observation, String> {
            Ok(Observation::default())
        }
    }

    #[test]
    fn a_subject_that_reports_nothing_passes_only_what_asserts_nothing() {
        let report = run(
            "a,0,new,,,,x,,,,,,\n\
             a,1,check,0,k,1,,1,,,,,\n\
             a,2,check,0,k,1,,,,,,,\n\
             a,3,burst_quiet,0,k,1,count=2,2,,,,,\n",
            &|_| Ok(Box::new(SilentRunner)),
        );
        assert_eq!((report.passed, report.failed), (2, 1));
        assert_eq!(
            report.mismatches[0].to_string(),
            "t.csv, case `a`, step 1: `check` of `k`: `allowed` is not reported, expected 1"
        );
    }

    #[test]
    fn a_case_that_cannot_be_opened_fails_all_its_steps() {
        let report = run(
            "a,0,new,,,,aimd initial=20 min=1 max=30,,,,,,\n\
             a,1,sample,,k,,,,,,,,\n\
             a,2,sample,,k,,,,,,,,\n\
             b,0,new,,,,gcra n=1 p_ns=1,,,,,,\n\
             b,1,check,0,k,1,,,,,,,\n",
            &open_oracle,
        );
        assert_eq!((report.passed, report.failed), (0, 3));
        let [aimd, gcra] = &report.mismatches[..] else {
            panic!("{:?}", report.mismatches);
        };
        assert!(aimd.what.contains("no model of Aimd"), "{aimd}");
        assert_eq!(gcra.what, "missing field `tau_ns`");
    }

    #[test]
    fn a_case_that_cannot_be_expressed_neither_passes_nor_fails() {
        let report = run("a,0,new,,,,x,,,,,,\na,1,check,0,k,1,,1,,,,,\n", &|_| {
            Err(CannotOpen::not_expressible("no such call"))
        });
        assert_eq!((report.passed, report.failed, report.skipped), (0, 0, 1));
        assert_eq!(report.skips.len(), 1);
    }

    #[test]
    fn a_wrong_cell_fails_its_step_and_the_case_continues() {
        let report = run(
            "a,0,new,,,,token_bucket cap=2 n=1 p_ns=10,,,,,,\n\
             a,1,check,0,k,1,,1,2,0,10,0,\n\
             a,2,check,0,k,1,,1,0,0,20,0,\n\
             a,3,acquire,0,k,1,,,,,,,\n",
            &open_oracle,
        );
        assert_eq!((report.passed, report.failed), (1, 2));
        assert_eq!(
            report.mismatches[0].what,
            "`check` of `k`: `remaining` is 1, expected 2"
        );
    }
}
