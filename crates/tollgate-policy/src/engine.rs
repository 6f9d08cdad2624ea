//! Decides planned charges, in this process or in a shared store.
//!
//! # Theory
//!
//! Matching makes the charges, the store decides them, and the decision is built from them. Without a shared store
//! the store is a set of tables and decides at once. In a fleet the layers of [`super::store`] decide at once what
//! they can; the rest are [`PendingCharges`].
//!
//! # Invariant
//!
//! Every request is decided within the deadline of the store. A charge is sent once. A request whose caller leaves
//! is finished in the background, and what it took is refunded.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::charge::{Charge, Source, all_pass};
use super::decide::HostFuture;
use super::gate::{Plan, PolicyGate};
use super::outcome::unlimited;
use super::policy_decision::{PolicyDecision, Reason};
use super::store::lease::report::LeaseReport;
use super::store::stack::FleetStore;
use super::store::{Apply, StoreOp, StoreRequest};
use tollgate::Clock;
use tollgate::MAX_CHARGES;
use tollgate::Moment;
use tollgate::Verdict;

/// A future of charges that the store decides. Owns everything it needs.
type Deciding = Pin<Box<dyn Future<Output = Vec<Charge>> + Send>>;

/// A planned request, decided as far as this process can.
pub(super) enum Start {
    Decided(PolicyDecision),
    Pending(PendingCharges),
}

/// Charges that a store decides.
pub(super) struct PendingCharges {
    /// `None` once it has ended or was detached.
    deciding: Option<Deciding>,
    /// Whether it was polled. Nothing is sent before.
    is_polled: bool,
    /// The charges as planned.
    planned: Vec<Charge>,
    enforced: usize,
    op: StoreOp,
    began: Moment,
}

impl PendingCharges {
    /// The number of enforced charges.
    pub(super) fn enforced(&self) -> usize {
        self.enforced
    }

    /// Whether nothing is left to wait for.
    pub(super) fn is_ended(&self) -> bool {
        self.deciding.is_none()
    }

    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Vec<Charge>> {
        let Some(deciding) = &mut self.deciding else {
            return Poll::Pending;
        };
        self.is_polled = true;
        let decided = deciding.as_mut().poll(context);
        if decided.is_ready() {
            self.deciding = None;
        }
        decided
    }
}

impl<C: Clock> PolicyGate<C> {
    /// Decides a planned request, or starts it if it must wait for the store.
    pub(super) fn start(
        &self,
        plan: Result<Plan, Box<PolicyDecision>>,
        op: StoreOp,
        now: Moment,
    ) -> Start {
        let plan = match plan {
            Ok(plan) => plan,
            Err(answer) => return Start::Decided(*answer),
        };
        let fleet = match &self.fleet {
            Some(fleet) if plan.stop.is_none() && plan.charges.iter().any(Charge::is_open) => fleet,
            _ => return Start::Decided(self.execute(plan, op, now)),
        };
        if plan.enforced > MAX_CHARGES {
            let answer = unlimited(Verdict::Never, Reason::TooManyLimits, now);
            return Start::Decided(answer);
        }
        let enforced = plan.enforced;
        let this = fleet.clone();
        let (deciding, planned): (Deciding, _) =
            match fleet.apply(StoreRequest::new(op, plan.charges, now)) {
                Apply::Ready(answered) if fleet.remaining(&answered.charges, op).is_empty() => {
                    return Start::Decided(self.build_decision(answered.charges, enforced));
                }
                Apply::Ready(answered) => {
                    let planned = answered.charges.clone();
                    let deciding = charge_remaining(this, op, answered.charges);
                    (Box::pin(deciding), planned)
                }
                Apply::Pending(deciding, planned) => {
                    let deciding =
                        async move { charge_remaining(this, op, deciding.await.charges).await };
                    (Box::pin(deciding), planned)
                }
            };
        Start::Pending(PendingCharges {
            deciding: Some(deciding),
            is_polled: false,
            planned,
            enforced,
            op,
            began: now,
        })
    }

    /// Detaches a request whose caller left: returns the work that finishes what was sent and refunds what it
    /// takes. `None` if nothing was sent, or nothing is taken.
    pub(super) fn detach(&self, pending: &mut PendingCharges) -> Option<HostFuture> {
        let is_sent = pending.is_polled && pending.op == StoreOp::Charge;
        let deciding = pending.deciding.take().filter(|_| is_sent)?;
        let fleet = self.fleet.clone()?;
        Some(Box::pin(async move {
            let taken = taken(deciding.await);
            if !taken.is_empty() {
                let now = fleet.now();
                fleet
                    .resolve(StoreRequest::new(StoreOp::Refund, taken, now))
                    .await;
            }
        }))
    }

    /// Queues work for [`PolicyGate::run_background`]. Without a runner nothing would finish it, and it is dropped.
    pub(super) fn queue_background(&self, work: HostFuture) {
        let background = self.fleet.as_ref().map(FleetStore::background);
        if let Some(background) = background.filter(|background| background.is_run()) {
            background.push(work);
        }
    }

    /// Decides charges without the store.
    pub(super) fn decide_locally(&self, pending: &PendingCharges) -> Vec<Charge> {
        let charges = pending.planned.iter();
        let charges = charges.map(|charge| match charge.outcome.source {
            Source::Nothing => charge.clone(),
            _ => charge.reopened(pending.began),
        });
        let request = StoreRequest {
            is_local: true,
            ..StoreRequest::new(pending.op, charges.collect(), pending.began)
        };
        match &self.fleet {
            Some(fleet) => fleet.decide_locally(request),
            None => request.charges,
        }
    }

    /// Runs background work until `over`: prefetches of leases ([`Sharing::Lease`](crate::Sharing::Lease)),
    /// returns, and requests whose callers left. Then waits for the work in flight. Run it beside all requests
    /// while this policy is active.
    ///
    /// Without it, a request that finds its lease used up waits for the store.
    pub async fn run_background(&self, over: impl Future<Output = ()>) {
        match &self.fleet {
            Some(fleet) => fleet.background().run(over).await,
            None => over.await,
        }
    }

    /// Returns leased units that were not spent, and pushes the usage of synced counters. Call it ten times a
    /// second if a limit is not shared exactly ([`Sharing`](crate::Sharing)).
    pub async fn sync_leases(&self) {
        if let Some(fleet) = &self.fleet {
            fleet.maintain(self.clock.now()).await;
        }
    }

    /// Stops leasing and settles everything with the store. Call it when this node stops.
    pub async fn release_leases(&self) {
        if let Some(fleet) = &self.fleet {
            fleet.close(self.clock.now());
            fleet.maintain(self.clock.now()).await;
            // Borrows that were in flight at the close return their units, too.
            fleet.land().await;
            fleet.maintain(self.clock.now()).await;
        }
    }

    /// Counts of leases of this node; `None` without a store.
    pub fn lease_report(&self) -> Option<LeaseReport> {
        self.fleet.as_ref().map(FleetStore::report)
    }

    /// Adjusts this node's limiters to its share of each limit for the current number of nodes, and drops debts
    /// that no longer count. Call it regularly.
    pub fn rebalance(&self) {
        let (Some(fleet), Some(store)) = (&self.fleet, self.store()) else {
            return;
        };
        fleet.sweep_debts(self.clock.now());
        let nodes = store.nodes().max(1);
        for (variant, (_, limiter)) in self.variants.iter().zip(self.limiters()) {
            let share = variant.quota.share(nodes).limit;
            if !limiter.limit().decides_as(&share) {
                // A share is of the same kind, so only memory can be missing. Then the old share stays.
                let _ = limiter.change(share);
            }
        }
    }
}

/// Takes what is left for refused charges that are charged nevertheless.
async fn charge_remaining<C: Clock>(
    fleet: FleetStore<C>,
    op: StoreOp,
    charges: Vec<Charge>,
) -> Vec<Charge> {
    let remaining = fleet.remaining(&charges, op);
    if !remaining.is_empty() {
        let by_store = |charge: &Charge| charge.outcome.is_shared();
        let request = StoreRequest {
            // A store that just failed is not asked again.
            is_local: !charges.iter().any(by_store),
            ..StoreRequest::new(StoreOp::ChargeRemaining, remaining, fleet.now())
        };
        fleet.resolve(request).await;
    }
    charges
}

/// What decided charges took, to be refunded.
fn taken(charges: Vec<Charge>) -> Vec<Charge> {
    if !all_pass(&charges) {
        return Vec::new();
    }
    let is_taken = |charge: &Charge| {
        let paid = charge.outcome.source;
        charge.outcome.verdict.is_admitted() && !matches!(paid, Source::Open | Source::Nothing)
    };
    let taken = charges.into_iter().filter(is_taken);
    taken.map(|charge| Charge { kept: 0, ..charge }).collect()
}
