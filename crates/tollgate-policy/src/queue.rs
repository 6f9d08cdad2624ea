//! Where requests that may pass wait for their turn, if not all may go at once.
//!
//! # Theory
//!
//! A limit refuses, a queue orders. A request that no limit refused is looked at once more: the first
//! [`QueueRule`] that matches it says in which queue it waits, as whose ([`QueuePlace::flow`]), with which
//! weight and at which cost. Everything that waits in one queue shares its capacity: so many at once,
//! so many a second, or both.
//!
//! # What it does not know
//!
//! How anybody waits. A [`QueuePlace`] is only a name for where to stand; queues that really hold requests
//! belong to whoever has a runtime.

use std::sync::Arc;

use super::build::compile;
use super::extract::{Request, RequestKey};
use super::facts::Facts;
use super::gate::PolicyGate;
use super::path::PathRules;
use super::rule::{CostRule, KeyPart, Match, MissingKey, Source};
use tollgate::Clock;
use tollgate::Rate;
use tollgate::Span;
use tollgate::shape::Adaptive;

/// A queue and which requests wait in it.
#[derive(Clone, Debug)]
pub struct QueueRule {
    /// Its name: unique among queues, letters, digits, `-`, `_` and `.`.
    pub name: Arc<str>,
    /// Which requests it is for. The first queue that matches is the one.
    pub matches: Match,
    /// Which of these it is not for.
    pub except: Vec<Match>,
    /// Who is served as one. Nothing: all are, in the order in which they came.
    pub flow: Vec<KeyPart>,
    /// Whom a request belongs to that lacks a part of that. `Deny` is read as `Shared`: to refuse is the
    /// business of limits.
    pub missing_key: MissingKey,
    /// Shares by class of client. None: everybody has the same.
    pub weights: Option<TierWeights>,
    /// What a request takes of the queue's capacity, compared with others.
    pub cost: CostRule,
    /// How many may be under way at once. None: as many as the rate lets go.
    pub at_once: Option<QueueConcurrency>,
    /// How many of one flow may be under way at once, with `at_once` or without. None: as many
    /// as there are turns.
    pub at_once_per_flow: Option<u32>,
    /// How fast they may go, and how many of them together. None: as fast as places become free.
    pub rate: Option<(Rate, u64)>,
    /// How many of one flow may wait.
    pub per_flow: usize,
    /// How many may wait in all.
    pub total: usize,
    /// How long anybody waits at the most.
    pub max_wait: Span,
}

/// Shares by class of client.
#[derive(Clone, Debug)]
pub struct TierWeights {
    /// Where the name of the class is found.
    pub source: Source,
    /// The classes and their shares, each at least 1. A request that names none of them has 1.
    pub tiers: Vec<(Arc<str>, u32)>,
}

/// How many may be under way at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueConcurrency {
    /// Always so many.
    Fixed(u32),
    /// As many as the backend is found to bear.
    Adaptive(Adaptive),
}

impl QueueRule {
    /// A queue for every request with one flow and `at_once` under way; change what is different.
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

    /// The same, with its patterns comparing paths by these rules.
    pub(super) fn under(&self, paths: PathRules) -> QueueRule {
        let mut rule = self.clone();
        compile(&mut rule.matches, &mut rule.except, &mut rule.cost, paths);
        rule
    }
}

/// Where a request waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePlace {
    /// The queue, by its place in [`super::Policy::queues`].
    pub queue: usize,
    /// Who it is waiting as; the same for the same flow in every policy that follows.
    pub flow: u64,
    /// Its class, by its place in [`TierWeights::tiers`].
    pub tier: Option<usize>,
    /// Its share.
    pub weight: u32,
    /// What it takes, at least 1.
    pub cost: u64,
}

impl<C: Clock> PolicyGate<C> {
    /// Where a request waits that no limit refused. None: it does not.
    pub fn place(&self, facts: &Facts<'_>) -> Option<QueuePlace> {
        if self.queues.is_empty() || self.is_switched_off() {
            return None;
        }
        let path = self.policy.paths.normalise(facts.path).ok()?;
        let request = Request { facts, path: &path };
        self.stand(&request).map(|(place, _)| place)
    }

    /// Where a request waits, and the key of its flow.
    pub(super) fn stand<'a>(&self, request: &Request<'a>) -> Option<(QueuePlace, RequestKey<'a>)> {
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
            let is_named = |tier: &(Arc<str>, u32)| tier.0.as_bytes() == name.trim_ascii();
            weights.tiers.iter().position(is_named)
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
