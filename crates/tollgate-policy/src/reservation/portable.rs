//! Reservations that any node of a fleet can settle.
//!
//! # Theory
//!
//! What a shared store has taken is named by the limit, the key, the units and the moment of the store. Another node, or this one
//! under a later policy, restores a reservation from these and settles it at the store. Units that a lease or a synced counter
//! paid are refunded to the store, too: the node that paid counts them as spent.
//!
//! # Invariant
//!
//! A refund never gives more than the store has taken for that key. That a reservation is settled once is for the caller to
//! ensure ([`crate::shared::SharedStore::record_use`]).

use std::sync::Arc;

use super::{HeldCharge, Reservation};
use crate::charge::{Charge, Outcome, Role, Source};
use crate::extract::RequestKey;
use crate::gate::PolicyGate;
use crate::shared::SharedKey;
use tollgate::{Clock, Moment};

/// Units of one limit that a shared store has taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakenUnits {
    /// Name of the rule.
    pub rule: Arc<str>,
    /// Identity of the limit, as in [`crate::shared::SharedLimit::id`].
    pub limit: Arc<str>,
    /// The key.
    pub key: SharedKey,
    /// How many.
    pub units: u64,
    /// When, by the store's clock.
    pub issued: Moment,
}

impl<C: Clock> PolicyGate<C> {
    /// What the shared store has taken for a reservation of this policy. Empty if it took nothing.
    pub fn taken_units(&self, reservation: &Reservation<C>) -> Vec<TakenUnits> {
        let held = reservation.held.iter().map(|held| &held.charge);
        let shared = held.filter(|charge| charge.outcome.is_shared() && charge.most.is_none());
        let taken = shared.filter_map(|charge| {
            Some(TakenUnits {
                rule: Arc::clone(&self.rule(charge.rule)?.name),
                limit: Arc::clone(&self.variants.get(charge.limit.index())?.id),
                key: charge.key.as_deref()?.clone(),
                units: charge.cost,
                issued: charge.outcome.issued,
            })
        });
        taken.collect()
    }

    /// Restores a reservation. Limits that this policy does not have are left out.
    pub fn restore_reservation(&self, taken: Vec<TakenUnits>) -> Reservation<C> {
        let held = taken.into_iter().filter_map(|taken| self.restore(taken));
        self.reservation(held.collect())
    }

    fn restore(&self, taken: TakenUnits) -> Option<HeldCharge> {
        let rule = self.rule_named(&taken.rule)?;
        let limit = *self.ids.get(&*taken.limit)?;
        let hash = {
            let key = RequestKey::from_shared(self.rule(rule)?, &taken.key);
            self.secret.hash(&key)
        };
        Some(self.held(Charge {
            rule,
            role: Role::Enforced,
            cost: taken.units,
            tier: None,
            verdict: tollgate::Verdict::Pass,
            is_peak: false,
            limit,
            most: None,
            hash,
            key: Some(Arc::new(taken.key)),
            debt: 0,
            kept: 0,
            outcome: Outcome {
                source: Source::Store,
                ..Outcome::open(taken.issued)
            },
        }))
    }
}
