//! Adapts a shared store to the layers of one policy.
//!
//! # Theory
//!
//! All open charges go to the store in one call. The call has its own deadline, which counts from when the caller
//! started to wait, so an answer or a fault arrives in time.
//!
//! A borrow is a charge of `cost + extra`. If it is refused, the store reports the remainder. The second call asks
//! for half of that, the last one for the cost alone. A refused call takes nothing, so it can be repeated.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use super::{Apply, Store, StoreOp, StoreRequest, StoreResponse};
use crate::charge::{Charge, Source};
use crate::shared::{
    FaultKind, SharedCharge, SharedLimits, SharedOutcome, SharedRequest, SharedSettle, StoreFault,
};
use tollgate::Clock;
use tollgate::Moment;

/// Most calls for one borrow: for all of it, for less, for the cost alone.
const BORROW_QUESTIONS: u32 = 3;

/// The limits of one policy in the store.
#[derive(Clone)]
pub(crate) struct RemoteStore<C>(Arc<Inner<C>>);

struct Inner<C> {
    clock: C,
    limits: Arc<dyn SharedLimits>,
    /// The same while keys still have usage under the previous policy; and until when.
    moving: Option<(Moment, Arc<dyn SharedLimits>)>,
}

impl<C> fmt::Debug for RemoteStore<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteStore")
            .field("limits", &self.0.limits)
            .finish_non_exhaustive()
    }
}

impl<C: Clock> RemoteStore<C> {
    pub(crate) fn new(
        clock: C,
        limits: Arc<dyn SharedLimits>,
        moving: Option<(Moment, Arc<dyn SharedLimits>)>,
    ) -> RemoteStore<C> {
        RemoteStore(Arc::new(Inner {
            clock,
            limits,
            moving,
        }))
    }
}

impl<C: Clock> Inner<C> {
    fn limits(&self, now: Moment) -> &dyn SharedLimits {
        match &self.moving {
            Some((until, moving)) if now < *until => &**moving,
            _ => &*self.limits,
        }
    }

    async fn ask(
        &self,
        op: StoreOp,
        charges: &mut [Charge],
        began: Moment,
    ) -> Result<(), StoreFault> {
        match op {
            StoreOp::Charge | StoreOp::Peek => {
                self.charge(charges, op == StoreOp::Charge, began).await
            }
            StoreOp::Borrow { extra } => self.borrow(charges, extra, began).await,
            StoreOp::AddUsage => self.add_usage(charges, began).await,
            StoreOp::Refund | StoreOp::ChargeRemaining => self.settle(charges, op).await,
        }
    }

    async fn charge(
        &self,
        charges: &mut [Charge],
        take: bool,
        began: Moment,
    ) -> Result<(), StoreFault> {
        let now = self.clock.now();
        let request = SharedRequest {
            take,
            waited: now.since(began),
            charges: asked(charges),
        };
        let shared = self.limits(now).charge(&request).await?;
        if shared.len() != request.charges.len() {
            return Err(garbled());
        }
        let open = charges.iter_mut().filter(|charge| charge.is_open());
        for (charge, shared) in open.zip(shared) {
            self.record(charge, &shared);
        }
        Ok(())
    }

    fn record(&self, charge: &mut Charge, shared: &SharedOutcome) {
        let outcome = &mut charge.outcome;
        outcome.verdict = shared.verdict;
        outcome.status = shared.status;
        outcome.issued = shared.issued;
        outcome.unpaid = shared.unpaid;
        outcome.local = self.clock.now();
        outcome.source = Source::Store;
        charge.verdict = shared.verdict;
    }

    async fn borrow(
        &self,
        charges: &mut [Charge],
        extra: u64,
        began: Moment,
    ) -> Result<(), StoreFault> {
        let [charge] = charges else {
            return Err(garbled());
        };
        let (cost, mut extra, mut unpaid) = (charge.cost, extra, 0);
        for question in 1..=BORROW_QUESTIONS {
            let mut asked = [charge.clone()];
            asked[0].cost = cost.saturating_add(extra);
            self.charge(&mut asked, true, began).await?;
            let [shared] = asked;
            unpaid = shared.outcome.unpaid.max(unpaid);
            charge.outcome = shared.outcome;
            charge.outcome.unpaid = unpaid;
            if shared.outcome.verdict.is_admitted() {
                charge.outcome.extra = extra;
                break;
            }
            // It was taken already.
            charge.debt = 0;
            // The charge itself was refused: the same call has the same result.
            if extra == 0 {
                break;
            }
            let room = shared.outcome.status.remaining.saturating_sub(cost);
            extra = match question + 1 < BORROW_QUESTIONS {
                true => extra.min(room / 2),
                false => 0,
            };
            // A prefetch is not worth another call.
            if question == BORROW_QUESTIONS || cost == 0 {
                break;
            }
            charge.outcome.source = Source::Open;
        }
        charge.outcome.source = Source::Store;
        charge.cost = cost;
        charge.verdict = charge.outcome.verdict;
        Ok(())
    }

    /// Reports usage as the debt of a charge of zero: one call, which also returns the status.
    async fn add_usage(&self, charges: &mut [Charge], began: Moment) -> Result<(), StoreFault> {
        let costs: Vec<u64> = charges.iter().map(|charge| charge.cost).collect();
        for charge in charges.iter_mut() {
            charge.debt = charge.debt.saturating_add(charge.cost);
            charge.cost = 0;
        }
        let shared = self.charge(charges, true, began).await;
        for (charge, cost) in charges.iter_mut().zip(costs) {
            charge.cost = cost;
        }
        shared
    }

    async fn settle(&self, charges: &mut [Charge], op: StoreOp) -> Result<(), StoreFault> {
        for charge in charges.iter_mut().filter(|charge| charge.is_open()) {
            let (taken, used) = match op {
                StoreOp::Refund => (charge.cost, charge.kept),
                _ => (0, charge.cost),
            };
            let settle = SharedSettle {
                limit: charge.limit,
                key: charge.key.as_deref().cloned().unwrap_or_default(),
                issued: charge.outcome.issued,
                taken,
                used,
            };
            charge.outcome.unpaid = self.limits.settle(&settle).await?;
            charge.outcome.source = Source::Store;
        }
        Ok(())
    }
}

/// The open charges as the store's request.
fn asked(charges: &[Charge]) -> Vec<SharedCharge> {
    let mut asked = Vec::with_capacity(charges.len());
    let mut open = charges.iter().filter(|charge| charge.is_open()).peekable();
    while let Some(charge) = open.next() {
        asked.push(SharedCharge {
            limit: charge.limit,
            key: charge.key.as_deref().cloned().unwrap_or_default(),
            cost: charge.cost,
            most: charge.most,
            enforced: charge.is_enforced(),
            with_next: open.peek().is_some_and(|next| charge.is_with(next)),
            owed: charge.debt,
        });
    }
    asked
}

fn garbled() -> StoreFault {
    StoreFault::new(FaultKind::Garbled, "not one outcome for each charge")
}

impl<C: Clock> Store for RemoteStore<C> {
    fn apply(
        &self,
        request: StoreRequest,
    ) -> Apply<impl Future<Output = StoreResponse> + Send + 'static + use<C>> {
        let this = Arc::clone(&self.0);
        let planned = request.charges.clone();
        let deciding = async move {
            let StoreRequest {
                op,
                mut charges,
                began,
                ..
            } = request;
            let fault = this.ask(op, &mut charges, began).await.err();
            StoreResponse { charges, fault }
        };
        Apply::Pending(deciding, planned)
    }
}
