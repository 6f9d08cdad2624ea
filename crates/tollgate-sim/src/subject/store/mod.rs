//! The store as subject: what users call, with a clock that stands still until a step moves it.
//!
//! Not everything that a timeline says can be said here. There is no public limiter for adaptive limits or queues, and a span counter comes in its default layouts only; a gate
//! does not peek. Such cases are not expressible, and [`StoreFactory`] says why.

pub mod algorithm;
pub mod credits;
pub mod gate;
pub mod limiter;
pub mod model;
pub mod permits;

use super::given::Given;
use super::leases::LeaseSubject;
use super::together::{credits_of, limits_of};
use crate::replay::{CannotOpen, Subject, SubjectFactory};
use crate::timeline::Case;
use algorithm::algorithm_of;
use tollgate::ManualClock;

/// Opens cases on the memory store, through the public interface.
#[derive(Clone, Copy, Debug, Default)]
pub struct StoreFactory;

impl SubjectFactory for StoreFactory {
    fn start(&self, case: &Case) -> Result<Box<dyn Subject>, CannotOpen> {
        let time = ManualClock::new();
        if case.algorithm == "all_token_bucket" {
            let gate = gate::GateSubject::new(&limits_of(case)?, time)?;
            return match case.steps.iter().find(|step| step.op == "peek") {
                Some(_) => Err(not_expressible("a gate does not peek")),
                None => Ok(Box::new(gate)),
            };
        }
        if case.algorithm == "concurrency" {
            let given = Given::of_case(case, &["limit", "ttl_ns"])?;
            let permits = permits::Permits::new(given.need("limit")?, given.need("ttl_ns")?)?;
            return Ok(Box::new(LeaseSubject(permits)));
        }
        if case.algorithm == "burst_credits" {
            return Ok(Box::new(credits::CreditGate::new(&credits_of(case)?)?));
        }
        let algorithm = algorithm_of(case)?;
        algorithm::expressible(case, &algorithm)?;
        Ok(Box::new(limiter::LimiterSubject::new(algorithm, time)?))
    }
}

fn not_expressible(what: &str) -> CannotOpen {
    CannotOpen::NotExpressible(what.to_owned())
}
