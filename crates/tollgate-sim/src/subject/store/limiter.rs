//! A keyed limiter as subject.

use super::super::core::told::{answer, at};
use super::super::given::Given;
use super::super::keyed::{Burst, because, burst_cost, change_of};
use super::super::time;
use super::algorithm::changed;
use crate::model::{Change, has_no};
use crate::oracle::{Answer, Verdict};
use crate::replay::{Observed, Subject};
use crate::timeline::Step;
use tollgate::{
    Algorithm, Clock, Decision, Limit, Limiter, ManualClock, Origin, PressureClock, Scale, Standing,
};

/// Room for the keys of any timeline, and quick to lay out.
const MAX_KEYS: usize = 256;

/// A clock whose speed may be changed.
pub trait Speed: Clock {
    /// Runs at another speed from now on; false if this clock has one speed only.
    fn run_at(&self, q16: u32) -> bool;
}

impl Speed for ManualClock {
    fn run_at(&self, _q16: u32) -> bool {
        false
    }
}

impl Speed for PressureClock<ManualClock> {
    fn run_at(&self, q16: u32) -> bool {
        self.set_scale(Scale::from_q16(q16));
        true
    }
}

/// A limiter and the clock that its steps move. Clones share both.
#[derive(Clone, Debug)]
pub struct LimiterSubject<C> {
    algorithm: Algorithm,
    limiter: Limiter<C>,
    time: ManualClock,
}

impl<C: Speed> LimiterSubject<C> {
    /// A limiter that nobody has used, on `clock`, which tells the time of `time`.
    ///
    /// # Errors
    ///
    /// If the numbers make no limit.
    pub fn new(algorithm: Algorithm, clock: C, time: ManualClock) -> Result<Self, String> {
        let limiter = Limit::new(algorithm)
            .and_then(|limit| Limiter::with_clock(limit.with_max_keys(MAX_KEYS), clock))
            .map_err(|error| error.to_string())?;
        Ok(Self {
            algorithm,
            limiter,
            time,
        })
    }

    /// The clock that steps move.
    pub fn time(&self) -> &ManualClock {
        &self.time
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

    /// Does what `change` says at `t`, which the clock shows.
    ///
    /// # Errors
    ///
    /// If this limiter has no such change, or the numbers make no limit.
    pub fn change(&mut self, key: &str, t: u64, change: Change) -> Result<(), String> {
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
            Change::Scale { q16 } => {
                self.time.set(at(t));
                if !self.limiter.clock().run_at(q16) {
                    return Err(has_no(change));
                }
            }
        }
        Ok(())
    }

    fn compare_clock(&self, stated: Option<u64>) -> Result<(), String> {
        let shown = self.limiter.clock().now().as_nanos();
        match stated {
            Some(stated) if stated != shown => Err(format!(
                "the virtual clock shows {shown}, expected {stated}"
            )),
            _ => Ok(()),
        }
    }
}

/// The decision of a charge that passed at `issued`, as its caller would still have it.
fn charged_at(issued: u64) -> Decision {
    Decision {
        verdict: tollgate::Verdict::Pass,
        standing: Standing::default(),
        issued: at(issued),
        origin: Origin::Fresh,
    }
}

fn told(decision: &Decision) -> Answer {
    answer(decision.verdict, decision.standing)
}

impl<C: Speed> Subject for LimiterSubject<C> {
    fn apply(&mut self, step: &Step) -> Result<Observed, String> {
        let t = time(step)?;
        self.time.set(at(t));
        let (key, cost) = (step.key.as_str(), step.cost);
        match step.op.as_str() {
            "check" | "peek" => {
                let stated = Given::of_step(step, &["v_ns"])?.find("v_ns")?;
                self.compare_clock(stated)?;
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
                self.change(key, t, change)?;
                if matches!(change, Change::Scale { .. }) {
                    let given = Given::of_step(step, &["q16", "v_ns"])?;
                    self.compare_clock(given.find("v_ns")?)?;
                    return Ok(Observed::default());
                }
                Ok(self.peek(key, 0).into())
            }
        }
    }
}
