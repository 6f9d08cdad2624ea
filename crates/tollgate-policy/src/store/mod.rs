//! Where limits keep their state, and the layers between a decision and a store that a fleet shares.
//!
//! ```text
//! MemoryStore                                 one process
//! Leased<Synced<Fallback<RemoteStore>>>       a node of a fleet
//! ```
//!
//! # Theory
//!
//! A layer decides locally what it can, and forwards the rest once to the layer below. If the request does not pass, it
//! gives back what it took. So there is at most one remote participant, and it decides last. [`layer::apply`] implements
//! this once; a layer says only what it makes of a request ([`layer::Attempt`]).
//!
//! * [`lease::Leased`]: blocks of units that the store has charged already.
//! * [`sync::Synced`]: counters that are reported afterwards.
//! * [`fallback::Fallback`]: this node's share of each limit while the store gives no answer, and the debt that is reported
//!   then.
//! * [`remote::RemoteStore`]: the store, which has a deadline of its own.
//!
//! Operations that no request waits for run in [`background::Background`].
//!
//! # Invariant
//!
//! A charge is sent once. The answer that `apply` gives is final: only [`StoreOp::Borrow`] and [`StoreOp::AddUsage`], which layers
//! send for themselves, may fail.

pub(crate) mod background;
pub(crate) mod debts;
pub(crate) mod fallback;
mod flight;
mod layer;
pub(crate) mod lease;
pub(crate) mod memory;
mod remote;
pub(crate) mod stack;
pub(crate) mod sync;
#[cfg(test)]
mod tests;

use std::future::Future;

use super::charge::Charge;
use super::rule::OnStoreError;
use crate::shared::StoreFault;
use lease::terms::LeaseTerms;
use sync::counter::SyncTerms;
use tollgate::QuotaStatus;
use tollgate::{Moment, Span};

/// What is done with a list of charges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreOp {
    /// Takes all enforced charges or none; those that are only counted one by one, and only if the enforced ones pass.
    Charge,
    /// Reports what `Charge` would do, and takes nothing.
    Peek,
    /// Gives back `cost - kept`, less what was earned since it was issued.
    Refund,
    /// Takes up to `cost`, whatever is left. Never refuses.
    ChargeRemaining,
    /// The same by a layer that repeats what failed: it must not be decided locally, or it counts twice.
    AddUsage,
    /// One charge: takes `cost` or refuses; then up to so many units more.
    Borrow {
        /// Units beyond the cost.
        extra: u64,
    },
}

/// One call of a store.
#[derive(Clone, Debug)]
pub(crate) struct StoreRequest {
    pub(crate) op: StoreOp,
    /// Decided in place; those that are decided already are left alone.
    pub(crate) charges: Vec<Charge>,
    /// When the caller began to wait: the deadline of the store counts from then.
    pub(crate) began: Moment,
    /// The store is not asked: the caller has no time left.
    pub(crate) is_local: bool,
}

impl StoreRequest {
    pub(crate) fn new(op: StoreOp, charges: Vec<Charge>, began: Moment) -> StoreRequest {
        StoreRequest {
            op,
            charges,
            began,
            is_local: false,
        }
    }

    /// Is nothing left to be decided?
    fn is_decided(&self) -> bool {
        !self.charges.iter().any(Charge::is_open)
    }

    fn answered(self) -> StoreResponse {
        StoreResponse {
            charges: self.charges,
            fault: None,
        }
    }
}

/// What a store made of a request.
#[derive(Clone, Debug)]
pub(crate) struct StoreResponse {
    pub(crate) charges: Vec<Charge>,
    /// Why it gave no answer: open charges are not decided then, and may have been taken.
    pub(crate) fault: Option<StoreFault>,
}

/// The answer now, or a future that owns all that it needs, and beside it the charges as they were when it was made: a caller
/// that cannot wait has them decided without the store.
pub(crate) enum Apply<F> {
    Ready(StoreResponse),
    Pending(F, Vec<Charge>),
}

impl<F: Future<Output = StoreResponse>> Apply<F> {
    async fn resolve(self) -> StoreResponse {
        match self {
            Apply::Ready(answered) => answered,
            Apply::Pending(future, _) => future.await,
        }
    }
}

/// A store, or a layer above one. Cheap to clone: clones share the state.
pub(crate) trait Store: Clone + Send + Sync + 'static {
    /// Applies an operation to all open charges.
    fn apply(
        &self,
        request: StoreRequest,
    ) -> Apply<impl Future<Output = StoreResponse> + Send + 'static + use<Self>>;

    /// Starts what is due: returns of blocks, reports of usage. The work goes to the background.
    fn maintain(&self, _now: Moment) {}

    /// Ends what this policy holds, because another one is in force or the node ends.
    fn close(&self, _now: Moment) {}
}

/// How long after `status` was reported a limit that holds `capacity` has room for `units`, if nothing else takes them.
/// Exact where units are earned evenly, and for windows of the clock.
pub(crate) fn time_until_room(
    status: &QuotaStatus,
    capacity: u64,
    units: u64,
    ends_with_window: bool,
) -> Span {
    let missing = units.saturating_sub(status.remaining);
    if missing == 0 || ends_with_window {
        return if missing == 0 {
            Span::ZERO
        } else {
            status.full_after
        };
    }
    // The first unit comes after `next_after`, the others evenly until all are there.
    let others = capacity.saturating_sub(status.remaining).saturating_sub(1);
    let (next, full) = (status.next_after.as_nanos(), status.full_after.as_nanos());
    let product = u128::from(full.saturating_sub(next)) * u128::from(missing - 1);
    let rest = product.div_ceil(u128::from(others.max(1)));
    Span::from_nanos(next.saturating_add(u64::try_from(rest).unwrap_or(u64::MAX)))
}

/// What the layers know of a limit.
#[derive(Clone, Debug)]
pub(crate) struct PreparedLimit {
    /// What it is known by from one policy to the next.
    pub(crate) stable_id: u64,
    pub(crate) on_store_error: OnStoreError,
    /// How blocks of it are leased, if they are.
    pub(crate) lease: Option<LeaseTerms>,
    /// How it is counted here and reported, if it is.
    pub(crate) sync: Option<SyncTerms>,
    /// Units are held and given back, not earned.
    pub(crate) is_permit: bool,
    /// The greatest cost that can ever pass.
    pub(crate) capacity: u64,
    /// What a refused request could not take is taken as far as there is room.
    pub(crate) takes_remaining: bool,
    /// How long anything that was charged can count.
    pub(crate) horizon: Span,
}
