//! The door for decisions: JSON for any caller, forward-auth for proxies.
//!
//! # Theory
//!
//! The way of a decision is: match the path, read the body, read JSON borrowed from it, ask the gate,
//! write the answer into one buffer. There is no framework, no span and no lock on it. Common requests go
//! this way in `brisk`; what is unusual, and whatever is wrong, is answered through hyper by the rest.
//!
//! Callers of `/v1/check` are trusted: what they say of a request is believed, the client's address
//! included, and if they do not say it, it is unknown (never their own). Proxies that call `/v1/auth` are
//! believed by the rules of `auth`.
//!
//! # Invariant
//!
//! Every request gets an answer that says what is wrong, where, and how to mend it; none of them is a 500
//! unless there is a bug. Statuses and shapes are those of `openapi.json`, which a test holds against the
//! server.
//!
//! # What it does not know
//!
//! How decisions are made, and who operates the server: that is the admin door.

use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tollgate::policy::{Answer, Begun, Settlement};

mod answer;
mod ask;
mod auth;
mod brisk;
mod decide;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod limits;
mod pairs;
pub(crate) mod problems;
mod reservations;

use crate::engine::{Door, Engine, Epoch, Gate};
use crate::listen::body::{read_body, throw_away};
use crate::listen::brisk::{Brisk, Plain, Sheets};
use crate::listen::{self, Handler, ListenLimits};
pub(crate) use answer::{Reserved, weight};
pub(crate) use ask::Ask;
use problems::{Answered, bad_body, closing, no_such_path, problem, wrong_method};
use reservations::Reservations;
pub(crate) use reservations::read_name as reservation_name;

/// What this door serves, in the OpenAPI 3.1 language.
pub const OPENAPI: &str = include_str!("../../openapi.json");
/// What people see who come with a browser.
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

/// Serves decisions on `listener` until `stop` says so, and then ends what is in flight.
pub async fn serve(listener: TcpListener, engine: Arc<Engine>, stop: watch::Receiver<bool>) {
    Service::new(engine, stop).serve(listener, 1).await;
}

/// What answers decisions, to be served by as many threads as there are. Clones are the same service.
#[derive(Clone)]
pub struct Service(Arc<Decisions>);

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Service")
    }
}

impl Service {
    /// A service that ends when `stop` says so.
    pub fn new(engine: Arc<Engine>, stop: watch::Receiver<bool>) -> Service {
        Service::within(engine, stop, ListenLimits::default())
    }

    fn within(engine: Arc<Engine>, stop: watch::Receiver<bool>, limits: ListenLimits) -> Service {
        Service(Arc::new(Decisions {
            engine,
            reservations: Reservations::new(reservations::MOST),
            trust: ArcSwap::from_pointee(auth::Trust::nobody()),
            limits,
            stop,
        }))
    }

    /// Serves on `listener`, as one of so many threads that share the bounds.
    pub async fn serve(self, listener: TcpListener, threads: usize) {
        let Decisions { limits, stop, .. } = &*self.0;
        let limits = ListenLimits {
            connections: limits.connections.div_ceil(threads.max(1)),
            ..*limits
        };
        let stop = stop.clone();
        listen::serve(listener, self, limits, stop).await;
    }
}

/// What other doors ask that answer the same questions in another language.
impl Service {
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.0.engine
    }

    /// Decides, in this process or in the store that a fleet shares.
    ///
    /// # Errors
    /// What is wrong with the question.
    pub(crate) async fn decide(
        &self,
        door: Door,
        epoch: &Arc<Epoch>,
        ask: &Ask<'_>,
        takes: bool,
    ) -> Result<(Answer, Reserved), String> {
        let decided = self.0.decide(door, epoch, ask, takes).await;
        decided.map_err(|(_, detail)| detail)
    }

    /// Settles a reservation: what could not be taken. None if there is no such reservation.
    pub(crate) async fn settle(&self, name: Option<u128>, how: Settlement) -> Option<u64> {
        self.0.settle_named(name, how).await
    }

    /// Explains what a request would meet, and takes nothing.
    pub(crate) async fn explain(&self, epoch: &Epoch, ask: &Ask<'_>) -> serde_json::Value {
        let gate = &epoch.gate;
        let answer = match decide::with_facts(ask, |facts| gate.begin(facts, false)) {
            Begun::Decided(answer) => answer,
            Begun::Asks(asking) => gate.finish(asking).await,
        };
        decide::with_facts(ask, |facts| {
            crate::explain::told(gate, gate.explain_answer(facts, answer))
        })
    }
}

/// Everything that this door needs to answer.
struct Decisions {
    engine: Arc<Engine>,
    reservations: Reservations,
    trust: ArcSwap<auth::Trust>,
    limits: ListenLimits,
    stop: watch::Receiver<bool>,
}

/// What a path is for.
enum Route {
    Check,
    Peek,
    Batch,
    Settle,
    Auth {
        nginx: bool,
    },
    /// A mode of forward-auth that there is not.
    NoSuchMode,
    Read(fn(&Decisions) -> Answered),
    Unknown,
}

impl Handler for Service {
    const IS_BRISK: bool = true;

    fn brisk(&self, request: &Plain<'_>, peer: IpAddr, sheets: &mut Sheets) -> Brisk {
        self.0.brisk(request, peer, sheets)
    }

    async fn handle(&self, request: Request<Incoming>, peer: IpAddr) -> Answered {
        let door = &*self.0;
        let uri = request.uri();
        let target = uri.path_and_query().map_or("", |target| target.as_str());
        if target.len() > URI_BYTES {
            let answer = problem(
                StatusCode::URI_TOO_LONG,
                "the target is longer than 8 KiB; shorten it",
            );
            return door.instead(request.into_body(), answer).await;
        }
        let route = route(uri.path(), uri.query());
        match route {
            Route::Check | Route::Peek | Route::Batch | Route::Settle => {
                let body = match door.posted(request).await {
                    Ok(body) => body,
                    Err(instead) => return instead,
                };
                match route {
                    Route::Batch => door.check_batch(&body).await,
                    Route::Settle => door.settle(&body).await,
                    route => door.check(&body, matches!(route, Route::Check)).await,
                }
            }
            Route::Auth { .. } if !is_auth_method(request.method().as_str()) => {
                let answer = wrong_method(AUTH_METHODS);
                door.instead(request.into_body(), answer).await
            }
            Route::NoSuchMode => {
                let answer = problem(
                    StatusCode::BAD_REQUEST,
                    "`deny` has one value, 403, for proxies that know no 429; write `deny=403` or leave it out",
                );
                door.instead(request.into_body(), answer).await
            }
            Route::Auth { nginx } => {
                let (parts, body) = request.into_parts();
                let is_kept = throw_away(body, door.limits.body).await;
                let answer = door.auth(&parts, peer, nginx).await;
                if is_kept { answer } else { closing(answer) }
            }
            Route::Read(read) => {
                let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
                let answer = if is_read {
                    read(door)
                } else {
                    wrong_method("GET, HEAD")
                };
                door.instead(request.into_body(), answer).await
            }
            Route::Unknown => {
                let answer = no_such_path(uri.path());
                door.instead(request.into_body(), answer).await
            }
        }
    }
}

fn route(path: &str, query: Option<&str>) -> Route {
    match path {
        "/v1/check" => Route::Check,
        "/v1/auth" => auth_mode(query),
        "/v1/auth/nginx" => Route::Auth { nginx: true },
        "/v1/peek" => Route::Peek,
        "/v1/check/batch" => Route::Batch,
        "/v1/settle" => Route::Settle,
        "/v1/limits" => Route::Read(|door| json(limits::listed(&door.engine.epoch()))),
        "/health" => Route::Read(|_| of_type("application/json", "{\"status\":\"ok\"}")),
        "/openapi.json" => Route::Read(|_| of_type("application/json", OPENAPI)),
        "/" => Route::Read(|_| of_type("text/plain; charset=utf-8", WELCOME)),
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
        Some(_) => Route::NoSuchMode,
    }
}

impl Decisions {
    /// The body of a POST, or what is answered instead.
    async fn posted(&self, request: Request<Incoming>) -> Result<Bytes, Answered> {
        if request.method() != Method::POST {
            let refused = wrong_method("POST");
            return Err(self.instead(request.into_body(), refused).await);
        }
        if !request.headers().get(CONTENT_TYPE).is_none_or(is_json) {
            let refused = problem(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "the body is not said to be JSON; send `Content-Type: application/json`",
            );
            return Err(self.instead(request.into_body(), refused).await);
        }
        read_body(request.into_body(), self.limits.body)
            .await
            .map_err(bad_body)
    }

    /// An answer that does not depend on the body, which has to go all the same.
    async fn instead(&self, body: Incoming, answer: Answered) -> Answered {
        if body.is_end_stream() || throw_away(body, self.limits.body).await {
            answer
        } else {
            closing(answer)
        }
    }
}

/// Is this a method that a proxy may ask with? Which method it asks about stands in its headers.
fn is_auth_method(method: &str) -> bool {
    matches!(
        method,
        "GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE" | "OPTIONS"
    )
}

const AUTH_METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

fn is_json(value: &HeaderValue) -> bool {
    says_json(value.as_bytes())
}

fn says_json(value: &[u8]) -> bool {
    let kind = value.split(|b| *b == b';').next().unwrap_or_default();
    kind.trim_ascii().eq_ignore_ascii_case(b"application/json")
}

/// Explains the request that this body tells of, in the words of `/v1/check`. May wait for the store that a
/// fleet shares: not for a thread that serves requests.
///
/// # Errors
/// What is wrong with the body.
pub(crate) fn explain(epoch: &Epoch, body: &[u8]) -> Result<serde_json::Value, String> {
    let ask: ask::Ask<'_> = ask::read(body)?;
    if ask.limit.is_some() {
        return Err(
            "a limit by its name explains itself; leave out `limit` and tell the request".into(),
        );
    }
    let gate = &epoch.gate;
    Ok(decide::with_facts(&ask, |facts| {
        let answer = waited(gate, gate.begin(facts, false));
        crate::explain::told(gate, gate.explain_answer(facts, answer))
    }))
}

/// The answer to a request that has begun, waited for by a thread that may.
pub(crate) fn waited(gate: &Gate, begun: Begun) -> Answer {
    match begun {
        Begun::Decided(answer) => answer,
        Begun::Asks(asking) => tokio::runtime::Handle::current().block_on(gate.finish(asking)),
    }
}

fn json(text: String) -> Answered {
    of_type("application/json", text)
}

fn of_type(media: &'static str, body: impl Into<Bytes>) -> Answered {
    let mut answer = Response::new(Full::new(body.into()));
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media));
    answer
}

#[cfg(test)]
mod tests;
