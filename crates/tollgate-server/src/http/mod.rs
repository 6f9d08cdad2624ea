//! The door for decisions: JSON for any caller, forward-auth for proxies.
//!
//! # Theory
//!
//! The way of a decision is: match the path, read the body, read JSON borrowed from it, ask the gate,
//! write the answer into one buffer. There is no framework, no span and no lock on it.
//!
//! Callers of `/v1/check` are trusted: what they say of a request is believed, the client's address
//! included, and if they do not say it, it is unknown (never their own). Proxies that call `/v1/auth` are
//! believed by the rules of [`auth`].
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

mod answer;
mod ask;
mod auth;
mod decide;
mod limits;
mod pairs;
mod problems;
mod reservations;

use crate::engine::Engine;
use crate::listen::body::{read_body, throw_away};
use crate::listen::{self, Handler, ListenLimits};
use problems::{Answered, bad_body, closing, no_such_path, problem, wrong_method};
use reservations::Reservations;

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
    serve_within(listener, engine, stop, ListenLimits::default()).await;
}

async fn serve_within(
    listener: TcpListener,
    engine: Arc<Engine>,
    stop: watch::Receiver<bool>,
    limits: ListenLimits,
) {
    let decisions = Decisions {
        engine,
        reservations: Reservations::new(reservations::MOST),
        trust: ArcSwap::from_pointee(auth::Trust::nobody()),
        limits,
        stop: stop.clone(),
    };
    listen::serve(listener, Shared(Arc::new(decisions)), limits, stop).await;
}

/// Everything that this door needs to answer.
struct Decisions {
    engine: Arc<Engine>,
    reservations: Reservations,
    trust: ArcSwap<auth::Trust>,
    limits: ListenLimits,
    stop: watch::Receiver<bool>,
}

#[derive(Clone)]
struct Shared(Arc<Decisions>);

/// What a path is for.
enum Route {
    Check,
    Peek,
    Batch,
    Settle,
    Auth { nginx: bool },
    Read(fn(&Decisions) -> Answered),
    Unknown,
}

impl Handler for Shared {
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
            Route::Check => door.post(request, |body| door.check(body, true)).await,
            Route::Peek => door.post(request, |body| door.check(body, false)).await,
            Route::Batch => door.post(request, |body| door.check_batch(body)).await,
            Route::Settle => door.post(request, |body| door.settle(body)).await,
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
        "/v1/auth" => Route::Auth {
            nginx: query.is_some_and(|query| query.split('&').any(|pair| pair == "deny=403")),
        },
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

impl Decisions {
    /// Reads the body of a POST and answers it.
    async fn post(
        &self,
        request: Request<Incoming>,
        answer: impl FnOnce(&[u8]) -> Answered,
    ) -> Answered {
        if request.method() != Method::POST {
            return self
                .instead(request.into_body(), wrong_method("POST"))
                .await;
        }
        if !request.headers().get(CONTENT_TYPE).is_none_or(is_json) {
            let refused = problem(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "the body is not said to be JSON; send `Content-Type: application/json`",
            );
            return self.instead(request.into_body(), refused).await;
        }
        match read_body(request.into_body(), self.limits.body).await {
            Ok(body) => answer(&body),
            Err(fault) => bad_body(fault),
        }
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

fn is_json(value: &HeaderValue) -> bool {
    let value = value.as_bytes();
    let kind = value.split(|b| *b == b';').next().unwrap_or_default();
    kind.trim_ascii().eq_ignore_ascii_case(b"application/json")
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
