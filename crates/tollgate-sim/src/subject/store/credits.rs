//! Burst credits as subject: two limits behind one gate.

use super::super::core::told::{answer, at};
use super::super::given::Given;
use super::super::keyed::{Burst, burst_cost, change_of};
use super::super::time;
use super::super::together::told_as_one;
use super::limiter::charged_at;
use crate::model::{Change, Model, has_no};
use crate::oracle::{Answer, Verdict};
use crate::replay::{Observed, Subject};
use crate::timeline::Step;
use tollgate::{Gate, LimitId, ManualClock};
use tollgate_policy::BurstCredits;

/// Room for the keys of any timeline, and quick to lay out.
const MAX_KEYS: usize = 256;

/// A gate of two buckets and the clock that its steps move. Clones share both.
#[derive(Clone, Debug)]
pub struct CreditGate {
    gate: Gate<ManualClock>,
    limits: [LimitId; 2],
    time: ManualClock,
}

impl CreditGate {
    /// A gate that nobody has passed.
    ///
    /// # Errors
    ///
    /// If the numbers make no limit.
    pub fn new(credits: &BurstCredits) -> Result<Self, String> {
        let time = ManualClock::new();
        let mut gate = Gate::with_clock(time.clone());
        let quota = credits.quota().map_err(|error| error.to_string())?;
        let peak = quota.peak.ok_or("there is no peak")?;
        let mut add = |limit: tollgate::Limit| {
            gate.add(limit.with_max_keys(MAX_KEYS))
                .map_err(|error| error.to_string())
        };
        let limits = [add(quota.limit)?, add(peak)?];
        Ok(Self { gate, limits, time })
    }

    fn charge(&self, key: &str, cost: u64) -> Answer {
        let charges = self.limits.map(|limit| self.gate.charge(limit, key, cost));
        let decision = self.gate.admit(&charges).decision;
        self.told(key, answer(decision.verdict, decision.status).verdict)
    }

    fn ask(&self, key: &str, cost: u64) -> Answer {
        let [credit, peak] = self.limits.map(|limit| {
            let told = self.gate.limiter(limit).peek(key, cost);
            (told.verdict, answer(told.verdict, told.status))
        });
        let verdict = credit.0.stricter(peak.0);
        if verdict.is_admitted() {
            return told_as_one(credit.1.verdict, credit.1, peak.1);
        }
        // Neither would be charged.
        self.told(
            key,
            answer(verdict, tollgate::QuotaStatus::default()).verdict,
        )
    }

    /// What is left, under this verdict.
    fn told(&self, key: &str, verdict: Verdict) -> Answer {
        let [credit, peak] = self.limits.map(|limit| {
            let told = self.gate.limiter(limit).peek(key, 0);
            answer(told.verdict, told.status)
        });
        told_as_one(verdict, credit, peak)
    }

    fn give_back(&self, key: &str, change: Change) -> Result<(), String> {
        let Change::Refund { cost, issued } = change else {
            return Err(has_no(change));
        };
        for limit in self.limits {
            let limiter = self.gate.limiter(limit);
            limiter.settle(key, &charged_at(issued), cost, 0);
        }
        Ok(())
    }
}

impl Subject for CreditGate {
    fn apply(&mut self, step: &Step) -> Result<Observed, String> {
        self.time.set(at(time(step)?));
        let (key, cost) = (step.key.as_str(), step.cost);
        Ok(match step.op.as_str() {
            "check" => self.charge(key, cost).into(),
            "peek" => self.ask(key, cost).into(),
            "burst" | "burst_quiet" => {
                let count: u64 = Given::of_step(step, &["count"])?.need("count")?;
                let mut whole = Burst::new(self.ask(key, 0));
                for _ in 0..count {
                    whole.add(self.charge(key, burst_cost(step)).into());
                }
                whole.told()
            }
            _ => {
                self.give_back(key, change_of(step)?)?;
                self.ask(key, 0).into()
            }
        })
    }
}

/// The one key of a model.
const KEY: &str = "key";

impl Model for CreditGate {
    fn check(&mut self, t: u64, cost: u64) -> Answer {
        self.time.set(at(t));
        self.charge(KEY, cost)
    }

    /// Not on a clone, which would charge the original.
    fn peek(&self, t: u64, cost: u64) -> Answer {
        self.time.set(at(t));
        self.ask(KEY, cost)
    }

    fn change(&mut self, t: u64, change: Change) -> Result<Answer, String> {
        self.time.set(at(t));
        self.give_back(KEY, change)?;
        Ok(self.ask(KEY, 0))
    }
}
