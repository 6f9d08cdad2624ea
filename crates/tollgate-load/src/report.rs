//! The results of a run, in all and by target.
//!
//! # Limits
//!
//! The report does not know when a server died: it lies between its last response and the moment when a connection was given up.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::audit::Audit;
use crate::counters::Counters;
use crate::error::LoadError;
use crate::histogram::Histogram;
use crate::plan::LoadPlan;

/// The results of a run.
#[derive(Debug)]
pub struct LoadReport {
    /// From the end of the warm-up to the end of the run, or to the last response if that came later.
    pub elapsed: Duration,
    /// Admitted requests.
    pub admitted: u64,
    /// Refused requests.
    pub refused: u64,
    /// Responses without an error that no rule judges.
    pub unjudged: u64,
    /// Errors by kind.
    pub errors: BTreeMap<String, u64>,
    /// Times of responses without an error, in nanoseconds.
    pub times: Histogram,
    /// Connections that were reopened.
    pub reconnects: u64,
    /// Requests that were due and never sent, because too many were in flight, or because a target was lost.
    pub unsent: u64,
    /// The audit, if there was one.
    pub audit: Option<Audit>,
    /// The run was interrupted. Requests in flight at that moment are not counted.
    pub is_interrupted: bool,
    /// The results of each target, in the order of the plan.
    pub targets: Vec<TargetReport>,
}

/// The results of one target.
#[derive(Clone, Debug, Default)]
pub struct TargetReport {
    /// Connections to it.
    pub connections: u64,
    /// Admitted requests.
    pub admitted: u64,
    /// Refused requests.
    pub refused: u64,
    /// Unjudged responses.
    pub unjudged: u64,
    /// Errors.
    pub errors: u64,
    /// When its last response arrived, since the first request of the run.
    pub last_response: Option<Duration>,
    /// The connections that were given up, if any.
    pub loss: Option<Loss>,
}

/// Connections that were given up, because they ended without any response several times in a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// How many.
    pub connections: u64,
    /// When the first of them was given up, since the first request of the run.
    pub after: Duration,
    /// Why.
    pub reason: String,
}

impl TargetReport {
    /// Responses without an error.
    pub fn responses(&self) -> u64 {
        self.admitted + self.refused + self.unjudged
    }

    /// Whether all connections to it were given up.
    pub fn is_lost(&self) -> bool {
        let given_up = self.loss.as_ref().map_or(0, |loss| loss.connections);
        given_up > 0 && given_up >= self.connections
    }

    /// Adds the counters of another thread.
    pub(crate) fn add(&mut self, other: TargetReport) {
        self.admitted += other.admitted;
        self.refused += other.refused;
        self.unjudged += other.unjudged;
        self.errors += other.errors;
        self.last_response = self.last_response.max(other.last_response);
        other.loss.into_iter().for_each(|loss| self.add_loss(loss));
    }

    /// Adds connections that were given up. The earliest loss keeps its moment and reason.
    pub(crate) fn add_loss(&mut self, mut loss: Loss) {
        if let Some(known) = self.loss.take() {
            let connections = known.connections + loss.connections;
            if known.after <= loss.after {
                loss = known;
            }
            loss.connections = connections;
        }
        self.loss = Some(loss);
    }

    /// Makes moments relative to the first request.
    fn since(&mut self, begin: Duration) {
        let moments = self.last_response.iter_mut();
        let moments = moments.chain(self.loss.iter_mut().map(|loss| &mut loss.after));
        moments.for_each(|moment| *moment = moment.saturating_sub(begin));
    }
}

impl LoadReport {
    /// Builds the report from the counters.
    ///
    /// # Errors
    /// Connections were given up and no response ever arrived: there is nothing to report.
    pub(crate) fn new(
        plan: &LoadPlan,
        mut counters: Counters,
        (begin, warm_until): (u64, u64),
        is_interrupted: bool,
    ) -> Result<LoadReport, LoadError> {
        if counters
            .targets
            .iter()
            .all(|target| target.last_response.is_none())
        {
            fail_without_responses(plan, &counters)?;
        }
        for (at, target) in counters.targets.iter_mut().enumerate() {
            target.connections = plan.connections_to(at);
            target.since(Duration::from_nanos(begin));
        }
        let targets = counters.targets;
        let sum = |of: fn(&TargetReport) -> u64| targets.iter().map(of).sum();
        // A server that stops responding before the end gains nothing by it.
        let end = counters.last_response.max(counters.ended);
        // Connections that were given up count as due until all others have ended.
        let abandoned = counters
            .abandoned
            .iter()
            .map(|schedule| schedule.unsent(end));
        let audit = plan.allowance.as_ref().zip(counters.log);
        Ok(LoadReport {
            elapsed: Duration::from_nanos(end.saturating_sub(warm_until)),
            admitted: sum(|target| target.admitted),
            refused: sum(|target| target.refused),
            unjudged: sum(|target| target.unjudged),
            unsent: counters.unsent.saturating_add(abandoned.sum()),
            audit: audit.map(|(allowance, log)| log.audit(allowance, plan.cost)),
            errors: counters.errors,
            times: counters.times,
            reconnects: counters.reconnects,
            is_interrupted,
            targets,
        })
    }

    /// Responses without an error: admitted, refused and unjudged.
    pub fn responses(&self) -> u64 {
        self.admitted + self.refused + self.unjudged
    }

    /// Errors of all kinds.
    pub fn error_count(&self) -> u64 {
        self.errors.values().sum()
    }

    /// Responses per second.
    pub fn per_second(&self) -> f64 {
        let seconds = self.elapsed.as_secs_f64();
        match seconds > 0.0 {
            true => self.responses() as f64 / seconds,
            false => 0.0,
        }
    }
}

/// Reports the first connection that was given up as the problem of the run.
fn fail_without_responses(plan: &LoadPlan, counters: &Counters) -> Result<(), LoadError> {
    let losses = plan.targets.iter().zip(&counters.targets);
    let losses = losses.filter_map(|(target, report)| Some((target, report.loss.as_ref()?)));
    match losses.min_by_key(|(_, loss)| loss.after) {
        None => Ok(()),
        Some((target, loss)) => Err(LoadError::new(
            format!("{target} {}", loss.reason),
            "check the port, the protocol and the log of the server",
        )),
    }
}
