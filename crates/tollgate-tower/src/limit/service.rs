//! The service: decides, and goes on at once if it can.

use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use http_body::Body;
use tollgate::policy::{Answer, Begun, PolicyGate};
use tollgate::{Clock, Moment, Span, Verdict};
use tower_service::Service;

use super::Settings;
use super::ask::Ask;
use super::future::{Admitted, ClockOf, LimitFuture, Slow};
use crate::authority::{Authority, Epoch};
use crate::body::LimitBody;
use crate::facts::{recognise, with_facts, with_parts};
use crate::held::is_connect;
use crate::reached::Holds;
use crate::reply::{Told, refusal};
use crate::slots::Slots;

/// A service behind limits; made by [`super::LimitLayer`].
#[derive(Clone, Copy, Debug)]
pub struct LimitService<S, A, K = super::ByPolicy> {
    inner: S,
    settings: Settings<A, K>,
}

impl<S, A, K> LimitService<S, A, K> {
    pub(super) fn new(inner: S, settings: Settings<A, K>) -> LimitService<S, A, K> {
        LimitService { inner, settings }
    }

    /// The service behind.
    pub fn inner(&self) -> &S {
        &self.inner
    }
}

impl<S, A, K, B, RB> Service<Request<B>> for LimitService<S, A, K>
where
    S: Service<Request<B>, Response = Response<RB>> + Clone,
    A: Authority,
    K: Ask,
    RB: Body,
{
    type Response = Response<LimitBody<RB>>;
    type Error = S::Error;
    type Future = LimitFuture<S, A, B>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> LimitFuture<S, A, B> {
        match self.decide(&mut request) {
            Ok(admitted) => LimitFuture::calling(self.inner.call(request), admitted),
            Err(held_up) => self.hold_up(*held_up, request),
        }
    }
}

/// What an admitted request takes along; or else what is known of it.
type Decided<A> = Result<Admitted<ClockOf<A>>, Box<HeldUp<<A as Authority>::Epoch>>>;

/// What is known of a request that does not go on at once. Boxed, so that those who do have little to move.
struct HeldUp<E> {
    begun: Begun,
    epoch: Arc<E>,
    client: Option<IpAddr>,
    cost: Option<u64>,
    before: Moment,
}

impl<S, A: Authority, K: Ask> LimitService<S, A, K> {
    /// Decides a request where it is: requests and answers are large, and moving them costs more than most
    /// of what is done with them.
    #[inline]
    fn decide<B>(&self, request: &mut Request<B>) -> Decided<A> {
        let settings = &self.settings;
        let authority = &settings.authority;
        let epoch = authority.epoch();
        let gate = epoch.gate();
        let client = recognise(request, settings.peer, &gate.policy().proxies);
        let cost = settings.cost.and_then(|cost| with_parts(request, cost));
        let before = gate.clock().now();
        let found = settings.ask.look(request);
        let begun = with_facts(request, client, cost, |facts| {
            let mut begun = settings.ask.begin(gate, found, facts, before);
            if let Begun::Decided(answer) = &mut begun {
                bound_wait(authority.slots(), gate, answer, settings.longest_wait);
                if authority.is_told() {
                    authority.decided(&epoch, facts, answer, took(gate, before));
                }
            }
            begun
        });
        if let Begun::Decided(answer) = &begun
            && answer.verdict == Verdict::Pass
        {
            return Ok(Admitted {
                told: Told::of(gate, answer),
                holds: Holds::of(gate, answer, request.extensions_mut()),
                is_connect: is_connect(request.method()),
            });
        }
        Err(Box::new(HeldUp {
            begun,
            epoch,
            client,
            cost,
            before,
        }))
    }

    /// The future of a request that is refused, or has to wait.
    #[cold]
    fn hold_up<B>(&mut self, held_up: HeldUp<A::Epoch>, request: Request<B>) -> LimitFuture<S, A, B>
    where
        S: Service<Request<B>> + Clone,
    {
        let HeldUp { begun, epoch, .. } = held_up;
        let authority = &self.settings.authority;
        match begun {
            Begun::Decided(answer) if answer.is_admitted() => {
                let service = unready(&mut self.inner);
                let slow = Slow::for_slot(authority, epoch.gate(), &answer, service, request);
                LimitFuture::slow(slow)
            }
            Begun::Decided(answer) => {
                // What was set aside for this request is for others.
                self.inner = self.inner.clone();
                LimitFuture::refused(refusal(epoch.gate(), &answer, &request))
            }
            Begun::Asks(asking) => {
                let service = unready(&mut self.inner);
                let asks = super::future::Asks {
                    authority: authority.clone(),
                    client: held_up.client,
                    cost: held_up.cost,
                    before: held_up.before,
                    longest_wait: self.settings.longest_wait,
                };
                LimitFuture::slow(Slow::asking(epoch, asking, asks, service, request))
            }
        }
    }
}

/// A clone to be made ready later; what the service had set aside is given back.
pub(crate) fn unready<S: Clone>(inner: &mut S) -> S {
    let clone = inner.clone();
    *inner = clone.clone();
    clone
}

/// How long the decision has taken.
pub(super) fn took<C: Clock>(gate: &PolicyGate<C>, before: Moment) -> std::time::Duration {
    gate.clock().now().since(before).into()
}

/// Whoever would wait for too long gives its place back and is refused.
pub(super) fn bound_wait<C: Clock>(
    slots: &Slots<C>,
    gate: &PolicyGate<C>,
    answer: &mut Answer,
    longest: Span,
) {
    if let Verdict::Wait { delay } = answer.verdict
        && delay > longest
    {
        // Whoever stops waiting gives everything back, the slot to those behind it.
        drop(slots.wait(gate, answer));
        answer.verdict = Verdict::Refuse {
            retry_after: Span::from_nanos(delay.as_nanos().saturating_sub(longest.as_nanos())),
        };
    }
}
