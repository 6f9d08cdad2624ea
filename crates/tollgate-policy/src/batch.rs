//! Several requests, one decision: the descriptors of one request to a rate limit service.
//!
//! # Theory
//!
//! Envoy asks about one request of a client with several descriptors, each with its own limits. If they were
//! charged one by one, a request that the last descriptor refuses would still pay for all before it. So the
//! charges of all descriptors are planned, each as if it were alone, and taken together or not at all. A
//! [`BatchPart`] records which charges belong to which descriptor, because every descriptor has a status of its
//! own.
//!
//! Two descriptors may charge the same key of the same limit. Their charges become one charge of the summed cost,
//! because two charges on one word would each be decided without the other.
//!
//! # Replaced limits
//!
//! A limit may replace others ([`super::LimitRule::replaces`]). The replaced limits are not charged where it
//! matches, for the same descriptor or another one of the same request.
//!
//! # Bounds
//!
//! As for one request: more enforced charges than can be taken together are refused
//! ([`super::Reason::TooManyLimits`]).

use std::collections::HashSet;

use super::charge::{Charge, Role};
use super::facts::Facts;
use super::gate::{Plan, PolicyGate};
use super::policy_decision::{PolicyDecision, Reason};
use tollgate::Clock;
use tollgate::Moment;
use tollgate::{QuotaStatus, Verdict};

/// The part of one request in the common decision of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchPart {
    /// Its charges, by their index in the decision.
    pub charges: Vec<usize>,
    /// Its decision, if it was made before any limit was charged.
    pub ended: Option<(Verdict, Reason)>,
}

impl<C: Clock> PolicyGate<C> {
    /// Plans the charges of several requests, and records which charge belongs to which, in order.
    pub(super) fn plan_batch(
        &self,
        requests: &[Facts<'_>],
        now: Moment,
    ) -> (Result<Plan, Box<PolicyDecision>>, Vec<BatchPart>) {
        let mut ended_first = None;
        let mut plans = Vec::with_capacity(requests.len());
        let mut parts = vec![BatchPart::default(); requests.len()];
        for (facts, part) in requests.iter().zip(&mut parts) {
            match self.plan(facts, now) {
                Ok(plan) => {
                    part.ended = plan.stop.map(|reason| (Verdict::Never, reason));
                    plans.push(plan);
                }
                Err(answer) => {
                    part.ended = Some((answer.verdict, answer.reason));
                    plans.push(Plan {
                        stop: (!answer.is_admitted()).then_some(answer.reason),
                        ..Plan::default()
                    });
                    ended_first.get_or_insert(answer);
                }
            }
        }
        let replaced = self.replaced(plans.iter().flat_map(|plan| &plan.charges));
        let mut whole = Plan::default();
        for (plan, part) in plans.into_iter().zip(&mut parts) {
            whole.stop = whole.stop.or(plan.stop);
            for charge in plan.charges {
                if replaced.contains(&charge.rule) {
                    continue;
                }
                let at = whole.add(charge);
                if !part.charges.contains(&at) {
                    part.charges.push(at);
                }
            }
        }
        let plan = match ended_first {
            Some(answer) if whole.charges.is_empty() && whole.stop.is_none() => Err(answer),
            _ => Ok(whole),
        };
        (plan, parts)
    }

    /// The verdict and status of one charge's limit by itself: after the charge if it was taken (`take` is what
    /// the decision was started with), otherwise as it is. `None` if the charge does not count.
    pub fn charge_outcome(
        &self,
        answer: &PolicyDecision,
        at: usize,
        take: bool,
    ) -> Option<(Verdict, QuotaStatus)> {
        let charge = answer.charges.get(at)?;
        if charge.role == Role::Unlimited {
            return None;
        }
        if charge.outcome.is_shared() {
            let status = match take {
                true => charge.outcome.status,
                false => self.charge_status(answer, at)?,
            };
            return Some((charge.outcome.verdict, status));
        }
        if answer.reason == Reason::Charge(at) && (take || !answer.is_admitted()) {
            return Some((answer.verdict, answer.status));
        }
        let verdict = match answer.is_admitted() || charge.role != Role::Enforced {
            true => charge.verdict,
            false => self.memory.peek(charge, charge.cost).verdict,
        };
        Some((verdict, self.charge_status(answer, at)?))
    }

    /// The status of the limit of one charge in a decision that took nothing: now, or when the shared store was
    /// asked.
    pub fn charge_status(&self, answer: &PolicyDecision, at: usize) -> Option<QuotaStatus> {
        let charge = answer.charges.get(at)?;
        if !charge.outcome.is_shared() {
            return Some(self.memory.status(charge));
        }
        let mut status = charge.outcome.status;
        if answer.is_admitted() && charge.outcome.verdict.is_admitted() {
            // The store reports what would be left if all of them pass.
            status.remaining = status.remaining.saturating_add(charge.cost);
        }
        Some(status)
    }

    /// Drops the charges of limits that another limit of the same request replaces.
    pub(super) fn replace(&self, plan: &mut Plan) {
        let replaced = self.replaced(plan.charges.iter());
        if replaced.is_empty() {
            return;
        }
        let charges = std::mem::take(&mut plan.charges);
        plan.enforced = 0;
        for charge in charges {
            if !replaced.contains(&charge.rule) {
                plan.add(charge);
            }
        }
    }

    /// The rules that are not charged where these are.
    fn replaced<'c>(&self, charges: impl Iterator<Item = &'c Charge>) -> HashSet<usize> {
        let rules = charges.filter_map(|charge| self.rules.get(charge.rule));
        let names = rules.flat_map(|live| &live.rule.replaces);
        names
            .filter_map(|name| self.by_name.get(name).copied())
            .collect()
    }
}
