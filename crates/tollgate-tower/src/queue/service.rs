//! The service of the queue layer: finds the queue, and calls the inner service at once if it admits the request.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::header::{HeaderName, HeaderValue};
use http::{Request, Response};
use http_body::Body;
use tollgate_policy::QueuePlace;
use tower_service::Service;

use super::{QueueLayer, ResponseOptions};
use crate::admission::{Acquire, BackendOutcome, QueuePermit, Rejected};
use crate::body::{Guard, GuardedBody};
use crate::facts::{MissingClient, resolve_client, with_facts, with_parts};
use crate::future::{Complete, LayerFuture};
use crate::limit::unready;
use crate::policy_source::PolicySource;
use crate::reservation::{ServeState, TunnelGuard, is_connect, opens_tunnel};
use crate::response::{missing_client, queue_rejection};

const WAITED: HeaderName = HeaderName::from_static("x-tollgate-waited");

/// A service behind queues; made by [`QueueLayer`].
#[derive(Clone, Debug)]
#[must_use = "services do nothing unless called"]
pub struct QueueService<S, P> {
    inner: S,
    layer: QueueLayer<P>,
}

impl<S, P> QueueService<S, P> {
    pub(super) fn new(inner: S, layer: QueueLayer<P>) -> QueueService<S, P> {
        QueueService { inner, layer }
    }

    /// The inner service.
    pub fn inner(&self) -> &S {
        &self.inner
    }
}

impl<S, P, B, RB> Service<Request<B>> for QueueService<S, P>
where
    S: Service<Request<B>, Response = Response<RB>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    P: PolicySource,
    B: Send + 'static,
    RB: Body + 'static,
{
    type Response = Response<GuardedBody<RB>>;
    type Error = S::Error;
    type Future = LayerFuture<S::Future, MaybeAdmitted, Result<Self::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let options = self.layer.options;
        let serve_state = request.extensions_mut().remove::<ServeState>();
        let policy = self.layer.source.active_policy();
        let (place, mut acquire) = match self.layer.find_queue(&policy, &mut request) {
            Ok(Some(found)) => found,
            Ok(None) => {
                if let Some(state) = serve_state {
                    state.set_served();
                }
                return LayerFuture::calling(self.inner.call(request), MaybeAdmitted(None));
            }
            Err(MissingClient) => {
                self.inner = self.inner.clone();
                let response = missing_client(&request);
                return LayerFuture::ready(Ok(response.map(GuardedBody::from)));
            }
        };
        // A free queue admits at the first poll. Otherwise the wait is polled again, with a real waker.
        let mut first_poll = Context::from_waker(Waker::noop());
        let result = Pin::new(&mut acquire).poll(&mut first_poll);
        if let (Some(state), Poll::Pending | Poll::Ready(Err(_))) = (&serve_state, &result) {
            state.set_waiting();
        }
        match result {
            Poll::Ready(Ok(permit)) => {
                let admitted = Admitted::start(permit, options, serve_state, &mut request);
                LayerFuture::calling(self.inner.call(request), MaybeAdmitted(Some(admitted)))
            }
            Poll::Ready(Err(rejected)) => {
                // Releases the capacity that `poll_ready` reserved for this request.
                self.inner = self.inner.clone();
                let response = rejection::<P, B>(&policy, place.queue, rejected, &request);
                LayerFuture::ready(Ok(response.map(GuardedBody::from)))
            }
            Poll::Pending => {
                let mut service = unready(&mut self.inner);
                LayerFuture::deferred(async move {
                    let permit = match acquire.await {
                        Ok(permit) => permit,
                        Err(rejected) => {
                            let queue = place.queue;
                            let response = rejection::<P, B>(&policy, queue, rejected, &request);
                            return Ok(response.map(GuardedBody::from));
                        }
                    };
                    if let Err(error) = poll_fn(|context| service.poll_ready(context)).await {
                        permit.finish(BackendOutcome::Overloaded);
                        return Err(error);
                    }
                    let admitted = Admitted::start(permit, options, serve_state, &mut request);
                    // Dropped in reverse order: first the call, then its permit.
                    let called = service.call(request).await;
                    admitted.complete(called)
                })
            }
        }
    }
}

impl<P: PolicySource> QueueLayer<P> {
    /// The place of a request in the queue that matches it, and the wait for it; `None` if no queue matches.
    fn find_queue<B>(
        &self,
        policy: &Arc<P::Policy>,
        request: &mut Request<B>,
    ) -> Result<Option<(QueuePlace, Acquire)>, MissingClient> {
        let gate = P::gate(policy);
        if gate.policy().queues.is_empty() {
            return Ok(None);
        }
        let client = resolve_client(request, self.peer, gate.policy())?;
        let cost = self.cost.and_then(|cost| with_parts(request, cost));
        let place = with_facts(request, client, cost, |facts| gate.place(facts));
        Ok(place.and_then(|place| {
            let queue = P::queues(policy).get(place.queue)?;
            Some((place, queue.acquire(&place)))
        }))
    }
}

fn rejection<P: PolicySource, B>(
    policy: &P::Policy,
    queue: usize,
    rejected: Rejected,
    request: &Request<B>,
) -> Response<Bytes> {
    let policy = P::gate(policy).policy();
    let name = policy.queues.get(queue).map_or("", |queue| &queue.name);
    queue_rejection(&policy.answers, name, rejected, request)
}

/// The permit of a request, if a queue matched it.
#[derive(Debug)]
pub struct MaybeAdmitted(Option<Admitted>);

impl<RB: Body, E> Complete<Result<Response<RB>, E>> for MaybeAdmitted {
    type Output = Result<Response<GuardedBody<RB>>, E>;

    fn complete(self, response: Result<Response<RB>, E>) -> Self::Output {
        match self.0 {
            Some(admitted) => admitted.complete(response),
            None => response.map(|response| response.map(|body| GuardedBody::new(body, None))),
        }
    }
}

/// A request with its permit.
#[derive(Debug)]
struct Admitted {
    permit: QueuePermit,
    options: ResponseOptions,
    is_connect: bool,
}

impl Admitted {
    /// The service is called with this request.
    fn start<B>(
        permit: QueuePermit,
        options: ResponseOptions,
        serve_state: Option<ServeState>,
        request: &mut Request<B>,
    ) -> Admitted {
        if let Some(state) = serve_state {
            state.set_served();
        }
        if let Some(timer) = permit.service_timer() {
            request.extensions_mut().insert(timer);
        }
        Admitted {
            permit,
            options,
            is_connect: is_connect(request.method()),
        }
    }

    /// Records the outcome. The response holds the permit until its end.
    fn complete<RB: Body, E>(
        mut self,
        response: Result<Response<RB>, E>,
    ) -> Result<Response<GuardedBody<RB>>, E> {
        let response = match response {
            Ok(response) => response,
            Err(error) => {
                self.permit.finish(BackendOutcome::Overloaded);
                return Err(error);
            }
        };
        let (mut head, body) = response.into_parts();
        self.permit.record((self.options.classify)(&head));
        let waited = self.permit.waited();
        if self.options.wait_header && !waited.is_zero() {
            let ms = waited.as_nanos().div_ceil(1_000_000);
            let ms = HeaderValue::from(u64::try_from(ms).unwrap_or(u64::MAX));
            head.headers.insert(WAITED, ms);
        }
        let mut guard: Option<Guard> = Some(Box::new(self.permit));
        if opens_tunnel(self.is_connect, head.status)
            && let Some(permit) = guard.take()
        {
            TunnelGuard::add(&mut head.extensions, permit);
        }
        Ok(Response::from_parts(head, GuardedBody::new(body, guard)))
    }
}
