//! The service of the limit layer: decides, and calls the inner service at once if it can.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tokio::time::sleep;
use tollgate::{Clock, Verdict};
use tollgate_policy::{
    Decide, DecisionRequest, Op, PendingDecision, PolicyDecision, PolicyGate, Subject, decide,
};
use tower_service::Service;

use super::{LimitLayer, RefusalFn};
use crate::body::GuardedBody;
use crate::facts::{resolve_client, with_facts, with_parts};
use crate::future::{Complete, LayerFuture};
use crate::policy_source::PolicySource;
use crate::reservation::{PendingReservation, TunnelGuard, is_connect, opens_tunnel};
use crate::response::{RejectedByLayer, ResponseFields, missing_client, refusal};

/// A service behind limits; made by [`LimitLayer`].
#[derive(Clone, Debug)]
#[must_use = "services do nothing unless called"]
pub struct LimitService<S, P> {
    inner: S,
    layer: LimitLayer<P>,
}

impl<S, P> LimitService<S, P> {
    pub(super) fn new(inner: S, layer: LimitLayer<P>) -> LimitService<S, P> {
        LimitService { inner, layer }
    }

    /// The inner service.
    pub fn inner(&self) -> &S {
        &self.inner
    }
}

impl<S, P, B, RB> Service<Request<B>> for LimitService<S, P>
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
    type Future = LayerFuture<S::Future, Admitted<P::Clock>, Result<Self::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        match self.layer.decide(&mut request) {
            LimitOutcome::Admitted(admitted) => {
                LayerFuture::calling(self.inner.call(request), admitted)
            }
            LimitOutcome::Refused(response) => {
                // Releases the capacity that `poll_ready` reserved for this request.
                self.inner = self.inner.clone();
                let response = (self.layer.refusal)(*response);
                LayerFuture::ready(Ok(response.map(GuardedBody::from)))
            }
            LimitOutcome::Deferred(deferred) => {
                let service = unready(&mut self.inner);
                LayerFuture::deferred(wait_and_call::<S, P, B, RB>(*deferred, service, request))
            }
        }
    }
}

/// What is decided of a request. What is large is boxed: an admitted request has little to move.
enum LimitOutcome<P: PolicySource> {
    Admitted(Admitted<P::Clock>),
    Refused(Box<Response<Bytes>>),
    Deferred(Box<Deferred<P>>),
}

/// A request that has to wait. It holds what it took from the start: its future may be dropped before it is polled.
struct Deferred<P: PolicySource> {
    policy: Arc<P::Policy>,
    refusal: RefusalFn,
    wait: Wait<P>,
}

enum Wait<P: PolicySource> {
    /// For the shared store.
    Decision(PendingDecision<P>),
    /// For a slot of a leaky bucket.
    Slot(PolicyDecision, Box<PendingReservation<P::Clock>>),
}

impl<P: PolicySource> LimitLayer<P> {
    /// Decides a request in place: requests and answers are large, and moving them costs more than most steps of a decision.
    #[inline]
    fn decide<B>(&self, request: &mut Request<B>) -> LimitOutcome<P> {
        let policy = self.source.active_policy();
        let gate = P::gate(&policy);
        let Ok(client) = resolve_client(request, self.peer, gate.policy()) else {
            return LimitOutcome::Refused(Box::new(missing_client(request)));
        };
        let cost = self.cost.and_then(|cost| with_parts(request, cost));
        let key = self.key.as_ref();
        let key = key.map(|key| with_parts(request, |parts| key(parts)).unwrap_or_default());
        let decide = with_facts(request, client, cost, |facts| {
            let parts = [key.as_deref().unwrap_or_default()];
            let subject = match key {
                // A replaced policy may have no limit: then its default decides.
                Some(_) if gate.rule(0).is_some() => Subject::Rule {
                    rule: 0,
                    key: &parts,
                    cost: facts.cost.unwrap_or(1),
                },
                _ => Subject::Request(facts),
            };
            let request = DecisionRequest {
                longest_wait: Some(self.max_wait),
                ..DecisionRequest::new(subject, Op::Charge)
            };
            decide(&self.source, &policy, &request)
        });
        let wait = match decide {
            Decide::Ready(answer) if answer.verdict == Verdict::Pass => {
                let extensions = request.extensions_mut();
                return LimitOutcome::Admitted(Admitted {
                    fields: ResponseFields::new(gate, &answer),
                    reservation: PendingReservation::started(gate, &answer, extensions),
                    is_connect: is_connect(request.method()),
                });
            }
            Decide::Ready(answer) if answer.is_admitted() => {
                let reservation = PendingReservation::new(gate, &answer);
                Wait::Slot(answer, reservation)
            }
            Decide::Ready(answer) => {
                return LimitOutcome::Refused(Box::new(refusal(gate, &answer, request)));
            }
            Decide::Pending(pending) => Wait::Decision(pending),
        };
        LimitOutcome::Deferred(Box::new(Deferred {
            policy,
            refusal: self.refusal,
            wait,
        }))
    }
}

/// What an admitted request takes along.
#[derive(Debug)]
pub struct Admitted<C: Clock> {
    fields: Option<ResponseFields>,
    reservation: Option<Box<PendingReservation<C>>>,
    is_connect: bool,
}

impl<C: Clock, RB: Body, E> Complete<Result<Response<RB>, E>> for Admitted<C> {
    type Output = Result<Response<GuardedBody<RB>>, E>;

    /// Adds the header fields to a response, and what it holds.
    fn complete(self, response: Result<Response<RB>, E>) -> Self::Output {
        let mut response = response?;
        if let Some(fields) = self.fields
            && response.extensions().get::<RejectedByLayer>().is_none()
        {
            fields.write(response.headers_mut());
        }
        let mut guard = self.reservation.and_then(PendingReservation::into_guard);
        if opens_tunnel(self.is_connect, response.status())
            && let Some(guard) = guard.take()
        {
            TunnelGuard::add(response.extensions_mut(), guard);
        }
        Ok(response.map(|body| GuardedBody::new(body, guard)))
    }
}

/// Waits for the decision and for the slot, then calls the service. Dropped before the call, it returns what was taken.
async fn wait_and_call<S, P, B, RB>(
    deferred: Deferred<P>,
    mut service: S,
    mut request: Request<B>,
) -> Result<Response<GuardedBody<RB>>, S::Error>
where
    S: Service<Request<B>, Response = Response<RB>>,
    P: PolicySource,
    RB: Body,
{
    let gate = P::gate(&deferred.policy);
    let (answer, reservation) = match deferred.wait {
        Wait::Slot(answer, reservation) => (answer, reservation),
        Wait::Decision(pending) => {
            let answer = pending.await;
            if !answer.is_admitted() {
                let response = (deferred.refusal)(refusal(gate, &answer, &request));
                return Ok(response.map(GuardedBody::from));
            }
            let reservation = PendingReservation::new(gate, &answer);
            (answer, reservation)
        }
    };
    let fields = ResponseFields::new(gate, &answer);
    sleep_until_slot(gate, &answer).await;
    std::future::poll_fn(|context| service.poll_ready(context)).await?;
    let may_queue = !gate.policy().queues.is_empty();
    let admitted = Admitted {
        fields,
        reservation: Some(reservation.start(may_queue, request.extensions_mut())),
        is_connect: is_connect(request.method()),
    };
    // Dropped in reverse order: first the call, then what it holds.
    let response = service.call(request).await;
    admitted.complete(response)
}

/// Waits for a slot of a leaky bucket.
async fn sleep_until_slot<C: Clock>(gate: &PolicyGate<C>, answer: &PolicyDecision) {
    if let Verdict::Wait { delay } = answer.verdict {
        let slot = answer.issued.plus(delay);
        sleep(slot.since(gate.clock().now()).into()).await;
    }
}

/// A clone that is not ready yet; the capacity that `poll_ready` reserved is released.
pub(crate) fn unready<S: Clone>(inner: &mut S) -> S {
    let clone = inner.clone();
    *inner = clone.clone();
    clone
}
