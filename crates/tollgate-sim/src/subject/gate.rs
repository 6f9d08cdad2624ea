//! Several limits behind one gate of the public interface.

use super::convert::{answer_of, at, rate};
use super::group::{CREDIT, OpenGroup, PEAK};
use super::limiter::{MAX_KEYS, charged_at};
use crate::model::{GroupDecision, GroupModel, ModelCharge};
use crate::oracle::{LimitSpec, OracleDecision};
use tollgate::{Gate, Limit, LimitId, ManualClock};
use tollgate_policy::BurstCredits;

/// A gate and the clock that its steps move.
#[derive(Debug)]
pub struct GateGroup {
    gate: Gate<ManualClock>,
    limits: Vec<(String, LimitId)>,
    time: ManualClock,
}

impl GateGroup {
    /// A gate of full token buckets; the order given is the order of configuration.
    ///
    /// # Errors
    ///
    /// If the numbers of one make no limit.
    pub fn new(specs: &[LimitSpec]) -> Result<Self, String> {
        Self::from_limits(specs.iter().map(|spec| {
            let rate = rate(spec.n, spec.p_ns)?;
            let limit = Limit::token_bucket(rate, spec.cap);
            let named = limit.map(|limit| limit.with_name(&spec.name));
            let named = named.map_err(|error| error.to_string())?;
            Ok((spec.name.as_str(), named))
        }))
    }

    /// A gate of the two limits of burst credits.
    ///
    /// # Errors
    ///
    /// If the numbers make no limit.
    pub fn from_credits(credits: &BurstCredits) -> Result<Self, String> {
        let quota = credits.quota().map_err(|error| error.to_string())?;
        let peak = quota.peak.ok_or("there is no peak")?;
        Self::from_limits([Ok((CREDIT, quota.limit)), Ok((PEAK, peak))])
    }

    fn from_limits<'a>(
        limits: impl IntoIterator<Item = Result<(&'a str, Limit), String>>,
    ) -> Result<Self, String> {
        let time = ManualClock::new();
        let mut gate = Gate::with_clock(time.clone());
        let mut named = Vec::new();
        for limit in limits {
            let (name, limit) = limit?;
            let id = gate.add(limit.with_max_keys(MAX_KEYS));
            named.push((name.to_owned(), id.map_err(|error| error.to_string())?));
        }
        Ok(Self {
            gate,
            limits: named,
            time,
        })
    }

    fn limit(&self, name: &str) -> Result<LimitId, String> {
        let named = self.limits.iter().find(|(limit, _)| limit == name);
        let named = named.map(|&(_, id)| id);
        named.ok_or_else(|| format!("no limit is called `{name}`"))
    }
}

impl GroupModel for GateGroup {
    fn charge(
        &mut self,
        t: u64,
        charges: &[ModelCharge<'_>],
        take: bool,
    ) -> Result<GroupDecision, String> {
        if !take {
            return Err("a gate does not peek".to_owned());
        }
        let mut placed = Vec::with_capacity(charges.len());
        for charge in charges {
            let limit = self.limit(charge.limit)?;
            let charge = self.gate.charge(limit, charge.key, charge.cost);
            placed.push((limit, charge));
        }
        placed.sort_unstable_by_key(|&(limit, _)| limit);
        let charges: Vec<_> = placed.into_iter().map(|(_, charge)| charge).collect();
        self.time.set(at(t));
        let admission = self.gate.admit(&charges);
        let binding = admission.binding.ok_or("no limit decided")?;
        let named = self.limits.iter().find(|&&(_, limit)| limit == binding);
        Ok(GroupDecision {
            answer: answer_of(&admission.decision),
            reported: named.map(|(name, _)| name.clone()).unwrap_or_default(),
        })
    }
}

impl OpenGroup for GateGroup {
    fn peek(&self, t: u64, charge: ModelCharge<'_>) -> Result<OracleDecision, String> {
        let limiter = self.gate.limiter(self.limit(charge.limit)?);
        self.time.set(at(t));
        Ok(answer_of(&limiter.peek(charge.key, charge.cost)))
    }

    fn refund(&mut self, t: u64, charge: ModelCharge<'_>, issued: u64) -> Result<(), String> {
        let limiter = self.gate.limiter(self.limit(charge.limit)?);
        self.time.set(at(t));
        let _ = limiter.settle(charge.key, &charged_at(issued), charge.cost, 0);
        Ok(())
    }
}
