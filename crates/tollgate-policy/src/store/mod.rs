//! Stores of limits, and the layers above a shared store.
//!
//! ```text
//! MemoryStore                                 one process
//! Leased<Synced<Fallback<RemoteStore>>>       a node of a fleet
//! ```
//!
//! # Theory
//!
//! A layer decides locally what it can, and forwards the rest once to the layer below. If the request does not
//! pass, it refunds what it took. So there is at most one remote participant, and it decides last.
//! [`layer::apply`] implements this once; a layer implements only its attempt ([`layer::Attempt`]).
//!
//! * [`lease::Leased`]: blocks of units that the store has charged already.
//! * [`sync::Synced`]: counters that are reported afterwards.
//! * [`fallback::Fallback`]: this node's share of each limit while the store does not answer, and the debt that is
//!   reported afterwards.
//! * [`remote::RemoteStore`]: the store, which has its own deadline.
//!
//! Operations that no request waits for run in [`background::Background`].
//!
//! # Invariant
//!
//! A charge is sent once. The result of `apply` is final: only [`StoreOp::Borrow`] and [`StoreOp::AddUsage`],
//! which layers send for themselves, may fail.

pub(crate) mod background;
pub(crate) mod debts;
pub(crate) mod fallback;
mod flight;
mod layer;
pub(crate) mod lease;
pub(crate) mod memory;
mod prehashed;
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

/// An operation on a list of charges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreOp {
    /// Takes all enforced charges or none; those that are only counted one by one, and only if the enforced ones pass.
    Charge,
    /// Reports what `Charge` would do, and takes nothing.
    Peek,
    /// Refunds `cost - kept`, less what was earned since it was issued.
    Refund,
    /// Takes up to `cost`, whatever is left. Never refuses.
    ChargeRemaining,
    /// The same by a layer that repeats failed pushes: it must not be decided locally, or it counts twice.
    AddUsage,
    /// One charge: takes `cost` or refuses; then up to this many units more.
    Borrow {
        /// Units beyond the cost.
        extra: u64,
    },
}

/// One call of a store.
#[derive(Clone, Debug)]
pub(crate) struct StoreRequest {
    pub(crate) op: StoreOp,
    /// Decided in place; decided charges are not touched.
    pub(crate) charges: Vec<Charge>,
    /// When the caller started to wait: the deadline of the store counts from then.
    pub(crate) began: Moment,
    /// Whether the store is skipped, because the caller has no time left.
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

    /// Whether nothing is left to decide.
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

/// The response to a request.
#[derive(Clone, Debug)]
pub(crate) struct StoreResponse {
    pub(crate) charges: Vec<Charge>,
    /// Why it did not answer: open charges are not decided then, and may have been taken.
    pub(crate) fault: Option<StoreFault>,
}

/// The response, or a future that owns all that it needs, with the charges as they were when it was made: a caller
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

    /// Starts what is due: returns of blocks, pushes of usage. The work goes to the background.
    fn maintain(&self, _now: Moment) {}

    /// Ends leases and counters of this policy, because another one is active or the node stops.
    fn close(&self, _now: Moment) {}
}

/// How long after `status` was reported a limit that holds `capacity` has room for `units`, without other charges.
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

/// The properties of a limit that layers use.
#[derive(Clone, Debug)]
pub(crate) struct PreparedLimit {
    /// The stable name from one policy to the next.
    pub(crate) stable_id: u64,
    pub(crate) on_store_error: OnStoreError,
    /// How blocks of it are leased, if they are.
    pub(crate) lease: Option<LeaseTerms>,
    /// How it is synced, if it is.
    pub(crate) sync: Option<SyncTerms>,
    /// Whether units are permits, which are held and released, not earned.
    pub(crate) is_permit: bool,
    /// The greatest cost that can ever pass.
    pub(crate) capacity: u64,
    /// Whether the remainder is taken from a refused request.
    pub(crate) takes_remaining: bool,
    /// How long a charge can count.
    pub(crate) horizon: Span,
}
