//! The oracle as subject.

use super::given::Given;
use super::keyed::Keyed;
use super::leases::LeaseSubject;
use super::together::{keys_of, limits_of};
use super::{time, unsupported};
use crate::model::{Change, LeaseModel, Model, has_no};
use crate::oracle::{
    Answer, BurstCredits, Charge, Concurrency, FixedWindow, Gcra, Hierarchy, LeakyQueue,
    SlidingCounter, SlidingLog, SpanCounter, TokenBucket,
};
use crate::replay::{CannotOpen, Observed, Subject, SubjectFactory};
use crate::timeline::{Case, Step};

/// Opens cases on the oracle.
///
/// Supports all algorithms but the adaptive ones and fair queueing, which the oracle does not model.
#[derive(Clone, Copy, Debug, Default)]
pub struct OracleFactory;

impl SubjectFactory for OracleFactory {
    fn start(&self, case: &Case) -> Result<Box<dyn Subject>, CannotOpen> {
        let given = |known: &[&str]| Given::of_case(case, known);
        Ok(match case.algorithm.as_str() {
            "token_bucket" => {
                let given = given(&["cap", "n", "p_ns"])?;
                Keyed::subject(token_bucket(given)?)
            }
            "gcra" => {
                let given = given(&["n", "p_ns", "tau_ns"])?;
                Keyed::subject(Gcra::new(
                    given.need("n")?,
                    given.need("p_ns")?,
                    given.need("tau_ns")?,
                ))
            }
            "leaky_queue" => {
                let given = given(&["queue", "n", "p_ns", "max_wait_ns"])?;
                Keyed::subject(LeakyQueue::new(
                    given.need("queue")?,
                    given.need("n")?,
                    given.need("p_ns")?,
                    given.find("max_wait_ns")?,
                ))
            }
            "fixed_window" => {
                let given = given(&["limit", "window_ns", "anchor_ns"])?;
                Keyed::subject(FixedWindow::new(
                    given.need("limit")?,
                    given.need("window_ns")?,
                    given.find("anchor_ns")?.unwrap_or(0),
                ))
            }
            "sliding_log" => {
                let given = given(&["limit", "window_ns"])?;
                Keyed::subject(SlidingLog::new(
                    given.need("limit")?,
                    given.need("window_ns")?,
                ))
            }
            "sliding_counter" => {
                let given = given(&["limit", "window_ns", "sub", "strict"])?;
                Keyed::subject(SlidingCounter::new(
                    given.need("limit")?,
                    given.need("window_ns")?,
                    given.find("sub")?.unwrap_or(1),
                    given.flag("strict")?,
                ))
            }
            "span_counter" => {
                let given = given(&["limit", "window_ns", "sub", "span"])?;
                Keyed::subject(SpanCounter::new(
                    given.need("limit")?,
                    given.need("window_ns")?,
                    given.need("sub")?,
                    given.need("span")?,
                ))
            }
            "burst_credits" => {
                let given = given(&["n", "p_ns", "mult", "dur_ns", "slack"])?;
                Keyed::subject(BurstCredits::new(
                    given.need("n")?,
                    given.need("p_ns")?,
                    given.need("mult")?,
                    given.need("dur_ns")?,
                    given.need("slack")?,
                ))
            }
            "concurrency" => {
                let given = given(&["limit", "ttl_ns"])?;
                Box::new(LeaseSubject(Concurrency::new(
                    given.need("limit")?,
                    given.need("ttl_ns")?,
                )))
            }
            "all_token_bucket" => Box::new(Together(Hierarchy::new(limits_of(case)?))),
            other => return Err(format!("the oracle does not support `{other}`").into()),
        })
    }
}

fn token_bucket(given: Given<'_>) -> Result<TokenBucket, String> {
    Ok(TokenBucket::new(
        given.need("cap")?,
        given.need("n")?,
        given.need("p_ns")?,
    ))
}

/// What every model has under the same name.
macro_rules! ask {
    ($model:ty) => {
        fn check(&mut self, t: u64, cost: u64) -> Answer {
            <$model>::check(self, t, cost)
        }

        fn peek(&self, t: u64, cost: u64) -> Answer {
            <$model>::peek(self, t, cost)
        }
    };
}

impl Model for TokenBucket {
    ask!(TokenBucket);

    fn change(&mut self, t: u64, change: Change) -> Result<Answer, String> {
        Ok(match change {
            Change::Refund { cost, issued } => self.refund(t, cost, issued),
            Change::SetCap { cap } => self.set_cap(t, cap),
            Change::SetRate { n, p_ns } => self.set_rate(t, n, p_ns),
        })
    }
}

impl Model for Gcra {
    ask!(Gcra);

    fn change(&mut self, t: u64, change: Change) -> Result<Answer, String> {
        Ok(match change {
            Change::Refund { cost, issued } => self.refund(t, cost, issued),
            Change::SetRate { n, p_ns } => self.set_rate(t, n, p_ns),
            _ => return Err(has_no(change)),
        })
    }
}

impl Model for LeakyQueue {
    ask!(LeakyQueue);

    fn change(&mut self, t: u64, change: Change) -> Result<Answer, String> {
        Ok(match change {
            Change::SetCap { cap } => self.set_cap(t, cap),
            Change::SetRate { n, p_ns } => self.set_rate(t, n, p_ns),
            _ => return Err(has_no(change)),
        })
    }

    fn reason(&self, t: u64, cost: u64) -> Option<&'static str> {
        self.is_wait_too_long(t, cost).then_some("max_wait")
    }
}

/// Windows, logs and counters are changed alike: what buckets call capacity is their limit.
macro_rules! limited {
    ($($model:ty),*) => {$(
        impl Model for $model {
            ask!($model);

            fn change(&mut self, t: u64, change: Change) -> Result<Answer, String> {
                Ok(match change {
                    Change::Refund { cost, issued } => self.refund(t, cost, issued),
                    Change::SetCap { cap } => self.set_limit(t, cap),
                    _ => return Err(has_no(change)),
                })
            }
        }
    )*};
}

limited!(FixedWindow, SlidingLog, SlidingCounter, SpanCounter);

impl Model for BurstCredits {
    ask!(BurstCredits);

    fn change(&mut self, t: u64, change: Change) -> Result<Answer, String> {
        match change {
            Change::Refund { cost, issued } => Ok(self.refund(t, cost, issued)),
            _ => Err(has_no(change)),
        }
    }
}

impl LeaseModel for Concurrency {
    fn acquire(&mut self, t: u64, id: &str) -> Answer {
        Concurrency::acquire(self, t, id)
    }

    fn peek(&self, t: u64) -> Answer {
        Concurrency::peek(self, t)
    }

    fn renew(&mut self, t: u64, id: &str) -> Answer {
        Concurrency::renew(self, t, id)
    }

    fn release(&mut self, t: u64, id: &str) -> Answer {
        Concurrency::release(self, t, id)
    }

    fn set_limit(&mut self, t: u64, limit: u64) -> Result<Answer, String> {
        Ok(Concurrency::set_limit(self, t, limit))
    }
}

/// Several limits charged together.
struct Together(Hierarchy);

impl Subject for Together {
    fn apply(&mut self, step: &Step) -> Result<Observed, String> {
        let t = time(step)?;
        let charge = |(limit, key)| Charge {
            limit,
            key,
            cost: step.cost,
        };
        let charges: Vec<Charge<'_>> = keys_of(step)?.into_iter().map(charge).collect();
        let ruling = match step.op.as_str() {
            "check" => self.0.check(t, &charges),
            "peek" => self.0.peek(t, &charges),
            _ => return Err(unsupported(step)),
        };
        let ruling = ruling.map_err(|error| error.to_string())?;
        Ok(Observed {
            why: Some(ruling.reported),
            ..Observed::from(ruling.answer)
        })
    }
}
