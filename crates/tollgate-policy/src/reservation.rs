//! Reservations: what a request took, held until its actual cost is known.
//!
//! A refund goes to the layer that paid. Each charge records the layer, and the moment by that layer's clock.

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

pub(crate) mod portable;

impl<C: Clock> PolicyGate<C> {
    /// Records what a decision took, so that it can be settled later, once.
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

    /// Records what the charges of a decision would take, so that it can be refunded although this decision did
    /// not take it: for a caller that is trusted to have paid it before. Slots of leaky buckets are excluded. A
    /// refund never exceeds what the limit holds.
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
        let is_held = |charge: &&Charge| taken(charge) && wanted(self.memory.limiter(charge.limit));
        let held = answer.charges.iter().filter(is_held);
        let held = held.map(|charge| self.held(charge.clone()));
        self.reservation(held.collect())
    }

    fn reservation(&self, held: Vec<HeldCharge>) -> Reservation<C> {
        Reservation {
            held,
            memory: Arc::clone(&self.memory),
            fleet: self.fleet.clone(),
        }
    }

    fn held(&self, charge: Charge) -> HeldCharge {
        let rule = self.rule(charge.rule);
        let follows =
            rule.is_none_or(|rule| matches!(rule.cost, CostRule::Asked | CostRule::From { .. }));
        let cost = match self.memory.limiter(charge.limit).limit().algorithm() {
            Algorithm::Concurrency { .. } => HeldCost::Permit(
                self.variants
                    .get(charge.limit.index())
                    .map(|instance| Arc::clone(&instance.holding_time))
                    .unwrap_or_default(),
            ),
            _ if follows => HeldCost::Reported,
            _ => HeldCost::Fixed,
        };
        HeldCharge { charge, cost }
    }
}

/// What a request took, to be settled once its actual cost is known. Dropping it changes nothing.
#[derive(Debug)]
pub struct Reservation<C = MonotonicClock> {
    held: Vec<HeldCharge>,
    memory: Arc<MemoryStore<C>>,
    fleet: Option<FleetStore<C>>,
}

#[derive(Debug)]
struct HeldCharge {
    charge: Charge,
    cost: HeldCost,
}

/// How the final cost of a charge is determined.
#[derive(Debug)]
enum HeldCost {
    /// A permit: it is released when the work is over, and its holding time is observed.
    Permit(Arc<HoldingTime>),
    /// The cost that the caller reports.
    Reported,
    /// The cost of the charge.
    Fixed,
}

/// How a reservation is settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// The work is done and cost this much.
    Actual(u64),
    /// The work is done and cost what was charged.
    Done,
    /// The work was not done: everything is refunded.
    Cancelled,
}

impl<C: Clock> Reservation<C> {
    /// Whether nothing was taken.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Whether anything was taken in a shared store. Then it is settled there, too:
    pub fn is_shared(&self) -> bool {
        let mut held = self.held.iter();
        held.any(|held| held.charge.outcome.is_shared())
    }

    /// Refunds what was not used and takes what was used beyond the charge; permits are released. Returns units
    /// that could not be taken because nothing was left. What was taken in a shared store is settled in the
    /// background ([`PolicyGate::run_background`], [`PolicyGate::sync_leases`]).
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

    /// The same, and waits for the store. Units that the store does not confirm stay taken there.
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

    /// The charges to refund, and the charges to take in addition.
    fn corrections(&mut self, how: Settlement) -> (Vec<Charge>, Vec<Charge>) {
        let (mut refunds, mut more) = (Vec::new(), Vec::new());
        for held in self.held.drain(..) {
            let HeldCharge { mut charge, cost } = held;
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
