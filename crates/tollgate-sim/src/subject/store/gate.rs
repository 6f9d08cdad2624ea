//! Several limits behind one gate as subject.

use super::super::core::told::{answer, at, rate};
use super::super::together::keys_of;
use super::super::{time, unsupported};
use crate::oracle::LimitSpec;
use crate::replay::{Observed, Subject};
use crate::timeline::Step;
use tollgate::{Gate, Limit, LimitId, ManualClock};

/// Room for the keys of any timeline, and quick to lay out.
const MAX_KEYS: usize = 256;

/// A gate of token buckets and the clock that its steps move.
#[derive(Debug)]
pub struct GateSubject {
    gate: Gate<ManualClock>,
    limits: Vec<(String, LimitId)>,
    time: ManualClock,
}

impl GateSubject {
    /// A gate that nobody has passed; the order given is the order of configuration.
    ///
    /// # Errors
    ///
    /// If the numbers of one make no limit.
    pub fn new(specs: &[LimitSpec], time: ManualClock) -> Result<Self, String> {
        let mut gate = Gate::with_clock(time.clone());
        let mut limits = Vec::new();
        for spec in specs {
            let limit = Limit::token_bucket(rate(spec.n, spec.p_ns)?, spec.cap)
                .and_then(|limit| gate.add(limit.named(&spec.name).with_max_keys(MAX_KEYS)))
                .map_err(|error| error.to_string())?;
            limits.push((spec.name.clone(), limit));
        }
        Ok(Self { gate, limits, time })
    }

    /// The gate itself.
    pub fn gate(&self) -> &Gate<ManualClock> {
        &self.gate
    }

    /// The limit called `name`.
    pub fn limit(&self, name: &str) -> Option<LimitId> {
        let named = self.limits.iter().find(|(called, _)| called == name);
        named.map(|&(_, limit)| limit)
    }

    /// The clock.
    pub fn time(&self) -> &ManualClock {
        &self.time
    }

    /// Charges a key and a cost of each limit named, at `t`, or none: what was decided and by whom.
    ///
    /// # Errors
    ///
    /// If there is no such limit, or none is named.
    pub fn admit(
        &self,
        t: u64,
        charges: &[(&str, &str, u64)],
    ) -> Result<(crate::oracle::Answer, String), String> {
        let mut placed = Vec::with_capacity(charges.len());
        for &(name, key, cost) in charges {
            let limit = self.limit(name);
            let limit = limit.ok_or_else(|| format!("no limit is called `{name}`"))?;
            placed.push((limit, self.gate.charge(limit, key, cost)));
        }
        placed.sort_unstable_by_key(|&(limit, _)| limit);
        let charges: Vec<_> = placed.into_iter().map(|(_, charge)| charge).collect();
        self.time.set(at(t));
        let admission = self.gate.admit(&charges);
        let binding = admission.binding.ok_or("no limit decided")?;
        let decision = admission.decision;
        let named = self.limits.iter().find(|&&(_, limit)| limit == binding);
        Ok((
            answer(decision.verdict, decision.status),
            named.map(|(name, _)| name.clone()).unwrap_or_default(),
        ))
    }
}

impl Subject for GateSubject {
    fn apply(&mut self, step: &Step) -> Result<Observed, String> {
        let t = time(step)?;
        if step.op != "check" {
            return Err(unsupported(step));
        }
        let charges: Vec<_> = keys_of(step)?
            .into_iter()
            .map(|(limit, key)| (limit, key, step.cost))
            .collect();
        let (answer, reported) = self.admit(t, &charges)?;
        Ok(Observed {
            why: Some(reported),
            ..Observed::from(answer)
        })
    }
}
