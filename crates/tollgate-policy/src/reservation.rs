//! What a request took, held until its true cost is known.
//!
//! A refund goes to whoever paid: each charge says who that was, and when by the payer's clock.

use std::sync::Arc;

use super::charge::{Charge, Role, Source};
use super::gate::PolicyGate;
use super::holding_time::HoldingTime;
use super::policy_decision::PolicyDecision;
use super::rule::CostRule;
use super::store::memory::MemoryStore;
use super::store::stack::FleetStore;
use super::store::{StoreOp, StoreRequest};
use tollgate::Algorithm;
use tollgate::Limiter;
use tollgate::{Clock, MonotonicClock};

impl<C: Clock> PolicyGate<C> {
    /// Remembers what an answer took, so that it can be corrected later: once.
    pub fn reserve(&self, answer: &PolicyDecision) -> Reservation<C> {
        let taken = |charge: &Charge| {
            let paid = charge.outcome.source;
            answer.is_admitted()
                && charge.verdict.is_admitted()
                && charge.role != Role::Unlimited
                && !matches!(paid, Source::Open | Source::Nothing)
        };
        self.held_of(answer, taken, |_| true)
    }

    /// What the charges of an answer would take, to be given back although it was not taken by this answer: by a
    /// caller that is believed to have paid it before. Not of leaky buckets, whose slots are somebody's own.
    /// Nothing is given beyond what the limit holds.
    pub fn refund_for(&self, answer: &PolicyDecision) -> Reservation<C> {
        let counts = |charge: &Charge| charge.role != Role::Unlimited;
        self.held_of(answer, counts, |limiter| !limiter.is_leaky_bucket())
    }

    fn held_of(
        &self,
        answer: &PolicyDecision,
        taken: impl Fn(&Charge) -> bool,
        wanted: impl Fn(&Limiter<C>) -> bool,
    ) -> Reservation<C> {
        let charges = answer.charges.iter().filter(|charge| taken(charge));
        let held = charges.filter_map(|charge| {
            let limiter = self.memory.limiter(charge.limit);
            let algorithm = limiter.limit();
            let rule = self.rule(charge.rule);
            let follows = rule
                .is_none_or(|rule| matches!(rule.cost, CostRule::Asked | CostRule::From { .. }));
            wanted(limiter).then(|| Held {
                charge: charge.clone(),
                cost: match algorithm.algorithm() {
                    Algorithm::Concurrency { .. } => HeldCost::Permit(
                        self.variants
                            .get(charge.limit.index())
                            .map(|instance| Arc::clone(&instance.holding_time))
                            .unwrap_or_default(),
                    ),
                    _ if follows => HeldCost::Reported,
                    _ => HeldCost::Fixed,
                },
            })
        });
        Reservation {
            held: held.collect(),
            memory: Arc::clone(&self.memory),
            fleet: self.fleet.clone(),
        }
    }
}

/// What a request took, to be corrected once its true cost is known. Dropping it changes nothing.
#[derive(Debug)]
pub struct Reservation<C = MonotonicClock> {
    held: Vec<Held>,
    memory: Arc<MemoryStore<C>>,
    fleet: Option<FleetStore<C>>,
}

#[derive(Debug)]
struct Held {
    charge: Charge,
    cost: HeldCost,
}

/// What decides how much a charge took in the end.
#[derive(Debug)]
enum HeldCost {
    /// Nothing: it is given back when the work is over, and its holding time is counted.
    Permit(Arc<HoldingTime>),
    /// What the caller reports.
    Reported,
    /// What was said before.
    Fixed,
}

/// How a reservation ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// The work is done and took this much.
    Actual(u64),
    /// The work is done and took what was said.
    Done,
    /// The work was not done: everything is given back.
    Cancelled,
}

impl<C: Clock> Reservation<C> {
    /// Was nothing taken?
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Was anything taken in a store that a fleet shares? Then it is settled there, too:
    /// [`Reservation::settle_everywhere`].
    pub fn is_shared(&self) -> bool {
        let mut held = self.held.iter();
        held.any(|held| held.charge.outcome.is_shared())
    }

    /// Gives back what was not used and takes what was used beyond; places in concurrency limits become
    /// free. Returns what could not be taken because nothing was left. What was taken in a store that a fleet shares is
    /// settled in the background ([`PolicyGate::run_background`], [`PolicyGate::sync_leases`]).
    pub fn settle(mut self, how: Settlement) -> u64 {
        let (refunds, more) = self.corrections(how);
        if let Some(fleet) = &self.fleet {
            let unpaid = fleet.settle(StoreOp::Refund, refunds);
            return unpaid.max(fleet.settle(StoreOp::ChargeRemaining, more));
        }
        for charge in refunds {
            self.memory.refund(&charge, charge.cost, charge.kept);
        }
        let mut unpaid = 0;
        for mut charge in more {
            self.memory.charge_remaining(&mut charge, Source::Memory);
            unpaid = charge.outcome.unpaid.max(unpaid);
        }
        unpaid
    }

    /// The same, and waits for the store. What it does not answer stays as it is there: taken.
    pub async fn settle_everywhere(mut self, how: Settlement) -> u64 {
        let Some(fleet) = self.fleet.clone() else {
            return self.settle(how);
        };
        let (refunds, more) = self.corrections(how);
        let now = fleet.now();
        let mut unpaid = 0;
        for (op, charges) in [(StoreOp::Refund, refunds), (StoreOp::ChargeRemaining, more)] {
            if !charges.is_empty() {
                let settled = fleet.resolve(StoreRequest::new(op, charges, now)).await;
                let unpaid_now = settled.iter().map(|charge| charge.outcome.unpaid).max();
                unpaid = unpaid.max(unpaid_now.unwrap_or(0));
            }
        }
        unpaid
    }

    /// What is to be given back, and what is to be taken in addition.
    fn corrections(&mut self, how: Settlement) -> (Vec<Charge>, Vec<Charge>) {
        let (mut refunds, mut more) = (Vec::new(), Vec::new());
        for held in self.held.drain(..) {
            let Held { mut charge, cost } = held;
            if let (HeldCost::Permit(holding_time), Settlement::Done | Settlement::Actual(_)) =
                (&cost, how)
            {
                let now = self.memory.now();
                holding_time.record(now.since(charge.outcome.local));
            }
            let used = match (cost, how) {
                (HeldCost::Permit(_), _) | (_, Settlement::Cancelled) => 0,
                (HeldCost::Reported, Settlement::Actual(used)) => used,
                (HeldCost::Fixed, Settlement::Actual(_)) | (_, Settlement::Done) => continue,
            };
            charge.debt = 0;
            charge.outcome.unpaid = 0;
            if used < charge.cost {
                charge.kept = used;
                refunds.push(charge);
            } else if used > charge.cost {
                charge.cost = used - charge.cost;
                charge.outcome.source = Source::Open;
                more.push(charge);
            }
        }
        (refunds, more)
    }
}
