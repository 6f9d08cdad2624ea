//! The store that a fleet shares, as one policy uses it.
//!
//! # Theory
//!
//! All open charges go to the store in one question. It has a deadline of its own, which counts from when the caller began
//! to wait, so an answer comes in time or a fault does.
//!
//! A borrow is a charge of `cost + extra`. If that is refused, the store says how much is left, and it is asked
//! again for half of that, and the last time for the cost alone. A refused question takes nothing, so it can be repeated.

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

/// Questions for one borrow at the most: for all of it, for less, for the cost alone.
const BORROW_QUESTIONS: u32 = 3;

/// The limits of one policy in the store.
#[derive(Clone)]
pub(crate) struct RemoteStore<C>(Arc<Inner<C>>);

struct Inner<C> {
    clock: C,
    limits: Arc<dyn SharedLimits>,
    /// The same, while keys still have usage under the policy before; and until when.
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
        let told = self.limits(now).charge(&request).await?;
        if told.len() != request.charges.len() {
            return Err(garbled());
        }
        let open = charges.iter_mut().filter(|charge| charge.is_open());
        for (charge, told) in open.zip(told) {
            self.note(charge, &told);
        }
        Ok(())
    }

    fn note(&self, charge: &mut Charge, told: &SharedOutcome) {
        let outcome = &mut charge.outcome;
        outcome.verdict = told.verdict;
        outcome.status = told.status;
        outcome.issued = told.issued;
        outcome.unpaid = told.unpaid;
        outcome.local = self.clock.now();
        outcome.source = Source::Store;
        charge.verdict = told.verdict;
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
            let [told] = asked;
            unpaid = told.outcome.unpaid.max(unpaid);
            charge.outcome = told.outcome;
            charge.outcome.unpaid = unpaid;
            if told.outcome.verdict.is_admitted() {
                charge.outcome.extra = extra;
                break;
            }
            // It was taken already.
            charge.debt = 0;
            // The charge was refused by itself: the same question has the same answer.
            if extra == 0 {
                break;
            }
            let room = told.outcome.status.remaining.saturating_sub(cost);
            extra = match question + 1 < BORROW_QUESTIONS {
                true => extra.min(room / 2),
                false => 0,
            };
            // A prefetch is not worth another question.
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

    /// Usage is told as a debt of a charge of nothing: in one question, with what is left then.
    async fn add_usage(&self, charges: &mut [Charge], began: Moment) -> Result<(), StoreFault> {
        let costs: Vec<u64> = charges.iter().map(|charge| charge.cost).collect();
        for charge in charges.iter_mut() {
            charge.debt = charge.debt.saturating_add(charge.cost);
            charge.cost = 0;
        }
        let told = self.charge(charges, true, began).await;
        for (charge, cost) in charges.iter_mut().zip(costs) {
            charge.cost = cost;
        }
        told
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

/// What the store is asked of the open charges.
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
