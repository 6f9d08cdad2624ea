//! Runs the steps of a timeline on a model.

use super::group::keys_of;
use crate::model::{GroupModel, Model, ModelChange, PermitModel, PermitOp};
use crate::oracle::{OracleDecision, OracleVerdict};
use crate::replay::CaseRunner;
use crate::timeline::{Observation, Operation, TimelineStep};

/// A limiter for many keys as subject.
#[derive(Debug)]
pub struct ModelSubject(pub Box<dyn Model>);

impl CaseRunner for ModelSubject {
    fn apply(&mut self, step: &TimelineStep) -> Result<Observation, String> {
        let (t, key, model) = (step.time()?, step.key.as_str(), &mut self.0);
        let cost = step.cost.unwrap_or(0);
        let change = match step.operation()? {
            Operation::Check {} => return Ok(explained(model.check(key, t, cost), cost)),
            Operation::Peek {} => return Ok(explained(model.peek(key, t, cost), cost)),
            Operation::Burst { count } | Operation::BurstQuiet { count } => {
                return Ok(burst(model.as_mut(), t, step, count));
            }
            Operation::Refund { issued_ns: issued } => ModelChange::Refund { cost, issued },
            Operation::Late {} => ModelChange::Late { cost },
            Operation::SetCap { cap } => ModelChange::SetCap { cap },
            Operation::SetRate { n, p_ns } => ModelChange::SetRate { n, p_ns },
            _ => return Err(step.unsupported()),
        };
        // A change of the limit reports on the key of the row, also if that was never charged.
        Ok(model.change(key, t, change)?.into())
    }
}

/// `answer` with the reason that it does not contain: room for the cost, and still refused, is refused
/// for the wait. Only queues do that.
fn explained(answer: OracleDecision, cost: u64) -> Observation {
    let is_refused = matches!(answer.verdict, OracleVerdict::Refuse { .. });
    let for_wait = is_refused && answer.remaining >= cost;
    let observed = Observation::from(answer);
    Observation {
        why: observed
            .why
            .or_else(|| for_wait.then(|| "max_wait".to_owned())),
        ..observed
    }
}

/// `count` checks at one instant, of one unit unless the step has a cost: how many passed, the wait of
/// the first refusal, the delay of the last that passed, and what is left in the end.
fn burst(model: &mut dyn Model, t: u64, step: &TimelineStep, count: u64) -> Observation {
    let cost = step.cost.unwrap_or(1);
    let mut whole = Observation {
        allowed: Some(0),
        retry_after: Some(0),
        delay: Some(0),
        ..model.peek(&step.key, t, 0).into()
    };
    for _ in 0..count {
        let one = explained(model.check(&step.key, t, cost), cost);
        if one.allowed == Some(1) {
            whole.allowed = whole.allowed.map(|passed| passed + 1);
            whole.delay = one.delay;
        } else if whole.retry_after == Some(0) {
            whole.retry_after = one.retry_after;
            whole.why = one.why;
        }
        whole.remaining = one.remaining;
        whole.reset_after = one.reset_after;
    }
    whole
}

/// Several limits as subject: `why` is the name of the reported limit.
#[derive(Debug)]
pub struct GroupSubject<G>(pub G);

impl<G: GroupModel> CaseRunner for GroupSubject<G> {
    fn apply(&mut self, step: &TimelineStep) -> Result<Observation, String> {
        let take = match step.operation()? {
            Operation::Check {} => true,
            Operation::Peek {} => false,
            _ => return Err(step.unsupported()),
        };
        let answered = self.0.charge(step.time()?, &keys_of(step)?, take)?;
        Ok(Observation {
            why: Some(answered.reported),
            ..answered.answer.into()
        })
    }
}

/// A concurrency limit as subject: the key of a step is the holder.
#[derive(Debug)]
pub struct PermitSubject<P>(pub P);

impl<P: PermitModel> CaseRunner for PermitSubject<P> {
    fn apply(&mut self, step: &TimelineStep) -> Result<Observation, String> {
        let (op, reason) = match step.operation()? {
            Operation::Acquire {} => (PermitOp::Acquire, None),
            Operation::Peek {} => (PermitOp::Peek, None),
            Operation::Renew {} => (PermitOp::Renew, Some("lost")),
            Operation::Release {} => (PermitOp::Release, Some("unknown")),
            Operation::SetCap { cap } => (PermitOp::SetLimit(cap), None),
            _ => return Err(step.unsupported()),
        };
        let answer = self.0.apply(step.time()?, op, &step.key)?;
        let reason = reason.filter(|_| !answer.passed()).map(str::to_owned);
        let observed = Observation::from(answer);
        Ok(Observation {
            why: observed.why.or(reason),
            ..observed
        })
    }
}
