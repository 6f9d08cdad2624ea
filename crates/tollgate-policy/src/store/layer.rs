//! The common path of a layer: try locally, perhaps wait, forward the rest, commit or refund.

use std::future::Future;

use super::flight::{self, Flight};
use super::{Apply, Store, StoreOp, StoreRequest, StoreResponse};
use crate::charge::{Charge, all_pass};
use tollgate::Moment;

/// The result of a layer's attempt.
pub(super) enum Attempt<H> {
    /// Every charge is decided, or the request is refused.
    Done,
    /// Nothing is held. Try again after these.
    Wait(Vec<Flight>),
    /// The layer below decides the charges that are still open. Dropping the hold refunds what was taken.
    Forward(H),
}

/// Units taken locally for a request that is not decided yet. Dropping it refunds them.
pub(super) trait Hold: Send + 'static {
    fn commit(self);
}

/// A store that decides some charges itself and forwards the rest.
pub(super) trait Layer: Clone + Send + Sync + 'static {
    type Inner: Store;
    type Hold: Hold;

    fn inner(&self) -> &Self::Inner;

    fn now(&self) -> Moment;

    /// Takes what it can. Only a first attempt may wait.
    fn attempt(&self, request: &mut StoreRequest, is_first: bool) -> Attempt<Self::Hold>;

    /// Learns from the decisions of the layer below, which was asked at `sent`. A refusal that this layer caches
    /// for longer than the layer below states is reported with the longer wait.
    fn learn(&self, _charges: &mut [Charge], _sent: Moment) {}
}

/// How a pending operation starts.
enum Start<F, H> {
    Below(F, H, Moment),
    Wait(StoreRequest, Vec<Flight>),
}

/// Applies a request to a layer.
pub(super) fn apply<L: Layer>(
    layer: &L,
    mut request: StoreRequest,
) -> Apply<impl Future<Output = StoreResponse> + Send + 'static + use<L>> {
    let op = request.op;
    let is_first = !request.is_local;
    let (start, planned) = match layer.attempt(&mut request, is_first) {
        Attempt::Done => return Apply::Ready(request.answered()),
        Attempt::Forward(hold) => {
            let sent = request.began;
            match layer.inner().apply(request) {
                Apply::Ready(below) => return Apply::Ready(finish(layer, op, hold, sent, below)),
                Apply::Pending(below, planned) => (Start::Below(below, hold, sent), planned),
            }
        }
        Attempt::Wait(flights) => {
            let planned = request.charges.clone();
            (Start::Wait(request, flights), planned)
        }
    };
    let layer = layer.clone();
    let deciding = async move {
        let (mut request, flights) = match start {
            Start::Below(below, hold, sent) => {
                let below = below.await;
                return finish(&layer, op, hold, sent, below);
            }
            Start::Wait(request, flights) => (request, flights),
        };
        flight::all(flights).await;
        let sent = layer.now();
        match layer.attempt(&mut request, false) {
            Attempt::Forward(hold) => {
                let below = layer.inner().apply(request).resolve().await;
                finish(&layer, op, hold, sent, below)
            }
            // Only a first attempt waits.
            Attempt::Done | Attempt::Wait(_) => request.answered(),
        }
    };
    Apply::Pending(deciding, planned)
}

fn finish<L: Layer>(
    layer: &L,
    op: StoreOp,
    hold: L::Hold,
    sent: Moment,
    mut below: StoreResponse,
) -> StoreResponse {
    if op != StoreOp::Charge || below.fault.is_none() && all_pass(&below.charges) {
        hold.commit();
    }
    if op == StoreOp::Charge {
        layer.learn(&mut below.charges, sent);
    }
    below
}
