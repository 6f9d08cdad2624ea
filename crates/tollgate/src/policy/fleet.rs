//! Decisions of a policy whose state a fleet shares, and of this node alone when the store gives none.
//!
//! # Theory
//!
//! The road is the same: facts, policy, charges, store, outcome, answer. Only the store is elsewhere, so a
//! decision has two halves: [`PolicyGate::begin`] works out the charges, and [`PolicyGate::finish`] sends
//! them all in one question and makes an answer of what comes back.
//!
//! The limiters in this process hold this node's *share* of each limit and are kept warm: what the store
//! lets pass here is taken from them too. When the store gives no answer, they decide instead, so the
//! change adds no burst on this node. What they let pass meanwhile is *owed*: the next time that the store
//! is asked for such a key, it is told first. If it is not known whether the store heard it, it is told
//! again: rather counted twice than not at all.
//!
//! # Invariant
//!
//! Every request is answered, in the time that the store has and not more. A charge is sent once: if its
//! answer was lost it may count both there and here, never neither.
//!
//! # How much may pass while the store is away
//!
//! With `n` nodes and a limit of `C` and `r`: this node lets pass at most `C/n + r/n * t`, less what it let
//! pass before. Together at most `C + r * t`, of which up to `C * (n-1)/n` may come on top of what the
//! store had let pass before, from nodes that were not asked until then.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use super::answer::{Answer, Basis, Role, RuleCharge};
use super::build::horizon;
use super::facts::Facts;
use super::gate::{Ask, Plan, PolicyGate, tightest, unlimited};
use super::rule::OnStoreError;
use crate::clock::Clock;
use crate::decision::{Decision, Origin, Standing, Verdict};
use crate::limit::Algorithm;
use crate::store::memory::CHARGES_MAX;
use crate::store::shared::{SharedCharge, SharedLimits, SharedOutcome, SharedRequest, SharedStore};
use crate::time::{Moment, Span};

/// Keys that may owe the store something at once. What does not fit is not told later.
const OWING_MAX: usize = 1 << 16;
/// When to ask again if a limit refuses because the store is away: it is tried several times a second.
const TRY_AGAIN: Span = Span::from_secs(1);

/// The store that this node shares, as one policy uses it.
#[derive(Debug)]
pub(super) struct Fleet {
    pub(super) store: Arc<dyn SharedStore>,
    /// Its limits.
    pub(super) limits: Arc<dyn SharedLimits>,
    /// The same, while keys still have usage under the policy before; and until when.
    pub(super) moving: Option<(Moment, Arc<dyn SharedLimits>)>,
    pub(super) owing: Arc<Owing>,
}

impl Fleet {
    fn limits(&self, now: Moment) -> &Arc<dyn SharedLimits> {
        match &self.moving {
            Some((until, moving)) if now < *until => moving,
            _ => &self.limits,
        }
    }
}

/// What keys were let pass while the store was away: by limit and by key.
#[derive(Debug, Default)]
pub(super) struct Owing {
    keys: Mutex<HashMap<(u64, u64), Debt>>,
    /// How many there are, so that nobody takes the lock while there are none.
    count: AtomicUsize,
}

/// What one key owes.
#[derive(Clone, Copy, Debug)]
struct Debt {
    units: u64,
    /// From then on nothing of it counts any more.
    until: Moment,
}

impl Owing {
    fn keys(&self) -> MutexGuard<'_, HashMap<(u64, u64), Debt>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, limit: u64, hash: u64, units: u64, until: Moment) {
        let mut keys = self.keys();
        let is_room = keys.len() < OWING_MAX;
        match keys.entry((limit, hash)) {
            Entry::Occupied(mut debt) => {
                let debt = debt.get_mut();
                debt.units = debt.units.saturating_add(units);
                debt.until = until;
            }
            Entry::Vacant(place) if is_room => {
                place.insert(Debt { units, until });
            }
            Entry::Vacant(_) => {}
        }
        self.count.store(keys.len(), Relaxed);
    }

    fn take(&self, limit: u64, hash: u64) -> u64 {
        if self.count.load(Relaxed) == 0 {
            return 0;
        }
        let mut keys = self.keys();
        let debt = keys.remove(&(limit, hash));
        self.count.store(keys.len(), Relaxed);
        debt.map_or(0, |debt| debt.units)
    }

    /// Forgets what does not count any more.
    fn sweep(&self, now: Moment) {
        if self.count.load(Relaxed) > 0 {
            let mut keys = self.keys();
            keys.retain(|_, debt| now < debt.until);
            self.count.store(keys.len(), Relaxed);
        }
    }
}

/// A request that was understood.
#[derive(Debug)]
#[must_use]
pub enum Begun {
    /// And answered: nothing has to be asked elsewhere.
    Decided(Answer),
    /// The store has to be asked: [`PolicyGate::finish`].
    Asks(Asking),
}

/// A request whose charges are known and not yet decided.
#[derive(Debug)]
pub struct Asking {
    plan: Plan,
    ask: Ask,
    request: SharedRequest,
    limits: Arc<dyn SharedLimits>,
    began: Moment,
}

impl<C: Clock> PolicyGate<C> {
    /// The store that this node shares with others.
    pub fn store(&self) -> Option<&Arc<dyn SharedStore>> {
        self.fleet.as_ref().map(|fleet| &fleet.store)
    }

    /// Begins to decide a request; with `take` it is charged, otherwise only asked about. Without a store
    /// that a fleet shares, that is all.
    pub fn begin(&self, facts: &Facts<'_>, take: bool) -> Begun {
        self.begin_at(facts, take, self.clock.now())
    }

    /// The same, by whoever has just read the clock of this gate: it is not read twice.
    pub fn begin_at(&self, facts: &Facts<'_>, take: bool, now: Moment) -> Begun {
        self.begun(self.plan(facts, now), now, take)
    }

    /// Begins to decide a charge on one limit by its name. None if there is no such limit.
    pub fn begin_named(&self, limit: &str, key: &[&str], cost: u64, take: bool) -> Option<Begun> {
        let now = self.clock.now();
        let plan = self.plan_named(limit, key, cost, now)?;
        Some(self.begun(plan, now, take))
    }

    /// Begins to decide a charge on a rule by its place, by whoever has just read the clock of this gate. None
    /// if there is no such rule.
    pub fn begin_keyed_at(
        &self,
        rule: usize,
        key: &[&str],
        cost: u64,
        take: bool,
        now: Moment,
    ) -> Option<Begun> {
        let plan = self.plan_keyed(rule, key, cost, now)?;
        Some(self.begun(plan, now, take))
    }

    pub(super) fn begun(&self, plan: Result<Plan, Box<Answer>>, now: Moment, take: bool) -> Begun {
        let ask = if take { Ask::Charge } else { Ask::Peek };
        let plan = match plan {
            Ok(plan) => plan,
            Err(answer) => return Begun::Decided(*answer),
        };
        let counts = |charge: &RuleCharge| charge.role != Role::Unlimited;
        let fleet = match &self.fleet {
            Some(fleet) if plan.stop.is_none() && plan.charges.iter().any(counts) => fleet,
            _ => return Begun::Decided(self.carry_out(plan, now, ask)),
        };
        if plan.enforced > CHARGES_MAX {
            let answer = unlimited(Verdict::Never, Basis::TooManyLimits, now);
            return Begun::Decided(answer);
        }
        let charges = plan.charges.iter().zip(&plan.keys);
        let charges = charges.filter(|(charge, _)| counts(charge));
        let charges = charges.map(|(charge, key)| SharedCharge {
            limit: charge.limit,
            key: key.clone(),
            cost: charge.cost,
            most: charge.most,
            enforced: charge.role == Role::Enforced,
            owed: self.owed(fleet, charge, take),
        });
        let request = SharedRequest {
            take,
            charges: charges.collect(),
        };
        let limits = Arc::clone(fleet.limits(now));
        Begun::Asks(Asking {
            plan,
            ask,
            request,
            limits,
            began: now,
        })
    }

    /// Asks the store and makes an answer of what it says, or decides without it.
    pub async fn finish(&self, asking: Asking) -> Answer {
        let outcomes = asking.limits.charge(&asking.request).await;
        match outcomes {
            Ok(outcomes) if outcomes.len() == asking.request.charges.len() => {
                self.concluded(asking, &outcomes, pending()).await
            }
            Ok(_) | Err(_) => self.fall_back(asking),
        }
    }

    /// The same for whoever cannot wait for ever: if `over` comes first, it is decided without the store.
    pub async fn finish_before(&self, asking: Asking, over: impl Future<Output = ()>) -> Answer {
        let mut over = pin!(over);
        let outcomes = {
            let mut charging = asking.limits.charge(&asking.request);
            poll_fn(|context| match charging.as_mut().poll(context) {
                Poll::Ready(outcomes) => Poll::Ready(outcomes.ok()),
                Poll::Pending => over.as_mut().poll(context).map(|()| None),
            })
            .await
        };
        match outcomes {
            Some(outcomes) if outcomes.len() == asking.request.charges.len() => {
                self.concluded(asking, &outcomes, over).await
            }
            _ => self.fall_back(asking),
        }
    }

    /// The answer, after all that it has to do with the store is done.
    async fn concluded(
        &self,
        asking: Asking,
        outcomes: &[SharedOutcome],
        over: impl Future<Output = ()>,
    ) -> Answer {
        let takes = asking.ask == Ask::Charge;
        let answer = self.conclude(asking, outcomes);
        if takes {
            self.take_rest_there(&answer, over).await;
        }
        answer
    }

    /// Sees to it that this node's limiters hold its share of each limit, whatever the number of nodes is
    /// now, and forgets what is owed and does not count any more. To be called every now and then.
    pub fn divide(&self) {
        let Some(fleet) = &self.fleet else {
            return;
        };
        fleet.owing.sweep(self.clock.now());
        let nodes = fleet.store.nodes().max(1);
        for (variant, (_, limiter)) in self.variants.iter().zip(self.limiters()) {
            let share = variant.quota.share(nodes).limit;
            if limiter.limit().algorithm() != share.algorithm() {
                // A share is of the same kind, so this fails only for want of memory; the old share stays.
                let _ = limiter.change(share);
            }
        }
    }

    /// What a key was let pass while the store was away and has not earned back.
    fn owed(&self, fleet: &Fleet, charge: &RuleCharge, take: bool) -> u64 {
        let Some(variant) = self.variants.get(charge.limit.index()) else {
            return 0;
        };
        if !take {
            return 0;
        }
        let units = fleet.owing.take(variant.known_by, charge.hash);
        if units == 0 {
            return 0;
        }
        // The share holds these units, less what was earned since, and what the store let pass itself.
        let limiter = self.gate.limiter(charge.limit);
        units.min(limiter.used(charge.hash))
    }

    /// Notes what the store is to be told. Places of concurrency limits are given back to whoever granted
    /// them, so they are not among it.
    pub(super) fn owe(&self, charge: &RuleCharge, units: u64) {
        let variant = self.variants.get(charge.limit.index());
        let (Some(fleet), Some(variant)) = (&self.fleet, variant) else {
            return;
        };
        let limit = variant.quota.limit.algorithm();
        if units > 0 && !matches!(limit, Algorithm::Concurrency { .. }) {
            let until = self.clock.now().plus(horizon(&variant.quota));
            fleet.owing.add(variant.known_by, charge.hash, units, until);
        }
    }

    /// The answer that the store's outcomes come to.
    fn conclude(&self, asking: Asking, outcomes: &[SharedOutcome]) -> Answer {
        let Asking { mut plan, ask, .. } = asking;
        let now = self.clock.now();
        let mut outcomes = outcomes.iter();
        let mut enforced = Vec::with_capacity(plan.enforced);
        let mut told = Vec::with_capacity(plan.charges.len());
        for (at, charge) in plan.charges.iter_mut().enumerate() {
            let outcome = match charge.role {
                Role::Unlimited => None,
                _ => outcomes.next(),
            };
            told.push(outcome.copied().unwrap_or(SharedOutcome {
                verdict: Verdict::Pass,
                standing: Standing::default(),
                issued: now,
            }));
            let Some(outcome) = outcome else {
                continue;
            };
            charge.verdict = outcome.verdict;
            charge.issued = outcome.issued;
            charge.is_shared = true;
            if charge.role == Role::Enforced {
                let decision = Decision {
                    verdict: outcome.verdict,
                    standing: outcome.standing,
                    issued: now,
                    origin: Origin::Fresh,
                };
                enforced.push((at, charge.cost, decision));
            }
        }
        let mut answer = unlimited(Verdict::Pass, Basis::Unmatched, now);
        if plan.enforced > 0 {
            let (decision, binding) = tightest(enforced.into_iter(), now);
            answer = Answer {
                verdict: decision.verdict,
                basis: Basis::Charge(binding.unwrap_or(0)),
                standing: decision.standing,
                ..answer
            };
        }
        for charge in &mut plan.charges {
            if charge.role == Role::Enforced {
                charge.verdict = answer.verdict;
            }
        }
        if ask == Ask::Charge && answer.is_admitted() {
            self.keep_warm(&plan);
        }
        answer.charges = plan.charges;
        answer.keys = plan.keys;
        answer.outcomes = told;
        answer
    }

    /// Takes what the store let pass here from this node's share, too.
    fn keep_warm(&self, plan: &Plan) {
        for charge in &plan.charges {
            if charge.role != Role::Unlimited && charge.verdict.is_admitted() {
                self.gate
                    .limiter(charge.limit)
                    .take_over(charge.hash, charge.cost);
            }
        }
    }

    /// Decides without the store, as each limit says.
    fn fall_back(&self, asking: Asking) -> Answer {
        let Asking {
            mut plan,
            ask,
            request,
            began,
            ..
        } = asking;
        // What was to be told may not have been heard.
        let counted = plan.charges.iter().filter(|c| c.role != Role::Unlimited);
        for (charge, sent) in counted.zip(&request.charges) {
            self.owe(charge, sent.owed);
        }
        let on_error = |charge: &RuleCharge| {
            let rule = self.rules.get(charge.rule);
            rule.map_or(OnStoreError::Local, |live| live.rule.on_store_error)
        };
        let enforced = |charge: &&RuleCharge| charge.role == Role::Enforced;
        let mut wishes = plan.charges.iter().filter(enforced);
        let denies = wishes.find(|charge| on_error(charge) == OnStoreError::Deny);
        if let Some(rule) = denies.map(|charge| charge.rule) {
            let refused = Verdict::Refuse {
                retry_after: TRY_AGAIN,
            };
            let mut answer = unlimited(refused, Basis::StoreError(rule), self.clock.now());
            answer.standing.remaining = 0;
            answer.origin = Origin::Degraded;
            for charge in plan.charges.iter_mut() {
                charge.verdict = refused;
            }
            answer.charges = plan.charges;
            if ask == Ask::Charge {
                self.take_rest(&answer);
                self.owe_rest(&answer);
            }
            return answer;
        }
        // Who is let pass is not counted here: it does not bind, and nothing of it is left to tell.
        let mut let_pass = None;
        for charge in &mut plan.charges {
            if charge.role == Role::Enforced && on_error(charge) == OnStoreError::Allow {
                charge.role = Role::Unlimited;
                let_pass.get_or_insert(charge.rule);
                plan.enforced -= 1;
            }
        }
        let binds = plan.enforced > 0;
        let mut answer = self.carry_out(plan, began, ask);
        answer.origin = Origin::Degraded;
        if let (Some(rule), false) = (let_pass, binds) {
            answer.basis = Basis::StoreError(rule);
        }
        if answer.verdict == Verdict::Never
            && let Some(charge) = answer.binding()
            && charge.cost <= self.whole_capacity(charge)
        {
            // Too much for this node's share, not for the limit.
            answer.verdict = Verdict::Refuse {
                retry_after: TRY_AGAIN,
            };
        }
        if ask == Ask::Charge && answer.is_admitted() {
            let took = |c: &&RuleCharge| c.role == Role::Enforced && c.verdict.is_admitted();
            for charge in answer.charges.iter().filter(took) {
                self.owe(charge, charge.cost);
            }
        }
        if ask == Ask::Charge {
            self.owe_rest(&answer);
        }
        answer
    }

    /// The greatest cost that can ever pass a limit as it is written.
    fn whole_capacity(&self, charge: &RuleCharge) -> u64 {
        let variant = self.variants.get(charge.limit.index());
        let whole = variant.map_or(0, |variant| variant.quota.advertised().0);
        charge.most.map_or(whole, u64::from)
    }
}
