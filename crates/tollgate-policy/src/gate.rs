//! The active policy with its state: facts in, decision out.
//!
//! # Theory
//!
//! Each request takes one path. Its URL path is normalised, the lists are checked, the router names the candidate
//! limits, each limit that matches yields a charge (limit, key, cost), and all enforced charges are taken together
//! or not at all. Limits that are only counted are charged afterwards, one by one, and only if the request passes.
//! A shadow limit must see the traffic that it would see if it were enforced, and must never change a decision.
//!
//! # Invariant
//!
//! Every request gets a decision; there is no error. What cannot be decided is refused, with a reason.
//!
//! # Limits
//!
//! The gate does not know where facts come from, how a decision is written, or how the state of the previous
//! policy was carried over (that is `build`).

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use super::charge::{Charge, Outcome, Role, Source};
use super::extract::{Request, RequestKey};
use super::facts::Facts;
use super::fields::Advert;
use super::holding_time::HoldingTime;
use super::limit_override::OverrideLimits;
use super::outcome::unlimited;
use super::policy_decision::{PolicyDecision, Reason};
use super::queue::QueueRule;
use super::router::Router;
use super::rule::{
    DefaultAction, FULLY_ENFORCED, LimitRule, ListRule, Match, Mode, OnStoreError, Policy, Quota,
    Sharing, WhenOver,
};
use super::store::StoreOp;
use super::store::memory::MemoryStore;
use super::store::stack::FleetStore;
use super::wall_clock::WallClock;
use crate::shared::{KeyKind, SharedKey, SharedStore};
use tollgate::Algorithm;
use tollgate::KeyOp;
use tollgate::LimitId;
use tollgate::Limiter;
use tollgate::Verdict;
use tollgate::{Clock, MonotonicClock};
use tollgate::{Key, KeySecret};
use tollgate::{Moment, Span};

/// An active policy.
#[derive(Debug)]
pub struct PolicyGate<C = MonotonicClock> {
    pub(super) policy: Arc<Policy>,
    /// The policy's limits, then the limit of its default, then that of requests that bring their own, if it has
    /// these.
    pub(super) rules: Vec<CompiledRule>,
    pub(super) fallback: Option<usize>,
    /// The limits that requests may bring along.
    pub(super) following: Option<OverrideLimits>,
    pub(super) router: Router,
    pub(super) allow: Router,
    pub(super) deny: Router,
    /// The queues, with their patterns compiled to the policy's path rules.
    pub(super) queues: Vec<QueueRule>,
    pub(super) queue_router: Router,
    /// Every quota of every rule, with its state. With a shared store it holds this node's share.
    pub(super) memory: Arc<MemoryStore<C>>,
    /// The rule of each limit of the gate, by its number.
    pub(super) variants: Vec<LimitInstance>,
    /// The limits of the gate by their stable name.
    pub(super) ids: HashMap<Arc<str>, LimitId>,
    pub(super) by_name: HashMap<Arc<str>, usize>,
    pub(super) extra: Vec<RuntimeOverride>,
    /// The quotas whose algorithm or calendar differs from the previous policy, by their ids.
    pub(super) restarted: Vec<Arc<str>>,
    pub(super) switched_off: Arc<AtomicBool>,
    /// The pressure scale, in 65536ths; see `scaling`.
    pub(super) pressure: AtomicU32,
    /// What calendars follow.
    pub(super) wall_clock: Arc<WallClock>,
    /// Held while the usage of a key moves, by the key's hash: between removing it from one limiter and adding it
    /// to the other, no other request of the key may be decided.
    pub(super) moving: [Mutex<()>; 16],
    pub(super) secret: KeySecret,
    pub(super) clock: C,
    /// The layers above the shared store, if there is one.
    pub(super) fleet: Option<FleetStore<C>>,
}

/// An override that was added at runtime, beside those of the policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeOverride {
    /// The rule, by its name. If the policy has no such rule, the override waits for one.
    pub limit: Arc<str>,
    /// What is different.
    pub change: super::rule::Override,
}

/// A rule and the limits that it may charge.
#[derive(Debug)]
pub(super) struct CompiledRule {
    pub(super) rule: LimitRule,
    pub(super) base: LimitId,
    /// For each tier of the rule.
    pub(super) tiers: Vec<LimitId>,
    pub(super) candidate: Option<LimitId>,
    /// By the framed texts of the key.
    pub(super) special: HashMap<Box<[u8]>, KeyOverride>,
    /// Requests whose tier is not one of the rule.
    pub(super) unknown_tiers: AtomicU64,
}

/// A compiled override.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyOverride {
    pub(super) grant: KeyOverrideAction,
    pub(super) expires: Option<Moment>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyOverrideAction {
    Limit(LimitId),
    Unlimited,
    Blocked,
}

impl KeyOverride {
    /// The quota of its own, if it gives one.
    pub(super) fn limit(&self) -> Option<LimitId> {
        match self.grant {
            KeyOverrideAction::Limit(limit) => Some(limit),
            KeyOverrideAction::Unlimited | KeyOverrideAction::Blocked => None,
        }
    }
}

/// One quota of a rule.
#[derive(Debug)]
pub(super) struct LimitInstance {
    /// The stable name from one policy to the next.
    pub(super) id: Arc<str>,
    pub(super) quota: Quota,
    /// The peak that is charged with it, if there is one.
    pub(super) peak: Option<LimitId>,
    pub(super) advert: Advert,
    /// The stable name as a number.
    pub(super) stable_id: u64,
    /// Its earlier quotas in a shared store under previous policies, and until when they count.
    pub(super) previous_quotas: (Vec<Quota>, Moment),
    /// How nodes share it, and what happens when the store does not answer.
    pub(super) sharing: Sharing,
    pub(super) on_store_error: OnStoreError,
    pub(super) when_over: WhenOver,
    /// Of a concurrency limit.
    pub(super) holding_time: Arc<HoldingTime>,
}

/// Charges among which the same key is searched; a request with more of them is refused anyway.
const SAME_AMONG: usize = 64;

/// The plan of a request, filled while the rules are matched.
#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    pub(super) charges: Vec<Charge>,
    pub(super) enforced: usize,
    pub(super) stop: Option<Reason>,
}

impl Plan {
    /// Adds a planned charge, or adds to one on the same key, and returns its index.
    pub(super) fn add(&mut self, charge: Charge) -> usize {
        let is_same =
            |c: &Charge| c.limit == charge.limit && c.hash == charge.hash && c.role == charge.role;
        let mut known = self.charges.iter_mut().take(SAME_AMONG).enumerate();
        if let Some((at, same)) = known.find(|(_, c)| is_same(c)) {
            same.cost = same.cost.saturating_add(charge.cost);
            // If the charges bring different numbers, the smallest holds.
            same.most = same.most.min(charge.most);
            return at;
        }
        self.enforced += usize::from(matches!(charge.role, Role::Enforced | Role::Unlimited));
        self.charges.push(charge);
        self.charges.len() - 1
    }
}

impl<C: Clock> PolicyGate<C> {
    /// Decides a request in this process and charges it. With a shared store, this node decides by its share
    /// alone; [`decide`](crate::decide()) waits for the store.
    pub fn admit(&self, facts: &Facts<'_>) -> PolicyDecision {
        self.decide_here(facts, StoreOp::Charge)
    }

    /// Reports what [`PolicyGate::admit`] would decide, and charges nothing.
    pub fn peek(&self, facts: &Facts<'_>) -> PolicyDecision {
        self.decide_here(facts, StoreOp::Peek)
    }

    /// The policy.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// A rule by its index: the policy's limits, then that of its default, then [`super::REQUEST_LIMITS`].
    pub fn rule(&self, at: usize) -> Option<&LimitRule> {
        self.rules.get(at).map(|live| &live.rule)
    }

    /// All rules, in order.
    pub fn rules(&self) -> impl ExactSizeIterator<Item = &LimitRule> {
        self.rules.iter().map(|live| &live.rule)
    }

    /// Requests of each rule with tiers whose tier is not one of the policy, since this policy is active. They have the
    /// limit's own quota.
    pub fn unknown_tiers(&self) -> impl Iterator<Item = (&LimitRule, u64)> {
        let with_tiers = self.rules.iter().filter(|live| live.rule.tiers.is_some());
        with_tiers.map(|live| (&live.rule, live.unknown_tiers.load(Relaxed)))
    }

    /// The index of a rule.
    pub fn rule_named(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// The quota that a limit has: the rule's own, or that of a tier or an override.
    pub fn quota(&self, limit: LimitId) -> Option<&Quota> {
        self.variants.get(limit.index()).map(|v| &v.quota)
    }

    /// When a request that a charge refused may pass, if its limit is a concurrency limit; at most `bound`.
    pub(super) fn until_release(&self, limit: LimitId, bound: Span) -> Option<Span> {
        let instance = self.variants.get(limit.index())?;
        match *instance.quota.limit.algorithm() {
            Algorithm::Concurrency { limit, .. } => {
                Some(instance.holding_time.until_release(limit, bound))
            }
            _ => None,
        }
    }

    /// The peak that is charged with this limit, if there is one.
    pub(super) fn peak_of(&self, limit: LimitId) -> Option<LimitId> {
        self.variants.get(limit.index())?.peak
    }

    pub(super) fn advert(&self, limit: LimitId) -> Option<&Advert> {
        self.variants.get(limit.index()).map(|v| &v.advert)
    }

    /// The limiter behind a rule's own quota.
    pub fn limiter_of(&self, rule: usize) -> Option<&Limiter<C>> {
        self.rules
            .get(rule)
            .map(|live| self.memory.limiter(live.base))
    }

    /// Every limiter of a rule (its own, its tiers, overrides and candidate), and its stable name.
    pub fn limiters(&self) -> impl Iterator<Item = (&str, &Limiter<C>)> {
        let numbered = self.variants.iter().enumerate();
        numbered.map(|(at, v)| (&*v.id, self.memory.limiter(LimitId::new(at))))
    }

    /// Has calendars follow the wall clock: `wall` is its time now. To be called every now and then, at least once in ten
    /// seconds. Otherwise calendars follow the clock of the limits, which does not notice that the wall clock is set.
    ///
    /// A step counts when it has lasted for ten seconds, and at most once an hour. Returns by how many nanoseconds calendars are
    /// ahead of the clock of the limits from now on, if this was a step.
    pub fn follow_wall_clock(&self, wall: Moment) -> Option<i64> {
        let ahead = self.wall_clock.observe(self.clock.now(), wall)?;
        self.set_wall_clock_ahead(ahead);
        Some(ahead)
    }

    pub(super) fn set_wall_clock_ahead(&self, nanos: i64) {
        for (_, limiter) in self.limiters() {
            limiter.set_wall_clock_ahead(nanos);
        }
    }

    /// The quota with the stable name `id`.
    pub(super) fn variant_of(&self, id: &str) -> Option<&LimitInstance> {
        self.variants.get(self.ids.get(id)?.index())
    }

    /// The overrides that were added at runtime.
    pub fn runtime_overrides(&self) -> &[RuntimeOverride] {
        &self.extra
    }

    /// The shared store.
    pub fn store(&self) -> Option<&Arc<dyn SharedStore>> {
        self.memory.store()
    }

    /// The limits whose algorithm or calendar differs from the previous policy, as [`PolicyGate::limiters`] names
    /// them. They start fresh, without earlier usage.
    pub fn restarted(&self) -> impl Iterator<Item = &str> {
        self.restarted.iter().map(|id| &**id)
    }

    /// The clock.
    pub fn clock(&self) -> &C {
        &self.clock
    }

    /// Switches limiting off or on again, for this policy and all that succeed it. Clients on the deny list stay
    /// blocked.
    pub fn switch_off(&self, off: bool) {
        self.switched_off.store(off, Relaxed);
    }

    /// Whether limiting is switched off.
    pub fn is_switched_off(&self) -> bool {
        self.switched_off.load(Relaxed)
    }

    /// The parts of the key that a rule counts this request for, as text. `None` if a part is missing and the rule
    /// refuses such requests, or if the path is invalid.
    pub fn key_texts(&self, rule: usize, facts: &Facts<'_>) -> Option<Vec<String>> {
        if let Some(texts) = self.override_texts(rule, facts) {
            return Some(texts);
        }
        let path = self.policy.paths.normalise(facts.path).ok()?;
        let rule = self.rule(rule)?;
        let request = Request { facts, path: &path };
        request.key(rule).map(|key| key.texts(rule))
    }

    /// The same for a key in the form of a shared store.
    pub(super) fn shared_key_texts(&self, rule: usize, key: &SharedKey) -> Option<Vec<String>> {
        if let Some(texts) = self.override_shared_texts(rule, key) {
            return Some(texts);
        }
        let rule = self.rule(rule)?;
        Some(RequestKey::from_shared(rule, key).texts(rule))
    }

    fn decide_here(&self, facts: &Facts<'_>, op: StoreOp) -> PolicyDecision {
        let now = self.clock.now();
        match self.plan(facts, now) {
            Ok(plan) => self.execute(plan, op, now),
            Err(answer) => *answer,
        }
    }

    /// Plans the charges of a request, or decides it if nothing is charged.
    pub(super) fn plan(&self, facts: &Facts<'_>, now: Moment) -> Result<Plan, Box<PolicyDecision>> {
        let ends = |verdict, reason| Err(Box::new(unlimited(verdict, reason, now)));
        let path = match self.policy.paths.normalise(facts.path) {
            Ok(path) => path,
            Err(fault) => return ends(Verdict::Never, Reason::Path(fault)),
        };
        let request = Request { facts, path: &path };
        if let Some(at) = listed(&self.deny, &self.policy.deny, &request, now) {
            return ends(Verdict::Never, Reason::DenyList(at));
        }
        if self.is_switched_off() {
            return ends(Verdict::Pass, Reason::SwitchedOff);
        }
        if let Some(at) = listed(&self.allow, &self.policy.allow, &request, now) {
            return ends(Verdict::Pass, Reason::AllowList(at));
        }
        if let Some(plan) = self.plan_override(facts, now) {
            return Ok(plan);
        }
        let mut plan = Plan::default();
        self.router.candidates(facts, &path, &mut |at| {
            if let Some(live) = self.rules.get(at).filter(|l| l.applies(&request, now)) {
                self.plan_rule(at, live, &request, now, &mut plan);
            }
        });
        if plan.enforced == 0 && plan.stop.is_none() {
            self.plan_default(&request, now, &mut plan);
        }
        self.replace(&mut plan);
        Ok(plan)
    }

    /// Plans a charge on one rule for a key given by its parts. An index without a rule limits nothing.
    pub(super) fn plan_rule_by_key(
        &self,
        rule: usize,
        key: &[&str],
        cost: u64,
        now: Moment,
    ) -> Result<Plan, Box<PolicyDecision>> {
        let passes = |reason| Err(Box::new(unlimited(Verdict::Pass, reason, now)));
        let Some(live) = self.rules.get(rule) else {
            return passes(Reason::Unmatched);
        };
        if self.is_switched_off() {
            return passes(Reason::SwitchedOff);
        }
        let mut plan = Plan::default();
        if live.is_on(now) {
            let key = RequestKey::named(&live.rule, key);
            self.plan_charge(rule, live, &key, None, cost, now, &mut plan);
        }
        Ok(plan)
    }

    fn plan_default(&self, request: &Request<'_>, now: Moment, plan: &mut Plan) {
        let fallback = self.fallback.and_then(|at| Some((at, self.rules.get(at)?)));
        if let Some((at, live)) = fallback.filter(|(_, live)| live.is_on(now)) {
            self.plan_rule(at, live, request, now, plan);
        } else if matches!(self.policy.default, DefaultAction::Refuse) {
            plan.stop = Some(Reason::Unmatched);
        }
    }

    fn plan_rule(
        &self,
        at: usize,
        live: &CompiledRule,
        request: &Request<'_>,
        now: Moment,
        plan: &mut Plan,
    ) {
        let rule = &live.rule;
        let mut key = RequestKey::empty(KeyKind::Own);
        if !request.find_key(&rule.key, rule.missing_key, &rule.matches, &mut key) {
            // Without a key, the enforced fraction of the keys does not apply.
            if live.rule.mode == Mode::Enforce && live.rule.enforced >= FULLY_ENFORCED {
                plan.stop.get_or_insert(Reason::MissingKey(at));
            }
            return;
        }
        let tier = live.tier_of(request);
        if tier.is_none() && live.unknown_tier(request).is_some() {
            live.unknown_tiers.fetch_add(1, Relaxed);
        }
        let cost = request.cost(&live.rule);
        self.plan_charge(at, live, &key, tier, cost, now, plan);
    }

    #[expect(clippy::too_many_arguments, reason = "all that is known of one charge")]
    fn plan_charge(
        &self,
        at: usize,
        live: &CompiledRule,
        key: &RequestKey<'_>,
        tier: Option<usize>,
        cost: u64,
        now: Moment,
        plan: &mut Plan,
    ) {
        let hash = self.secret.hash(key);
        let shared = self.fleet.as_ref().map(|_| Arc::new(key.shared()));
        let charge = |limit, role, is_peak| Charge {
            rule: at,
            role,
            cost,
            tier,
            verdict: Verdict::Pass,
            is_peak,
            limit,
            most: None,
            hash,
            key: shared.clone(),
            debt: 0,
            kept: 0,
            outcome: Outcome {
                source: match role {
                    Role::Unlimited => Source::Nothing,
                    _ => Source::Open,
                },
                ..Outcome::open(now)
            },
        };
        let base = || {
            tier.and_then(|tier| live.tiers.get(tier))
                .copied()
                .unwrap_or(live.base)
        };
        let special = live.override_for(key);
        let is_over = |special: &&KeyOverride| special.expires.is_some_and(|end| now >= end);
        let active_override = special.filter(|special| !is_over(special));
        let limit = match active_override.map(|special| special.grant) {
            Some(KeyOverrideAction::Unlimited) => {
                plan.charges.push(charge(live.base, Role::Unlimited, false));
                if live.rule.mode == Mode::Enforce {
                    plan.enforced += 1;
                }
                return;
            }
            Some(KeyOverrideAction::Blocked) if live.rule.mode == Mode::Enforce => {
                plan.stop.get_or_insert(Reason::Blocked(at));
                return;
            }
            Some(KeyOverrideAction::Limit(limit)) => limit,
            Some(KeyOverrideAction::Blocked) | None => base(),
        };
        if let Some(KeyOverrideAction::Limit(ended)) = special.filter(is_over).map(|s| s.grant) {
            self.migrate_usage(self.memory.limiter(ended), limit, hash);
        }
        let enforced = live.rule.mode == Mode::Enforce
            && (live.rule.enforced >= FULLY_ENFORCED
                || hash % u64::from(FULLY_ENFORCED) < u64::from(live.rule.enforced));
        let role = match enforced {
            true => Role::Enforced,
            false => Role::Shadow,
        };
        let candidate = live.candidate.map(|limit| (limit, Role::Candidate));
        for (limit, role) in std::iter::once((limit, role)).chain(candidate) {
            let peak = self.peak_of(limit).map(|peak| (peak, true));
            for (limit, is_peak) in std::iter::once((limit, false)).chain(peak) {
                plan.charges.push(charge(limit, role, is_peak));
                plan.enforced += usize::from(role == Role::Enforced);
            }
        }
    }

    /// Moves the usage of an expired own quota of a key here, once.
    fn migrate_usage(&self, from: &Limiter<C>, to: LimitId, hash: u64) {
        let lock = self.moving.get(hash as usize % self.moving.len());
        let _moving = lock.map(|lock| lock.lock().unwrap_or_else(PoisonError::into_inner));
        let used = from.apply(hash, &KeyOp::RemoveUsage).units;
        if used > 0 {
            for to in std::iter::once(to).chain(self.peak_of(to)) {
                // Units beyond what the limit holds are dropped.
                let _ = self
                    .memory
                    .limiter(to)
                    .apply(hash, &KeyOp::AddUsage { units: used });
            }
        }
    }
}

/// The first rule of a list that matches this request.
fn listed(
    router: &Router,
    rules: &[ListRule],
    request: &Request<'_>,
    now: Moment,
) -> Option<usize> {
    if rules.is_empty() {
        return None;
    }
    let mut first = None;
    router.candidates(request.facts, request.path, &mut |at| {
        let is_for = |rule: &&ListRule| {
            rule.expires.is_none_or(|end| now < end)
                && rule.matches.holds(request.facts, request.path)
                && !is_any(&rule.except, request)
        };
        if first.is_none() && rules.get(at).filter(is_for).is_some() {
            first = Some(at);
        }
    });
    first
}

/// Whether one of these conditions holds.
fn is_any(conditions: &[Match], request: &Request<'_>) -> bool {
    let mut conditions = conditions.iter();
    conditions.any(|condition| condition.holds(request.facts, request.path))
}

impl CompiledRule {
    fn is_on(&self, now: Moment) -> bool {
        self.rule.mode != Mode::Off && self.rule.expires.is_none_or(|end| now < end)
    }

    fn applies(&self, request: &Request<'_>, now: Moment) -> bool {
        self.is_on(now)
            && self.rule.matches.holds(request.facts, request.path)
            && !is_any(&self.rule.except, request)
    }

    pub(super) fn tier_of(&self, request: &Request<'_>) -> Option<usize> {
        let tiers = self.rule.tiers.as_ref()?;
        let name = request.text(&tiers.source, &self.rule.matches)?;
        let name = name.trim_ascii();
        if let Some(members) = &tiers.members {
            return members.tier_of(name);
        }
        tiers
            .tiers
            .iter()
            .position(|tier| tier.name.as_bytes() == name)
    }

    /// The tier that a request names although the rule does not have it.
    pub(super) fn unknown_tier(&self, request: &Request<'_>) -> Option<String> {
        let tiers = self.rule.tiers.as_ref()?;
        // A key that is in no list is an ordinary key.
        if tiers.members.is_some() || self.tier_of(request).is_some() {
            return None;
        }
        let name = request.text(&tiers.source, &self.rule.matches)?;
        let name = name.trim_ascii();
        (!name.is_empty()).then(|| String::from_utf8_lossy(name).into_owned())
    }

    /// The override of a key, active or expired.
    pub(super) fn override_for(&self, key: &RequestKey<'_>) -> Option<&KeyOverride> {
        if self.special.is_empty() || key.kind() != KeyKind::Own {
            return None;
        }
        let texts = Key::from_parts(key.texts(&self.rule));
        self.special.get(texts.as_bytes())
    }
}
