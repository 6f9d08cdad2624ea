//! Costs that are told after the fact: what a request takes although it does not pass.
//!
//! # Theory
//!
//! A request that is refused costs nothing, because it does nothing. That is wrong where the cost is told when the
//! work is done: then nobody can be refused any more, and whoever always tells more than is left would never
//! pay. A limit that is for such costs says so ([`WhenOver::ChargeRemaining`]): what a request could not take is taken
//! from it as far as it is there, be it this limit that refuses or another one. The answer stays what it was.
//!
//! # Invariant
//!
//! Nothing is taken beyond what the limit holds, so nobody owes anything. A window is then used up until it
//! ends. A bucket goes on earning at once: after a report of many times its burst it has one unit again as
//! soon as one unit is earned. Whoever needs more than that takes a window.
//!
//! # In a fleet
//!
//! The store is told in a second question, which is only asked if the first one refused. If it gives no answer to that, the
//! share takes it, and it is a debt.
//!
//! # What it does not know
//!
//! Places in concurrency limits and in leaky buckets: these are somebody's own for a time, and nobody takes
//! them afterwards.

use super::charge::{Role, Source};
use super::gate::{LimitInstance, PolicyGate};
use super::policy_decision::PolicyDecision;
use super::rule::WhenOver;
use tollgate::Algorithm;
use tollgate::Clock;

impl LimitInstance {
    /// Is what a refused request could not take to be taken as far as it is there?
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
