//! Questions to the store that are carried on although nobody waits for the answer any more.
//!
//! # Theory
//!
//! A question may borrow a block with its request. If a client hangs up meanwhile, the store has granted the block all the same,
//! and it would be lost with the answer: whoever asks and goes away again and again would drain a key that many
//! share. So the question is carried on, the block goes to those who come next, and the request counts as
//! it does where nothing is lent.
//!
//! # What it does not know
//!
//! How long that takes: the deadline of the store bounds it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::runtime::Handle;
use tollgate::policy::{Answer, Asking};

use super::Epoch;

/// Asks the store, to the end even if this is dropped, where something may be lent.
pub(crate) async fn finish(epoch: &Arc<Epoch>, asking: Asking) -> Answer {
    if !asking.may_borrow() {
        return epoch.gate.finish(asking).await;
    }
    let asked = Arc::clone(epoch);
    Carried(Some(Box::pin(
        async move { asked.gate.finish(asking).await },
    )))
    .await
}

struct Carried(Option<Pin<Box<dyn Future<Output = Answer> + Send>>>);

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
