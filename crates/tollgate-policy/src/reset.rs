//! Deletes the usage of one key.
//!
//! # Theory
//!
//! Usage of a key is in the tables of this process and, where a fleet shares a store, there. Both are cleared for every quota
//! of a rule: that of the rule, of its tiers, its candidate and its overrides. Units of a lease are charged already and stay spent.
//!
//! # Bounds
//!
//! Another node may decide by a remembered refusal or a synced counter until its next exchange with the store.

use std::sync::Arc;

use super::charge::{Charge, Outcome, Role, Source};
use super::extract::RequestKey;
use super::gate::PolicyGate;
use super::store::stack::FleetStore;
use super::store::{StoreOp, StoreRequest};
use crate::shared::{SharedKey, StoreFault};
use tollgate::{Clock, KeyOp, LimitId, MonotonicClock, Verdict};

/// A key whose usage is forgotten here, and still to be forgotten in the store.
#[derive(Debug)]
pub struct KeyReset<C = MonotonicClock> {
    /// Units that this process had counted, of the quota that had the most.
    pub units: u64,
    rule: usize,
    limits: Vec<LimitId>,
    hash: u64,
    key: SharedKey,
    fleet: Option<FleetStore<C>>,
}

impl<C: Clock> PolicyGate<C> {
    /// Forgets what this process has counted for a key of a rule. `None` if there is no such rule.
    pub fn reset_key(&self, rule: usize, key: &[&str]) -> Option<KeyReset<C>> {
        let live = self.rules.get(rule)?;
        let key = RequestKey::named(&live.rule, key);
        let hash = self.secret.hash(&key);
        let overrides = live.override_for(&key).and_then(|special| special.limit());
        let own = [live.base].into_iter().chain(live.tiers.iter().copied());
        let all = own.chain(live.candidate).chain(overrides);
        let limits: Vec<LimitId> = all
            .flat_map(|limit| [Some(limit), self.peak_of(limit)])
            .flatten()
            .collect();
        let remove = |limit: &LimitId| {
            let limiter = self.memory.limiter(*limit);
            limiter.apply(hash, &KeyOp::RemoveUsage).units
        };
        Some(KeyReset {
            units: limits.iter().map(remove).max().unwrap_or(0),
            rule,
            limits,
            hash,
            key: key.shared(),
            fleet: self.fleet.clone(),
        })
    }
}

impl<C: Clock> KeyReset<C> {
    /// Forgets it in the store that the fleet shares, if there is one.
    ///
    /// # Errors
    /// The store does not respond: what it has counted may still count.
    pub async fn in_store(self) -> Result<(), StoreFault> {
        let Some(fleet) = &self.fleet else {
            return Ok(());
        };
        let now = fleet.now();
        let mut charges = Vec::with_capacity(self.limits.len());
        let key = Arc::new(self.key);
        for limit in self.limits {
            fleet.remote().forget(limit, &key).await?;
            charges.push(Charge {
                rule: self.rule,
                role: Role::Enforced,
                cost: 0,
                tier: None,
                verdict: Verdict::Pass,
                is_peak: false,
                limit,
                most: None,
                hash: self.hash,
                key: Some(Arc::clone(&key)),
                debt: 0,
                kept: 0,
                outcome: Outcome {
                    source: Source::Store,
                    ..Outcome::open(now)
                },
            });
        }
        // A refund of nothing: the layers forget refusals that they remember.
        fleet
            .resolve(StoreRequest::new(StoreOp::Refund, charges, now))
            .await;
        Ok(())
    }
}
