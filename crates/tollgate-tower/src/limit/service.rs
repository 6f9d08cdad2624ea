//! The service: decides, and goes on at once if it can.

use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use http_body::Body;
use tollgate::Verdict;
use tollgate_policy::decide;
use tollgate_policy::{Decide, DecisionHost, DecisionRequest, Op};
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
            Err(held_up) => {
                let (decide, epoch) = *held_up;
                self.hold_up(decide, &epoch, request)
            }
        }
    }
}

/// What an admitted request takes along; or else its decision, and the policy that it is made under. Boxed, so that
/// those who go on at once have little to move.
type Decided<A> = Result<Admitted<ClockOf<A>>, Box<(Decide<A>, Arc<<A as DecisionHost>::Policy>)>>;

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
        let found = settings.ask.look(request);
        let decide = with_facts(request, client, cost, |facts| {
            settings.ask.with_subject(gate, found, facts, |subject| {
                let request = DecisionRequest {
                    longest_wait: Some(settings.longest_wait),
                    ..DecisionRequest::new(subject, Op::Charge)
                };
                decide(authority, &epoch, &request)
            })
        });
        if let Decide::Ready(answer) = &decide
            && answer.verdict == Verdict::Pass
        {
            return Ok(Admitted {
                told: Told::of(gate, answer),
                holds: Holds::of(gate, answer, request.extensions_mut()),
                is_connect: is_connect(request.method()),
            });
        }
        Err(Box::new((decide, epoch)))
    }

    /// The future of a request that is refused, or has to wait.
    #[cold]
    fn hold_up<B>(
        &mut self,
        decide: Decide<A>,
        epoch: &A::Policy,
        request: Request<B>,
    ) -> LimitFuture<S, A, B>
    where
        S: Service<Request<B>> + Clone,
    {
        match decide {
            Decide::Ready(answer) if answer.is_admitted() => {
                let service = unready(&mut self.inner);
                let slow = Slow::for_slot(epoch.gate(), &answer, service, request);
                LimitFuture::slow(slow)
            }
            Decide::Ready(answer) => {
                // What was set aside for this request is for others.
                self.inner = self.inner.clone();
                LimitFuture::refused(refusal(epoch.gate(), &answer, &request))
            }
            Decide::Pending(pending) => {
                let service = unready(&mut self.inner);
                LimitFuture::slow(Slow::deciding(pending, service, request))
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
