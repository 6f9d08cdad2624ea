//! A keyed limiter as subject.

use super::super::core::told::{answer, at};
use super::super::given::Given;
use super::super::keyed::{Burst, because, burst_cost, change_of};
use super::super::time;
use super::algorithm::changed;
use crate::model::Change;
use crate::oracle::{Answer, Verdict};
use crate::replay::{Observed, Subject};
use crate::timeline::Step;
use tollgate::{Algorithm, Decision, Limit, Limiter, ManualClock, Origin, QuotaStatus};

/// Room for the keys of any timeline, and quick to lay out.
const MAX_KEYS: usize = 256;

/// A limiter and the clock that its steps move. Clones share both.
#[derive(Clone, Debug)]
pub struct LimiterSubject {
    algorithm: Algorithm,
    limiter: Limiter<ManualClock>,
}

impl LimiterSubject {
    /// A limiter that nobody has used, on `time`.
    ///
    /// # Errors
    ///
    /// If the numbers make no limit.
    pub fn new(algorithm: Algorithm, time: ManualClock) -> Result<Self, String> {
        let limiter = Limit::new(algorithm)
            .and_then(|limit| Limiter::with_clock(limit.with_max_keys(MAX_KEYS), time))
            .map_err(|error| error.to_string())?;
        Ok(Self { algorithm, limiter })
    }

    /// The clock that steps move.
    pub fn time(&self) -> &ManualClock {
        self.limiter.clock()
    }

    /// What a charge would come to.
    pub fn peek(&self, key: &str, cost: u64) -> Answer {
        told(&self.limiter.peek(key, cost))
    }

    /// Charges.
    pub fn charge(&self, key: &str, cost: u64) -> Answer {
        told(&self.limiter.charge(key, cost))
    }

    fn check(&self, key: &str, cost: u64) -> Observed {
        self.because(self.charge(key, cost), cost)
    }

    /// A queue that has room and still refuses does so for the wait.
    fn because(&self, answer: Answer, cost: u64) -> Observed {
        let queues = matches!(self.algorithm, Algorithm::LeakyBucket { .. });
        let refused = matches!(answer.verdict, Verdict::Refuse { .. });
        let for_wait = queues && refused && answer.remaining >= cost;
        because(answer, for_wait.then_some("max_wait"))
    }

    /// Does what `change` says.
    ///
    /// # Errors
    ///
    /// If this limiter has no such change, or the numbers make no limit.
    pub fn change(&mut self, key: &str, change: Change) -> Result<(), String> {
        match change {
            Change::Refund { cost, issued } => {
                if matches!(self.algorithm, Algorithm::LeakyBucket { .. }) {
                    return Err("a place in a queue cannot be given back".to_owned());
                }
                self.limiter.settle(key, &charged_at(issued), cost, 0);
            }
            Change::SetCap { .. } | Change::SetRate { .. } => {
                let algorithm = changed(&self.algorithm, change)?;
                Limit::new(algorithm)
                    .and_then(|limit| self.limiter.change(limit))
                    .map_err(|error| error.to_string())?;
                self.algorithm = algorithm;
            }
        }
        Ok(())
    }
}

/// The decision of a charge that passed at `issued`, as its caller would still have it.
pub(super) fn charged_at(issued: u64) -> Decision {
    Decision {
        verdict: tollgate::Verdict::Pass,
        status: QuotaStatus::default(),
        issued: at(issued),
        origin: Origin::Fresh,
    }
}

fn told(decision: &Decision) -> Answer {
    answer(decision.verdict, decision.status)
}

impl Subject for LimiterSubject {
    fn apply(&mut self, step: &Step) -> Result<Observed, String> {
        let t = time(step)?;
        self.time().set(at(t));
        let (key, cost) = (step.key.as_str(), step.cost);
        match step.op.as_str() {
            "check" | "peek" => {
                Given::of_step(step, &[])?;
                Ok(if step.op == "check" {
                    self.check(key, cost)
                } else {
                    self.because(self.peek(key, cost), cost)
                })
            }
            "burst" | "burst_quiet" => {
                let count: u64 = Given::of_step(step, &["count"])?.need("count")?;
                let mut whole = Burst::new(self.peek(key, 0));
                for _ in 0..count {
                    whole.add(self.check(key, burst_cost(step)));
                }
                Ok(whole.told())
            }
            _ => {
                let change = change_of(step)?;
                self.change(key, change)?;
                Ok(self.peek(key, 0).into())
            }
        }
    }
}
