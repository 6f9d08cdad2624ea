//! The way of a request from the queue to the head of its response.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::{HeaderName, HeaderValue};
use http::request::Parts;
use http::{Extensions, Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_service::Service;

use super::Manner;
use crate::authority::{Authority, Epoch};
use crate::body::QueueBody;
use crate::held::{Held, is_connect, opens_tunnel};
use crate::reached::Reached;
use crate::reply::turned_away;
use crate::turnstile::{Outcome, Turn, Turned};

const WAITED: HeaderName = HeaderName::from_static("x-tollgate-waited");

/// A turn to come.
pub(super) type Enter = Pin<Box<dyn Future<Output = Result<Turn, Turned>> + Send>>;

pin_project! {
    /// The response to come. See [`crate::queue`] for what dropping it means.
    pub struct QueueFuture<S, A, B>
    where
        S: Service<Request<B>>,
        A: Authority,
    {
        #[pin]
        state: State<S::Future, Waiting<S, A::Policy, B>>,
        manner: Manner,
    }
}

impl<S, A, B> fmt::Debug for QueueFuture<S, A, B>
where
    S: Service<Request<B>>,
    A: Authority,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueFuture").finish_non_exhaustive()
    }
}

pin_project! {
    #[project = Projected]
    enum State<F, W> {
        /// The service is at work. The turn comes with whether the request asked for a tunnel.
        Calling {
            #[pin]
            future: F,
            turn: Option<(Turn, bool)>,
        },
        Turned { response: Option<Response<Bytes>> },
        /// Boxed, so that those who need not wait have a small future.
        Waiting { waiting: Box<W> },
    }
}

/// A request that waits.
pub(super) struct Waiting<S, E, B> {
    pub(super) epoch: Arc<E>,
    pub(super) queue: usize,
    pub(super) service: S,
    pub(super) enter: Option<Enter>,
    pub(super) turn: Option<Turn>,
    pub(super) reached: Option<Reached>,
    pub(super) request: Option<(Parts, B)>,
}

/// How waiting ended.
enum Ended<F, E> {
    Called(F, Option<(Turn, bool)>),
    Turned(Response<Bytes>),
    Failed(E),
}

impl<S, E, B> Waiting<S, E, B>
where
    S: Service<Request<B>>,
    E: Epoch,
{
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Ended<S::Future, S::Error>> {
        if let Some(enter) = &mut self.enter {
            let entered = ready!(enter.as_mut().poll(context));
            self.enter = None;
            match entered {
                Ok(turn) => self.turn = Some(turn),
                Err(turned) => return Poll::Ready(Ended::Turned(self.turned_away(turned))),
            }
        }
        if let Err(error) = ready!(self.service.poll_ready(context)) {
            if let Some(turn) = self.turn.take() {
                turn.finish(Outcome::Failed);
            }
            return Poll::Ready(Ended::Failed(error));
        }
        let Some((mut parts, body)) = self.request.take() else {
            return Poll::Pending;
        };
        let is_connect = is_connect(&parts.method);
        if let Some(turn) = &self.turn {
            begins(turn, self.reached.as_ref(), &mut parts.extensions);
        }
        let turn = self.turn.take().map(|turn| (turn, is_connect));
        let future = self.service.call(Request::from_parts(parts, body));
        Poll::Ready(Ended::Called(future, turn))
    }

    fn turned_away(&self, turned: Turned) -> Response<Bytes> {
        let policy = self.epoch.gate().policy();
        let name = policy.queues.get(self.queue).map_or("", |q| &q.name);
        match &self.request {
            Some((parts, _)) => turned_away(&policy.answers, name, turned, parts),
            None => Response::new(Bytes::new()),
        }
    }
}

impl<S, A, B> QueueFuture<S, A, B>
where
    S: Service<Request<B>>,
    A: Authority,
{
    pub(super) fn calling(future: S::Future, turn: Option<(Turn, bool)>, manner: Manner) -> Self {
        let state = State::Calling { future, turn };
        QueueFuture { state, manner }
    }

    pub(super) fn turned(response: Response<Bytes>, manner: Manner) -> Self {
        let response = Some(response);
        let state = State::Turned { response };
        QueueFuture { state, manner }
    }

    pub(super) fn waiting(waiting: Waiting<S, A::Policy, B>, manner: Manner) -> Self {
        let waiting = Box::new(waiting);
        let state = State::Waiting { waiting };
        QueueFuture { state, manner }
    }
}

impl<S, A, B, RB> Future for QueueFuture<S, A, B>
where
    S: Service<Request<B>, Response = Response<RB>>,
    A: Authority,
    RB: Body,
{
    type Output = Result<Response<QueueBody<RB>>, S::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let (mut state, manner) = (this.state, *this.manner);
        loop {
            let next = match state.as_mut().project() {
                Projected::Calling { future, turn } => {
                    let answered = ready!(future.poll(context));
                    let turn = turn.take();
                    return Poll::Ready(match answered {
                        Ok(response) => Ok(complete(response, turn, manner)),
                        Err(error) => {
                            if let Some((turn, _)) = turn {
                                turn.finish(Outcome::Failed);
                            }
                            Err(error)
                        }
                    });
                }
                Projected::Turned { response } => match response.take() {
                    Some(response) => return Poll::Ready(Ok(response.map(QueueBody::own))),
                    // Polled after it was ready: nothing will come any more.
                    None => return Poll::Pending,
                },
                Projected::Waiting { waiting } => match ready!(waiting.poll(context)) {
                    Ended::Called(future, turn) => State::Calling { future, turn },
                    Ended::Turned(response) => State::Turned {
                        response: Some(response),
                    },
                    Ended::Failed(error) => {
                        state.set(State::Turned { response: None });
                        return Poll::Ready(Err(error));
                    }
                },
            };
            state.set(next);
        }
    }
}

/// A request with these extensions is given to the service.
pub(super) fn begins(turn: &Turn, reached: Option<&Reached>, extensions: &mut Extensions) {
    if let Some(reached) = reached {
        reached.served();
    }
    if let Some(sent_whole) = turn.sent_whole() {
        extensions.insert(sent_whole);
    }
}

/// The response of the service, holding its turn.
fn complete<RB: Body>(
    response: Response<RB>,
    turn: Option<(Turn, bool)>,
    manner: Manner,
) -> Response<QueueBody<RB>> {
    let Some((mut turn, is_connect)) = turn else {
        return response.map(|body| QueueBody::inner(body, None));
    };
    let (mut head, body) = response.into_parts();
    turn.answered((manner.classify)(&head));
    if manner.tells_wait && !turn.waited().is_zero() {
        head.headers.insert(WAITED, millis(turn.waited()));
    }
    if opens_tunnel(is_connect, head.status) {
        Held::leave(&mut head.extensions, turn);
        return Response::from_parts(head, QueueBody::inner(body, None));
    }
    Response::from_parts(head, QueueBody::inner(body, Some(turn)))
}

fn millis(waited: Duration) -> HeaderValue {
    let ms = waited.as_nanos().div_ceil(1_000_000);
    HeaderValue::from(u64::try_from(ms).unwrap_or(u64::MAX))
}
