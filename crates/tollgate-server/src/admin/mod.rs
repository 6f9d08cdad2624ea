//! The door for operators: health, metrics, overrides, reload, the switch.
//!
//! # Theory
//!
//! It is a listener of its own, on loopback unless told otherwise, so that decisions can be open to a
//! network that operators' business is not. Everything that changes something or shows keys or limits
//! needs a token; how it goes ([`/health`, `/ready`, `/metrics`]) does not, and shows neither.
//!
//! A request is checked from the outside in: was it sent to us (host), not by a foreign page (origin), is
//! there such a thing (path, method), may whoever asks (token), is it well formed (media type, body).
//!
//! Every change leaves a line under `tollgate::audit`: who, what, what was and what is.
//!
//! [`/health`, `/ready`, `/metrics`]: serve
//!
//! | method | path | token | what |
//! |---|---|---|---|
//! | GET | `/health` | | the process lives |
//! | GET | `/ready` | | it can decide; 200 even if degraded, with what is wrong |
//! | GET | `/metrics` | | for Prometheus |
//! | POST | `/reload` | yes | look at the policy file now |
//! | GET, PUT, DELETE | `/overrides` | yes | what single keys are granted |
//! | GET | `/top` | yes | who is refused most |
//! | POST | `/switch` | yes | limiting off or on |
//! | GET, POST, DELETE | `/pressure` | yes | less for everybody for a while, or as much as is due |
//! | GET | `/policy` | yes | the limits in force |
//! | POST | `/peek` | yes | what one key has left |
//!
//! It does not know how decisions are made.

mod answer;
mod guard;
mod pressure;
mod routes;
mod shown;
mod token;

pub use token::{TokenError, Tokens};

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{self, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use tokio::net::TcpListener;
use tokio::sync::watch;

use self::answer::{Answer, Problem};
use self::guard::{Guard, check_json};
use self::routes::Asked;
use crate::engine::Engine;
use crate::listen::body::{BodyFault, BodyLimits, read_body, throw_away};
use crate::listen::{self, Handler, ListenLimits};

/// Connections of operators and scrapers at once.
const CONNECTIONS: usize = 256;

/// What the door for operators needs to know.
#[derive(Clone, Debug)]
pub struct AdminSettings {
    /// The tokens that are valid.
    pub tokens: Tokens,
    /// Names that it goes by, beside those of loopback and the address it listens on.
    pub hosts: Vec<String>,
}

/// Serves operators until told to stop.
pub async fn serve(
    listener: TcpListener,
    engine: Arc<Engine>,
    settings: AdminSettings,
    stop: watch::Receiver<bool>,
) {
    let bound = listener.local_addr().ok();
    let guard = Guard::new(settings.tokens, &settings.hosts, bound);
    let limits = ListenLimits {
        connections: CONNECTIONS,
        ..ListenLimits::default()
    };
    let admin = Admin {
        engine,
        guard: Arc::new(guard),
        limits: limits.body,
    };
    listen::serve(listener, admin, limits, stop).await;
}

#[derive(Clone)]
struct Admin {
    engine: Arc<Engine>,
    guard: Arc<Guard>,
    limits: BodyLimits,
}

impl Handler for Admin {
    async fn handle(&self, request: Request<Incoming>, peer: IpAddr) -> Response<Full<Bytes>> {
        let (head, body) = request.into_parts();
        let asked = match self.admitted(&head, peer) {
            Ok(asked) => asked,
            Err(problem) => {
                let mut answer = problem.answer();
                if !throw_away(body, self.limits).await {
                    let close = HeaderValue::from_static("close");
                    answer.headers_mut().insert(header::CONNECTION, close);
                }
                return answer;
            }
        };
        match self.answered(asked, body, peer).await {
            Ok(answer) => answer,
            Err(problem) => problem.answer(),
        }
    }
}

impl Admin {
    /// Everything that can be said without the body.
    fn admitted(&self, head: &hyper::http::request::Parts, peer: IpAddr) -> Result<Asked, Problem> {
        self.guard.check_host(&head.headers)?;
        let path = head.uri.path();
        let asked = match Asked::by(&head.method, path) {
            Ok(asked) => asked,
            Err(allowed) if allowed.is_empty() => {
                return Err(Problem::new(
                    StatusCode::NOT_FOUND,
                    "no-such-path",
                    "there is nothing here",
                    "ask for one of /health, /ready, /metrics, /reload, /overrides, /top, /switch, /pressure, /policy, /peek, /explain",
                ));
            }
            Err(allowed) => {
                let allowed = allowed.join(", ");
                let problem = Problem::new(
                    StatusCode::METHOD_NOT_ALLOWED,
                    "method",
                    "this cannot be asked with this method",
                    format!("use {allowed}"),
                );
                return Err(match HeaderValue::from_str(&allowed) {
                    Ok(allowed) => problem.with_header(header::ALLOW, allowed),
                    Err(_) => problem,
                });
            }
        };
        if asked.needs_token() {
            self.guard.check_token(&head.headers, peer)?;
        }
        if !matches!(head.method, Method::GET | Method::HEAD) {
            check_json(&head.headers)?;
        }
        Ok(asked)
    }

    async fn answered(
        &self,
        asked: Asked,
        body: Incoming,
        peer: IpAddr,
    ) -> Result<Answer, Problem> {
        let body = read_body(body, self.limits)
            .await
            .map_err(|fault| match fault {
                BodyFault::TooLarge => Problem::new(
                    StatusCode::PAYLOAD_TOO_LARGE,
                    "body-too-large",
                    format!("the body has more than {} bytes", self.limits.bytes),
                    "send less",
                )
                .with_header(header::CONNECTION, HeaderValue::from_static("close")),
                BodyFault::TooSlow | BodyFault::Broken => Problem::new(
                    StatusCode::REQUEST_TIMEOUT,
                    "body-not-read",
                    "the body did not come to its end in time",
                    "send it again",
                )
                .with_header(header::CONNECTION, HeaderValue::from_static("close")),
            })?;
        let engine = Arc::clone(&self.engine);
        // Files are read and written, and tables walked: not on a thread that serves requests.
        let work = tokio::task::spawn_blocking(move || asked.answer(&engine, &body, peer));
        work.await.unwrap_or_else(|_| {
            Err(Problem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "failed",
                "this could not be done",
                "see the log of the server",
            ))
        })
    }
}
