//! From facts to a decision, also where the state is in a store that a fleet shares.
//!
//! # Theory
//!
//! Matching makes the charges, the store decides them, and the answer is built from them. In a process of its own the store
//! is a set of tables and answers at once. In a fleet the layers of [`super::store`] answer at once what they can; what they
//! cannot is [`Asking`], which waits.
//!
//! # Invariant
//!
//! Every request is answered, in the time that the store has and not more. A charge is sent once. A request that its caller
//! abandons while it waits is finished in the background, and what it took is given back; if nobody runs the background
//! ([`PolicyGate::borrow_ahead`]), it is dropped, and what was on its way to the store stays taken there.

use std::fmt;
use std::future::{Future, pending, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use super::answer::{Answer, Basis};
use super::charge::{Charge, Source, all_pass};
use super::decide::BackgroundWork;
use super::decision::unlimited;
use super::facts::Facts;
use super::gate::{Ask, Plan, PolicyGate};
use super::store::background::Background;
use super::store::lease::report::LendingReport;
use super::store::stack::FleetStore;
use super::store::{self, Apply, Request};
use crate::shared::SharedKey;
use tollgate::CHARGES_MAX;
use tollgate::clock::Clock;
use tollgate::decision::Verdict;
use tollgate::time::Moment;

type Deciding = Pin<Box<dyn Future<Output = Vec<Charge>> + Send>>;

/// A request that was understood.
#[derive(Debug)]
#[must_use]
pub enum Begun {
    /// And answered: nothing has to be asked elsewhere.
    Decided(Answer),
    /// The store has to be asked: [`PolicyGate::finish`].
    Asks(Asking),
}

/// A request that waits for a store.
pub struct Asking {
    deciding: Option<Deciding>,
    /// Was it polled? Before that nothing was sent.
    is_begun: bool,
    /// The charges as they were planned.
    charges: Vec<Charge>,
    enforced: usize,
    ask: Ask,
    began: Moment,
    /// Finishes what was begun, and gives back what it took.
    undo: Option<Box<dyn FnOnce(Deciding) -> BackgroundWork + Send>>,
    background: Arc<Background>,
}

impl fmt::Debug for Asking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asking")
            .field("charges", &self.charges)
            .field("began", &self.began)
            .finish_non_exhaustive()
    }
}

impl Asking {
    /// The key of a charge, by its parts.
    pub(super) fn key(&self, at: usize) -> Option<&SharedKey> {
        self.charges.get(at)?.key.as_deref()
    }

    /// Is it still to be decided?
    pub(super) fn waits(&self) -> bool {
        self.deciding.is_some()
    }

    /// The caller does not wait any more: what finishes the request and gives back what it took. None if nothing was sent, or
    /// nothing is taken.
    pub(super) fn detach(&mut self) -> Option<BackgroundWork> {
        let is_begun = self.is_begun && self.ask == Ask::Charge;
        let deciding = self.deciding.take().filter(|_| is_begun)?;
        Some(self.undo.take()?(deciding))
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        // Without a runner nothing would ever finish it.
        if self.background.is_run()
            && let Some(work) = self.detach()
        {
            self.background.push(work);
        }
    }
}

impl<C: Clock> PolicyGate<C> {
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
        let fleet = match &self.fleet {
            Some(fleet) if plan.stop.is_none() && plan.charges.iter().any(Charge::is_open) => fleet,
            _ => return Begun::Decided(self.carry_out(plan, now, ask)),
        };
        if plan.enforced > CHARGES_MAX {
            let answer = unlimited(Verdict::Never, Basis::TooManyLimits, now);
            return Begun::Decided(answer);
        }
        let Plan {
            charges, enforced, ..
        } = plan;
        match fleet.apply(Request::new(ask.op(), charges, now)) {
            Apply::Ready(answered) if fleet.remaining(&answered.charges, ask.op()).is_empty() => {
                Begun::Decided(self.build_decision(answered.charges, enforced))
            }
            Apply::Ready(answered) => {
                let charges = answered.charges.clone();
                let deciding = charge_remaining(fleet.clone(), ask.op(), answered.charges);
                Begun::Asks(self.asking(fleet, Box::pin(deciding), charges, enforced, (ask, now)))
            }
            Apply::Pending(deciding, charges) => {
                let (this, op) = (fleet.clone(), ask.op());
                let deciding = async move {
                    let answered = deciding.await;
                    charge_remaining(this, op, answered.charges).await
                };
                Begun::Asks(self.asking(fleet, Box::pin(deciding), charges, enforced, (ask, now)))
            }
        }
    }

    fn asking(
        &self,
        fleet: &FleetStore<C>,
        deciding: Deciding,
        charges: Vec<Charge>,
        enforced: usize,
        (ask, began): (Ask, Moment),
    ) -> Asking {
        let this = fleet.clone();
        let undo = move |deciding: Deciding| -> BackgroundWork {
            Box::pin(async move {
                let taken = taken(deciding.await, ask.op());
                if !taken.is_empty() {
                    this.resolve(Request::new(store::Op::Refund, taken, this.now()))
                        .await;
                }
            })
        };
        Asking {
            deciding: Some(deciding),
            is_begun: false,
            charges,
            enforced,
            ask,
            began,
            undo: Some(Box::new(undo)),
            background: Arc::clone(fleet.background()),
        }
    }

    /// Asks the store and makes an answer of what it says, or decides without it.
    pub async fn finish(&self, asking: Asking) -> Answer {
        self.finish_before(asking, pending()).await
    }

    /// The same for whoever cannot wait for ever: if `over` comes first, it is decided without the store, and what the store
    /// grants nevertheless is given back.
    pub async fn finish_before(
        &self,
        mut asking: Asking,
        over: impl Future<Output = ()>,
    ) -> Answer {
        let mut over = pin!(over);
        let answer = poll_fn(|context| match self.poll_finish(&mut asking, context) {
            Poll::Ready(answer) => Poll::Ready(Some(answer)),
            Poll::Pending => over.as_mut().poll(context).map(|()| None),
        })
        .await;
        answer.unwrap_or_else(|| self.finish_alone(asking))
    }

    /// Drives a request that waits.
    pub(super) fn poll_finish(
        &self,
        asking: &mut Asking,
        context: &mut Context<'_>,
    ) -> Poll<Answer> {
        let Some(deciding) = &mut asking.deciding else {
            return Poll::Pending;
        };
        asking.is_begun = true;
        let decided = deciding.as_mut().poll(context);
        decided.map(|charges| {
            asking.deciding = None;
            self.build_decision(charges, asking.enforced)
        })
    }

    /// The same for whoever cannot wait at all: it is decided without the store.
    pub fn finish_alone(&self, mut asking: Asking) -> Answer {
        self.decide_alone(&mut asking)
    }

    /// Decides a request without the store. What was begun goes on until `asking` is dropped.
    pub(super) fn decide_alone(&self, asking: &mut Asking) -> Answer {
        let (op, began) = (asking.ask.op(), asking.began);
        let charges = asking.charges.iter();
        let charges = charges.map(|charge| match charge.outcome.source {
            Source::Nothing => charge.clone(),
            _ => charge.reopened(began),
        });
        let request = Request {
            is_local: true,
            ..Request::new(op, charges.collect(), began)
        };
        let charges = match &self.fleet {
            Some(fleet) => fleet.decide_locally(request),
            None => request.charges,
        };
        self.build_decision(charges, asking.enforced)
    }

    /// Runs what no request waits for, until `over`: prefetches of leases
    /// ([`Sharing::Lease`](crate::Sharing::Lease)), returns, and requests whose callers left. What is under way
    /// then is waited for. To be run beside all requests, as long as this policy is in force.
    ///
    /// Without it a request that finds a lease used up waits for the store.
    pub async fn borrow_ahead(&self, over: impl Future<Output = ()>) {
        match &self.fleet {
            Some(fleet) => fleet.background().run(over).await,
            None => over.await,
        }
    }

    /// Returns what was leased and not spent, and pushes what synced counters let pass. To be called ten times
    /// a second where a limit is not shared exactly ([`Sharing`](crate::Sharing)).
    pub async fn tend(&self) {
        if let Some(fleet) = &self.fleet {
            fleet.maintain(self.clock.now()).await;
        }
    }

    /// Leases nothing any more, and settles everything with the store: when this node ends.
    pub async fn return_loans(&self) {
        if let Some(fleet) = &self.fleet {
            fleet.close(self.clock.now());
            fleet.maintain(self.clock.now()).await;
            // What was on its way when it was closed goes back, too.
            fleet.land().await;
            fleet.maintain(self.clock.now()).await;
        }
    }

    /// What the store has leased to this node; none without a store.
    pub fn lending(&self) -> Option<LendingReport> {
        self.fleet.as_ref().map(FleetStore::report)
    }

    /// Sees to it that this node's limiters hold its share of each limit, whatever the number of nodes is
    /// now, and forgets debts that do not count any more. To be called every now and then.
    pub fn divide(&self) {
        let (Some(fleet), Some(store)) = (&self.fleet, self.store()) else {
            return;
        };
        fleet.sweep_debts(self.clock.now());
        let nodes = store.nodes().max(1);
        for (variant, (_, limiter)) in self.variants.iter().zip(self.limiters()) {
            let share = variant.quota.share(nodes).limit;
            if limiter.limit().algorithm() != share.algorithm() {
                // A share is of the same kind, so this fails only for want of memory; the old share stays.
                let _ = limiter.change(share);
            }
        }
    }
}

/// Takes what is left for charges that were refused and are to be taken nevertheless.
async fn charge_remaining<C: Clock>(
    fleet: FleetStore<C>,
    op: store::Op,
    charges: Vec<Charge>,
) -> Vec<Charge> {
    let remaining = fleet.remaining(&charges, op);
    if !remaining.is_empty() {
        let by_store = |charge: &Charge| charge.outcome.is_shared();
        let request = Request {
            // A store that has just given no answer is not asked again.
            is_local: !charges.iter().any(by_store),
            ..Request::new(store::Op::ChargeRemaining, remaining, fleet.now())
        };
        fleet.resolve(request).await;
    }
    charges
}

/// What decided charges took, to be refunded.
fn taken(charges: Vec<Charge>, op: store::Op) -> Vec<Charge> {
    if op != store::Op::Charge || !all_pass(&charges) {
        return Vec::new();
    }
    let is_taken = |charge: &Charge| {
        let paid = charge.outcome.source;
        charge.outcome.verdict.is_admitted() && !matches!(paid, Source::Open | Source::Nothing)
    };
    let taken = charges.into_iter().filter(is_taken);
    taken.map(|charge| Charge { kept: 0, ..charge }).collect()
}
