//! The service of the pacing layer: sends a call at once if it need not wait.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::uri::Scheme;
use http::{Request, Response};
use tokio::time::sleep;
use tollgate::{Clock, Decision, Span, Verdict};
use tower_service::Service;

use super::hint::RateLimitHint;
use super::{Pacer, PacingError};
use crate::facts::{self, with_parts};
use crate::future::{Complete, LayerFuture};
use crate::limit::unready;

/// A paced client; made by [`super::PacingLayer`].
#[derive(Clone, Debug)]
#[must_use = "services do nothing unless called"]
pub struct PacingService<S, C = tollgate::MonotonicClock> {
    inner: S,
    pacer: Arc<Pacer<C>>,
}

impl<S, C> PacingService<S, C> {
    pub(super) fn new(inner: S, pacer: Arc<Pacer<C>>) -> PacingService<S, C> {
        PacingService { inner, pacer }
    }

    /// The inner client.
    pub fn inner(&self) -> &S {
        &self.inner
    }
}

impl<S, C, B, RB> Service<Request<B>> for PacingService<S, C>
where
    S: Service<Request<B>, Response = Response<RB>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    C: Clock,
    B: Send + 'static,
    RB: 'static,
{
    type Response = Response<RB>;
    type Error = PacingError<S::Error>;
    type Future = LayerFuture<S::Future, PacedCall<C>, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context).map_err(PacingError::Inner)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let mut call = PacedCall::new(Arc::clone(&self.pacer), &mut request);
        match call.try_send() {
            Ok(()) => {
                call.set_sent();
                LayerFuture::calling(self.inner.call(request), call)
            }
            Err(wait) => {
                let mut service = unready(&mut self.inner);
                LayerFuture::deferred(async move {
                    call.wait(wait).await?;
                    let ready = poll_fn(|context| service.poll_ready(context)).await;
                    ready.map_err(PacingError::Inner)?;
                    call.set_sent();
                    let response = service.call(request).await;
                    call.complete(response)
                })
            }
        }
    }
}

/// One outgoing call. Dropped before it is sent, it refunds the own limit; a slot of a leaky bucket that it waited for stays
/// idle.
#[derive(Debug)]
pub struct PacedCall<C: Clock> {
    pacer: Arc<Pacer<C>>,
    destination: String,
    /// The key in the own limit, if it is not the destination.
    key: Option<String>,
    /// The charge of the own limit, until the call is sent.
    charge: Option<Decision>,
}

impl<C: Clock> PacedCall<C> {
    fn new<B>(pacer: Arc<Pacer<C>>, request: &mut Request<B>) -> PacedCall<C> {
        PacedCall {
            destination: destination(request),
            key: pacer.key.and_then(|key| with_parts(request, key)),
            pacer,
            charge: None,
        }
    }

    fn key(&self) -> &str {
        self.key.as_deref().unwrap_or(&self.destination)
    }

    /// Whether the call may go now.
    ///
    /// # Errors
    /// How long until the next attempt. The own limit is charged once.
    fn try_send(&mut self) -> Result<(), Span> {
        let pacer = &self.pacer;
        let now = pacer.clock.now();
        let backoff = pacer.backoffs.wait(&self.destination, now);
        if !backoff.is_zero() {
            return Err(backoff);
        }
        if let (Some(own), None) = (&pacer.own, &self.charge) {
            // A slot beyond `max_wait` is not taken: it would stay idle.
            if let Verdict::Wait { delay } = own.peek(self.key(), 1).verdict
                && delay > pacer.max_wait
            {
                return Err(delay);
            }
            let decision = own.charge(self.key(), 1);
            match decision.verdict {
                Verdict::Refuse { retry_after } => return Err(retry_after),
                Verdict::Never => return Err(Span::from_nanos(u64::MAX)),
                Verdict::Pass | Verdict::Wait { .. } => {}
            }
            self.charge = Some(decision);
            if let Verdict::Wait { delay } = decision.verdict {
                return Err(delay);
            }
        }
        pacer.backoffs.send(&self.destination, now)
    }

    /// Waits until the call may go.
    async fn wait<E>(&mut self, mut wait: Span) -> Result<(), PacingError<E>> {
        let max_wait = self.pacer.max_wait;
        let mut waited = Span::ZERO;
        loop {
            waited = Span::from_nanos(waited.as_nanos().saturating_add(wait.as_nanos()));
            if waited > max_wait {
                return Err(PacingError::MaxWait {
                    destination: self.destination.clone(),
                    wait,
                    max_wait,
                });
            }
            sleep(wait.into()).await;
            match self.try_send() {
                Ok(()) => return Ok(()),
                // A sleep may end a little early by another clock; then the rest must not be nothing.
                Err(rest) => wait = rest.max(Span::from_millis(1)),
            }
        }
    }

    /// The call is sent: its charge stays.
    fn set_sent(&mut self) {
        self.charge = None;
    }
}

impl<C: Clock, RB, E> Complete<Result<Response<RB>, E>> for PacedCall<C> {
    type Output = Result<Response<RB>, PacingError<E>>;

    /// Records the hint of the response.
    fn complete(self, response: Result<Response<RB>, E>) -> Self::Output {
        let response = response.map_err(PacingError::Inner)?;
        let pacer = &self.pacer;
        let since_1970 = || pacer.wall.now().as_nanos() / 1_000_000_000;
        let hint = RateLimitHint::read(response.status(), response.headers(), since_1970);
        let (now, max_backoff) = (pacer.clock.now(), pacer.max_backoff);
        pacer
            .backoffs
            .record(&self.destination, now, hint, max_backoff);
        Ok(response)
    }
}

impl<C: Clock> Drop for PacedCall<C> {
    fn drop(&mut self) {
        if let (Some(own), Some(charge)) = (&self.pacer.own, self.charge.take()) {
            let _ = own.settle(self.key(), &charge, 1, 0);
        }
    }
}

/// Scheme, host and port, in one form.
fn destination<B>(request: &Request<B>) -> String {
    let uri = request.uri();
    let scheme = uri.scheme().map_or("http", Scheme::as_str);
    let host = facts::host(uri, request.headers());
    // In a header the port is part of the host.
    let (host, header_port) = match (uri.host(), host.rsplit_once(':')) {
        (None, Some((name, port))) if !port.ends_with(']') => (name, port.parse().ok()),
        _ => (host, None),
    };
    let default_port = if scheme == "https" { 443 } else { 80 };
    let port = uri.port_u16().or(header_port).unwrap_or(default_port);
    format!("{scheme}://{}:{port}", host.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_is_scheme_host_and_port() {
        let of = |uri: &str, host: Option<&str>| {
            let mut request = Request::builder().uri(uri);
            if let Some(host) = host {
                request = request.header("host", host);
            }
            destination(&request.body(()).unwrap())
        };
        assert_eq!(of("http://A.example/x", None), "http://a.example:80");
        assert_eq!(of("http://a.example:80/y?z", None), "http://a.example:80");
        assert_eq!(of("https://a.example/", None), "https://a.example:443");
        assert_eq!(of("http://[::1]:8080/", None), "http://[::1]:8080");
        assert_eq!(of("/x", Some("a.example:81")), "http://a.example:81");
        assert_eq!(of("/x", Some("[::1]")), "http://[::1]:80");
        assert_eq!(of("/x", Some("a.example")), "http://a.example:80");
        assert_eq!(of("/x", None), "http://:80");
    }
}
