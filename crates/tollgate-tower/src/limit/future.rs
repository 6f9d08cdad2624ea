//! The way of a request from its decision to the head of its response.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tokio::time::{Sleep, sleep};
use tollgate::{Clock, Verdict};
use tollgate_policy::{DecisionHost, PendingDecision, PolicyDecision, PolicyGate};
use tower_service::Service;

use crate::authority::Authority;
use crate::body::LimitBody;
use crate::held::{Held, Reserved, is_connect, opens_tunnel};
use crate::reached::Holds;
use crate::reply::{Refused, Told, refusal};

pub(super) type ClockOf<A> = <A as DecisionHost>::Clock;

pin_project! {
    /// The response to come. See [`crate::limit`] for what dropping it means.
    pub struct LimitFuture<S, A, B>
    where
        S: Service<Request<B>>,
        A: Authority,
    {
        #[pin]
        state: State<S::Future, Slow<S, A, B>, Admitted<ClockOf<A>>>,
    }
}

impl<S, A, B> fmt::Debug for LimitFuture<S, A, B>
where
    S: Service<Request<B>>,
    A: Authority,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimitFuture").finish_non_exhaustive()
    }
}

pin_project! {
    #[project = Projected]
    enum State<F, W, H> {
        /// The service is at work.
        Calling {
            #[pin]
            future: F,
            admitted: Option<H>,
        },
        /// Nothing is to be done but to tell.
        Refused { response: Option<Response<Bytes>> },
        /// Something has to be waited for before the service is called. Boxed, so that those who need
        /// not wait have a small future.
        Slow { slow: Box<W> },
    }
}

/// What an admitted request takes along.
#[derive(Debug)]
pub(super) struct Admitted<C: Clock> {
    pub(super) told: Option<Told>,
    pub(super) holds: Holds<C>,
    pub(super) is_connect: bool,
}

/// A request that was not given to the service yet.
pub(super) struct Slow<S, A: Authority, B> {
    service: S,
    request: Option<Request<B>>,
    /// Has the policy queues?
    may_queue: bool,
    phase: Phase<A>,
}

enum Phase<A: Authority> {
    /// The store is asked. Dropped, what it grants is given back.
    Deciding { pending: PendingDecision<A> },
    /// The slot has to begin, and then the service has to become ready.
    Waits {
        slot: Option<Pin<Box<Sleep>>>,
        reserved: Option<Reserved<ClockOf<A>>>,
        told: Option<Told>,
    },
}

impl<A: Authority> Phase<A> {
    /// The phase of an admitted request. Dropped before the service is called, it gives back what was taken.
    fn admitted(gate: &PolicyGate<ClockOf<A>>, answer: &PolicyDecision) -> Phase<A> {
        let slot = match answer.verdict {
            Verdict::Wait { delay } => {
                let begins = answer.issued.plus(delay);
                let rest = begins.since(gate.clock().now());
                Some(Box::pin(sleep(rest.into())))
            }
            _ => None,
        };
        Phase::Waits {
            slot,
            reserved: Some(Reserved::of(gate, answer)),
            told: Told::of(gate, answer),
        }
    }
}

impl<S, A: Authority, B> Slow<S, A, B> {
    pub(super) fn for_slot(
        gate: &PolicyGate<ClockOf<A>>,
        answer: &PolicyDecision,
        service: S,
        request: Request<B>,
    ) -> Slow<S, A, B> {
        Slow {
            service,
            request: Some(request),
            may_queue: !gate.policy().queues.is_empty(),
            phase: Phase::admitted(gate, answer),
        }
    }

    pub(super) fn deciding(
        pending: PendingDecision<A>,
        service: S,
        request: Request<B>,
    ) -> Slow<S, A, B> {
        Slow {
            service,
            request: Some(request),
            may_queue: !A::gate(pending.policy()).policy().queues.is_empty(),
            phase: Phase::Deciding { pending },
        }
    }
}

/// How waiting ended.
enum Ended<F, E, C: Clock> {
    Called(F, Admitted<C>),
    Refused(Response<Bytes>),
    Failed(E),
}

impl<S, A, B> Slow<S, A, B>
where
    S: Service<Request<B>>,
    A: Authority,
{
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Ended<S::Future, S::Error, ClockOf<A>>> {
        loop {
            match &mut self.phase {
                Phase::Deciding { pending } => {
                    let answer = ready!(Pin::new(&mut *pending).poll(context));
                    let Some(request) = &self.request else {
                        return Poll::Pending;
                    };
                    let gate = A::gate(pending.policy());
                    self.phase = match answer.verdict {
                        Verdict::Pass | Verdict::Wait { .. } => Phase::admitted(gate, &answer),
                        Verdict::Refuse { .. } | Verdict::Never => {
                            return Poll::Ready(Ended::Refused(refusal(gate, &answer, request)));
                        }
                    };
                }
                Phase::Waits {
                    slot,
                    reserved,
                    told,
                } => {
                    if let Some(begins) = slot {
                        ready!(begins.as_mut().poll(context));
                        *slot = None;
                    }
                    if let Err(error) = ready!(self.service.poll_ready(context)) {
                        return Poll::Ready(Ended::Failed(error));
                    }
                    let Some(mut request) = self.request.take() else {
                        return Poll::Pending;
                    };
                    let admitted = Admitted {
                        told: told.take(),
                        holds: Holds::begun(
                            reserved.take(),
                            self.may_queue,
                            request.extensions_mut(),
                        ),
                        is_connect: is_connect(request.method()),
                    };
                    return Poll::Ready(Ended::Called(self.service.call(request), admitted));
                }
            }
        }
    }
}

impl<S, A, B> LimitFuture<S, A, B>
where
    S: Service<Request<B>>,
    A: Authority,
{
    pub(super) fn calling(future: S::Future, admitted: Admitted<ClockOf<A>>) -> Self {
        let admitted = Some(admitted);
        LimitFuture {
            state: State::Calling { future, admitted },
        }
    }

    pub(super) fn refused(response: Response<Bytes>) -> Self {
        let response = Some(response);
        LimitFuture {
            state: State::Refused { response },
        }
    }

    pub(super) fn slow(slow: Slow<S, A, B>) -> Self {
        let slow = Box::new(slow);
        LimitFuture {
            state: State::Slow { slow },
        }
    }
}

impl<S, A, B, RB> Future for LimitFuture<S, A, B>
where
    S: Service<Request<B>, Response = Response<RB>>,
    A: Authority,
    RB: Body,
{
    type Output = Result<Response<LimitBody<RB>>, S::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            let next = match state.as_mut().project() {
                Projected::Calling { future, admitted } => {
                    let answered = ready!(future.poll(context));
                    let admitted = admitted.take();
                    return Poll::Ready(answered.map(|response| complete(response, admitted)));
                }
                Projected::Refused { response } => match response.take() {
                    Some(response) => return Poll::Ready(Ok(response.map(LimitBody::own))),
                    // Polled after it was ready: nothing will come any more.
                    None => return Poll::Pending,
                },
                Projected::Slow { slow } => match ready!(slow.poll(context)) {
                    Ended::Called(future, admitted) => State::Calling {
                        future,
                        admitted: Some(admitted),
                    },
                    Ended::Refused(response) => State::Refused {
                        response: Some(response),
                    },
                    Ended::Failed(error) => {
                        state.set(State::Refused { response: None });
                        return Poll::Ready(Err(error));
                    }
                },
            };
            state.set(next);
        }
    }
}

/// The response of the service with what we tell, holding what we hold.
fn complete<RB: Body, C: Clock>(
    mut response: Response<RB>,
    admitted: Option<Admitted<C>>,
) -> Response<LimitBody<RB>> {
    let Some(admitted) = admitted else {
        return response.map(|body| LimitBody::inner(body, None));
    };
    if let Some(told) = admitted.told
        && response.extensions().get::<Refused>().is_none()
    {
        told.write(response.headers_mut());
    }
    let mut permit = admitted.holds.answered();
    if opens_tunnel(admitted.is_connect, response.status())
        && let Some(permit) = permit.take()
    {
        Held::leave(response.extensions_mut(), permit);
    }
    response.map(|body| LimitBody::inner(body, permit))
}
