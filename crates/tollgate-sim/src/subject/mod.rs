//! Subjects of timelines and random histories: the oracle, the product's pure steps, and the store
//! behind the public interface.
//!
//! | opened by | answers from |
//! |---|---|
//! | [`open_oracle`] | the independent models of [`crate::oracle`] |
//! | [`open_core`] | the product's step functions, without store, threads or clock |
//! | [`open_store`] | the interface that users call, as far as it can express a case |
//!
//! Each limit becomes a [`Model`]; `drive` turns the steps of a timeline into calls of it.

pub mod adaptive;
pub mod bucket_group;
pub mod convert;
mod drive;
pub mod fair_queue;
pub mod gate;
pub mod group;
pub mod limiter;
pub mod log;
pub mod packed_algorithm;
pub mod permits;

pub use self::drive::{GroupSubject, ModelSubject, PermitSubject};

use self::bucket_group::BucketGroup;
use self::gate::GateGroup;
use self::group::{CreditsModel, credits_of, limits_of};
use self::limiter::{StoreLimiter, check_layouts};
use self::log::LogSteps;
use self::packed_algorithm::PackedModel;
use self::permits::StorePermits;
use crate::model::{KeyedModel, Model};
use crate::oracle::{
    OracleBucket, OracleBurstCredits, OracleConcurrency, OracleFixedWindow, OracleHierarchy,
    OracleLeakyQueue, OracleSlidingCounter, OracleSlidingLog,
};
use crate::parameters::Parameters;
use crate::replay::{CannotOpen, Opened};
use crate::timeline::TimelineCase;
use tollgate::algorithm::bucket::Bucket;
use tollgate::algorithm::queue::Queue;
use tollgate::algorithm::sliding::Sliding;
use tollgate::algorithm::window::Window;

/// The oracle's model of a limit.
///
/// # Errors
///
/// For adaptive limits, which the oracle does not model, and permits, which are no charges.
pub fn oracle_model(numbers: &Parameters) -> Result<Box<dyn Model>, CannotOpen> {
    use Parameters as P;
    Ok(match *numbers {
        P::TokenBucket { cap, n, p_ns } => boxed(OracleBucket::token_bucket(cap, n, p_ns)),
        P::TokenDebt { cap, n, p_ns, debt } => {
            boxed(OracleBucket::token_bucket(cap, n, p_ns).with_debt(debt))
        }
        P::Gcra { n, p_ns, tau_ns } => boxed(OracleBucket::gcra(n, p_ns, tau_ns)),
        P::LeakyQueue {
            queue,
            n,
            p_ns,
            max_wait_ns,
        } => boxed(OracleLeakyQueue::new(queue, n, p_ns, max_wait_ns)),
        P::FixedWindow {
            limit,
            window_ns,
            anchor_ns,
        } => boxed(OracleFixedWindow::new(limit, window_ns, anchor_ns)),
        P::SlidingLog { limit, window_ns } => boxed(OracleSlidingLog::new(limit, window_ns)),
        P::SlidingCounter {
            limit,
            window_ns,
            sub,
            strict,
        } => boxed(OracleSlidingCounter::new(
            limit,
            window_ns,
            sub.into(),
            strict,
        )),
        P::SpanCounter {
            limit,
            window_ns,
            sub,
            span,
        } => boxed(OracleSlidingCounter::with_span(
            limit,
            window_ns,
            sub.into(),
            span.into(),
        )),
        P::BurstCredits {
            n,
            p_ns,
            mult,
            dur_ns,
            slack,
        } => boxed(OracleBurstCredits::new(n, p_ns, mult.into(), dur_ns, slack)),
        P::Aimd { .. } | P::Gradient2 { .. } | P::Concurrency { .. } => {
            return Err(format!("the oracle has no model of {numbers:?}").into());
        }
    })
}

/// The product's pure steps of a limit.
///
/// # Errors
///
/// If the numbers make no limit, or the limit has no steps by key.
pub fn core_model(numbers: &Parameters) -> Result<Box<dyn Model>, CannotOpen> {
    use Parameters as P;
    Ok(match *numbers {
        P::TokenBucket { .. } | P::TokenDebt { .. } | P::Gcra { .. } => {
            boxed(PackedModel::<Bucket>::new(*numbers)?)
        }
        P::LeakyQueue { .. } => boxed(PackedModel::<Queue>::new(*numbers)?),
        P::FixedWindow { .. } => boxed(PackedModel::<Window>::new(*numbers)?),
        P::SlidingCounter { .. } | P::SpanCounter { .. } => {
            boxed(PackedModel::<Sliding>::new(*numbers)?)
        }
        P::SlidingLog { limit, window_ns } => boxed(LogSteps::new(limit, window_ns)?),
        P::BurstCredits { .. } => Box::new(CreditsModel(BucketGroup::from_credits(&credits_of(
            numbers,
        )?)?)),
        P::Concurrency { .. } => {
            return Err(CannotOpen::not_expressible(
                "permits by the name of their holder are granted by the store",
            ));
        }
        P::Aimd { .. } | P::Gradient2 { .. } => {
            return Err(format!("{numbers:?} has no steps by key").into());
        }
    })
}

/// A limit behind the public interface.
///
/// # Errors
///
/// If the numbers make no limit, or the interface cannot express it.
pub fn store_model(numbers: &Parameters) -> Result<Box<dyn Model>, CannotOpen> {
    Ok(match numbers {
        Parameters::BurstCredits { .. } => Box::new(CreditsModel(GateGroup::from_credits(
            &credits_of(numbers)?,
        )?)),
        Parameters::Aimd { .. } | Parameters::Gradient2 { .. } => {
            return Err(CannotOpen::not_expressible("no store is behind it"));
        }
        _ => Box::new(StoreLimiter::new(*numbers)?),
    })
}

fn boxed<M: crate::model::KeyModel + 'static>(model: M) -> Box<dyn Model> {
    Box::new(KeyedModel::new(model))
}

/// Opens a case on the oracle.
///
/// Supports all algorithms but the adaptive ones and fair queueing, which the oracle does not model.
///
/// # Errors
///
/// If the algorithm is not supported, or its numbers are wrong.
pub fn open_oracle(case: &TimelineCase) -> Opened {
    if case.algorithm == "all_token_bucket" {
        return Ok(Box::new(GroupSubject(OracleHierarchy::new(limits_of(
            case,
        )?))));
    }
    Ok(match Parameters::from_case(case)? {
        Parameters::Concurrency { limit, ttl_ns } => {
            Box::new(PermitSubject(OracleConcurrency::new(limit, ttl_ns)))
        }
        numbers => Box::new(ModelSubject(oracle_model(&numbers)?)),
    })
}

/// Opens a case on the product's pure steps.
///
/// # Errors
///
/// If the algorithm is not supported, its numbers are wrong, or the steps cannot express it.
pub fn open_core(case: &TimelineCase) -> Opened {
    match case.algorithm.as_str() {
        "all_token_bucket" => {
            return Ok(Box::new(GroupSubject(BucketGroup::new(&limits_of(case)?)?)));
        }
        "sfq" => return Ok(Box::new(fair_queue::FairQueueSubject::open(case)?)),
        _ => {}
    }
    Ok(match Parameters::from_case(case)? {
        numbers @ (Parameters::Aimd { .. } | Parameters::Gradient2 { .. }) => {
            adaptive::open(&numbers)?
        }
        numbers => Box::new(ModelSubject(core_model(&numbers)?)),
    })
}

/// Opens a case on the memory store, through the public interface.
///
/// A step alone moves the clock. The interface has no limiter for adaptive limits or
/// queues, sliding windows come in their default layouts only, and a gate does not peek: such cases are
/// not expressible.
///
/// # Errors
///
/// If the algorithm is not supported, its numbers are wrong, or the interface cannot express it.
pub fn open_store(case: &TimelineCase) -> Opened {
    match case.algorithm.as_str() {
        "all_token_bucket" => {
            let gate = GateGroup::new(&limits_of(case)?)?;
            return match case.steps.iter().any(|step| step.op == "peek") {
                true => Err(CannotOpen::not_expressible("a gate does not peek")),
                false => Ok(Box::new(GroupSubject(gate))),
            };
        }
        "sfq" => return Err(CannotOpen::not_expressible("no store is behind it")),
        _ => {}
    }
    Ok(match Parameters::from_case(case)? {
        Parameters::Concurrency { limit, ttl_ns } => {
            Box::new(PermitSubject(StorePermits::new(limit, ttl_ns)?))
        }
        numbers => {
            check_layouts(case, &numbers)?;
            Box::new(ModelSubject(store_model(&numbers)?))
        }
    })
}
