//! Explains a decision: every rule, whether it matches and if not why not, the key, the cost, and the decision of
//! that limit by itself. Takes nothing.

use super::charge::{Charge, Role};
use super::extract::{Request, RequestKey};
use super::facts::Facts;
use super::gate::{CompiledRule, KeyOverrideAction, PolicyGate};
use super::outcome::tightest;
use super::policy_decision::PolicyDecision;
use super::queue::QueuePlace;
use super::rule::{KeyPart, Match, MissingKey, Mode};
use crate::shared::KeyKind;
use tollgate::Clock;
use tollgate::Decision;
use tollgate::KeyOp;
use tollgate::LimitId;
use tollgate::Moment;

/// The explanation of a request.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The normalised path; `None` if the path is invalid (the decision has the reason).
    pub path: Option<String>,
    /// The decision on the request.
    pub answer: PolicyDecision,
    /// Every rule, in the order of the policy.
    pub rules: Vec<RuleExplanation>,
    /// Its queue, if it may pass and a queue matches.
    pub queue: Option<QueueExplanation>,
}

/// The queue of a request, and the flow that it waits in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueExplanation {
    /// Its place in the queue.
    pub place: QueuePlace,
    /// The key of its flow.
    pub flow: ExplainedKey,
}

/// The part of one rule in a decision.
#[derive(Clone, Debug)]
pub struct RuleExplanation {
    /// The rule, by its index.
    pub rule: usize,
    /// Why the rule does not match; `None` if it does.
    pub why_not: Option<WhyNot>,
    /// The key that it counts for, if it matches.
    pub key: Option<ExplainedKey>,
    /// The client's tier, by its index in the rule.
    pub tier: Option<usize>,
    /// The tier that the request names, if the rule does not have it.
    pub unknown_tier: Option<String>,
    /// Whether an override applies to this key.
    pub is_overridden: bool,
    /// The cost.
    pub cost: u64,
    /// The decision of this limit by itself, if it is charged.
    pub decision: Option<Decision>,
    /// The limit; see [`PolicyGate::quota`].
    pub limit: Option<LimitId>,
    /// The role of the charge.
    pub role: Option<Role>,
}

/// The key of a request for one rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainedKey {
    /// Its parts as text.
    pub parts: Vec<String>,
    /// Its kind.
    pub kind: ExplainedKeyKind,
}

impl ExplainedKey {
    fn new(key: &RequestKey<'_>, parts: &[KeyPart], missing: MissingKey) -> ExplainedKey {
        ExplainedKey {
            parts: key.texts_by(parts, missing),
            kind: match key.kind() {
                KeyKind::Own => ExplainedKeyKind::Own,
                KeyKind::Address => ExplainedKeyKind::Address,
                KeyKind::Shared => ExplainedKeyKind::Shared,
            },
        }
    }
}

/// The kind of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExplainedKeyKind {
    /// The parts that the rule names.
    Own,
    /// A part is missing, so the key is the client's address.
    Address,
    /// A part is missing, and all such requests share one key.
    Shared,
}

/// Why a rule does not match: the first condition that fails.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhyNot {
    /// The rule is off.
    Off,
    /// The rule has expired.
    Expired,
    /// The method.
    Method,
    /// The path.
    Path,
    /// The host.
    Host,
    /// This header.
    Header(String),
    /// This query parameter.
    Query(String),
    /// The client's address.
    Address,
    /// The domain.
    Domain,
    /// This entry of the descriptor.
    Descriptor(String),
    /// The descriptor has other entries, or in another order.
    Entries,
    /// An exception holds.
    Except,
    /// The rule is only for requests that no other limit matches.
    NotTheDefault,
}

impl<C: Clock> PolicyGate<C> {
    /// Reports how a request would be decided, and takes nothing.
    pub fn explain(&self, facts: &Facts<'_>) -> Explanation {
        self.explain_answer(facts, self.peek(facts))
    }

    /// The same for a decision made with [`Op::Peek`](crate::Op).
    pub fn explain_answer(&self, facts: &Facts<'_>, answer: PolicyDecision) -> Explanation {
        let now = answer.issued;
        let Ok(path) = self.policy.paths.normalise(facts.path) else {
            return Explanation {
                path: None,
                answer,
                rules: Vec::new(),
                queue: None,
            };
        };
        let request = Request { facts, path: &path };
        let rules = self.rules.iter().enumerate();
        let rules = rules
            .map(|(at, live)| self.explain_rule(at, live, &request, &answer, now))
            .collect();
        let queue = answer.is_admitted().then(|| self.explain_queue(&request));
        Explanation {
            queue: queue.flatten(),
            path: Some(path.into_owned()),
            answer,
            rules,
        }
    }

    fn explain_queue(&self, request: &Request<'_>) -> Option<QueueExplanation> {
        let (place, key) = self.queue_place(request)?;
        let rule = self.queues.get(place.queue)?;
        let flow = ExplainedKey::new(&key, &rule.flow, rule.missing_key);
        Some(QueueExplanation { place, flow })
    }

    fn explain_rule(
        &self,
        at: usize,
        live: &CompiledRule,
        request: &Request<'_>,
        answer: &PolicyDecision,
        now: Moment,
    ) -> RuleExplanation {
        let rule = &live.rule;
        let of_rule = |c: &&Charge| c.rule == at && c.role != Role::Candidate;
        let charged = answer.charges.iter().find(of_rule);
        let mut explained = RuleExplanation {
            rule: at,
            why_not: why_not(live, request, now),
            key: None,
            tier: None,
            unknown_tier: None,
            is_overridden: false,
            cost: request.cost(rule),
            decision: None,
            limit: charged.map(|charge| charge.limit),
            // A list may have decided before any limit was charged.
            role: charged.map_or_else(
                || (rule.mode == Mode::Shadow).then_some(Role::Shadow),
                |c| Some(c.role),
            ),
        };
        if explained.why_not.is_none() && charged.is_none() && Some(at) == self.fallback {
            explained.why_not = Some(WhyNot::NotTheDefault);
        }
        if explained.why_not.is_some() {
            return explained;
        }
        explained.tier = live.tier_of(request);
        explained.unknown_tier = live.unknown_tier(request);
        if let Some(key) = request.key(rule) {
            let special = live.override_for(&key);
            let special = special.filter(|s| s.expires.is_none_or(|end| now < end));
            let special = special.map(|special| special.grant);
            explained.is_overridden = special.is_some();
            let by_tier = explained.tier.and_then(|tier| live.tiers.get(tier));
            let limit = match special {
                Some(KeyOverrideAction::Limit(limit)) => limit,
                _ => by_tier.copied().unwrap_or(live.base),
            };
            explained.limit = Some(limit);
            let hash = self.secret.hash(&key);
            let outcome_of = |limit: LimitId| {
                let is_its = |c: &&Charge| of_rule(c) && c.limit == limit;
                let charge = answer.charges.iter().find(is_its)?;
                Some(&charge.outcome).filter(|outcome| outcome.is_shared())
            };
            let decisions = std::iter::once(limit).chain(self.peak_of(limit));
            let decisions = decisions.map(|limit| match outcome_of(limit) {
                Some(outcome) => Decision {
                    verdict: outcome.verdict,
                    status: outcome.status,
                    issued: now,
                    origin: answer.origin,
                },
                None => {
                    let peek = KeyOp::Peek {
                        cost: explained.cost,
                        max: None,
                    };
                    self.memory.limiter(limit).apply(hash, &peek).decision
                }
            });
            let numbered = decisions.enumerate();
            let numbered = numbered.map(|(place, decision)| (place, explained.cost, decision));
            explained.decision = Some(tightest(numbered, now).0);
            explained.key = Some(ExplainedKey::new(&key, &rule.key, rule.missing_key));
        }
        explained
    }
}

fn why_not(live: &CompiledRule, request: &Request<'_>, now: Moment) -> Option<WhyNot> {
    let rule = &live.rule;
    if rule.mode == Mode::Off {
        return Some(WhyNot::Off);
    }
    if rule.expires.is_some_and(|end| now >= end) {
        return Some(WhyNot::Expired);
    }
    let fails = |only: Match| !only.holds(request.facts, request.path);
    // One by one, in the order of a policy file.
    let m = &rule.matches;
    let one = |change: &dyn Fn(&mut Match)| {
        let mut only = Match::default();
        change(&mut only);
        fails(only)
    };
    if one(&|only| only.methods.clone_from(&m.methods)) {
        return Some(WhyNot::Method);
    }
    if one(&|only| only.paths.clone_from(&m.paths)) {
        return Some(WhyNot::Path);
    }
    if one(&|only| only.hosts.clone_from(&m.hosts)) {
        return Some(WhyNot::Host);
    }
    for test in &m.headers {
        if one(&|only| only.headers = vec![test.clone()]) {
            return Some(WhyNot::Header(test.0.clone()));
        }
    }
    for test in &m.query {
        if one(&|only| only.query = vec![test.clone()]) {
            return Some(WhyNot::Query(test.0.clone()));
        }
    }
    if one(&|only| only.addresses = m.addresses.clone()) {
        return Some(WhyNot::Address);
    }
    if one(&|only| only.domain.clone_from(&m.domain)) {
        return Some(WhyNot::Domain);
    }
    for test in &m.descriptor {
        if one(&|only| only.descriptor = vec![test.clone()]) {
            return Some(WhyNot::Descriptor(test.0.clone()));
        }
    }
    if one(&|only| only.entries.clone_from(&m.entries)) {
        return Some(WhyNot::Entries);
    }
    let except = rule
        .except
        .iter()
        .any(|m| m.holds(request.facts, request.path));
    except.then_some(WhyNot::Except)
}
