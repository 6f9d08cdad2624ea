//! Questions to the store that are carried on although nobody waits for the answer any more.
//!
//! # Theory
//!
//! A question may borrow a block with its request. If a client hangs up meanwhile, the store has granted the block all the same,
//! and it would be lost with the answer: whoever asks and goes away again and again would drain a key that many
//! share. So the question is carried on, the block goes to those who come next, and the request counts as
//! it does where nothing is lent.
//!
//! Whoever has no more time is answered without the store, and what this node let pass alone is told to the store later. So what
//! the store says of that request after all is given back: it counts once.
//!
//! # What it does not know
//!
//! How long that takes: the deadline of the store bounds it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::runtime::Handle;
use tollgate::policy::{Answer, Asking, Begun, Settlement};

use super::Epoch;

/// Asks the store, to the end even if this is dropped, where something may be lent.
pub(crate) async fn finish(epoch: &Arc<Epoch>, asking: Asking) -> Answer {
    match asking.may_borrow() {
        true => Carried::asks(epoch, asking).await,
        false => epoch.gate.finish(asking).await,
    }
}

/// The same for whoever cannot wait for ever: if `over` comes first, it is begun `again` and decided without the
/// store.
pub(crate) async fn finish_before(
    epoch: &Arc<Epoch>,
    asking: Asking,
    over: impl Future<Output = ()>,
    again: impl FnOnce() -> Begun,
) -> Answer {
    if !asking.may_borrow() {
        return epoch.gate.finish_before(asking, over).await;
    }
    let mut carried = Carried::asks(epoch, asking);
    tokio::select! {
        biased;
        answer = &mut carried => return answer,
        () = over => {}
    }
    carried.comes_too_late(epoch);
    match again() {
        Begun::Decided(answer) => answer,
        Begun::Asks(asking) => epoch.gate.finish_alone(asking),
    }
}

/// A question that is carried on when this is dropped.
struct Carried(Option<Pin<Box<dyn Future<Output = Answer> + Send>>>);

impl Carried {
    fn asks(epoch: &Arc<Epoch>, asking: Asking) -> Carried {
        let epoch = Arc::clone(epoch);
        Carried(Some(Box::pin(
            async move { epoch.gate.finish(asking).await },
        )))
    }

    /// The request was answered otherwise: what it takes is given back.
    fn comes_too_late(mut self, epoch: &Arc<Epoch>) {
        let Some(answer) = self.0.take() else {
            return;
        };
        let epoch = Arc::clone(epoch);
        self.0 = Some(Box::pin(async move {
            let answer = answer.await;
            if answer.is_admitted() {
                let taken = epoch.gate.reserve(&answer);
                taken.settle_everywhere(Settlement::Cancelled).await;
            }
            answer
        }));
    }
}

impl Future for Carried {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        let polled = match &mut self.0 {
            Some(answer) => answer.as_mut().poll(context),
            // Nobody polls what has ended.
            None => Poll::Pending,
        };
        if polled.is_ready() {
            self.0 = None;
        }
        polled
    }
}

impl Drop for Carried {
    fn drop(&mut self) {
        if let (Some(answer), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(answer);
        }
    }
}
