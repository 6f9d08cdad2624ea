//! The proxy service: a request goes to a server of its upstream, and the answer comes back, both part by
//! part.
//!
//! # Invariant
//!
//! An admitted request reaches a server once or not at all. It is tried elsewhere only if the policy says
//! so, it is safe to repeat, and nothing of it was sent. Whoever drops the future or the answer's body ends
//! the request at the server, too: its connection is closed at once.
//!
//! # What it does not know
//!
//! Limits and queues: those are layers around it. How a request was framed: that was looked at before.

mod awaited;
pub(crate) mod body;
mod fields;
mod health;
mod pool;
mod server;
mod stream;
mod timers;
mod upstream;
pub(crate) mod wire;

use std::convert::Infallible;
use std::future::{Future, poll_fn, ready};
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use arc_swap::ArcSwap;
use hyper::header::{CONNECTION, HOST, HeaderValue, UPGRADE};
use hyper::http::Extensions;
use hyper::http::uri::{PathAndQuery, Scheme};
use hyper::upgrade::OnUpgrade;
use hyper::{Request, Response, StatusCode, Uri, Version};
use tokio::time::Instant;
use tollgate_config::Protocol;
use tollgate_policy::Facts;
use tollgate_tower::{ClientAddr, HttpHeaders, PeerAddr, ServiceTimer};
use tower_service::Service;

use super::answers::{Answered, problem, refused};
use super::check::{TOO_LARGE, asks_for_tunnel};
use awaited::Awaited;
use body::{BoxError, Broken, Download, Inbound, Passes, Progress, Upload};
use fields::{Sender, host_field, host_of};
use pool::Unsent;
use server::WithServer;
use timers::Timers;

pub(crate) use health::watch_servers;
pub(crate) use server::Server;
pub use upstream::{Observed, UpstreamError};
pub(crate) use upstream::{Upstream, Upstreams};

/// How requests are passed on at present.
#[derive(Debug)]
pub(crate) struct Way {
    pub(crate) upstreams: Upstreams,
    pub(crate) max_body: Option<u64>,
    pub(crate) body_idle: Duration,
    pub(crate) proxies: tollgate_policy::address::Proxies,
}

/// That a request came over TLS; in its extensions.
#[derive(Clone, Copy, Debug)]
pub(super) struct OverTls;

/// The two ends of a tunnel that an answer opens; in its extensions.
#[derive(Clone)]
pub(super) struct Ends {
    pub(super) client: OnUpgrade,
    pub(super) server: OnUpgrade,
    pub(super) idle: Duration,
    pub(super) with: Arc<WithServer>,
}

/// The proxy of one thread. Clones are the same one.
#[derive(Clone, Debug)]
pub(crate) struct Proxy(Arc<OfThread>);

/// What the requests of one thread have in common.
#[derive(Debug)]
struct OfThread {
    way: Arc<ArcSwap<Way>>,
    thread: usize,
    timers: Timers,
}

impl Proxy {
    pub(crate) fn new(way: Arc<ArcSwap<Way>>, thread: usize) -> Proxy {
        Proxy(Arc::new(OfThread {
            way,
            thread,
            timers: Timers::default(),
        }))
    }
}

impl Service<Request<Inbound>> for Proxy {
    type Response = Response<Download>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Download>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Inbound>) -> Self::Future {
        let own = Arc::clone(&self.0);
        // What can be done at once is, so that the future holds only what it waits with.
        match Passing::of(&own.way.load(), request) {
            Some(mut passing) => Box::pin(async move { Ok(passing.answer(&own).await) }),
            None => {
                let told = "no upstream is for this request; ask for another path or host";
                Box::pin(ready(Ok(problem(StatusCode::NOT_FOUND, told))))
            }
        }
    }
}

/// A request on its way to a server.
struct Passing {
    upstream: Arc<Upstream>,
    request: Option<Request<Upload>>,
    progress: Option<Arc<Progress>>,
    /// Of a client that asks for a tunnel.
    client: Option<OnUpgrade>,
    /// How often it may be tried again.
    tries: u32,
    tried: Vec<Arc<Server>>,
}

impl Passing {
    /// What is passed on of a request, and where; None if no upstream is for it.
    fn of(way: &Way, mut request: Request<Inbound>) -> Option<Passing> {
        let upstream = find(way, &request)?;
        let client = asks_for_tunnel(&request).then(|| request.extensions_mut().remove());
        let client: Option<OnUpgrade> = client.flatten();
        let service_timer = request.extensions_mut().remove::<ServiceTimer>();
        prepare(way, upstream, &mut request, client.is_some());
        let mut progress = None;
        let request = request.map(|body| {
            let (body, seen) = Upload::new(body, way.max_body, way.body_idle);
            progress = seen;
            body.timed_by(service_timer)
        });
        let is_repeatable =
            progress.is_none() && request.method().is_idempotent() && client.is_none();
        Some(Passing {
            tries: if is_repeatable {
                upstream.spec.retries
            } else {
                0
            },
            upstream: Arc::clone(upstream),
            request: Some(request),
            progress,
            client,
            tried: Vec::new(),
        })
    }

    /// What a server answers.
    async fn answer(&mut self, own: &OfThread) -> Answered {
        let upstream = &*self.upstream;
        let progress = self.progress.as_deref();
        loop {
            let (Some(server), Some(whole)) = (upstream.choose(&self.tried), &mut self.request)
            else {
                return unreachable_answer();
            };
            address(upstream, server, whole);
            let with = server.begin();
            upstream.observed.began();
            let began = Instant::now();
            let awaited = Awaited::new(&upstream.observed, began, progress);
            let sent = pool::send(server, &upstream.spec, own.thread, &mut self.request);
            let most = upstream.spec.answer.into();
            let answer = in_time(pin!(sent), &own.timers, began, most, progress).await;
            let took = awaited.over();
            match answer {
                Some(Ok(answer)) => {
                    let is_failure = matches!(answer.status().as_u16(), 502..=504);
                    match is_failure {
                        true => server.slipped(upstream::now_ms()),
                        false => server.well(),
                    }
                    upstream.observed.answered(took, is_failure);
                    return answered(answer, with, self.client.take(), upstream);
                }
                Some(Err(Unsent::Unreachable(cause))) => {
                    upstream.observed.failed();
                    server.failed(upstream.spec.health.as_ref(), upstream::now_ms());
                    tracing::debug!(target: "tollgate::gateway", server = %server.authority(), %cause, "no connection");
                    if self.tries == 0 {
                        return unreachable_answer();
                    }
                    self.tries -= 1;
                    self.tried.push(Arc::clone(server));
                }
                Some(Err(Unsent::Broken(cause))) => {
                    return broken(upstream, server, progress, &cause);
                }
                None => {
                    upstream.observed.failed();
                    server.failed(upstream.spec.health.as_ref(), upstream::now_ms());
                    return problem(
                        StatusCode::GATEWAY_TIMEOUT,
                        "the server behind did not answer in time; try again later",
                    );
                }
            }
        }
    }
}

fn find<'w>(way: &'w Way, request: &Request<Inbound>) -> Option<&'w Arc<Upstream>> {
    let client = request.extensions().get::<ClientAddr>();
    let facts = Facts {
        method: request.method().as_str(),
        path: request.uri().path(),
        query: request.uri().query().unwrap_or_default(),
        host: host_of(request.uri(), request.headers()),
        client: client.map(|client| client.0),
        headers: &HttpHeaders(request.headers()),
        ..Facts::default()
    };
    way.upstreams.find(&facts)
}

/// Makes the head what every server of the upstream gets.
fn prepare(way: &Way, upstream: &Upstream, request: &mut Request<Inbound>, is_tunnel: bool) {
    let extensions = request.extensions();
    let nobody = IpAddr::from([0, 0, 0, 0]);
    let peer = extensions.get::<PeerAddr>().map_or(nobody, |peer| peer.0);
    let sender = Sender {
        peer,
        is_trusted: way.proxies.trusts(peer),
        is_tls: extensions.get::<OverTls>().is_some(),
    };
    *request.extensions_mut() = Extensions::new();
    let host = host_field(request.uri(), request.headers());
    let headers = request.headers_mut();
    fields::to_upstream(headers, sender, &host);
    if is_tunnel {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    }
    if upstream.spec.protocol == Protocol::Http1 {
        fields::join_cookies(headers);
    }
    // HTTP/1.0 need not name a host: then it is the server's own.
    if !upstream.spec.keep_host || host.is_empty() {
        headers.remove(HOST);
    } else if headers.get(HOST) != Some(&host) {
        headers.insert(HOST, host);
    }
}

/// Makes the target what this server gets.
fn address(upstream: &Upstream, server: &Server, request: &mut Request<Upload>) {
    let is_named = upstream.spec.keep_host && request.headers().contains_key(HOST);
    let is_path = request.uri().scheme().is_none() && request.uri().authority().is_none();
    if is_named && is_path && upstream.spec.protocol == Protocol::Http1 {
        // As most come: nothing is to be changed.
        *request.version_mut() = Version::HTTP_11;
        return;
    }
    let target = request.uri().path_and_query().cloned();
    let target = target.unwrap_or_else(|| PathAndQuery::from_static("/"));
    let mut uri = hyper::http::uri::Parts::default();
    uri.path_and_query = Some(target);
    let own = server.authority();
    // As the client named it, unless the server's own name is wanted; kept over several tries.
    let named = || {
        let host = request
            .headers()
            .get(HOST)
            .and_then(|host| host.to_str().ok());
        host.or_else(|| Some(request.uri().authority()?.as_str()))
    };
    let host = match upstream.spec.keep_host {
        true => named().unwrap_or(own),
        false => own,
    };
    match upstream.spec.protocol {
        Protocol::Http1 => {
            if let Ok(host) = HeaderValue::from_str(host) {
                request.headers_mut().insert(HOST, host);
            }
            *request.version_mut() = Version::HTTP_11;
        }
        Protocol::Http2 => {
            uri.authority = host.parse().ok();
            uri.scheme = Some(match server.spec.tls {
                true => Scheme::HTTPS,
                false => Scheme::HTTP,
            });
            request.headers_mut().remove(HOST);
            *request.version_mut() = Version::HTTP_2;
        }
    }
    if let Ok(uri) = Uri::from_parts(uri) {
        *request.uri_mut() = uri;
    }
}

/// Waits so long at the most, from the last part of the request on. None: it was too long.
async fn in_time<T>(
    mut work: Pin<&mut impl Future<Output = T>>,
    timers: &Timers,
    began: Instant,
    most: Duration,
    progress: Option<&Progress>,
) -> Option<T> {
    let parts = || progress.map_or(0, Progress::parts);
    let mut bound = timers.bound(began, most);
    let mut before = parts();
    poll_fn(|cx| {
        if let Poll::Ready(done) = work.as_mut().poll(cx) {
            return Poll::Ready(Some(done));
        }
        while bound.is_over(cx) {
            if std::mem::replace(&mut before, parts()) == before {
                return Poll::Ready(None);
            }
            bound.again(Instant::now(), most);
        }
        Poll::Pending
    })
    .await
}

fn answered(
    answer: Response<Passes>,
    with: WithServer,
    client: Option<OnUpgrade>,
    upstream: &Upstream,
) -> Answered {
    let idle: Duration = upstream.spec.idle.into();
    if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
        return tunnel(answer, with, client, idle);
    }
    let (mut parts, body) = answer.into_parts();
    fields::to_client(&mut parts.headers);
    // Hop by hop: whichever HTTP the client speaks is for its connection to say.
    parts.version = Version::HTTP_11;
    Response::from_parts(parts, Download::passed(body, idle, with))
}

/// The server switches protocols; that is passed on if the client asked for it.
fn tunnel(
    mut answer: Response<Passes>,
    with: WithServer,
    client: Option<OnUpgrade>,
    idle: Duration,
) -> Answered {
    let is_websocket = answer
        .headers()
        .get(UPGRADE)
        .is_some_and(|to| to.as_bytes().eq_ignore_ascii_case(b"websocket"));
    let lent = match answer.body_mut() {
        Passes::Http1(_, lent) => lent.take(),
        _ => None,
    };
    let (Some(client), Some(lent), true) = (client, lent, is_websocket) else {
        return problem(
            StatusCode::BAD_GATEWAY,
            "the server behind switched to a protocol that nobody asked for",
        );
    };
    let server = hyper::upgrade::on(&mut answer);
    lent.let_go();
    let (mut parts, _) = answer.into_parts();
    fields::to_client(&mut parts.headers);
    let headers = &mut parts.headers;
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    parts.extensions.insert(Ends {
        client,
        server,
        idle,
        with: Arc::new(with),
    });
    Response::from_parts(parts, Download::default())
}

fn unreachable_answer() -> Answered {
    problem(
        StatusCode::BAD_GATEWAY,
        "the server behind cannot be reached; try again later",
    )
}

/// The request broke off on its way: by the client's fault, or by the server's.
fn broken(
    upstream: &Upstream,
    server: &Server,
    progress: Option<&Progress>,
    cause: &BoxError,
) -> Answered {
    match progress.map_or(Broken::Not, Progress::broken) {
        Broken::TooLarge => refused(TOO_LARGE),
        Broken::TooSlow => refused((
            StatusCode::REQUEST_TIMEOUT,
            "the body did not arrive in time; send it at once",
        )),
        Broken::Off => refused((
            StatusCode::BAD_REQUEST,
            "the body broke off or its chunks make no sense; send it whole",
        )),
        Broken::Not => {
            upstream.observed.failed();
            server.failed(upstream.spec.health.as_ref(), upstream::now_ms());
            tracing::debug!(target: "tollgate::gateway", server = %server.authority(), %cause, "no answer");
            problem(
                StatusCode::BAD_GATEWAY,
                "the server behind broke off before it answered; the request may have taken effect",
            )
        }
    }
}
