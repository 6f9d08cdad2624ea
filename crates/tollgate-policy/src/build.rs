//! Builds the active policy, and carries over the state of the previous one.
//!
//! Every quota has a stable name: `rule`, `rule@tier`, `rule+candidate`, and for overrides `rule!` with the
//! numbers; its peak has the same name and `/peak`. A quota that existed before keeps its limiter, and so every
//! count. If its numbers changed, the limiter is changed and keeps the usage. A quota whose algorithm or calendar
//! changed starts fresh, because what one algorithm counts has no exact meaning for another
//! ([`PolicyGate::restarted`]). A key that gets or loses a quota of its own by an override is known by name, so
//! its usage moves at once. Requests that are being decided meanwhile may still be counted in the old quota.
//!
//! # Invariant
//!
//! Every step that can fail runs before anything is changed. A policy that cannot be activated leaves the active
//! one unchanged.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use super::extract::{KEY_PARTS_MAX, RequestKey};
use super::fields::Advert;
use super::gate::{
    CompiledRule, KeyOverride, KeyOverrideAction, LimitInstance, PolicyGate, RuntimeOverride,
};
use super::limit_override::{self, OverrideLimits, OverridePolicy, REQUEST_LIMITS, Unit};
use super::path::PathRules;
use super::router::Router;
use super::rule::{
    CostRule, DefaultAction, LimitRule, Match, OnStoreError, Override, OverrideAction, PEAK,
    Policy, Privacy, Quota, Sharing, WhenOver,
};
use super::store::PreparedLimit;
use super::store::lease::terms::LeaseTerms;
use super::store::memory::MemoryStore;
use super::store::stack::FleetStore;
use super::store::sync::counter::SyncTerms;
use crate::shared::{SharedLimit, SharedLimits, SharedStore};
use tollgate::Clock;
use tollgate::KeyOp;
use tollgate::LimitError;
use tollgate::Limiter;
use tollgate::Periods;
use tollgate::Scale;
use tollgate::snapshot::RestoredLimiter;
use tollgate::{Algorithm, Limit};
use tollgate::{Gate, LimitId};
use tollgate::{Key, KeySecret};
use tollgate::{Moment, Span};

/// Keys that the limiter of an override has room for.
const OVERRIDE_KEYS: usize = 10_000;

/// Most previous quotas of a limit in a shared store whose usage is carried over. Each costs a call for every
/// request until nothing in it counts.
const PREVIOUS_QUOTAS_MAX: usize = 4;

/// Why a policy cannot be activated.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PolicyError {
    /// A limit cannot be enforced.
    Limit {
        /// Its name.
        name: Arc<str>,
        /// Why not.
        cause: LimitError,
    },
    /// Two rules have one name.
    SameName {
        /// The name.
        name: Arc<str>,
    },
    /// A key of too many parts.
    LongKey {
        /// The rule's name.
        name: Arc<str>,
    },
    /// A limit that cannot be shared in the mode of its rule.
    NotShared {
        /// The rule's name.
        name: Arc<str>,
    },
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limit { name, cause } => write!(f, "limit `{name}`: {cause}"),
            Self::SameName { name } => write!(f, "two limits are called `{name}`"),
            Self::LongKey { name } => {
                write!(f, "the key of `{name}` has more than {KEY_PARTS_MAX} parts")
            }
            Self::NotShared { name } => write!(
                f,
                "limit `{name}` cannot be shared in this way: slots of a leaky bucket are in one order, burst credits \
                 are two rates at once, and permits are released where they were counted; use `sharing: exact`"
            ),
        }
    }
}

impl std::error::Error for PolicyError {}

/// The initial state of a process: limiters restored from bytes, the secret of their keys, and the shared store.
#[derive(Debug)]
pub struct PriorState {
    pub(super) secret: KeySecret,
    /// By their stable name.
    pub(super) limiters: HashMap<Arc<str>, RestoredLimiter>,
    /// The store that a fleet shares. The limiters then hold this node's share.
    pub(super) store: Option<Arc<dyn SharedStore>>,
}

impl Default for PriorState {
    fn default() -> PriorState {
        PriorState::new()
    }
}

impl PriorState {
    /// No limiter, and a new secret.
    pub fn new() -> PriorState {
        PriorState {
            secret: KeySecret::random(),
            limiters: HashMap::new(),
            store: None,
        }
    }

    /// Adds a store that a fleet shares.
    #[must_use]
    pub fn with_store(self, store: Arc<dyn SharedStore>) -> PriorState {
        PriorState {
            store: Some(store),
            ..self
        }
    }

    /// Hashes keys by this secret. A replay needs the same secret each time.
    #[must_use]
    pub fn with_secret(self, secret: KeySecret) -> PriorState {
        PriorState { secret, ..self }
    }
}

impl<C: Clock> PolicyGate<C> {
    /// Activates a policy without any usage.
    ///
    /// # Errors
    /// A limit that cannot be enforced.
    pub fn new(policy: Policy, clock: C) -> Result<PolicyGate<C>, PolicyError> {
        PolicyGate::with_prior(policy, Vec::new(), clock, PriorState::new())
    }

    /// Activates a policy that continues with restored limiters.
    ///
    /// # Errors
    /// A limit that cannot be enforced.
    pub fn with_prior(
        policy: Policy,
        extra: Vec<RuntimeOverride>,
        clock: C,
        prior: PriorState,
    ) -> Result<PolicyGate<C>, PolicyError> {
        let switched_off = Arc::new(AtomicBool::new(false));
        Builder::new(prior, clock, None).build(Arc::new(policy), extra, switched_off)
    }

    /// Activates another policy, or other overrides, after this one. Usage is kept, except where an algorithm
    /// changed. This policy may still finish requests that have started.
    ///
    /// # Errors
    /// A limit that cannot be enforced; nothing has changed then.
    pub fn reload(
        &self,
        policy: Policy,
        extra: Vec<RuntimeOverride>,
    ) -> Result<PolicyGate<C>, PolicyError> {
        self.reload_shared(Arc::new(policy), extra)
    }

    /// Activates other overrides of the same policy.
    ///
    /// # Errors
    /// An override that cannot be enforced; nothing has changed then.
    pub fn with_overrides(
        &self,
        extra: Vec<RuntimeOverride>,
    ) -> Result<PolicyGate<C>, PolicyError> {
        self.reload_shared(Arc::clone(&self.policy), extra)
    }

    fn reload_shared(
        &self,
        policy: Arc<Policy>,
        extra: Vec<RuntimeOverride>,
    ) -> Result<PolicyGate<C>, PolicyError> {
        let prior = PriorState {
            secret: self.secret.clone(),
            limiters: HashMap::new(),
            store: self.store().cloned(),
        };
        let switched_off = Arc::clone(&self.switched_off);
        Builder::new(prior, self.clock.clone(), Some(self)).build(policy, extra, switched_off)
    }
}

/// The limits of a policy in a store; and, while keys still have usage under the previous policy, those that
/// migrate it and until when.
type Remote = (
    Arc<dyn SharedLimits>,
    Option<(Moment, Arc<dyn SharedLimits>)>,
);

struct Builder<'a, C> {
    prior: PriorState,
    clock: C,
    /// The active policy, if there is one. Its limiters continue, otherwise those of `prior` do.
    before: Option<&'a PolicyGate<C>>,
    gate: Gate<C>,
    variants: Vec<LimitInstance>,
    ids: HashMap<Arc<str>, LimitId>,
    /// Limiters that continue with other numbers. They change last, when no step can fail.
    changes: Vec<(Limiter<C>, Quota)>,
    /// Usage that migrates; last of all.
    moves: Vec<Migration<C>>,
    /// Quotas that start fresh, by their ids.
    restarted: Vec<Arc<str>>,
    /// The number of nodes that divide the limits in this process.
    nodes: u32,
}

/// The usage of one key that moves to another limit.
struct Migration<C> {
    from: Vec<Limiter<C>>,
    to: Vec<LimitId>,
    hash: u64,
}

impl<'a, C: Clock> Builder<'a, C> {
    fn new(prior: PriorState, clock: C, before: Option<&'a PolicyGate<C>>) -> Self {
        let nodes = prior.store.as_ref().map_or(1, |s| s.nodes().max(1));
        Builder {
            nodes,
            gate: Gate::with_clock(clock.clone()),
            prior,
            clock,
            before,
            variants: Vec::new(),
            ids: HashMap::new(),
            changes: Vec::new(),
            moves: Vec::new(),
            restarted: Vec::new(),
        }
    }

    fn build(
        mut self,
        policy: Arc<Policy>,
        extra: Vec<RuntimeOverride>,
        switched_off: Arc<AtomicBool>,
    ) -> Result<PolicyGate<C>, PolicyError> {
        let fallback = match &policy.default {
            DefaultAction::Limit(rule) => Some(&**rule),
            _ => None,
        };
        let mut rules = Vec::new();
        let mut by_name = HashMap::new();
        for rule in policy.limits.iter().chain(fallback) {
            if by_name
                .insert(Arc::clone(&rule.name), rules.len())
                .is_some()
            {
                let name = Arc::clone(&rule.name);
                return Err(PolicyError::SameName { name });
            }
            rules.push(self.live(compiled(rule, policy.paths), &extra)?);
        }
        let following = match &policy.follow {
            Some(follow) => {
                let taken = by_name.contains_key(REQUEST_LIMITS);
                Some(self.following(follow, taken, &mut rules)?)
            }
            None => None,
        };
        let routed = rules.iter().take(policy.limits.len());
        let router = Router::new(routed.map(|live| &live.rule.matches));
        let remote = self.remote(&policy)?;
        let queues: Vec<_> = policy
            .queues
            .iter()
            .map(|q| q.with_rules(policy.paths))
            .collect();
        // Nothing fails from here on. A limit of another kind has a new limiter already, and rings that are too
        // short stay as they are if there is no memory for longer ones.
        for (limiter, quota) in self.changes {
            let _ = limiter.change(quota.limit);
        }
        for Migration { from, to, hash } in self.moves {
            let to: Vec<&Limiter<C>> = to.iter().map(|id| self.gate.limiter(*id)).collect();
            // Both policies may share one limiter: then nothing moves.
            let moves = from
                .iter()
                .filter(|from| !to.iter().any(|to| to.shares_state_with(from)));
            let used = moves.map(|from| from.apply(hash, &KeyOp::RemoveUsage).units);
            let used = used.max().unwrap_or(0);
            if used > 0 {
                for to in to {
                    // A scaled share may have room for less.
                    let _ = to.apply(hash, &KeyOp::AddUsage { units: used });
                }
            }
        }
        if let Some(old) = self.before.and_then(|before| before.fleet.as_ref()) {
            old.close(self.clock.now());
        }
        let store = self.prior.store.take();
        let memory = Arc::new(MemoryStore::new(self.gate, self.clock.clone(), store));
        let limits = self.variants.iter().map(LimitInstance::prepared).collect();
        let fleet = remote.and_then(|(remote, moving)| {
            let before = self.before.and_then(|before| before.fleet.as_ref());
            FleetStore::new(limits, remote, moving, &memory, self.clock.clone(), before)
        });
        let before = self.before.map(PolicyGate::pressure);
        let gate = PolicyGate {
            fallback: fallback.map(|_| policy.limits.len()),
            following,
            router,
            allow: Router::new(policy.allow.iter().map(|rule| &rule.matches)),
            deny: Router::new(policy.deny.iter().map(|rule| &rule.matches)),
            queue_router: Router::new(queues.iter().map(|rule| &rule.matches)),
            queues,
            policy,
            rules,
            memory,
            variants: self.variants,
            ids: self.ids,
            by_name,
            extra,
            restarted: self.restarted,
            switched_off,
            pressure: Scale::ONE.as_q16().into(),
            wall_clock: self
                .before
                .map_or_else(Arc::default, |before| Arc::clone(&before.wall_clock)),
            moving: Default::default(),
            secret: self.prior.secret,
            clock: self.clock,
            fleet,
        };
        gate.set_wall_clock_ahead(gate.wall_clock.ahead());
        // New limiters start under the current pressure.
        if let Some(scale) = before {
            gate.set_pressure(scale);
        }
        Ok(gate)
    }

    /// Prepares the limits in the shared store, if there is one.
    fn remote(&self, policy: &Policy) -> Result<Option<Remote>, PolicyError> {
        let Some(store) = &self.prior.store else {
            return Ok(None);
        };
        let limits = |moves: bool| -> Result<Arc<dyn SharedLimits>, PolicyError> {
            let known = self.variants.iter().map(|variant| SharedLimit {
                id: &variant.id,
                quota: &variant.quota,
                before: if moves {
                    &variant.previous_quotas.0
                } else {
                    &[]
                },
                plain: policy.privacy == Privacy::Plain,
            });
            let known: Vec<_> = known.collect();
            store.prepare(&known).map_err(|(at, cause)| {
                let name = self.variants.get(at).map_or("", |v| v.quota.limit.name());
                let name = Arc::from(name);
                PolicyError::Limit { name, cause }
            })
        };
        let previous = self.variants.iter().map(|v| &v.previous_quotas);
        let previous = previous.filter(|(quotas, _)| !quotas.is_empty());
        let until = previous.map(|(_, until)| *until).max();
        let fixed = limits(false)?;
        let moving = match until {
            Some(until) => Some((until, limits(true)?)),
            None => None,
        };
        Ok(Some((fixed, moving)))
    }

    /// The quotas of `id` under the previous policies with other numbers and the same algorithm, the latest first,
    /// for as long as usage there can count.
    fn previous_quotas(&self, id: &str, quota: &Quota) -> (Vec<Quota>, Moment) {
        let now = self.clock.now();
        let before = self.before.and_then(|before| before.variant_of(id));
        let (Some(before), true) = (before, self.prior.store.is_some()) else {
            return (Vec::new(), now);
        };
        let (mut older, mut until) = match &before.previous_quotas {
            (older, until) if now < *until => (older.clone(), *until),
            _ => (Vec::new(), now),
        };
        let is_same =
            |other: &Quota| other.limit.decides_as(&quota.limit) && other.periods == quota.periods;
        if !is_same(&before.quota) {
            until = until.max(now.plus(horizon(&before.quota)));
            older.insert(0, before.quota.clone());
        }
        // A quota that returns to earlier numbers finds its earlier state.
        older.retain(|other| {
            let algorithm = other.limit.algorithm();
            !is_same(other) && continues(algorithm, other.periods.as_ref(), quota)
        });
        older.truncate(PREVIOUS_QUOTAS_MAX);
        (older, until)
    }

    fn live(
        &mut self,
        rule: LimitRule,
        extra: &[RuntimeOverride],
    ) -> Result<CompiledRule, PolicyError> {
        if rule.key.len() > KEY_PARTS_MAX {
            return Err(PolicyError::LongKey { name: rule.name });
        }
        let name = Arc::clone(&rule.name);
        let before = self.before_of(&name);
        let base = self.variant(&name, name.to_string(), &rule.quota)?;
        let mut tiers = Vec::new();
        for tier in rule.tiers.iter().flat_map(|tiers| &tiers.tiers) {
            tiers.push(self.variant(&name, format!("{name}@{}", tier.name), &tier.quota)?);
        }
        let candidate = match &rule.candidate {
            Some(quota) => Some(self.variant(&name, format!("{name}+candidate"), quota)?),
            None => None,
        };
        let of_this = extra.iter().filter(|over| over.limit == name);
        let mut special = HashMap::new();
        let mut keys: HashMap<Box<[u8]>, Vec<String>> = HashMap::new();
        // Later overrides win, and runtime overrides win over those of the policy.
        for over in rule
            .overrides
            .iter()
            .chain(of_this.map(|over| &over.change))
        {
            let key: Box<[u8]> = Key::from_parts(&over.key).as_bytes().into();
            let grant = self.grant(&name, over, rule.quota.limit.max_debt())?;
            keys.insert(key.clone(), over.key.clone());
            special.insert(
                key,
                KeyOverride {
                    grant,
                    expires: over.expires,
                },
            );
        }
        let ordinary: Vec<LimitId> = std::iter::once(base).chain(tiers.iter().copied()).collect();
        let now = self.clock.now();
        if let Some(before) = before {
            for (key, new) in &special {
                let old = before.special.get(key).map(|old| old.grant);
                let hash = keys.get(key).map(|texts| self.hash_of(&rule, texts));
                let active_override = new.expires.is_none_or(|end| now < end);
                let new = active_override.then_some(new.grant);
                self.migrate_usage(before, old, new, hash, &ordinary);
            }
            for (key, old) in before
                .special
                .iter()
                .filter(|(k, _)| !special.contains_key(*k))
            {
                let hash = before
                    .texts_of(key)
                    .map(|texts| self.hash_of(&rule, &texts));
                self.migrate_usage(before, Some(old.grant), None, hash, &ordinary);
            }
        }
        let overridden = special.values().filter_map(|special| match special.grant {
            KeyOverrideAction::Limit(limit) => Some(limit),
            _ => None,
        });
        let overridden: Vec<LimitId> = overridden.chain(candidate).collect();
        self.share(&rule, ordinary.into_iter().chain(overridden))?;
        Ok(CompiledRule {
            rule,
            base,
            tiers,
            candidate,
            special,
            unknown_tiers: AtomicU64::new(0),
        })
    }

    /// The limits that requests may bring along, as a rule after all others.
    fn following(
        &mut self,
        follow: &OverridePolicy,
        taken: bool,
        rules: &mut Vec<CompiledRule>,
    ) -> Result<OverrideLimits, PolicyError> {
        let name: Arc<str> = Arc::from(REQUEST_LIMITS);
        if taken {
            return Err(PolicyError::SameName { name });
        }
        let mut units = Vec::with_capacity(Unit::ALL.len());
        for unit in Unit::ALL {
            let quota = limit_override::window(unit, follow.max_keys).map_err(|cause| {
                let name = Arc::clone(&name);
                PolicyError::Limit { name, cause }
            })?;
            let limit = self.variant(&name, format!("{name}@{}", unit.name()), &quota)?;
            units.push((limit, quota));
        }
        if let Some((base, quota)) = units.first() {
            let rule = LimitRule {
                on_store_error: follow.on_store_error,
                ..LimitRule::new(&name, quota.clone())
            };
            self.share(&rule, units.iter().map(|(limit, _)| *limit))?;
            rules.push(CompiledRule {
                rule,
                base: *base,
                tiers: Vec::new(),
                candidate: None,
                special: HashMap::new(),
                unknown_tiers: AtomicU64::new(0),
            });
        }
        Ok(OverrideLimits {
            rule: rules.len().saturating_sub(1),
            units: units.into_iter().map(|(limit, _)| limit).collect(),
        })
    }

    fn hash_of(&self, rule: &LimitRule, texts: &[String]) -> u64 {
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        self.prior.secret.hash(&RequestKey::named(rule, &texts))
    }

    /// Records that a key's usage moves if another limit counts it.
    fn migrate_usage(
        &mut self,
        before: &CompiledRule,
        old: Option<KeyOverrideAction>,
        new: Option<KeyOverrideAction>,
        hash: Option<u64>,
        ordinary: &[LimitId],
    ) {
        let (Some(gate), Some(hash)) = (self.before, hash) else {
            return;
        };
        let limiter = |id: LimitId| gate.memory.limiter(id).clone();
        let own = match old {
            Some(KeyOverrideAction::Limit(id)) => Some(limiter(id)),
            _ => None,
        };
        let with_peak = |id: LimitId| {
            let peak = self.variants.get(id.index()).and_then(|v| v.peak);
            std::iter::once(id).chain(peak)
        };
        let (from, to) = match (new, &own) {
            (Some(KeyOverrideAction::Limit(to)), _) => {
                let counted = std::iter::once(before.base).chain(before.tiers.iter().copied());
                (
                    own.into_iter().chain(counted.map(limiter)).collect(),
                    with_peak(to).collect(),
                )
            }
            // The tier is known only when a request arrives, so usage counts in each.
            (_, Some(_)) => (
                own.into_iter().collect(),
                ordinary.iter().copied().flat_map(with_peak).collect(),
            ),
            _ => return,
        };
        self.moves.push(Migration { from, to, hash });
    }

    fn before_of(&self, name: &str) -> Option<&'a CompiledRule> {
        let before = self.before?;
        before.rules.get(before.rule_named(name)?)
    }

    /// What an override gives. A quota has the debt of the limit, `max_debt`, unless it has one of its own.
    fn grant(
        &mut self,
        name: &Arc<str>,
        over: &Override,
        max_debt: u64,
    ) -> Result<KeyOverrideAction, PolicyError> {
        Ok(match &over.grant {
            OverrideAction::Unlimited => KeyOverrideAction::Unlimited,
            OverrideAction::Blocked => KeyOverrideAction::Blocked,
            OverrideAction::Quota(quota) => {
                let mut quota = Quota::clone(quota).with_max_keys(OVERRIDE_KEYS);
                if quota.limit.max_debt() == 0
                    && let Ok(limit) = quota.limit.clone().with_max_debt(max_debt)
                {
                    quota.limit = limit;
                }
                let debt = match quota.limit.max_debt() {
                    0 => String::new(),
                    debt => format!(" debt {debt}"),
                };
                let periods = quota.periods.as_ref().map_or("", |p| p.name());
                let peak = quota.peak.as_ref().map(Limit::algorithm);
                let peak = peak.map_or(String::new(), |peak| format!("{peak:?}"));
                // All numbers: two quotas that differ in any of them are distinct.
                let id = format!("{name}!{:?}{peak}{periods}{debt}", quota.limit.algorithm());
                KeyOverrideAction::Limit(self.variant(name, id, &quota)?)
            }
        })
    }

    /// The limit of a quota: the existing one, or a new one. Its peak likewise, if it has one.
    fn variant(
        &mut self,
        name: &Arc<str>,
        id: String,
        quota: &Quota,
    ) -> Result<LimitId, PolicyError> {
        if let Some(limit) = self.ids.get(id.as_str()) {
            return Ok(*limit);
        }
        let quota = quota.clone().with_name(name);
        let peak = match &quota.peak {
            Some(peak) => {
                let peak = Quota::plain(peak.clone());
                Some(self.limiter_for(name, format!("{id}{PEAK}"), peak, None)?)
            }
            None => None,
        };
        self.limiter_for(name, id, quota, peak)
    }

    fn limiter_for(
        &mut self,
        name: &Arc<str>,
        id: String,
        quota: Quota,
        peak: Option<LimitId>,
    ) -> Result<LimitId, PolicyError> {
        let id: Arc<str> = Arc::from(id);
        let previous_quotas = self.previous_quotas(&id, &quota);
        // A key may have used more there than this one holds.
        let mut quota = quota;
        for older in &previous_quotas.0 {
            quota.limit = quota.limit.keeping_usage_of(&older.limit);
        }
        let mut here = quota.share(self.nodes);
        let (old, is_known) = self.prior_limiter(&id, quota.periods.as_ref());
        let limiter = match old {
            Some(old) if continues(old.limit().algorithm(), old.periods(), &here) => {
                if !old.limit().decides_as(&here.limit) {
                    here.limit = here.limit.keeping_usage_of(&old.limit());
                    self.changes.push((old.clone(), here));
                }
                old
            }
            _ => {
                let new = Limiter::with_periods(
                    here.limit,
                    here.periods,
                    self.clock.clone(),
                    self.prior.secret.clone(),
                )
                .map_err(|cause| PolicyError::Limit {
                    name: Arc::clone(name),
                    cause,
                })?;
                if is_known {
                    self.restarted.push(Arc::clone(&id));
                }
                new
            }
        };
        let limit = self.gate.adopt(limiter);
        self.ids.insert(Arc::clone(&id), limit);
        self.variants.push(LimitInstance {
            stable_id: self.prior.secret.hash(&*id),
            previous_quotas,
            id,
            advert: Advert::new(quota.limit.name(), &quota),
            quota,
            peak,
            sharing: Sharing::Exact,
            on_store_error: OnStoreError::Local,
            when_over: WhenOver::ChargeNothing,
            holding_time: Arc::default(),
        });
        Ok(limit)
    }

    /// Sets how limits are shared, and how they are decided without the store.
    ///
    /// # Errors
    /// Their kind cannot be shared so.
    fn share(
        &mut self,
        rule: &LimitRule,
        limits: impl Iterator<Item = LimitId>,
    ) -> Result<(), PolicyError> {
        // Later usage is reported to the store at once.
        let sharing = match rule.when_over {
            WhenOver::ChargeRemaining => Sharing::Exact,
            WhenOver::ChargeNothing => rule.sharing,
        };
        let peak_of = |limit: LimitId| self.variants.get(limit.index()).and_then(|v| v.peak);
        let limits: Vec<_> = limits
            .flat_map(|limit| std::iter::once(limit).chain(peak_of(limit)))
            .collect();
        for limit in limits {
            let Some(variant) = self.variants.get_mut(limit.index()) else {
                continue;
            };
            variant.sharing = sharing;
            variant.on_store_error = rule.on_store_error;
            variant.when_over = rule.when_over;
            if !variant.quota.supports(sharing) {
                let name = Arc::clone(&rule.name);
                return Err(PolicyError::NotShared { name });
            }
        }
        Ok(())
    }

    /// The limiter that counted for this quota before, and whether there was any. A restored limiter whose periods
    /// are not `periods` is lost: the bytes name the periods but not their starts.
    fn prior_limiter(&mut self, id: &str, periods: Option<&Periods>) -> (Option<Limiter<C>>, bool) {
        if let Some(before) = self.before {
            let limit = before.ids.get(id);
            let limiter = limit.map(|limit| before.memory.limiter(*limit).clone());
            let is_known = limiter.is_some();
            return (limiter, is_known);
        }
        let Some(restored) = self.prior.limiters.remove(id) else {
            return (None, false);
        };
        let (clock, secret) = (self.clock.clone(), self.prior.secret.clone());
        (restored.into_limiter(periods, clock, secret), true)
    }
}

impl LimitInstance {
    /// The properties of a limit that the layers of a store use.
    fn prepared(&self) -> PreparedLimit {
        let algorithm = self.quota.limit.algorithm();
        PreparedLimit {
            stable_id: self.stable_id,
            on_store_error: self.on_store_error,
            lease: match self.sharing {
                Sharing::Lease => LeaseTerms::from_quota(&self.quota),
                _ => None,
            },
            sync: match self.sharing {
                Sharing::Sync => SyncTerms::from_quota(&self.quota),
                _ => None,
            },
            is_permit: matches!(algorithm, Algorithm::Concurrency { .. }),
            capacity: self.quota.advertised().0,
            takes_remaining: self.takes_remaining(),
            horizon: horizon(&self.quota),
        }
    }
}

impl CompiledRule {
    /// The parts of a framed key.
    fn texts_of(&self, key: &[u8]) -> Option<Vec<String>> {
        let mut rest = key;
        let mut texts = Vec::new();
        while let Some((length, after)) = rest.split_first_chunk() {
            let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
            let (text, after) = after.split_at_checked(length)?;
            texts.push(String::from_utf8(text.to_vec()).ok()?);
            rest = after;
        }
        Some(texts)
    }
}

/// Whether usage counted by `old` counts for `quota`. Numbers may differ, the algorithm and the calendar may not.
fn continues(old: &Algorithm, periods: Option<&Periods>, quota: &Quota) -> bool {
    let kind = |algorithm: &Algorithm| match algorithm {
        // The two are the same algorithm with other names for their numbers.
        Algorithm::TokenBucket { .. } | Algorithm::Gcra { .. } => 0,
        Algorithm::LeakyBucket { .. } => 1,
        Algorithm::FixedWindow { .. } => 2,
        Algorithm::SlidingLog { .. } => 3,
        Algorithm::SlidingWindow { .. } => 4,
        Algorithm::Concurrency { .. } => 5,
    };
    kind(old) == kind(quota.limit.algorithm()) && periods == quota.periods.as_ref()
}

/// How long a charge can count.
pub(super) fn horizon(quota: &Quota) -> Span {
    match *quota.limit.algorithm() {
        Algorithm::SlidingWindow { window, .. } | Algorithm::Concurrency { ttl: window, .. } => {
            Span::from_nanos(window.as_nanos().saturating_mul(2))
        }
        Algorithm::TokenBucket { rate, .. } | Algorithm::Gcra { rate, .. } => {
            let debt = rate.time_to_earn(quota.limit.max_debt());
            let all = quota.advertised().1.as_nanos();
            Span::from_nanos(all.saturating_add(debt.as_nanos()))
        }
        _ => quota.advertised().1,
    }
}

/// The rule with its patterns compiled to the policy's path rules.
fn compiled(rule: &LimitRule, paths: PathRules) -> LimitRule {
    let mut rule = rule.clone();
    compile(&mut rule.matches, &mut rule.except, &mut rule.cost, paths);
    rule
}

/// Sets the path rules that the patterns compare by.
pub(super) fn compile(
    matches: &mut Match,
    except: &mut [Match],
    cost: &mut CostRule,
    paths: PathRules,
) {
    let read = |matches: &mut Match| {
        for path in &mut matches.paths {
            *path = path.with_rules(paths);
        }
    };
    read(matches);
    except.iter_mut().for_each(read);
    if let CostRule::Routes { routes, .. } = cost {
        for (_, path, _) in routes {
            *path = path.with_rules(paths);
        }
    }
}
