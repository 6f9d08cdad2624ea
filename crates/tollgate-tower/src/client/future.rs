//! The way of a call: waiting, going out, and listening to what the response says.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use pin_project_lite::pin_project;
use tokio::time::Sleep;
use tollgate::{Clock, Span};
use tower_service::Service;

use super::PaceError;
use super::hint::hint;
use super::service::Pace;

pin_project! {
    /// The response to come. See [`crate::client`] for what dropping it means.
    pub struct PaceFuture<S, C, B>
    where
        S: Service<Request<B>>,
        C: Clock,
    {
        #[pin]
        state: State<S::Future, Waiting<S, B>>,
        pace: Pace<C>,
    }
}

impl<S, C, B> fmt::Debug for PaceFuture<S, C, B>
where
    S: Service<Request<B>>,
    C: Clock,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PaceFuture").finish_non_exhaustive()
    }
}

pin_project! {
    #[project = Projected]
    enum State<F, W> {
        Calling {
            #[pin]
            future: F,
        },
        Waiting { waiting: Box<W> },
    }
}

/// A call that has not gone out yet.
pub(super) struct Waiting<S, B> {
    service: S,
    request: Option<Request<B>>,
    phase: Phase,
    /// What it has waited for so far, and waits for now.
    waited: Span,
}

enum Phase {
    /// It has to wait for so long.
    Wait(Span),
    Sleep(Pin<Box<Sleep>>),
    /// It may go as soon as the service is ready.
    Ready,
}

impl<S, B> Waiting<S, B> {
    pub(super) fn new(service: S, request: Request<B>, wait: Span) -> Waiting<S, B> {
        Waiting {
            service,
            request: Some(request),
            phase: Phase::Wait(wait),
            waited: Span::ZERO,
        }
    }
}

impl<S, B> Waiting<S, B>
where
    S: Service<Request<B>>,
{
    fn poll<C: Clock>(
        &mut self,
        context: &mut Context<'_>,
        pace: &mut Pace<C>,
    ) -> Poll<Result<S::Future, PaceError<S::Error>>> {
        loop {
            match &mut self.phase {
                Phase::Wait(wait) => {
                    let (wait, max_wait) = (*wait, pace.settings.max_wait);
                    let all = self.waited.as_nanos().saturating_add(wait.as_nanos());
                    if all > max_wait.as_nanos() {
                        return Poll::Ready(Err(PaceError::TooLong {
                            destination: pace.destination.clone(),
                            wait,
                            max_wait,
                        }));
                    }
                    self.waited = Span::from_nanos(all);
                    self.phase = Phase::Sleep(Box::pin(tokio::time::sleep(wait.into())));
                }
                Phase::Sleep(sleep) => {
                    ready!(sleep.as_mut().poll(context));
                    self.phase = match pace.go() {
                        Ok(()) => Phase::Ready,
                        // A sleep may end a little early by another clock; then this is not nothing.
                        Err(wait) => Phase::Wait(wait.max(Span::from_millis(1))),
                    };
                }
                Phase::Ready => {
                    let ready = ready!(self.service.poll_ready(context));
                    ready.map_err(PaceError::Inner)?;
                    let Some(request) = self.request.take() else {
                        return Poll::Pending;
                    };
                    pace.sent();
                    return Poll::Ready(Ok(self.service.call(request)));
                }
            }
        }
    }
}

impl<S, C, B> PaceFuture<S, C, B>
where
    S: Service<Request<B>>,
    C: Clock,
{
    pub(super) fn calling(future: S::Future, pace: Pace<C>) -> Self {
        let state = State::Calling { future };
        PaceFuture { state, pace }
    }

    pub(super) fn waiting(waiting: Waiting<S, B>, pace: Pace<C>) -> Self {
        let waiting = Box::new(waiting);
        let state = State::Waiting { waiting };
        PaceFuture { state, pace }
    }
}

impl<S, C, B, RB> Future for PaceFuture<S, C, B>
where
    S: Service<Request<B>, Response = Response<RB>>,
    C: Clock,
{
    type Output = Result<Response<RB>, PaceError<S::Error>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let (mut state, pace) = (this.state, this.pace);
        loop {
            let future = match state.as_mut().project() {
                Projected::Calling { future } => {
                    let answered = ready!(future.poll(context));
                    let response = answered.map_err(PaceError::Inner)?;
                    listen(&response, pace);
                    return Poll::Ready(Ok(response));
                }
                Projected::Waiting { waiting } => ready!(waiting.poll(context, pace))?,
            };
            state.set(State::Calling { future });
        }
    }
}

/// Notes what a response says about the next one.
fn listen<C: Clock, RB>(response: &Response<RB>, pace: &Pace<C>) {
    let settings = &pace.settings;
    let since_1970 = || settings.wall.now().as_nanos() / 1_000_000_000;
    let hint = hint(response.status(), response.headers(), since_1970);
    let now = settings.clock.now();
    pace.holds
        .note(&pace.destination, now, hint, settings.max_hold);
}
