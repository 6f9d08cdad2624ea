//! Limits that requests carry, in domains that accept them.
//!
//! # Theory
//!
//! A caller of Envoy's rate limit service may send a limit with a descriptor: a number per second, minute, hour,
//! day, month or year. Where the policy accepts that ([`OverridePolicy`]), it replaces the limits of the policy
//! that match the descriptor. There is one fixed window for each unit, from 1970 on, and its keys are the domain
//! and all entries of the descriptor. The number is not part of the state: it comes with the call, so a call with
//! another number continues the same count.
//!
//! These windows are limits like any other: charged together with those of other descriptors or not at all,
//! counted in the shared store, kept from one policy to the next, and bounded in memory. While the store is down
//! each node has its share of the number.
//!
//! # Invariant
//!
//! Lists come first: a blocked client stays blocked, whatever limit it brings. A number of 0 lets nothing pass.
//!
//! # Limits
//!
//! A caller in such a domain chooses its own limits. Accept only trusted callers.

use std::fmt::Write;
use std::sync::Arc;

use super::charge::{Charge, Outcome, Role};
use super::extract::RequestKey;
use super::facts::Facts;
use super::gate::{Plan, PolicyGate};
use super::rule::{OnStoreError, Quota};
use crate::shared::SharedKey;
use tollgate::Clock;
use tollgate::LimitError;
use tollgate::LimitId;
use tollgate::Verdict;
use tollgate::{Algorithm, Limit};
use tollgate::{Moment, Span};

/// The rule's name in decisions, metrics and logs.
pub const REQUEST_LIMITS: &str = "request-limits";

/// A window counts no more than this.
const MOST: u32 = u32::MAX - 1;

/// A limit that a request brings along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitOverride {
    /// The number.
    pub most: u32,
    /// The unit of time.
    pub unit: Unit,
}

/// A named length of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// 1 second.
    Second,
    /// 60 seconds.
    Minute,
    /// 60 minutes.
    Hour,
    /// 24 hours.
    Day,
    /// 30 days.
    Month,
    /// 365 days.
    Year,
}

impl Unit {
    /// All units, the shortest first.
    pub const ALL: [Unit; 6] = [
        Unit::Second,
        Unit::Minute,
        Unit::Hour,
        Unit::Day,
        Unit::Month,
        Unit::Year,
    ];

    /// The length of the unit.
    pub const fn span(self) -> Span {
        Span::from_secs(match self {
            Unit::Second => 1,
            Unit::Minute => 60,
            Unit::Hour => 3_600,
            Unit::Day => 86_400,
            Unit::Month => 30 * 86_400,
            Unit::Year => 365 * 86_400,
        })
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Unit::Second => "second",
            Unit::Minute => "minute",
            Unit::Hour => "hour",
            Unit::Day => "day",
            Unit::Month => "month",
            Unit::Year => "year",
        }
    }
}

/// The domains in which limits of requests are accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverridePolicy {
    /// The domains, as callers write them.
    pub domains: Vec<Arc<str>>,
    /// Room for keys, for each unit.
    pub max_keys: usize,
    /// What happens while a shared store does not answer.
    pub on_store_error: OnStoreError,
}

/// A compiled [`OverridePolicy`].
#[derive(Debug)]
pub(super) struct OverrideLimits {
    /// The index of its rule.
    pub(super) rule: usize,
    /// For each of [`Unit::ALL`].
    pub(super) units: Vec<LimitId>,
}

/// The window of a unit, with room for this many keys.
pub(super) fn window(unit: Unit, max_keys: usize) -> Result<Quota, LimitError> {
    let limit = Limit::new(Algorithm::FixedWindow {
        limit: u64::from(MOST),
        window: unit.span(),
        anchor: Span::ZERO,
    })?;
    Ok(Quota::plain(limit.with_max_keys(max_keys)))
}

/// The entries of a descriptor as one text that can be split again.
fn entries_text(entries: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for part in entries.iter().flat_map(|(key, value)| [key, value]) {
        // Writing to a string cannot fail.
        let _ = write!(text, "{}:{part}", part.len());
    }
    text
}

/// The entries that [`entries_text`] wrote, each as `key=value`.
fn entries_of(mut text: &str) -> Vec<String> {
    let mut next = || {
        let (length, rest) = text.split_once(':')?;
        let (part, rest) = rest.split_at_checked(length.parse().ok()?)?;
        text = rest;
        Some(part)
    };
    let mut entries = Vec::new();
    while let (Some(key), Some(value)) = (next(), next()) {
        entries.push(format!("{key}={value}"));
    }
    entries
}

impl<C: Clock> PolicyGate<C> {
    /// Whether limits are accepted that requests in this domain bring along.
    pub fn follows(&self, domain: &str) -> bool {
        let follow = self.policy.follow.as_ref();
        follow.is_some_and(|follow| follow.domains.iter().any(|known| **known == *domain))
    }

    /// The plan of a request that brings its limit along; `None` if it does not, or if the limit is not accepted.
    pub(super) fn plan_override(&self, facts: &Facts<'_>, now: Moment) -> Option<Plan> {
        let brought = facts.limit_override?;
        let following = self.following.as_ref()?;
        if !self.follows(facts.domain) {
            return None;
        }
        let limit = *following.units.get(brought.unit as usize)?;
        let entries = entries_text(facts.descriptor);
        // The first text decides the cluster slot: a domain's keys must spread over all slots.
        let key = RequestKey::from_texts([&entries, facts.domain]);
        let charge = Charge {
            rule: following.rule,
            role: Role::Enforced,
            cost: facts.cost.unwrap_or(1),
            tier: None,
            verdict: Verdict::Pass,
            is_peak: false,
            limit,
            most: Some(brought.most.min(MOST)),
            hash: self.secret.hash(&key),
            key: self.fleet.as_ref().map(|_| Arc::new(key.shared())),
            debt: 0,
            kept: 0,
            outcome: Outcome::open(now),
        };
        let mut plan = Plan::default();
        plan.add(charge);
        Some(plan)
    }

    /// The key of such a request as text, if this rule is theirs.
    pub(super) fn override_texts(&self, rule: usize, facts: &Facts<'_>) -> Option<Vec<String>> {
        let is_its = |following: &&OverrideLimits| following.rule == rule;
        self.following.as_ref().filter(is_its)?;
        let entries = facts.descriptor.iter();
        let entries = entries.map(|(key, value)| format!("{key}={value}"));
        Some(
            std::iter::once(facts.domain.to_owned())
                .chain(entries)
                .collect(),
        )
    }

    /// The same for the key in the form of a shared store.
    pub(super) fn override_shared_texts(
        &self,
        rule: usize,
        key: &SharedKey,
    ) -> Option<Vec<String>> {
        let is_its = |following: &&OverrideLimits| following.rule == rule;
        self.following.as_ref().filter(is_its)?;
        let mut parts = key.parts().map(String::from_utf8_lossy);
        let (entries, domain) = (parts.next()?, parts.next()?);
        let mut texts = vec![domain.into_owned()];
        texts.extend(entries_of(&entries));
        Some(texts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_descriptors_have_one_text_only_if_they_are_the_same() {
        let all: [&[(&str, &str)]; 6] = [
            &[],
            &[("a", "b")],
            &[("ab", "")],
            &[("a", "b"), ("c", "d")],
            &[("a", "b1:c1:d")],
            &[("a", "b"), ("c1:d", "")],
        ];
        let mut texts: Vec<String> = all.iter().map(|entries| entries_text(entries)).collect();
        texts.sort();
        texts.dedup();
        assert_eq!(texts.len(), all.len(), "{texts:?}");
    }

    #[test]
    fn units_are_as_long_as_the_reference_has_them() {
        let days = |unit: Unit| unit.span().as_nanos() / (86_400 * 1_000_000_000);
        assert_eq!((days(Unit::Month), days(Unit::Year)), (30, 365));
        for (place, unit) in Unit::ALL.into_iter().enumerate() {
            assert_eq!(unit as usize, place);
            assert!(window(unit, 10).is_ok());
        }
    }
}
