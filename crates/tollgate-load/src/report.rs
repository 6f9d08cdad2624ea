//! What came of a run: all of it together, and of each target by itself.
//!
//! # What it does not know
//!
//! When a server died. It knows when it last answered, and when a connection to it was given up; the end lies between
//! the two.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::audit::Audit;
use crate::histogram::Histogram;
use crate::plan::Plan;
use crate::tally::{Share, Tally};
use crate::wrong::Wrong;

/// What came of a run.
#[derive(Debug)]
pub struct Report {
    /// From the end of the warm-up to the end of the run, or to the last answer if that came later.
    pub elapsed: Duration,
    /// Answers that said yes.
    pub admitted: u64,
    /// Answers that said no.
    pub refused: u64,
    /// Answers that were no errors, to a command of which is not known how it says yes.
    pub unjudged: u64,
    /// What was none of these, by kind.
    pub errors: BTreeMap<String, u64>,
    /// Times of answers that were no errors, in nanoseconds.
    pub times: Histogram,
    /// Connections that were opened again.
    pub reconnects: u64,
    /// Requests that were due and never sent, because as many as may be under way were, or because a target was lost.
    pub unsent: u64,
    /// What the audit found, if there was one.
    pub audit: Option<Audit>,
    /// Was it broken off before its end? What was under way then counts for nothing.
    pub is_broken_off: bool,
    /// What came of each target, in the order of the plan.
    pub targets: Vec<TargetReport>,
}

/// What came of one target.
#[derive(Clone, Debug)]
pub struct TargetReport {
    /// Connections that it was given.
    pub connections: u64,
    /// Answers that said yes.
    pub admitted: u64,
    /// Answers that said no.
    pub refused: u64,
    /// Answers that were not judged.
    pub unjudged: u64,
    /// What was none of these.
    pub errors: u64,
    /// When its last answer came, since the first request of the run.
    pub last_answer: Option<Duration>,
    /// What was given up, if anything was.
    pub loss: Option<Loss>,
}

/// Connections that were given up, because again and again they ended without any answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// How many.
    pub connections: u64,
    /// When the first of them was given up, since the first request of the run.
    pub after: Duration,
    /// Why it was.
    pub why: String,
}

impl TargetReport {
    /// Answers that were no errors.
    pub fn answers(&self) -> u64 {
        self.admitted + self.refused + self.unjudged
    }

    /// Was every connection to it given up?
    pub fn is_lost(&self) -> bool {
        let given_up = self.loss.as_ref().map_or(0, |loss| loss.connections);
        given_up > 0 && given_up >= self.connections
    }
}

impl Report {
    /// Puts it together, from what was counted since `begin`.
    ///
    /// # Errors
    /// Connections were given up, and not one answer ever came: there is nothing to report.
    pub(crate) fn of(
        plan: &Plan,
        tally: Tally,
        (begin, warm_until): (u64, u64),
        is_broken_off: bool,
    ) -> Result<Report, Wrong> {
        if tally.shares.iter().all(|share| share.last_answer.is_none()) {
            nothing_but_losses(plan, &tally)?;
        }
        let targets = tally.shares.iter().enumerate();
        let targets = targets.map(|(at, share)| target(plan, at, share, begin));
        let targets: Vec<TargetReport> = targets.collect();
        let sum = |of: fn(&TargetReport) -> u64| targets.iter().map(of).sum();
        // A server that falls silent before the end is not the faster for it.
        let end = tally.last_answer.max(tally.ended);
        // What was due on connections that were given up was due until all others had ended.
        let abandoned = tally.abandoned.iter().map(|pace| pace.unsent(end));
        let audit = plan.allowance.as_ref().zip(tally.ledger);
        Ok(Report {
            elapsed: Duration::from_nanos(end.saturating_sub(warm_until)),
            admitted: sum(|target| target.admitted),
            refused: sum(|target| target.refused),
            unjudged: sum(|target| target.unjudged),
            unsent: tally.unsent.saturating_add(abandoned.sum()),
            audit: audit.map(|(allowance, ledger)| ledger.audit(allowance, plan.cost)),
            errors: tally.errors,
            times: tally.times,
            reconnects: tally.reconnects,
            is_broken_off,
            targets,
        })
    }

    /// Answers that were no errors: yes, no, and those that were not judged.
    pub fn answers(&self) -> u64 {
        self.admitted + self.refused + self.unjudged
    }

    /// Errors of all kinds.
    pub fn error_count(&self) -> u64 {
        self.errors.values().sum()
    }

    /// Answers in a second.
    pub fn per_second(&self) -> f64 {
        let seconds = self.elapsed.as_secs_f64();
        match seconds > 0.0 {
            true => self.answers() as f64 / seconds,
            false => 0.0,
        }
    }
}

fn target(plan: &Plan, at: usize, share: &Share, begin: u64) -> TargetReport {
    let since = |moment: u64| Duration::from_nanos(moment.saturating_sub(begin));
    let loss = share.loss.as_ref().map(|(moment, why)| Loss {
        connections: share.given_up,
        after: since(*moment),
        why: why.clone(),
    });
    TargetReport {
        connections: plan.connections_of(at),
        admitted: share.admitted,
        refused: share.refused,
        unjudged: share.unjudged,
        errors: share.errors,
        last_answer: share.last_answer.map(since),
        loss,
    }
}

/// The first connection that was given up, as what is wrong with the whole run.
fn nothing_but_losses(plan: &Plan, tally: &Tally) -> Result<(), Wrong> {
    let losses = plan.targets.iter().zip(&tally.shares);
    let losses = losses.filter_map(|(target, share)| Some((target, share.loss.as_ref()?)));
    match losses.min_by_key(|(_, (moment, _))| *moment) {
        None => Ok(()),
        Some((target, (_, why))) => Err(Wrong::new(
            format!("{target} {why}"),
            "see that it is the right port and protocol, and what the server logs",
        )),
    }
}
