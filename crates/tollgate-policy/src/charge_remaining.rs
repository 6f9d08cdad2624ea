//! Charges the remainder of a limit to a refused request whose cost is reported after the work.
//!
//! # Theory
//!
//! A refused request costs nothing, because it does nothing. This is wrong where the cost is reported after the
//! work: refusing has no effect then, and a client that always reports more than is left would never pay. A limit
//! for such costs sets [`WhenOver::ChargeRemaining`]. It then takes what a request could not take, as far as units
//! remain, whether this limit refused or another one. The decision stays the same.
//!
//! # Invariant
//!
//! Nothing is taken beyond what the limit holds, so no debt arises. A window is then used up until it ends. A
//! bucket continues to earn at once: after a report of many times its burst it has one unit again as soon as one
//! unit is earned. Use a window where that is not enough.
//!
//! # In a fleet
//!
//! The store gets a second operation, sent only if the first one refused. If it does not answer, the share takes
//! the units and records a debt.
//!
//! # Limits
//!
//! Permits of concurrency limits and slots of leaky buckets belong to one request for a time, so they are never
//! taken afterwards.

use super::charge::{Role, Source};
use super::gate::{LimitInstance, PolicyGate};
use super::policy_decision::PolicyDecision;
use super::rule::WhenOver;
use tollgate::Algorithm;
use tollgate::Clock;

impl LimitInstance {
    /// Whether the remaining units are taken for a refused request.
    pub(super) fn takes_remaining(&self) -> bool {
        let is_held = matches!(
            self.quota.limit.algorithm(),
            Algorithm::Concurrency { .. } | Algorithm::LeakyBucket { .. }
        );
        self.when_over == WhenOver::ChargeRemaining && !is_held
    }
}

impl<C: Clock> PolicyGate<C> {
    /// Takes what is left for charges that were not taken, in this process.
    pub(super) fn charge_remaining_in_memory(&self, answer: &PolicyDecision) {
        let passes = answer.is_admitted();
        for charge in &answer.charges {
            let is_taken = passes && charge.verdict.is_admitted();
            let variant = self.variants.get(charge.limit.index());
            if !is_taken
                && charge.role != Role::Unlimited
                && variant.is_some_and(LimitInstance::takes_remaining)
            {
                let mut charge = charge.reopened(charge.outcome.issued);
                self.memory.charge_remaining(&mut charge, Source::Memory);
            }
        }
    }
}
