//! The front end for decisions over HTTP: JSON for any caller, forward-auth for proxies.
//!
//! # Theory
//!
//! A request goes through `Service::respond`, whatever brought it: on the fast path (`net::http1::fast_path`)
//! its bytes as they lie in the buffer of the connection, from hyper after its body was read. The handler fills one
//! `ResponseBuffer`, or returns the future of one if a store has to be asked or a slot is some time ahead. So the
//! two ways differ in how a request is framed and how a response is written, and in nothing else.
//!
//! | file | what |
//! |---|---|
//! | `request`, `pairs` | requests, read from JSON |
//! | `check` | `/v1/check`, `/v1/peek`, `/v1/check/batch` |
//! | `settle` | `/v1/settle`, and what it ends |
//! | `auth` | `/v1/auth`, `/v1/auth/nginx` |
//! | `reservations` | open reservations |
//! | `problems` | responses to requests that cannot be decided |
//!
//! Callers of `/v1/check` are trusted with all facts of a request, the client's address included; without one it is
//! unknown (never that of the caller). Proxies that call `/v1/auth` are trusted by the rules of `auth`.
//!
//! # Invariant
//!
//! Every error names the cause, the place and the fix; a 500 is a defect. Statuses and shapes are those of
//! `openapi.json`, which a test compares with the server.

use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use arc_swap::ArcSwap;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::HeaderMap;
use hyper::{Request, Response, StatusCode};
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tollgate_policy::fields::fields;
use tollgate_policy::{DecisionRequest, Headers, Op, PolicyDecision, Subject};

mod auth;
mod check;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod pairs;
pub(crate) mod problems;
mod request;
mod reservations;
mod settle;

use crate::decision_view::{DecisionView, Reserved};
use crate::engine::{ActivePolicy, Decide, Engine, EngineSource, Protocol};
use crate::limit_view::LimitsView;
use crate::net::ListenLimits;
use crate::net::http1::body::{discard_body, read_body};
use crate::net::http1::fast_path::{self, PendingResponse, Respond};
use crate::net::http1::response::ResponseBuffer;
use crate::net::http1::server::{self, Handler};
pub(crate) use check::{named_key, op_of};
use problems::{bad_body, close, no_such_path, write_problem, wrong_method};
pub(crate) use request::{CheckRequest, NO_FACTS};
use reservations::Reservations;

/// The OpenAPI 3.1 description of this front end.
pub const OPENAPI: &str = include_str!("../../openapi.json");
/// The page for browsers.
const WELCOME: &str = include_str!("welcome.txt");

/// Where something is served.
const PATHS: [&str; 10] = [
    "/",
    "/health",
    "/openapi.json",
    "/v1/auth",
    "/v1/auth/nginx",
    "/v1/check",
    "/v1/check/batch",
    "/v1/limits",
    "/v1/peek",
    "/v1/settle",
];
/// Longer targets are not looked at.
const URI_BYTES: usize = 8 * 1024;

/// Serves decisions on `listener` until `stop` is set, and then finishes requests in flight.
pub async fn serve(listener: TcpListener, engine: Arc<Engine>, stop: watch::Receiver<bool>) {
    let connections = ListenLimits::default().connections;
    HttpApi::new(engine, stop)
        .serve(listener, connections)
        .await;
}

/// The service. Clones share its state, so each thread serves one.
#[derive(Clone)]
pub struct HttpApi(Arc<ServiceState>);

impl std::fmt::Debug for HttpApi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HttpApi")
    }
}

impl HttpApi {
    /// A service that shuts down when `stop` is set.
    pub fn new(engine: Arc<Engine>, stop: watch::Receiver<bool>) -> HttpApi {
        HttpApi::within(engine, stop, ListenLimits::default())
    }

    fn within(engine: Arc<Engine>, stop: watch::Receiver<bool>, limits: ListenLimits) -> HttpApi {
        engine.set_served(Protocol::Http);
        engine.set_served(Protocol::Auth);
        HttpApi(Arc::new(ServiceState {
            http: EngineSource::new(Arc::clone(&engine), Protocol::Http),
            auth: EngineSource::new(engine, Protocol::Auth),
            reservations: Reservations::new(reservations::MOST),
            trust: ArcSwap::from_pointee(auth::Trust::none()),
            limits,
            stop,
        }))
    }

    /// Serves `listener` with at most this many connections at once.
    pub async fn serve(self, listener: TcpListener, connections: usize) {
        let ServiceState { limits, stop, .. } = &*self.0;
        let limits = ListenLimits {
            connections,
            ..*limits
        };
        let stop = stop.clone();
        server::serve(listener, self, limits, stop).await;
    }
}

/// What other front ends ask that answer the same questions in another language.
impl HttpApi {
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.0.http
    }

    /// Explains what a request would meet, and takes nothing.
    pub(crate) async fn explain(
        &self,
        policy: &Arc<ActivePolicy>,
        ask: &CheckRequest<'_>,
    ) -> serde_json::Value {
        let decide = check::with_facts(ask, |facts| {
            let request = DecisionRequest::new(Subject::Request(facts), Op::Peek);
            self.0.http.decide(policy, &request)
        });
        let answer = decide.resolve().await;
        check::with_facts(ask, |facts| {
            crate::explain::view(&policy.gate, policy.gate.explain_answer(facts, answer))
        })
    }
}

/// Everything that this front end needs to answer.
struct ServiceState {
    /// The engine for `/v1/check` and its kin.
    http: EngineSource,
    /// The engine for forward-auth.
    auth: EngineSource,
    reservations: Reservations,
    trust: ArcSwap<auth::Trust>,
    limits: ListenLimits,
    stop: watch::Receiver<bool>,
}

/// One request, whatever brought it.
#[derive(Clone, Copy)]
struct Call<'a> {
    method: &'a str,
    /// Path and query.
    target: &'a str,
    headers: &'a dyn Headers,
    body: &'a [u8],
    peer: IpAddr,
}

/// Headers as the parser found them.
struct Parsed<'a>(&'a [httparse::Header<'a>]);

impl Headers for Parsed<'_> {
    fn visit<'a>(&'a self, name: &str, each: &mut dyn FnMut(&'a [u8])) {
        for header in self.0 {
            if header.name.len() == name.len() && header.name.eq_ignore_ascii_case(name) {
                each(header.value);
            }
        }
    }
}

/// Headers as hyper has them.
struct Received<'a>(&'a HeaderMap);

impl Headers for Received<'_> {
    fn visit<'a>(&'a self, name: &str, each: &mut dyn FnMut(&'a [u8])) {
        for value in self.0.get_all(name) {
            each(value.as_bytes());
        }
    }
}

/// What a path is for.
#[derive(Clone, Copy)]
enum Route {
    Check,
    Peek,
    Batch,
    Settle,
    Auth {
        nginx: bool,
    },
    /// A mode of forward-auth that there is not.
    UnknownMode,
    Read(fn(&Engine, &mut ResponseBuffer)),
    Unknown,
}

impl Handler for HttpApi {
    const HAS_FAST_PATH: bool = true;

    fn respond(
        &self,
        request: &fast_path::Request<'_>,
        peer: IpAddr,
        response: &mut ResponseBuffer,
    ) -> Respond {
        // Other forms of a target are for hyper to read.
        if !request.target.starts_with('/') || request.target.contains('#') {
            return Respond::Declined;
        }
        let call = Call {
            method: request.method,
            target: request.target,
            headers: &Parsed(request.headers),
            body: request.body,
            peer,
        };
        self.answer(&call, None, response)
    }

    async fn handle(&self, request: Request<Incoming>, peer: IpAddr) -> Response<Full<Bytes>> {
        let (parts, body) = request.into_parts();
        let target = parts.uri.path_and_query();
        let headers = Received(&parts.headers);
        let call = |body| Call {
            method: parts.method.as_str(),
            target: target.map_or("", |target| target.as_str()),
            headers: &headers,
            body,
            peer,
        };
        let limits = self.0.limits.body;
        let mut response = ResponseBuffer::default();
        let is_refused = refuse(&call(&[]), route(&call(&[])), &mut response);
        let is_posted = is_posted(route(&call(&[])));
        let (body, is_kept) = match !is_refused && is_posted {
            true => match read_body(body, limits).await {
                Ok(body) => (body, true),
                Err(fault) => return bad_body(fault).into_response(),
            },
            false => (Bytes::new(), discard_body(body, limits).await),
        };
        if !is_refused {
            let responded = self.answer(&call(&body), Some(&body), &mut response);
            if let Respond::Pending(pending) = responded {
                response = pending.await;
            }
        }
        if !is_kept {
            close(&mut response);
        }
        response.into_response()
    }
}

impl HttpApi {
    /// Answers a request. `body` is its body, where that is shared already.
    fn answer(
        &self,
        call: &Call<'_>,
        body: Option<&Bytes>,
        response: &mut ResponseBuffer,
    ) -> Respond {
        let route = route(call);
        if refuse(call, route, response) {
            return Respond::Ready;
        }
        let owned = || body.map_or_else(|| Bytes::copy_from_slice(call.body), Bytes::clone);
        match route {
            Route::Check => self.check(call.body, Op::Charge, response),
            Route::Peek => self.check(call.body, Op::Peek, response),
            Route::Batch => now_or_later(self.check_batch(owned()), response),
            Route::Settle => now_or_later(self.settle_body(owned()), response),
            Route::Auth { nginx } => self.auth(call, nginx, response),
            Route::Read(read) => {
                read(self.engine(), response);
                Respond::Ready
            }
            Route::UnknownMode | Route::Unknown => Respond::Ready,
        }
    }
}

/// A response that is ready at the first look, as without a shared store, need not be waited for.
fn now_or_later(mut pending: PendingResponse, response: &mut ResponseBuffer) -> Respond {
    match pin!(&mut pending).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(ready) => {
            *response = ready;
            Respond::Ready
        }
        Poll::Pending => Respond::Pending(pending),
    }
}

/// Refuses a request that does not fit the route, regardless of its body. True if it did.
fn refuse(call: &Call<'_>, route: Route, response: &mut ResponseBuffer) -> bool {
    if call.target.len() > URI_BYTES {
        write_problem(
            response,
            StatusCode::URI_TOO_LONG,
            "the target is longer than 8 KiB; shorten it",
        );
        return true;
    }
    match route {
        Route::Check | Route::Peek | Route::Batch | Route::Settle if call.method != "POST" => {
            wrong_method(response, "POST");
        }
        Route::Check | Route::Peek | Route::Batch | Route::Settle if !is_json(call.headers) => {
            write_problem(
                response,
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "the media type of the body is not JSON; send `Content-Type: application/json`",
            );
        }
        Route::Auth { .. } if !is_auth_method(call.method) => wrong_method(response, AUTH_METHODS),
        Route::UnknownMode => write_problem(
            response,
            StatusCode::BAD_REQUEST,
            "`deny` has one value, 403, for proxies that know no 429; write `deny=403` or leave it out",
        ),
        Route::Read(_) if !matches!(call.method, "GET" | "HEAD") => {
            wrong_method(response, "GET, HEAD");
        }
        Route::Unknown => no_such_path(response, path(call.target).0),
        _ => return false,
    }
    true
}

/// Has a request to this route a body that counts?
fn is_posted(route: Route) -> bool {
    matches!(
        route,
        Route::Check | Route::Peek | Route::Batch | Route::Settle
    )
}

fn path(target: &str) -> (&str, Option<&str>) {
    match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    }
}

fn route(call: &Call<'_>) -> Route {
    let (path, query) = path(call.target);
    match path {
        "/v1/check" => Route::Check,
        "/v1/auth" => auth_mode(query),
        "/v1/auth/nginx" => Route::Auth { nginx: true },
        "/v1/peek" => Route::Peek,
        "/v1/check/batch" => Route::Batch,
        "/v1/settle" => Route::Settle,
        "/v1/limits" => Route::Read(|engine, response| {
            response.set_media("application/json");
            write_json(response, &LimitsView::new(&engine.active()));
        }),
        "/health" => Route::Read(|_, response| {
            write_text(response, "application/json", "{\"status\":\"ok\"}");
        }),
        "/openapi.json" => {
            Route::Read(|_, response| write_text(response, "application/json", OPENAPI))
        }
        "/" => {
            Route::Read(|_, response| write_text(response, "text/plain; charset=utf-8", WELCOME))
        }
        _ => Route::Unknown,
    }
}

/// With `deny=403` in the nginx mode. Another value is an error: a misspelt one would silently mean the
/// other mode.
fn auth_mode(query: Option<&str>) -> Route {
    let mut pairs = query.into_iter().flat_map(|query| query.split('&'));
    match pairs.find_map(|pair| pair.strip_prefix("deny=")) {
        None => Route::Auth { nginx: false },
        Some("403") => Route::Auth { nginx: true },
        Some(_) => Route::UnknownMode,
    }
}

/// Is this a method that a proxy may ask with? The method that it asks about is in its headers.
fn is_auth_method(method: &str) -> bool {
    matches!(
        method,
        "GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE" | "OPTIONS"
    )
}

const AUTH_METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

/// Whether the body is JSON by its media type, or has none.
fn is_json(headers: &dyn Headers) -> bool {
    let mut is_json = true;
    headers.visit("content-type", &mut |value| {
        let kind = value.split(|b| *b == b';').next().unwrap_or_default();
        is_json &= kind.trim_ascii().eq_ignore_ascii_case(b"application/json");
    });
    is_json
}

/// Explains the decision about the request in a body, which has the form of `/v1/check`. May block for the shared store, so
/// it must not run on a thread that serves requests.
///
/// # Errors
/// The body is invalid.
pub(crate) fn explain(engine: &Arc<Engine>, body: &[u8]) -> Result<serde_json::Value, String> {
    let ask: CheckRequest<'_> = request::read(body)?;
    if ask.limit.is_some() {
        return Err("explain needs the facts of a request; omit `limit`".into());
    }
    let source = EngineSource::new(Arc::clone(engine), Protocol::Http);
    let policy = engine.active_owned();
    Ok(check::with_facts(&ask, |facts| {
        let answer = peek(&source, &policy, Subject::Request(facts));
        crate::explain::view(&policy.gate, policy.gate.explain_answer(facts, answer))
    }))
}

/// The decision about a charge on one limit, taking nothing. May block for the shared store: not for a thread that serves
/// requests.
///
/// # Errors
/// An unknown limit, or a key with another number of parts.
pub(crate) fn peek_key(
    engine: &Arc<Engine>,
    limit: &str,
    key: &[String],
    cost: u64,
) -> Result<serde_json::Value, problems::Problem> {
    let source = EngineSource::new(Arc::clone(engine), Protocol::Http);
    let policy = engine.active_owned();
    let key: Vec<_> = key.iter().map(|part| part.into()).collect();
    let (rule, key) = check::named_key(&policy, limit, &key)?;
    let subject = Subject::Rule {
        rule,
        key: &key,
        cost,
    };
    let answer = peek(&source, &policy, subject);
    let view = DecisionView::new(&policy, &answer, Reserved::NotRequested);
    Ok(serde_json::to_value(view).unwrap_or_default())
}

fn peek(source: &EngineSource, policy: &Arc<ActivePolicy>, subject: Subject<'_>) -> PolicyDecision {
    match source.decide(policy, &DecisionRequest::new(subject, Op::Peek)) {
        Decide::Ready(answer) => answer,
        Decide::Pending(pending) => tokio::runtime::Handle::current().block_on(pending),
    }
}

/// Writes the header fields of a decision.
fn write_fields(response: &mut ResponseBuffer, policy: &ActivePolicy, answer: &PolicyDecision) {
    response.set_second(answer.issued.as_nanos() / 1_000_000_000);
    response.push_fields(|values, each| {
        fields(&policy.gate, answer, values, &mut |field, place| {
            each(field.name(), place);
        });
    });
}

/// Writes a value behind what is in the body.
fn write_json(response: &mut ResponseBuffer, value: &impl Serialize) {
    // Neither a buffer nor what is written here can fail.
    let _ = serde_json::to_writer(response.body(), value);
}

fn write_text(response: &mut ResponseBuffer, media: &'static str, text: &str) {
    response.set_media(media);
    response.body().extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests;
