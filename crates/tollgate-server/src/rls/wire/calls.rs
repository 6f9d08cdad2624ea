//! Decisions: at once if they can be, in a task if they have to wait.
//!
//! # Theory
//!
//! What decides is asynchronous, because a store that a fleet shares has to be asked over a network. Without such a
//! store it never waits, and then its first look is its last. So it is looked at once where it stands, in a place that
//! the next decision uses again; only one that waits is moved out, place and all.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;
use tonic::Status;

use super::elsewhere::{Event, Teller, TellsEnd};
use super::stream::Task;
use crate::rls::codec;
use crate::rls::messages::{RateLimitRequest, RateLimitResponse};

/// What became of a question.
#[derive(Debug)]
pub(super) enum Asked {
    /// It is decided.
    Now(RateLimitResponse),
    /// It will be told when it is.
    Later(Task),
    /// It cannot be decided.
    Wrong(Status),
}

/// What decides the calls of a connection. `make` makes a decision out of a request and the time until which its
/// caller waits.
pub(super) struct Calls<M, F> {
    make: M,
    /// Where the next decision is made.
    place: Pin<Box<Place<F>>>,
    events: UnboundedSender<(u32, Event)>,
}

pin_project! {
    /// Room for one decision.
    struct Place<F> {
        #[pin]
        decision: Option<F>,
    }
}

impl<F: Future> Future for Place<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        match self.project().decision.as_pin_mut() {
            Some(decision) => decision.poll(cx),
            None => Poll::Pending,
        }
    }
}

fn empty<F>() -> Pin<Box<Place<F>>> {
    Box::pin(Place { decision: None })
}

/// What decides.
pub(super) trait Decides {
    /// Asks for a decision about the call of this number.
    fn ask(
        &mut self,
        cx: &mut Context<'_>,
        stream: u32,
        message: &[u8],
        until: Option<Instant>,
    ) -> Asked;
}

impl<M, F> Calls<M, F> {
    pub(super) fn new(make: M, events: UnboundedSender<(u32, Event)>) -> Calls<M, F> {
        Calls {
            make,
            place: empty(),
            events,
        }
    }
}

impl<M, F> Decides for Calls<M, F>
where
    M: FnMut(RateLimitRequest, Option<Instant>) -> F,
    F: Future<Output = Result<RateLimitResponse, Status>> + Send + 'static,
{
    fn ask(
        &mut self,
        cx: &mut Context<'_>,
        stream: u32,
        message: &[u8],
        until: Option<Instant>,
    ) -> Asked {
        let request = match codec::read::<RateLimitRequest>(message) {
            Ok(request) => request,
            Err(wrong) => return Asked::Wrong(wrong),
        };
        let decision = (self.make)(request, until);
        let mut place = self.place.as_mut().project().decision;
        place.set(Some(decision));
        if let Poll::Ready(answered) = self.place.as_mut().poll(cx) {
            self.place.as_mut().project().decision.set(None);
            return answered.map_or_else(Asked::Wrong, Asked::Now);
        }
        let decision = std::mem::replace(&mut self.place, empty());
        let to = self.events.clone();
        let end = TellsEnd(Teller { stream, to });
        let task = tokio::spawn(async move {
            let answered = decision.await;
            end.0.tell(Event::Decided(answered));
        });
        Asked::Later(Task(task.abort_handle()))
    }
}
