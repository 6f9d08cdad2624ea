//! The service: decides, and goes on at once if it can.

use std::task::{Context, Poll};

use http::request::Parts;
use http::{Request, Response};
use http_body::Body;
use tollgate::policy::{Answer, Begun, PolicyGate};
use tollgate::{Clock, Moment, Span, Verdict};
use tower_service::Service;

use super::Settings;
use super::ask::Ask;
use super::future::{Admitted, LimitFuture, Slow};
use crate::authority::{Authority, Epoch};
use crate::body::LimitBody;
use crate::facts::{recognise, with_facts};
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

    fn call(&mut self, request: Request<B>) -> LimitFuture<S, A, B> {
        let (mut parts, body) = request.into_parts();
        let settings = &self.settings;
        let authority = &settings.authority;
        let epoch = authority.epoch();
        let gate = epoch.gate();
        let client = recognise(&mut parts, settings.peer, &gate.policy().proxies);
        let cost = settings.cost.and_then(|cost| cost(&parts));
        let before = gate.clock().now();
        let begun = with_facts(&parts, client, cost, |facts| {
            let mut begun = settings.ask.begin(gate, &parts, facts);
            // Looked at where it is: an answer is large, and most need no change.
            if let Begun::Decided(answer) = &mut begun {
                bound_wait(authority.slots(), gate, answer, settings.longest_wait);
                authority.decided(&epoch, facts, answer, took(gate, before));
            }
            begun
        });
        match begun {
            Begun::Decided(answer) => match answer.verdict {
                Verdict::Pass => {
                    let admitted = Admitted {
                        told: Told::of(gate, &answer),
                        holds: Holds::of(gate, &answer, &mut parts.extensions),
                        is_connect: is_connect(&parts.method),
                    };
                    let future = self.inner.call(Request::from_parts(parts, body));
                    LimitFuture::calling(future, admitted)
                }
                Verdict::Wait { .. } => {
                    let service = unready(&mut self.inner);
                    let slow = Slow::for_slot(authority, gate, &answer, service, parts, body);
                    LimitFuture::slow(slow)
                }
                Verdict::Refuse { .. } | Verdict::Never => {
                    // What was set aside for this request is for others.
                    self.inner = self.inner.clone();
                    LimitFuture::refused(refusal(gate, &answer, &parts))
                }
            },
            Begun::Asks(asking) => {
                let service = unready(&mut self.inner);
                let asks = super::future::Asks {
                    authority: authority.clone(),
                    client,
                    cost,
                    before,
                    longest_wait: settings.longest_wait,
                };
                LimitFuture::slow(Slow::asking(epoch, asking, asks, service, parts, body))
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

/// Puts a request together again.
pub(super) fn whole<B>(request: Option<(Parts, B)>) -> Option<Request<B>> {
    request.map(|(parts, body)| Request::from_parts(parts, body))
}
