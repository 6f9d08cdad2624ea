//! The way of a request from its decision to the head of its response.

use std::fmt;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tokio::runtime::Handle;
use tollgate::policy::{Answer, Asking, PolicyGate};
use tollgate::{Clock, Moment, Span, Verdict};
use tower_service::Service;

use super::service::{bound_wait, took};
use super::slot::SlotWait;
use crate::authority::{Authority, Epoch};
use crate::body::LimitBody;
use crate::facts::with_facts;
use crate::held::{Held, Reserved, is_connect, opens_tunnel};
use crate::reached::Holds;
use crate::reply::{Refused, Told, refusal};

pub(super) type ClockOf<A> = <<A as Authority>::Epoch as Epoch>::Clock;

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
    /// The store is asked.
    Asking {
        answer: StoreAnswer<A::Epoch>,
        asks: Asks<A>,
    },
    /// The slot is some time ahead.
    Slot {
        wait: SlotWait<ClockOf<A>>,
        told: Option<Told>,
    },
    /// The service has to become ready.
    Ready {
        reserved: Option<Reserved<ClockOf<A>>>,
        told: Option<Told>,
    },
}

/// What has to be known when the store has answered.
pub(super) struct Asks<A> {
    pub(super) authority: A,
    pub(super) client: Option<IpAddr>,
    pub(super) cost: Option<u64>,
    pub(super) before: Moment,
    pub(super) longest_wait: Span,
}

/// The answer of the store to come. If nobody waits for it any more, what it takes is given back.
struct StoreAnswer<E: Epoch> {
    epoch: Arc<E>,
    answer: Option<Pin<Box<dyn Future<Output = Answer> + Send>>>,
    /// Before it is polled nothing was asked.
    is_asked: bool,
}

impl<E: Epoch> StoreAnswer<E> {
    fn new(epoch: Arc<E>, asking: Asking) -> StoreAnswer<E> {
        let asked = Arc::clone(&epoch);
        let answer = async move { asked.gate().finish(asking).await };
        StoreAnswer {
            epoch,
            answer: Some(Box::pin(answer)),
            is_asked: false,
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Answer>> {
        self.is_asked = true;
        let Some(answer) = &mut self.answer else {
            return Poll::Ready(None);
        };
        let answer = ready!(answer.as_mut().poll(context));
        self.answer = None;
        Poll::Ready(Some(answer))
    }
}

impl<E: Epoch> Drop for StoreAnswer<E> {
    fn drop(&mut self) {
        let answer = self.answer.take().filter(|_| self.is_asked);
        if let (Some(answer), Ok(runtime)) = (answer, Handle::try_current()) {
            let epoch = Arc::clone(&self.epoch);
            // Bounded by the time that the store has to answer.
            runtime.spawn(async move {
                let answer = answer.await;
                drop(Reserved::of(epoch.gate(), &answer));
            });
        }
    }
}

impl<S, A: Authority, B> Slow<S, A, B> {
    pub(super) fn for_slot(
        authority: &A,
        gate: &PolicyGate<ClockOf<A>>,
        answer: &Answer,
        service: S,
        request: Request<B>,
    ) -> Slow<S, A, B> {
        Slow {
            service,
            request: Some(request),
            may_queue: !gate.policy().queues.is_empty(),
            phase: Phase::Slot {
                wait: SlotWait::new(authority.slots(), gate, answer),
                told: Told::of(gate, answer),
            },
        }
    }

    pub(super) fn asking(
        epoch: Arc<A::Epoch>,
        asking: Asking,
        asks: Asks<A>,
        service: S,
        request: Request<B>,
    ) -> Slow<S, A, B> {
        Slow {
            service,
            request: Some(request),
            may_queue: !epoch.gate().policy().queues.is_empty(),
            phase: Phase::Asking {
                answer: StoreAnswer::new(epoch, asking),
                asks,
            },
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
                Phase::Asking { answer, asks } => {
                    let answered = ready!(answer.poll(context));
                    let (Some(answered), Some(request)) = (answered, &self.request) else {
                        return Poll::Pending;
                    };
                    let gate = answer.epoch.gate();
                    match decided::<A, B>(gate, &answer.epoch, asks, answered, request) {
                        Ok(next) => self.phase = next,
                        Err(response) => return Poll::Ready(Ended::Refused(*response)),
                    }
                }
                Phase::Slot { wait, told } => {
                    let reserved = ready!(Pin::new(wait).poll(context));
                    let told = told.take();
                    self.phase = Phase::Ready { reserved, told };
                }
                Phase::Ready { reserved, told } => {
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

/// What comes after the store's answer; or the refusal.
fn decided<A: Authority, B>(
    gate: &PolicyGate<ClockOf<A>>,
    epoch: &A::Epoch,
    asks: &Asks<A>,
    mut answer: Answer,
    request: &Request<B>,
) -> Result<Phase<A>, Box<Response<Bytes>>> {
    bound_wait(asks.authority.slots(), gate, &mut answer, asks.longest_wait);
    if asks.authority.is_told() {
        with_facts(request, asks.client, asks.cost, |facts| {
            let took = took(gate, asks.before);
            asks.authority.decided(epoch, facts, &answer, took);
        });
    }
    match answer.verdict {
        Verdict::Pass => Ok(Phase::Ready {
            reserved: Some(Reserved::of(gate, &answer)),
            told: Told::of(gate, &answer),
        }),
        Verdict::Wait { .. } => Ok(Phase::Slot {
            wait: SlotWait::new(asks.authority.slots(), gate, &answer),
            told: Told::of(gate, &answer),
        }),
        Verdict::Refuse { .. } | Verdict::Never => Err(Box::new(refusal(gate, &answer, request))),
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
