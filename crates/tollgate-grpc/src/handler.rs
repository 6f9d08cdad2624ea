//! The handler of the method: ready at once if it can be, in a task if it must wait.
//!
//! # Theory
//!
//! Most calls are ready at the first poll. [`FutureHandler`] polls each call where it was received, in one pinned slot
//! that the next call uses again. Only a call that is pending is moved out, slot and all, into a task.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;
use prost::Message;
use tokio::time::Instant;
use tonic::Status;

use crate::fallback::{EndGuard, Event, EventSender, StreamSender};
use crate::message;
use crate::streams::Task;

/// The state of a call after its first poll.
#[derive(Debug)]
pub enum Called<R> {
    /// The response.
    Ready(R),
    /// An [`Event::Response`] follows.
    Pending(Task),
    /// The error.
    Failed(Status),
}

/// Handles the calls of one connection.
pub trait Handler {
    /// What a call returns.
    type Response: Message + 'static;

    /// Handles a call of stream `stream` whose caller waits until `deadline`.
    fn call(
        &mut self,
        cx: &mut Context<'_>,
        stream: u32,
        message: &[u8],
        deadline: Option<Instant>,
    ) -> Called<Self::Response>;
}

/// A handler made of an asynchronous function from a request and its deadline to a response.
pub struct FutureHandler<M, F, Q, R> {
    make: M,
    /// Where the next call is polled.
    slot: Pin<Box<Slot<F>>>,
    events: EventSender<R>,
    request: std::marker::PhantomData<fn(Q)>,
}

impl<M, F, Q, R> std::fmt::Debug for FutureHandler<M, F, Q, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FutureHandler").finish_non_exhaustive()
    }
}

pin_project! {
    struct Slot<F> {
        #[pin]
        call: Option<F>,
    }
}

impl<F: Future> Future for Slot<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        match self.project().call.as_pin_mut() {
            Some(call) => call.poll(cx),
            None => Poll::Pending,
        }
    }
}

fn empty<F>() -> Pin<Box<Slot<F>>> {
    Box::pin(Slot { call: None })
}

impl<M, F, Q, R> FutureHandler<M, F, Q, R> {
    /// A handler that calls `make` and reports what becomes ready later to `events`.
    pub(crate) fn new(make: M, events: EventSender<R>) -> FutureHandler<M, F, Q, R> {
        FutureHandler {
            make,
            slot: empty(),
            events,
            request: std::marker::PhantomData,
        }
    }
}

impl<M, F, Q, R> Handler for FutureHandler<M, F, Q, R>
where
    M: FnMut(Q, Option<Instant>) -> F,
    F: Future<Output = Result<R, Status>> + Send + 'static,
    Q: Message + Default,
    R: Message + 'static,
{
    type Response = R;

    fn call(
        &mut self,
        cx: &mut Context<'_>,
        stream: u32,
        message: &[u8],
        deadline: Option<Instant>,
    ) -> Called<R> {
        let request = match message::decode(message) {
            Ok(request) => request,
            Err(error) => return Called::Failed(error),
        };
        let call = (self.make)(request, deadline);
        self.slot.as_mut().project().call.set(Some(call));
        if let Poll::Ready(response) = self.slot.as_mut().poll(cx) {
            self.slot.as_mut().project().call.set(None);
            return response.map_or_else(Called::Failed, Called::Ready);
        }
        let call = std::mem::replace(&mut self.slot, empty());
        let to = self.events.clone();
        let guard = EndGuard(StreamSender { stream, to });
        let task = tokio::spawn(async move {
            let response = call.await;
            guard.0.send(Event::Response(response));
        });
        Called::Pending(Task(task.abort_handle()))
    }
}
