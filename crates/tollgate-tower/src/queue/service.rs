//! The service: finds the queue, and goes on at once if the turn has come already.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::Settings;
use super::future::{QueueFuture, Waiting, begins};
use crate::authority::{Authority, Epoch};
use crate::body::QueueBody;
use crate::facts::{recognise, with_facts};
use crate::limit::unready;
use crate::reached::Reached;
use crate::reply::turned_away;

/// A service behind queues; made by [`super::QueueLayer`].
#[derive(Clone, Copy, Debug)]
pub struct QueueService<S, A> {
    inner: S,
    settings: Settings<A>,
}

impl<S, A> QueueService<S, A> {
    pub(super) fn new(inner: S, settings: Settings<A>) -> QueueService<S, A> {
        QueueService { inner, settings }
    }

    /// The service behind.
    pub fn inner(&self) -> &S {
        &self.inner
    }
}

impl<S, A, B, RB> Service<Request<B>> for QueueService<S, A>
where
    S: Service<Request<B>, Response = Response<RB>> + Clone,
    A: Authority,
    RB: Body,
{
    type Response = Response<QueueBody<RB>>;
    type Error = S::Error;
    type Future = QueueFuture<S, A, B>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> QueueFuture<S, A, B> {
        let (mut parts, body) = request.into_parts();
        let settings = &self.settings;
        let manner = settings.manner;
        let reached = parts.extensions.remove::<Reached>();
        let epoch = settings.authority.epoch();
        let gate = epoch.gate();
        let mut place = None;
        if !gate.policy().queues.is_empty() {
            let client = recognise(&mut parts, settings.peer, &gate.policy().proxies);
            let cost = settings.cost.and_then(|cost| cost(&parts));
            place = with_facts(&parts, client, cost, |facts| gate.place(facts));
        }
        let turnstile =
            place.and_then(|place| Some((place, epoch.queues().get(place.queue)?.clone())));
        let Some((place, turnstile)) = turnstile else {
            if let Some(reached) = reached {
                reached.served();
            }
            let future = self.inner.call(Request::from_parts(parts, body));
            return QueueFuture::calling(future, None, manner);
        };
        let mut enter: super::future::Enter = Box::pin(turnstile.enter(&place));
        // Whoever need not wait is told so at once; whoever has to is polled again with a real waker.
        let mut nobody = Context::from_waker(Waker::noop());
        match enter.as_mut().poll(&mut nobody) {
            Poll::Ready(Ok(turn)) => {
                let is_connect = crate::held::is_connect(&parts.method);
                begins(&turn, reached.as_ref(), &mut parts.extensions);
                let future = self.inner.call(Request::from_parts(parts, body));
                QueueFuture::calling(future, Some((turn, is_connect)), manner)
            }
            Poll::Ready(Err(turned)) => {
                if let Some(reached) = reached {
                    reached.waits();
                }
                // What was set aside for this request is for others.
                self.inner = self.inner.clone();
                let policy = gate.policy();
                let queue = policy.queues.get(place.queue);
                let name = queue.map_or("", |queue| &queue.name);
                let response = turned_away(&policy.answers, name, turned, &parts);
                QueueFuture::turned(response, manner)
            }
            Poll::Pending => {
                if let Some(reached) = &reached {
                    reached.waits();
                }
                let service = unready(&mut self.inner);
                let waiting = Waiting {
                    epoch: Arc::clone(&epoch),
                    queue: place.queue,
                    service,
                    enter: Some(enter),
                    turn: None,
                    reached,
                    request: Some((parts, body)),
                };
                QueueFuture::waiting(waiting, manner)
            }
        }
    }
}
