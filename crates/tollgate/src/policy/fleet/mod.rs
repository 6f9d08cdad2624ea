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

mod account;
mod ahead;
mod alone;
mod bound;
mod concluded;
mod copy;
mod leased;
mod ledger;
mod loan;
mod loans;
mod owing;
mod paid_from;
mod tend;
mod terms;

use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use super::answer::{Answer, Basis, Role, RuleCharge};
use super::facts::Facts;
use super::gate::{Ask, Plan, PolicyGate, unlimited};
use crate::clock::Clock;
use crate::decision::Verdict;
use crate::store::memory::CHARGES_MAX;
use crate::store::shared::{
    SharedCharge, SharedKey, SharedLimits, SharedOutcome, SharedRequest, SharedStore,
};
use crate::time::{Moment, Span};
pub(super) use account::Terms;
pub(super) use leased::terms;
use leased::{Drawn, Look, Ways};
pub use ledger::LendingReport;
use loans::Borrower;
pub(super) use loans::Loans;
use owing::Owed;
pub(super) use owing::Owing;
pub(super) use paid_from::{Corrected, LoanOf};

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

impl Asking {
    /// May the store lend something with the answer? Then whoever goes away before it costs the limit more than his
    /// request: it is better to carry on without him.
    pub fn may_borrow(&self) -> bool {
        matches!(self.step, Step::Begin)
    }

    /// The key of each charge.
    pub(super) fn keys(&self) -> &[SharedKey] {
        &self.plan.keys
    }

    /// The same request, to be decided without the store: see [`PolicyGate::finish_alone`].
    pub(super) fn without_store(&self) -> Asking {
        Asking {
            plan: self.plan.clone(),
            ask: self.ask,
            step: Step::Begin,
            began: self.began,
        }
    }
}

/// What a request waits for.
#[derive(Debug)]
enum Step {
    /// To be worked out when somebody waits for the answer: whoever only begins holds nobody up.
    Begin,
    /// Somebody who asks for the same loan.
    Wait(Borrower),
    /// The store.
    Ask(Question),
}

#[derive(Debug)]
struct Question {
    request: SharedRequest,
    /// What is told with it.
    owed: Vec<Owed>,
    /// Which charge of the plan each of the request is: of one limit there may be several, for several keys.
    places: Vec<usize>,
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
        let step = match self.step(fleet, &plan, now, (take, Look::First)) {
            Ok(step) => step,
            Err(Outcome::Refused(at, wait)) => {
                return Begun::Decided(self.refused_by_loan(plan, at, wait));
            }
            Err(Outcome::Paid(ways)) => return Begun::Decided(self.paid(plan, ways, now)),
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
        (take, look): (bool, Look),
    ) -> Result<Step, Outcome> {
        let ways = match take && self.is_lent(plan) {
            false => None,
            true => match self.draw(fleet, plan, now, look) {
                Drawn::Paid(ways) => return Err(Outcome::Paid(ways)),
                Drawn::Refused(at, wait) => return Err(Outcome::Refused(at, wait)),
                Drawn::Alone => return Err(Outcome::Nothing),
                _ if look == Look::First => return Ok(Step::Begin),
                Drawn::Wait(of) => return Ok(Step::Wait(of)),
                Drawn::Ask(ways) => Some(ways),
            },
        };
        let mut charges = Vec::with_capacity(plan.charges.len());
        let mut places = Vec::with_capacity(plan.charges.len());
        let mut told = Vec::new();
        for (at, (charge, key)) in plan.charges.iter().zip(&plan.keys).enumerate() {
            let more = match &ways {
                Some(ways) => ways.asks(at),
                None => (charge.role != Role::Unlimited).then_some(0),
            };
            if let Some(more) = more {
                let untold = ways.as_ref().map_or(0, |ways| ways.untold(at));
                let owed = take.then(|| self.owed(fleet, charge.limit, charge.hash));
                let units = owed.as_ref().map_or(0, Owed::units);
                told.extend(owed.filter(|owed| owed.units() > 0));
                places.push(at);
                charges.push(SharedCharge {
                    limit: charge.limit,
                    key: key.clone(),
                    cost: charge.cost.saturating_add(more),
                    most: charge.most,
                    enforced: charge.role == Role::Enforced,
                    owed: units.saturating_add(untold),
                });
            }
        }
        Ok(Step::Ask(Question {
            request: SharedRequest {
                take,
                waited: Span::ZERO,
                charges,
            },
            owed: told,
            places,
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

    /// The same for whoever cannot wait at all: it is decided without the store.
    pub fn finish_alone(&self, asking: Asking) -> Answer {
        self.answer(asking, Outcome::Nothing)
    }

    /// Asks, and waits for whoever asks for the same.
    async fn ask(&self, asking: &mut Asking) -> Outcome {
        let Some(fleet) = &self.fleet else {
            return Outcome::Nothing;
        };
        loop {
            match &mut asking.step {
                Step::Begin => {
                    let look = (asking.ask == Ask::Charge, Look::Asking);
                    match self.step(fleet, &asking.plan, self.clock.now(), look) {
                        Ok(step) => asking.step = step,
                        Err(outcome) => return outcome,
                    }
                }
                Step::Wait(of) => {
                    fleet.loans.wait(*of).await;
                    match self.step(fleet, &asking.plan, self.clock.now(), (true, Look::Again)) {
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
                    question.owed.drain(..).for_each(Owed::was_told);
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
}
