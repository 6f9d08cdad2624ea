//! Queues: which admitted requests wait, in which order, when not all can run at once.
//!
//! # Theory
//!
//! A limit refuses, a queue orders. A request that no limit refused is matched once more: the first matching
//! [`QueueRule`] determines its queue, its flow ([`QueuePlace::flow`]), its weight and its cost. All requests of
//! one queue share its capacity: a number at once, a rate, or both.
//!
//! # Limits
//!
//! A [`QueuePlace`] only names a position. Queues that hold requests need a runtime and are outside this crate.

use std::sync::Arc;

use super::build::compile;
use super::extract::{Request, RequestKey};
use super::facts::Facts;
use super::gate::PolicyGate;
use super::path::PathRules;
use super::rule::{CostRule, KeyPart, Match, MissingKey, Source, TierMembers};
use tollgate::Clock;
use tollgate::Rate;
use tollgate::Span;
use tollgate::shape::Adaptive;

/// A queue and the requests that it is for.
#[derive(Clone, Debug)]
pub struct QueueRule {
    /// Its name: unique among queues, letters, digits, `-`, `_` and `.`.
    pub name: Arc<str>,
    /// Requests that it is for. The first queue that matches is used.
    pub matches: Match,
    /// Exceptions.
    pub except: Vec<Match>,
    /// The key of a flow. Empty: all requests are one flow, in order of arrival.
    pub flow: Vec<KeyPart>,
    /// The flow of a request that lacks a part of the key. `Deny` is read as `Shared`, because only limits refuse.
    pub missing_key: MissingKey,
    /// Weights by class of client. `None`: all have the same.
    pub weights: Option<TierWeights>,
    /// The cost of a request, relative to others.
    pub cost: CostRule,
    /// How many requests may run at once. `None`: as many as the rate releases.
    pub at_once: Option<QueueConcurrency>,
    /// How many requests of one flow may run at once, with `at_once` or without. `None`: no bound.
    pub at_once_per_flow: Option<u32>,
    /// The rate of starts, and their burst. `None`: whenever a place is free.
    pub rate: Option<(Rate, u64)>,
    /// How many requests of one flow may wait.
    pub per_flow: usize,
    /// How many requests may wait in all.
    pub total: usize,
    /// The longest wait.
    pub max_wait: Span,
}

/// Weights by class of client.
#[derive(Clone, Debug)]
pub struct TierWeights {
    /// The source of the class name, or of a member.
    pub source: Source,
    /// The members of the classes. `None`: the source is the class name.
    pub members: Option<Arc<TierMembers>>,
    /// The classes and their weights, each at least 1. A request of no class has 1.
    pub tiers: Vec<(Arc<str>, u32)>,
}

/// How many requests may run at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueConcurrency {
    /// A constant number.
    Fixed(u32),
    /// An adaptive number, learned from the backend.
    Adaptive(Adaptive),
}

impl QueueRule {
    /// A queue for every request with one flow and concurrency `at_once`. Change fields as needed.
    pub fn new(name: &str, at_once: QueueConcurrency) -> QueueRule {
        QueueRule {
            name: Arc::from(name),
            matches: Match::default(),
            except: Vec::new(),
            flow: Vec::new(),
            missing_key: MissingKey::default(),
            weights: None,
            cost: CostRule::default(),
            at_once: Some(at_once),
            at_once_per_flow: None,
            rate: None,
            per_flow: 100,
            total: 1000,
            max_wait: Span::from_secs(10),
        }
    }

    /// The same with its patterns compiled to these path rules.
    pub(super) fn with_rules(&self, paths: PathRules) -> QueueRule {
        let mut rule = self.clone();
        compile(&mut rule.matches, &mut rule.except, &mut rule.cost, paths);
        rule
    }
}

/// The position of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePlace {
    /// The queue, by its index in [`super::Policy::queues`].
    pub queue: usize,
    /// The flow's id; the same for the same flow under every later policy.
    pub flow: u64,
    /// Its class, by its index in [`TierWeights::tiers`].
    pub tier: Option<usize>,
    /// Its weight.
    pub weight: u32,
    /// Its cost, at least 1.
    pub cost: u64,
}

impl<C: Clock> PolicyGate<C> {
    /// The queue place of a request that no limit refused. `None`: it does not wait.
    pub fn place(&self, facts: &Facts<'_>) -> Option<QueuePlace> {
        if self.queues.is_empty() || self.is_switched_off() {
            return None;
        }
        let path = self.policy.paths.normalise(facts.path).ok()?;
        let request = Request { facts, path: &path };
        self.queue_place(&request).map(|(place, _)| place)
    }

    /// The queue place of a request, and the key of its flow.
    pub(super) fn queue_place<'a>(
        &self,
        request: &Request<'a>,
    ) -> Option<(QueuePlace, RequestKey<'a>)> {
        if self.is_switched_off() {
            return None;
        }
        let Request { facts, path } = *request;
        let is_for = |rule: &&QueueRule| {
            rule.matches.holds(facts, path) && !rule.except.iter().any(|m| m.holds(facts, path))
        };
        let mut found = None;
        self.queue_router.candidates(facts, path, &mut |at| {
            if found.is_none() {
                let rule = self.queues.get(at).filter(is_for);
                found = rule.map(|rule| (at, rule));
            }
        });
        let (at, rule) = found?;
        let missing = match rule.missing_key {
            MissingKey::Deny => MissingKey::Shared,
            other => other,
        };
        let key = request.key_by(&rule.flow, missing, &rule.matches)?;
        let tier = rule.weights.as_ref().and_then(|weights| {
            let name = request.text(&weights.source, &rule.matches)?;
            let name = name.trim_ascii();
            match &weights.members {
                Some(members) => members.tier_of(name),
                None => weights
                    .tiers
                    .iter()
                    .position(|(tier, _)| tier.as_bytes() == name),
            }
        });
        let weight = rule.weights.as_ref().zip(tier);
        let weight = weight.and_then(|(weights, tier)| weights.tiers.get(tier));
        let place = QueuePlace {
            queue: at,
            flow: self.secret.hash(&key),
            tier,
            weight: weight.map_or(1, |(_, weight)| (*weight).max(1)),
            cost: request.cost_by(&rule.cost, &rule.matches).max(1),
        };
        Some((place, key))
    }
}

#[cfg(test)]
mod tests;
