//! The proxy service: sends a request to a server of its upstream, and passes the response back frame by frame.
//!
//! # Invariant
//!
//! An admitted request reaches a server once or not at all. Another server is tried only if the policy allows it, the
//! request is safe to repeat, and nothing of it was sent. Dropping the future or the body of the response closes the
//! connection to the server at once.
//!
//! Limits and queues are layers around it. The framing of a request was checked before.

pub(crate) mod body;
mod fields;
mod health;
mod idle_pool;
mod latency_guard;
mod pool;
mod server;
mod stream;
mod timer_pool;
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

use super::check::{TOO_LARGE, asks_for_tunnel};
use super::responses::{GatewayResponse, problem, refused};
use body::{BodyFailure, BoxError, Download, Inbound, Progress, Upload, UpstreamBody};
use fields::{ClientInfo, host_field, host_of};
use latency_guard::LatencyGuard;
use pool::SendError;
use server::InFlight;
use timer_pool::TimerPool;

pub(crate) use health::watch_servers;
pub(crate) use server::Server;
pub(crate) use upstream::{Upstream, Upstreams};
pub use upstream::{UpstreamError, UpstreamStats};

/// Where requests go, and their bounds. Replaced as a whole with the policy.
#[derive(Debug)]
pub(crate) struct RoutingTable {
    pub(crate) upstreams: Upstreams,
    pub(crate) max_body: Option<u64>,
    pub(crate) body_idle: Duration,
    pub(crate) proxies: tollgate_policy::address::Proxies,
}

/// Request extension: the request arrived over TLS.
#[derive(Clone, Copy, Debug)]
pub(super) struct OverTls;

/// Response extension: the two ends of a tunnel that the response opens.
#[derive(Clone)]
pub(super) struct TunnelEnds {
    pub(super) client: OnUpgrade,
    pub(super) server: OnUpgrade,
    pub(super) idle: Duration,
    pub(super) in_flight: Arc<InFlight>,
}

/// The proxy of one thread. Clones share its state.
#[derive(Clone, Debug)]
pub(crate) struct Proxy(Arc<ThreadContext>);

/// What the requests of one thread share.
#[derive(Debug)]
struct ThreadContext {
    routes: Arc<ArcSwap<RoutingTable>>,
    thread: usize,
    timers: TimerPool,
}

impl Proxy {
    pub(crate) fn new(routes: Arc<ArcSwap<RoutingTable>>, thread: usize) -> Proxy {
        Proxy(Arc::new(ThreadContext {
            routes,
            thread,
            timers: TimerPool::default(),
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
        let context = Arc::clone(&self.0);
        // Prepared before the future, so that the future holds only what it needs while it waits.
        match Exchange::new(&context.routes.load(), request) {
            Some(mut exchange) => Box::pin(async move { Ok(exchange.run(&context).await) }),
            None => {
                let detail = "no upstream is for this request; ask for another path or host";
                Box::pin(ready(Ok(problem(StatusCode::NOT_FOUND, detail))))
            }
        }
    }
}

/// A request and its response.
struct Exchange {
    upstream: Arc<Upstream>,
    request: Option<Request<Upload>>,
    progress: Option<Arc<Progress>>,
    /// The connection of a client that asks for a tunnel.
    client: Option<OnUpgrade>,
    /// How often another server may be tried.
    retries: u32,
    tried: Vec<Arc<Server>>,
}

impl Exchange {
    /// Prepares a request; `None` if no upstream matches.
    fn new(routes: &RoutingTable, mut request: Request<Inbound>) -> Option<Exchange> {
        let upstream = find(routes, &request)?;
        let client = asks_for_tunnel(&request).then(|| request.extensions_mut().remove());
        let client: Option<OnUpgrade> = client.flatten();
        let service_timer = request.extensions_mut().remove::<ServiceTimer>();
        prepare(routes, upstream, &mut request, client.is_some());
        let mut progress = None;
        let request = request.map(|body| {
            let (body, body_progress) = Upload::new(body, routes.max_body, routes.body_idle);
            progress = body_progress;
            body.timed_by(service_timer)
        });
        let is_repeatable =
            progress.is_none() && request.method().is_idempotent() && client.is_none();
        Some(Exchange {
            retries: match is_repeatable {
                true => upstream.spec.retries,
                false => 0,
            },
            upstream: Arc::clone(upstream),
            request: Some(request),
            progress,
            client,
            tried: Vec::new(),
        })
    }

    /// Sends the request and returns the response.
    async fn run(&mut self, context: &ThreadContext) -> GatewayResponse {
        let upstream = &*self.upstream;
        let progress = self.progress.as_deref();
        loop {
            let (Some(server), Some(request)) = (upstream.choose(&self.tried), &mut self.request)
            else {
                return unreachable();
            };
            address(upstream, server, request);
            let in_flight = server.start_request();
            upstream.observed.record_request();
            let start = Instant::now();
            let guard = LatencyGuard::new(&upstream.observed, start, progress);
            let sent = pool::send(server, &upstream.spec, context.thread, &mut self.request);
            let max = upstream.spec.answer.into();
            let response = in_time(pin!(sent), &context.timers, start, max, progress).await;
            let latency = guard.finish();
            match response {
                Some(Ok(response)) => {
                    let is_failure = matches!(response.status().as_u16(), 502..=504);
                    match is_failure {
                        true => server.record_soft_failure(upstream::now_ms()),
                        false => server.record_success(),
                    }
                    upstream.observed.record_response(latency, is_failure);
                    return to_client(response, in_flight, self.client.take(), upstream);
                }
                Some(Err(SendError::Unreachable(cause))) => {
                    upstream.record_failure(server);
                    tracing::debug!(target: "tollgate::gateway", server = %server.authority(), %cause, "no connection");
                    if self.retries == 0 {
                        return unreachable();
                    }
                    self.retries -= 1;
                    self.tried.push(Arc::clone(server));
                }
                Some(Err(SendError::Broken(cause))) => {
                    return failed_exchange(upstream, server, progress, &cause);
                }
                None => {
                    upstream.record_failure(server);
                    return problem(
                        StatusCode::GATEWAY_TIMEOUT,
                        "the upstream did not answer in time; try again later",
                    );
                }
            }
        }
    }
}

fn find<'w>(routes: &'w RoutingTable, request: &Request<Inbound>) -> Option<&'w Arc<Upstream>> {
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
    routes.upstreams.find(&facts)
}

/// Turns the head into the one that every server of the upstream gets.
fn prepare(
    routes: &RoutingTable,
    upstream: &Upstream,
    request: &mut Request<Inbound>,
    is_tunnel: bool,
) {
    let extensions = request.extensions();
    let unknown = IpAddr::from([0, 0, 0, 0]);
    let peer = extensions.get::<PeerAddr>().map_or(unknown, |peer| peer.0);
    let client = ClientInfo {
        peer,
        is_trusted: routes.proxies.trusts(peer),
        is_tls: extensions.get::<OverTls>().is_some(),
    };
    *request.extensions_mut() = Extensions::new();
    let host = host_field(request.uri(), request.headers());
    let headers = request.headers_mut();
    fields::to_upstream(headers, client, &host);
    if is_tunnel {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    }
    if upstream.spec.protocol == Protocol::Http1 {
        fields::join_cookies(headers);
    }
    // HTTP/1.0 need not state a host: then it is that of the server.
    if !upstream.spec.keep_host || host.is_empty() {
        headers.remove(HOST);
    } else if headers.get(HOST) != Some(&host) {
        headers.insert(HOST, host);
    }
}

/// Turns the target into the one that this server gets.
fn address(upstream: &Upstream, server: &Server, request: &mut Request<Upload>) {
    let is_named = upstream.spec.keep_host && request.headers().contains_key(HOST);
    let is_path = request.uri().scheme().is_none() && request.uri().authority().is_none();
    if is_named && is_path && upstream.spec.protocol == Protocol::Http1 {
        // The common case: nothing changes.
        *request.version_mut() = Version::HTTP_11;
        return;
    }
    let target = request.uri().path_and_query().cloned();
    let target = target.unwrap_or_else(|| PathAndQuery::from_static("/"));
    let mut uri = hyper::http::uri::Parts::default();
    uri.path_and_query = Some(target);
    let own = server.authority();
    // The name by the client, unless the server gets its own; the same for all tries.
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

/// The output of `work` within `max` from the last frame of the request on. `None`: it took longer.
async fn in_time<T>(
    mut work: Pin<&mut impl Future<Output = T>>,
    timers: &TimerPool,
    start: Instant,
    max: Duration,
    progress: Option<&Progress>,
) -> Option<T> {
    let frames = || progress.map_or(0, Progress::frames);
    let mut deadline = timers.deadline(start, max);
    let mut before = frames();
    poll_fn(|cx| {
        if let Poll::Ready(done) = work.as_mut().poll(cx) {
            return Poll::Ready(Some(done));
        }
        while deadline.poll_passed(cx) {
            if std::mem::replace(&mut before, frames()) == before {
                return Poll::Ready(None);
            }
            deadline.reset(Instant::now(), max);
        }
        Poll::Pending
    })
    .await
}

/// The response for the client.
fn to_client(
    response: Response<UpstreamBody>,
    in_flight: InFlight,
    client: Option<OnUpgrade>,
    upstream: &Upstream,
) -> GatewayResponse {
    let idle: Duration = upstream.spec.idle.into();
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        return tunnel(response, in_flight, client, idle);
    }
    let (mut parts, body) = response.into_parts();
    fields::to_client(&mut parts.headers);
    // The version is that of a hop; the connection of the client sets its own.
    parts.version = Version::HTTP_11;
    Response::from_parts(parts, Download::streamed(body, idle, in_flight))
}

/// The server switches protocols, which is passed on if the client asked for it.
fn tunnel(
    mut response: Response<UpstreamBody>,
    in_flight: InFlight,
    client: Option<OnUpgrade>,
    idle: Duration,
) -> GatewayResponse {
    let is_websocket = response
        .headers()
        .get(UPGRADE)
        .is_some_and(|to| to.as_bytes().eq_ignore_ascii_case(b"websocket"));
    let checkout = match response.body_mut() {
        UpstreamBody::Hyper(_, checkout) => checkout.take(),
        _ => None,
    };
    let (Some(client), Some(checkout), true) = (client, checkout, is_websocket) else {
        return problem(
            StatusCode::BAD_GATEWAY,
            "the upstream switched to a protocol that the client did not ask for",
        );
    };
    let server = hyper::upgrade::on(&mut response);
    checkout.detach();
    let (mut parts, _) = response.into_parts();
    fields::to_client(&mut parts.headers);
    let headers = &mut parts.headers;
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    parts.extensions.insert(TunnelEnds {
        client,
        server,
        idle,
        in_flight: Arc::new(in_flight),
    });
    Response::from_parts(parts, Download::default())
}

fn unreachable() -> GatewayResponse {
    problem(
        StatusCode::BAD_GATEWAY,
        "the upstream cannot be reached; try again later",
    )
}

/// The response after a request failed on its connection: by an error of the client, or by the server.
fn failed_exchange(
    upstream: &Upstream,
    server: &Server,
    progress: Option<&Progress>,
    cause: &BoxError,
) -> GatewayResponse {
    match progress.map_or(BodyFailure::None, Progress::failure) {
        BodyFailure::TooLarge => refused(TOO_LARGE),
        BodyFailure::TooSlow => refused((
            StatusCode::REQUEST_TIMEOUT,
            "the body did not arrive in time; send it at once",
        )),
        BodyFailure::Incomplete => refused((
            StatusCode::BAD_REQUEST,
            "the body is incomplete or its chunks are malformed; send it whole",
        )),
        BodyFailure::None => {
            upstream.record_failure(server);
            tracing::debug!(target: "tollgate::gateway", server = %server.authority(), %cause, "no response");
            problem(
                StatusCode::BAD_GATEWAY,
                "the upstream disconnected before it answered; the request may have taken effect",
            )
        }
    }
}
