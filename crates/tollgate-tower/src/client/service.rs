//! The service: sends at once if it may.

use std::sync::Arc;
use std::task::{Context, Poll};

use http::request::Parts;
use http::uri::Scheme;
use http::{Request, Response};
use tollgate::{Clock, Decision, Limiter, Span, Verdict};
use tower_service::Service;

use super::future::{PaceFuture, Waiting};
use super::holds::Holds;
use super::{PaceError, Settings};
use crate::facts;
use crate::limit::unready;

/// A client that is paced; made by [`super::PaceLayer`].
#[derive(Clone, Debug)]
pub struct PaceService<S, C = tollgate::MonotonicClock> {
    inner: S,
    settings: Settings<C>,
    holds: Arc<Holds>,
}

impl<S, C> PaceService<S, C> {
    pub(super) fn new(inner: S, settings: Settings<C>, holds: Arc<Holds>) -> PaceService<S, C> {
        PaceService {
            inner,
            settings,
            holds,
        }
    }

    /// The client behind.
    pub fn inner(&self) -> &S {
        &self.inner
    }
}

impl<S, C, B, RB> Service<Request<B>> for PaceService<S, C>
where
    S: Service<Request<B>, Response = Response<RB>> + Clone,
    C: Clock,
{
    type Response = Response<RB>;
    type Error = PaceError<S::Error>;
    type Future = PaceFuture<S, C, B>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context).map_err(PaceError::Inner)
    }

    fn call(&mut self, request: Request<B>) -> PaceFuture<S, C, B> {
        let (parts, body) = request.into_parts();
        let mut pace = Pace::new(&parts, &self.settings, &self.holds);
        let first = pace.go();
        let request = Request::from_parts(parts, body);
        match first {
            Ok(()) => {
                pace.sent();
                let future = self.inner.call(request);
                PaceFuture::calling(future, pace)
            }
            Err(wait) => {
                let service = unready(&mut self.inner);
                PaceFuture::waiting(Waiting::new(service, request, wait), pace)
            }
        }
    }
}

/// One call on its way out.
#[derive(Debug)]
pub(super) struct Pace<C: Clock> {
    pub(super) destination: String,
    /// The key of the own limit, if it is not the destination.
    key: Option<String>,
    pub(super) settings: Settings<C>,
    pub(super) holds: Arc<Holds>,
    taken: Option<Taken<C>>,
}

impl<C: Clock> Pace<C> {
    fn new(parts: &Parts, settings: &Settings<C>, holds: &Arc<Holds>) -> Pace<C> {
        Pace {
            destination: destination(parts),
            key: settings.key.and_then(|key| key(parts)),
            settings: settings.clone(),
            holds: Arc::clone(holds),
            taken: None,
        }
    }

    /// May it go now? Or how long is it until it is worth asking again? What was taken once is not taken
    /// again.
    pub(super) fn go(&mut self) -> Result<(), Span> {
        let now = self.settings.clock.now();
        let held = self.holds.wait(&self.destination, now);
        if !held.is_zero() {
            return Err(held);
        }
        if let (Some(own), None) = (&self.settings.own, &self.taken) {
            let key = self.key.as_ref().unwrap_or(&self.destination);
            // A slot that begins too late is not taken: it would stay idle.
            if let Verdict::Wait { delay } = own.peek(key.as_str(), 1).verdict
                && delay > self.settings.max_wait
            {
                return Err(delay);
            }
            let decision = own.charge(key.as_str(), 1);
            match decision.verdict {
                Verdict::Refuse { retry_after } => return Err(retry_after),
                Verdict::Never => return Err(Span::from_nanos(u64::MAX)),
                Verdict::Pass | Verdict::Wait { .. } => {}
            }
            self.taken = Some(Taken {
                own: own.clone(),
                key: key.clone(),
                decision: Some(decision),
            });
            if let Verdict::Wait { delay } = decision.verdict {
                return Err(delay);
            }
        }
        self.holds.send(&self.destination, now)
    }

    /// It goes out: what it took stays taken.
    pub(super) fn sent(&mut self) {
        if let Some(mut taken) = self.taken.take() {
            taken.decision = None;
        }
    }
}

/// What was taken of the own limit. Dropping it gives it back; a slot of a leaky bucket that had to be waited for
/// stays idle.
#[derive(Debug)]
struct Taken<C: Clock> {
    own: Limiter<C>,
    key: String,
    decision: Option<Decision>,
}

impl<C: Clock> Drop for Taken<C> {
    fn drop(&mut self) {
        if let Some(decision) = self.decision.take() {
            self.own.settle(self.key.as_str(), &decision, 1, 0);
        }
    }
}

/// Scheme, host and port, in one form.
fn destination(parts: &Parts) -> String {
    let uri = &parts.uri;
    let scheme = uri.scheme().map_or("http", Scheme::as_str);
    let host = facts::host(uri, &parts.headers);
    // Of a header the port is a part already.
    let (host, told) = match (uri.host(), host.rsplit_once(':')) {
        (None, Some((name, port))) if !port.ends_with(']') => (name, port.parse().ok()),
        _ => (host, None),
    };
    let usual = if scheme == "https" { 443 } else { 80 };
    let port = uri.port_u16().or(told).unwrap_or(usual);
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
            destination(&request.body(()).unwrap().into_parts().0)
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
