//! A concurrency limit, driven by the steps of a timeline: the key of a step is the lease.

use super::given::Given;
use super::{time, unsupported};
use crate::model::LeaseModel;
use crate::replay::{Observed, Subject};
use crate::subject::keyed::because;
use crate::timeline::Step;

/// A concurrency limit as subject.
#[derive(Debug)]
pub struct LeaseSubject<L>(pub L);

impl<L: LeaseModel> Subject for LeaseSubject<L> {
    fn apply(&mut self, step: &Step) -> Result<Observed, String> {
        let t = time(step)?;
        let given = Given::of_step(step, if step.op == "set_cap" { &["cap"] } else { &[] })?;
        let (answer, reason) = match step.op.as_str() {
            "acquire" => (self.0.acquire(t, &step.key), None),
            "peek" => (self.0.peek(t), None),
            "renew" => (self.0.renew(t, &step.key), Some("lost")),
            "release" => (self.0.release(t, &step.key), Some("unknown")),
            "set_cap" => (self.0.set_limit(t, given.need("cap")?)?, None),
            _ => return Err(unsupported(step)),
        };
        Ok(because(answer, reason.filter(|_| !answer.passed())))
    }
}
