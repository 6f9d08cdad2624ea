//! The front end for operators: health, metrics, overrides, reload, the switch.
//!
//! # Theory
//!
//! It has a listener of its own, on loopback by default, so that decisions can be open to a network that administration is
//! not. Every operation that changes something or shows keys or limits needs a token. Health, readiness and metrics do not,
//! and show neither.
//!
//! A request is checked in this order: `Host`, `Origin`, path and method, token, media type, body.
//!
//! Every change writes a log line under `tollgate::audit`: actor, action, old and new value.
//!
//! | method | path | token | operation |
//! |---|---|---|---|
//! | GET | `/health` | | liveness |
//! | GET | `/ready` | | readiness: 200 also if degraded, with the reasons; 503 if no request can be served |
//! | GET | `/metrics` | | metrics of Prometheus |
//! | POST | `/reload` | yes | read the policy file now |
//! | GET, PUT, DELETE | `/overrides` | yes | quotas of single keys |
//! | GET | `/top` | yes | the most refused keys |
//! | POST | `/switch` | yes | switch limiting off or on |
//! | GET, POST, DELETE | `/pressure` | yes | scale all limits for a while, or return to automatic control |
//! | GET | `/policy` | yes | the active policy |
//! | POST | `/peek` | yes | the quota of one key |
//! | POST | `/explain` | yes | the decision about a request, explained |
//! | DELETE | `/v1/keys/LIMIT/KEY` | yes | forget what a key has used |

mod guard;
mod keys;
mod pressure;
mod response;
mod routes;
mod tokens;

pub use tokens::{TokenError, Tokens};

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{self, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use tokio::net::TcpListener;
use tokio::sync::watch;

use self::guard::{Guard, check_json, has_body};
use self::response::{AdminResponse, ProblemDetails};
use self::routes::Operation;
use crate::engine::Engine;
use crate::net::ListenLimits;
use crate::net::http1::body::{BodyError, BodyLimits, discard_body, read_body};
use crate::net::http1::server::{self, Handler};
use crate::net::limiter::{AddressPermit, ConnectionLimiter, ConnectionRejected};

/// Connections of one address at once.
const PER_ADDRESS: usize = 64;

/// Settings of the admin listener.
#[derive(Clone, Debug)]
pub struct AdminSettings {
    /// The valid tokens.
    pub tokens: Tokens,
    /// Host names that it accepts, besides those of loopback and its address.
    pub hosts: Vec<String>,
}

/// Serves the admin port until `stop`, with at most this many connections at once.
///
/// A quarter of them is reserved for loopback and for addresses that have shown a token.
pub async fn serve(
    listener: TcpListener,
    engine: Arc<Engine>,
    settings: AdminSettings,
    connections: usize,
    stop: watch::Receiver<bool>,
) {
    let bound = listener.local_addr().ok();
    let guard = Guard::new(settings.tokens, &settings.hosts, bound);
    let limits = ListenLimits {
        connections,
        ..ListenLimits::default()
    };
    let unreserved = connections - connections.div_ceil(4);
    let limiter = ConnectionLimiter::with_reserve(PER_ADDRESS, unreserved);
    let admin = Admin {
        engine,
        guard: Arc::new(guard),
        limiter: Arc::new(limiter),
        limits: limits.body,
    };
    server::serve(listener, admin, limits, stop).await;
}

#[derive(Clone)]
struct Admin {
    engine: Arc<Engine>,
    guard: Arc<Guard>,
    limiter: Arc<ConnectionLimiter>,
    limits: BodyLimits,
}

impl Handler for Admin {
    fn admit_connection(&self, peer: IpAddr) -> Result<Option<AddressPermit>, ConnectionRejected> {
        self.limiter.admit(peer)
    }

    async fn handle(&self, request: Request<Incoming>, peer: IpAddr) -> Response<Full<Bytes>> {
        let (head, body) = request.into_parts();
        let operation = match self.admit(&head, peer) {
            Ok(operation) => operation,
            Err(problem) => {
                let mut answer = problem.into_response();
                if !discard_body(body, self.limits).await {
                    let close = HeaderValue::from_static("close");
                    answer.headers_mut().insert(header::CONNECTION, close);
                }
                return answer;
            }
        };
        let path = head.uri.path().to_owned();
        match self.respond(operation, path, body, peer).await {
            Ok(answer) => answer,
            Err(problem) => problem.into_response(),
        }
    }
}

impl Admin {
    /// Checks everything but the body.
    fn admit(
        &self,
        head: &hyper::http::request::Parts,
        peer: IpAddr,
    ) -> Result<Operation, ProblemDetails> {
        self.guard.check_host(&head.headers)?;
        let path = head.uri.path();
        let operation = match Operation::find(&head.method, path) {
            Ok(operation) => operation,
            Err(allowed) if allowed.is_empty() => {
                return Err(ProblemDetails::new(
                    StatusCode::NOT_FOUND,
                    "no-such-path",
                    "no such path",
                    "use one of /health, /ready, /metrics, /reload, /overrides, /top, /switch, /pressure, /policy, /peek, /explain, /v1/keys/LIMIT/KEY",
                ));
            }
            Err(allowed) => {
                let allowed = allowed.join(", ");
                let problem = ProblemDetails::new(
                    StatusCode::METHOD_NOT_ALLOWED,
                    "method",
                    "the method is not allowed for this path",
                    format!("use {allowed}"),
                );
                return Err(match HeaderValue::from_str(&allowed) {
                    Ok(allowed) => problem.with_header(header::ALLOW, allowed),
                    Err(_) => problem,
                });
            }
        };
        if operation.needs_token() {
            self.guard.check_token(&head.headers, peer)?;
            self.limiter.remember(peer);
        }
        let is_read = matches!(head.method, Method::GET | Method::HEAD);
        if !is_read && (operation.needs_body() || has_body(&head.headers)) {
            check_json(&head.headers)?;
        }
        Ok(operation)
    }

    async fn respond(
        &self,
        operation: Operation,
        path: String,
        body: Incoming,
        peer: IpAddr,
    ) -> Result<AdminResponse, ProblemDetails> {
        let body = read_body(body, self.limits)
            .await
            .map_err(|fault| match fault {
                BodyError::TooLarge => ProblemDetails::new(
                    StatusCode::PAYLOAD_TOO_LARGE,
                    "body-too-large",
                    format!("the body exceeds {} bytes", self.limits.bytes),
                    "send a smaller body",
                )
                .with_header(header::CONNECTION, HeaderValue::from_static("close")),
                BodyError::TooSlow | BodyError::Broken => ProblemDetails::new(
                    StatusCode::REQUEST_TIMEOUT,
                    "body-not-read",
                    "the body was not complete in time",
                    "send it again",
                )
                .with_header(header::CONNECTION, HeaderValue::from_static("close")),
            })?;
        let engine = Arc::clone(&self.engine);
        // It reads and writes files, and walks tables: not on a thread that serves requests.
        let work = tokio::task::spawn_blocking(move || operation.run(&engine, &path, &body, peer));
        work.await.unwrap_or_else(|_| {
            Err(ProblemDetails::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "failed",
                "the operation failed",
                "see the log of the server",
            ))
        })
    }
}
