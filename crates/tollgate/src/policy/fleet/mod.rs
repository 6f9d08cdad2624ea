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
//! A limit may be lent: then this node pays from what it borrowed, and asks only for what is missing
//! (`leased`, `loan`).
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

mod bound;
mod copy;
mod leased;
mod loan;
mod loans;
mod owing;

use std::future::{pending, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
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
use crate::store::shared::{
    SharedCharge, SharedKey, SharedLimits, SharedOutcome, SharedRequest, SharedSettle, SharedStore,
};
use crate::time::{Moment, Span};
pub(super) use leased::terms;
use leased::{Drawn, Ways};
use loans::{Borrower, Return};
pub(super) use loans::{LoanOf, Loans, Terms};
pub(super) use owing::Owing;

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
    /// What it has lent to this node.
    pub(super) loans: Arc<Loans>,
}

impl Fleet {
    /// The loan that a charge was paid from.
    pub(super) fn loan_of(&self, charge: &RuleCharge) -> LoanOf {
        let of = Borrower {
            limit: charge.limit,
            hash: charge.hash,
        };
        LoanOf::new(Arc::clone(&self.loans), of)
    }

    fn limits(&self, now: Moment) -> &Arc<dyn SharedLimits> {
        match &self.moving {
            Some((until, moving)) if now < *until => moving,
            _ => &self.limits,
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
    step: Step,
    began: Moment,
}

/// What a request waits for.
#[derive(Debug)]
enum Step {
    /// Somebody who asks for the same loan.
    Wait(Borrower),
    /// The store.
    Ask(Question),
}

#[derive(Debug)]
struct Question {
    request: SharedRequest,
    limits: Arc<dyn SharedLimits>,
    /// What loans have to do with it, if anything is lent.
    ways: Option<Ways>,
}

/// What a request came to.
enum Outcome {
    /// Loans paid for it.
    Paid(Ways),
    /// A loan knows that the store would refuse this charge.
    Refused(usize, Span),
    /// The store, which was asked at this moment, says this of each charge that it was asked for.
    Told(Moment, Vec<SharedOutcome>),
    /// Nobody answered.
    Nothing,
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
        let step = match self.step(fleet, &plan, now, (take, false)) {
            Ok(step) => step,
            Err(Outcome::Refused(at, wait)) => {
                return Begun::Decided(self.refused_by_loan(plan, at, wait));
            }
            Err(Outcome::Paid(ways)) => {
                let told = ways.conclude(&[], (1, now), true, &[]);
                return Begun::Decided(self.conclude(plan, (ask, now), told, Origin::Leased));
            }
            Err(_) => return Begun::Decided(self.carry_out(plan, now, ask)),
        };
        Begun::Asks(Asking {
            plan,
            ask,
            step,
            began: now,
        })
    }

    /// What is to be done for a request, or what loans make of it.
    fn step(
        &self,
        fleet: &Fleet,
        plan: &Plan,
        now: Moment,
        (take, waited): (bool, bool),
    ) -> Result<Step, Outcome> {
        let ways = match take && self.is_lent(plan) {
            false => None,
            true => match self.draw(fleet, plan, now, waited) {
                Drawn::Paid(ways) => return Err(Outcome::Paid(ways)),
                Drawn::Refused(at, wait) => return Err(Outcome::Refused(at, wait)),
                Drawn::Wait(of) => return Ok(Step::Wait(of)),
                Drawn::Ask(ways) => Some(ways),
            },
        };
        let mut charges = Vec::with_capacity(plan.charges.len());
        for (at, (charge, key)) in plan.charges.iter().zip(&plan.keys).enumerate() {
            let more = match &ways {
                Some(ways) => ways.asks(at),
                None => (charge.role != Role::Unlimited).then_some(0),
            };
            if let Some(more) = more {
                charges.push(SharedCharge {
                    limit: charge.limit,
                    key: key.clone(),
                    cost: charge.cost.saturating_add(more),
                    most: charge.most,
                    enforced: charge.role == Role::Enforced,
                    owed: self.owed(fleet, charge, take),
                });
            }
        }
        Ok(Step::Ask(Question {
            request: SharedRequest {
                take,
                waited: Span::ZERO,
                charges,
            },
            limits: Arc::clone(fleet.limits(now)),
            ways,
        }))
    }

    /// Asks the store and makes an answer of what it says, or decides without it.
    pub async fn finish(&self, mut asking: Asking) -> Answer {
        let outcome = self.ask(&mut asking).await;
        self.answered(asking, outcome, pending()).await
    }

    /// The same for whoever cannot wait for ever: if `over` comes first, it is decided without the store.
    pub async fn finish_before(
        &self,
        mut asking: Asking,
        over: impl Future<Output = ()>,
    ) -> Answer {
        let mut over = pin!(over);
        let outcome = {
            let mut asked = pin!(self.ask(&mut asking));
            poll_fn(|context| match asked.as_mut().poll(context) {
                Poll::Ready(outcome) => Poll::Ready(outcome),
                Poll::Pending => over.as_mut().poll(context).map(|()| Outcome::Nothing),
            })
            .await
        };
        self.answered(asking, outcome, over).await
    }

    /// Asks, and waits for whoever asks for the same.
    async fn ask(&self, asking: &mut Asking) -> Outcome {
        let Some(fleet) = &self.fleet else {
            return Outcome::Nothing;
        };
        loop {
            match &mut asking.step {
                Step::Wait(of) => {
                    fleet.loans.wait(*of).await;
                    match self.step(fleet, &asking.plan, self.clock.now(), (true, true)) {
                        Ok(step) => asking.step = step,
                        Err(outcome) => return outcome,
                    }
                }
                Step::Ask(question) => {
                    let sent = self.clock.now();
                    question.request.waited = sent.since(asking.began);
                    let outcomes = question.limits.charge(&question.request).await;
                    let outcomes = match outcomes {
                        Ok(outcomes) if outcomes.len() == question.request.charges.len() => {
                            outcomes
                        }
                        _ => return Outcome::Nothing,
                    };
                    let again = question.ways.as_mut();
                    if !again.is_some_and(|w| w.ask_for_less(&mut question.request, &outcomes)) {
                        return Outcome::Told(sent, outcomes);
                    }
                }
            }
        }
    }

    /// The answer, after all that it has to do with the store is done.
    async fn answered(
        &self,
        asking: Asking,
        outcome: Outcome,
        over: impl Future<Output = ()>,
    ) -> Answer {
        let is_told = matches!(outcome, Outcome::Told(..));
        let takes = is_told && asking.ask == Ask::Charge;
        let answer = self.answer(asking, outcome);
        if takes {
            self.take_rest_there(&answer, over).await;
        }
        answer
    }

    fn answer(&self, asking: Asking, outcome: Outcome) -> Answer {
        match outcome {
            Outcome::Nothing => self.fall_back(asking),
            Outcome::Refused(at, wait) => self.refused_by_loan(asking.plan, at, wait),
            Outcome::Paid(ways) => {
                let told = ways.conclude(&[], (1, asking.began), true, &[]);
                let now = self.clock.now();
                self.conclude(asking.plan, (asking.ask, now), told, Origin::Leased)
            }
            Outcome::Told(sent, outcomes) => {
                let now = self.clock.now();
                let Asking {
                    mut plan,
                    ask,
                    step,
                    ..
                } = asking;
                let Step::Ask(Question { request, ways, .. }) = step else {
                    return self.conclude(plan, (ask, now), outcomes, Origin::Fresh);
                };
                let asked = request.charges.iter().zip(&outcomes);
                let passes = asked
                    .clone()
                    .all(|(charge, outcome)| !charge.enforced || outcome.verdict.is_admitted());
                if passes && request.take {
                    self.keep_warm(&request, &outcomes, &plan);
                }
                let told = match (ways, &self.fleet) {
                    (Some(ways), Some(fleet)) => {
                        for (at, charge) in plan.charges.iter_mut().enumerate() {
                            charge.is_lent = ways.is_lent(at);
                        }
                        let nodes = fleet.store.nodes().max(1);
                        ways.conclude(&plan.keys, (nodes, sent), passes, &outcomes)
                    }
                    _ => self.in_order(&plan, outcomes),
                };
                self.conclude(plan, (ask, now), told, Origin::Fresh)
            }
        }
    }

    /// What the store says, with a place for those that do not count.
    fn in_order(&self, plan: &Plan, outcomes: Vec<SharedOutcome>) -> Vec<SharedOutcome> {
        if outcomes.len() == plan.charges.len() {
            return outcomes;
        }
        let mut outcomes = outcomes.into_iter();
        let free = SharedOutcome {
            verdict: Verdict::Pass,
            standing: Standing::default(),
            issued: self.clock.now(),
        };
        let told = plan.charges.iter().map(|charge| match charge.role {
            Role::Unlimited => free,
            _ => outcomes.next().unwrap_or(free),
        });
        told.collect()
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

    /// Gives back to the store what was lent and not spent, and tells it what passed by copies. To be called ten times
    /// a second where a limit is not shared exactly ([`super::Sharing`]).
    pub async fn tend(&self) {
        let Some(fleet) = &self.fleet else {
            return;
        };
        fleet.loans.sweep(self.clock.now());
        // What is not answered is not sent again: it is earned anew.
        all(fleet.loans.returns(), |back| async move {
            let Return { limits, settle, .. } = &back;
            if settle.used <= settle.taken {
                let _ = limits.settle(settle).await;
                return;
            }
            let of = Borrower {
                limit: settle.limit,
                hash: 0,
            };
            let units = settle.used - settle.taken;
            let told = tell(&**limits, of, &settle.key, units).await;
            // What it may not have heard is told again, too.
            let left = told.map_or(units, |(no_room, _)| no_room);
            fleet.loans.no_room(back, left);
        })
        .await;
        let nodes = fleet.store.nodes().max(1);
        let limits = &fleet.limits;
        all(fleet.loans.news(), |news| async move {
            let sent = self.clock.now();
            let answer = tell(&**limits, news.of, &news.key, news.units).await;
            fleet.loans.told(&news, nodes, sent, answer);
        })
        .await;
    }

    /// Lends and copies nothing any more, and settles everything with the store: when this node ends.
    pub async fn return_loans(&self) {
        if let Some(fleet) = &self.fleet {
            fleet.loans.close();
            self.tend().await;
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

    /// The answer that outcomes come to, one for each charge.
    fn conclude(
        &self,
        mut plan: Plan,
        (ask, now): (Ask, Moment),
        told: Vec<SharedOutcome>,
        origin: Origin,
    ) -> Answer {
        for (charge, outcome) in plan.charges.iter_mut().zip(&told) {
            if charge.role != Role::Unlimited {
                charge.verdict = outcome.verdict;
                charge.issued = outcome.issued;
                charge.is_shared = true;
                charge.is_lent |= origin == Origin::Leased;
            }
        }
        let mut answer = unlimited(Verdict::Pass, Basis::Unmatched, now);
        answer.origin = origin;
        if plan.enforced > 0 {
            let numbered = plan.charges.iter().enumerate().zip(&told);
            let enforced = numbered.filter(|((_, charge), _)| charge.role == Role::Enforced);
            let decisions = enforced.map(|((at, charge), outcome)| {
                let decision = Decision {
                    verdict: outcome.verdict,
                    standing: outcome.standing,
                    issued: now,
                    origin,
                };
                (at, charge.cost, decision)
            });
            let (decision, binding) = tightest(decisions, now);
            answer.verdict = decision.verdict;
            answer.basis = Basis::Charge(binding.unwrap_or(0));
            answer.standing = decision.standing;
        }
        for charge in &mut plan.charges {
            if charge.role == Role::Enforced {
                charge.verdict = answer.verdict;
            }
        }
        if ask == Ask::Charge && answer.is_admitted() && origin == Origin::Leased {
            self.keep_places_warm(&plan);
        }
        answer.charges = plan.charges;
        answer.keys = plan.keys;
        answer.outcomes = told;
        answer
    }

    /// A request that the store would refuse, as a loan knows. The others are told as this node sees them.
    fn refused_by_loan(&self, mut plan: Plan, at: usize, wait: Span) -> Answer {
        let now = self.clock.now();
        let refused = Verdict::Refuse { retry_after: wait };
        let told = plan.charges.iter().enumerate().map(|(place, charge)| {
            let stands = self.gate.limiter(charge.limit).peek_hash(charge.hash, 0);
            SharedOutcome {
                verdict: if place == at { refused } else { Verdict::Pass },
                standing: match place == at {
                    true => Standing {
                        remaining: 0,
                        next_after: wait,
                        full_after: stands.standing.full_after.max(wait),
                    },
                    false => stands.standing,
                },
                issued: now,
            }
        });
        let told: Vec<_> = told.collect();
        // What was not asked does not bind.
        let binding = told.get(at).map(|told| told.standing).unwrap_or_default();
        for charge in &mut plan.charges {
            if charge.role == Role::Enforced {
                charge.verdict = refused;
            }
            charge.is_shared = charge.role != Role::Unlimited;
        }
        Answer {
            standing: binding,
            origin: Origin::Leased,
            charges: plan.charges,
            keys: plan.keys,
            outcomes: told,
            ..unlimited(refused, Basis::Charge(at), now)
        }
    }

    /// Takes what the store let pass here, and what it lent, from this node's share, too.
    fn keep_warm(&self, request: &SharedRequest, outcomes: &[SharedOutcome], plan: &Plan) {
        let mut charges = plan.charges.iter();
        for (asked, outcome) in request.charges.iter().zip(outcomes) {
            // They are in the order of the plan, which may have more.
            let is_this = |c: &&RuleCharge| c.limit == asked.limit && c.role != Role::Unlimited;
            let Some(charge) = charges.find(is_this) else {
                return;
            };
            let limiter = self.gate.limiter(charge.limit);
            let is_place = matches!(limiter.limit().algorithm(), Algorithm::Concurrency { .. });
            if outcome.verdict.is_admitted() {
                let units = if is_place { charge.cost } else { asked.cost };
                limiter.take_over(charge.hash, units);
            }
        }
    }

    /// Places that loans paid for are held here, too: they are given back one by one.
    fn keep_places_warm(&self, plan: &Plan) {
        for charge in plan.charges.iter().filter(|charge| charge.is_lent) {
            let variant = self.variants.get(charge.limit.index());
            let limit = variant.map(|variant| variant.quota.limit.algorithm());
            if matches!(limit, Some(Algorithm::Concurrency { .. })) && charge.verdict.is_admitted()
            {
                let limiter = self.gate.limiter(charge.limit);
                limiter.take_over(charge.hash, charge.cost);
            }
        }
    }

    /// Decides without the store, as each limit says.
    fn fall_back(&self, asking: Asking) -> Answer {
        let Asking {
            mut plan,
            ask,
            step,
            began,
        } = asking;
        // What was to be told may not have been heard. What loans paid is put back.
        if let Step::Ask(Question { request, .. }) = step {
            let mut charges = plan.charges.iter();
            for sent in request.charges.iter().filter(|sent| sent.owed > 0) {
                if let Some(charge) = charges.find(|charge| charge.limit == sent.limit) {
                    self.owe(charge, sent.owed);
                }
            }
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

/// Asks the store what is left for a key, and tells it what passed, as far as there is room: it rounds against whoever
/// tells it more, and who tells it again and again would never have paid. Returns what there was no room for, and
/// how the key then stands; none if there is no answer.
async fn tell(
    limits: &dyn SharedLimits,
    of: Borrower,
    key: &SharedKey,
    units: u64,
) -> Option<(u64, SharedOutcome)> {
    let question = SharedRequest {
        take: false,
        waited: Span::ZERO,
        charges: vec![SharedCharge {
            limit: of.limit,
            key: key.clone(),
            cost: 0,
            most: None,
            enforced: true,
            owed: 0,
        }],
    };
    let mut outcome = *limits.charge(&question).await.ok()?.first()?;
    let left = &mut outcome.standing.remaining;
    let fits = units.min(*left);
    if fits == 0 {
        return Some((units, outcome));
    }
    let settle = SharedSettle {
        limit: of.limit,
        key: key.clone(),
        issued: outcome.issued,
        taken: 0,
        used: fits,
    };
    let unpaid = limits.settle(&settle).await.ok()?.min(fits);
    *left -= fits - unpaid;
    Some((units - fits + unpaid, outcome))
}

/// Questions that are under way at once.
const AT_ONCE: usize = 64;

/// Does something for all of these, many at once.
async fn all<T, F: Future>(items: Vec<T>, each: impl Fn(T) -> F) {
    let mut items = items.into_iter();
    let mut under_way: Vec<Pin<Box<F>>> = Vec::new();
    poll_fn(|context| {
        loop {
            let more = AT_ONCE - under_way.len().min(AT_ONCE);
            under_way.extend(items.by_ref().take(more).map(|item| Box::pin(each(item))));
            let before = under_way.len();
            under_way.retain_mut(|one| one.as_mut().poll(context).is_pending());
            match (under_way.len(), items.len()) {
                (0, 0) => return Poll::Ready(()),
                (now, left) if now == before || left == 0 => return Poll::Pending,
                _ => {}
            }
        }
    })
    .await;
}
