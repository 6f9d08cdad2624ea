//! Applies the pressure scale to all limits of a policy.
//!
//! # Theory
//!
//! One number scales all limits. The policy maps it to each limit: those of a tier down to that tier's floor, all
//! others (a rule's own quota, overrides, candidates) down to the common floor ([`PressureRule::scale_of`]).
//! Limits that are only counted shrink too: a shadow limit must see what it would see if it were enforced.
//! [`tollgate::algorithm::scale`] defines the effect on a key.
//!
//! # Invariant
//!
//! A new policy starts under the pressure of the policy that it replaces.
//!
//! # Limits
//!
//! The scale applies to this process. Decisions of a shared store are not scaled: only this node's shares are,
//! which decide when that store does not answer.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::charge::{Charge, Role};
use super::gate::PolicyGate;
use super::policy_decision::PolicyDecision;
use super::pressure::PressureRule;
use tollgate::Clock;
use tollgate::Scale;

impl<C: Clock> PolicyGate<C> {
    /// Scales all limits, from the next request on, each down to its floor. Takes time in the number of limits,
    /// not of keys.
    pub fn set_pressure(&self, scale: Scale) {
        self.pressure.store(scale.as_q16(), Relaxed);
        let rule = self.pressure_rule();
        let plain = rule.scale_of(None, scale);
        let mut scales = vec![plain; self.variants.len()];
        for live in &self.rules {
            let tiers = live.rule.tiers.iter().flat_map(|tiers| &tiers.tiers);
            for (tier, limit) in tiers.zip(&live.tiers) {
                for limit in std::iter::once(*limit).chain(self.peak_of(*limit)) {
                    if let Some(of_tier) = scales.get_mut(limit.index()) {
                        *of_tier = rule.scale_of(Some(&tier.name), scale);
                    }
                }
            }
        }
        for ((_, limiter), scale) in self.limiters().zip(scales) {
            if limiter.scale() != scale {
                limiter.set_scale(scale);
            }
        }
    }

    /// The scale of all limits, without floors.
    pub fn pressure(&self) -> Scale {
        Scale::from_q16(self.pressure.load(Relaxed))
    }

    /// The policy's load-shedding settings, or the default.
    pub fn pressure_rule(&self) -> Cow<'_, PressureRule> {
        match &self.policy.pressure {
            Some(rule) => Cow::Borrowed(rule),
            None => Cow::Owned(PressureRule::default()),
        }
    }

    /// The scale of each tier that a limit or a floor names, in order of their names.
    pub fn pressure_by_tier(&self) -> Vec<(Arc<str>, Scale)> {
        let rule = self.pressure_rule();
        let of_limits = self.rules().flat_map(|rule| &rule.tiers);
        let of_limits = of_limits.flat_map(|tiers| tiers.tiers.iter().map(|tier| &tier.name));
        let named = of_limits.chain(rule.floors.iter().map(|(name, _)| name));
        let mut names: Vec<Arc<str>> = named.cloned().collect();
        names.sort();
        names.dedup();
        let scale = self.pressure();
        let scales = names.into_iter().map(|name| {
            let left = rule.scale_of(Some(&name), scale);
            (name, left)
        });
        scales.collect()
    }

    /// The scale of the limit that decided this charge.
    pub(super) fn scale_of(&self, charge: &Charge) -> Scale {
        if charge.outcome.is_shared() {
            Scale::ONE
        } else {
            self.memory.limiter(charge.limit).scale()
        }
    }

    /// Whether the decision is by a scaled limit.
    pub(super) fn is_pressed(&self, answer: &PolicyDecision) -> bool {
        let binding = answer.binding().filter(|c| c.role == Role::Enforced);
        binding.is_some_and(|charge| self.scale_of(charge) != Scale::ONE)
    }
}
