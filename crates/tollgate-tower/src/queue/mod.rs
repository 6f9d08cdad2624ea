//! Fair queues in front of a service.
//!
//! # Theory
//!
//! The first queue of the policy that matches a request is where it waits for its turn; what matches none
//! goes on at once. When its turn has come the service is called. Two things are learned from what follows,
//! at two moments: at the head of the response, how the backend fares (how long it took, and whether it
//! failed: [`Outcome`]); at the end of its body, that the place is free for the next.
//!
//! Put limits outside and the queue inside: what is over its limit is refused before it waits. What waits
//! has been paid for, and is paid back if it never gets its turn.
//!
//! ```
//! # use tollgate_policy::{QueueConcurrency, Policy, QueueRule};
//! # use tollgate_tower::{InForce, LimitLayer, QueueLayer};
//! # use axum::{Router, routing::get};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let policy = Policy { queues: vec![QueueRule::new("all", QueueConcurrency::Fixed(64))], ..Policy::default() };
//! let in_force = InForce::new(policy)?;
//! // In axum the layer that is added last is the outermost.
//! let app: Router = Router::new()
//!     .route("/", get(async || "hello"))
//!     .layer(QueueLayer::new(in_force.clone()))
//!     .layer(LimitLayer::new(in_force));
//! # Ok(())
//! # }
//! ```
//!
//! # If the future is dropped
//!
//! While it waits for its turn, its place in the queue is given up and it has cost nothing: what it took from
//! the limits of a [`crate::LimitLayer`] outside is given back, as it is to whoever gets no turn. After that
//! the turn is given to the next at once, what it took stays taken, and nothing is learned from it. A response whose body is dropped
//! frees its place likewise; what was learned at its head stays.
//!
//! # What is not the backend's
//!
//! A service that passes requests on waits for clients, too. It tells what of that is not to be learned from:
//!
//! - an answer of its own to a fault of the client's carries [`NotTheBackend`] in its extensions;
//! - while the client still sends, the time is not the backend's: a request whose answer is timed carries a
//!   [`SentWhole`](crate::SentWhole) in its extensions, which stops the clock and starts it anew.
//!
//! # What is told
//!
//! Who gets no turn is answered 503 with `Retry-After`, and a body that says which queue and why; a gRPC
//! call `RESOURCE_EXHAUSTED` with the same. On request ([`QueueLayer::tell_wait`]) responses tell how long
//! they waited.
//!
//! # Readiness
//!
//! `poll_ready` is that of the inner service; as in [`crate::limit`], what it has set aside is given back
//! while a request waits.

mod future;
mod service;

pub use future::QueueFuture;
pub use service::QueueService;

use http::StatusCode;
use http::response::Parts;
use tower_layer::Layer;

use crate::authority::Authority;
use crate::facts::{self, CostOf, PeerOf};
use crate::turnstile::Outcome;

/// In the extensions of a response that tells nothing of how the backend fares, because the backend was not
/// asked, or what it was asked was broken: [`classify`] takes it for [`Outcome::Unknown`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotTheBackend;

/// What a response tells of how its backend fares.
pub type Classify = fn(&Parts) -> Outcome;

/// Puts the queues of a policy in front of a service.
#[derive(Clone, Copy, Debug)]
pub struct QueueLayer<A> {
    settings: Settings<A>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings<A> {
    pub(crate) authority: A,
    pub(crate) peer: PeerOf,
    pub(crate) cost: Option<CostOf>,
    pub(crate) manner: Manner,
}

/// What is done with responses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    pub(crate) classify: Classify,
    pub(crate) tells_wait: bool,
}

impl<A: Authority> QueueLayer<A> {
    /// The queues of whichever policy this authority says is in force.
    pub fn new(authority: A) -> QueueLayer<A> {
        QueueLayer {
            settings: Settings {
                authority,
                peer: facts::peer,
                cost: None,
                manner: Manner {
                    classify,
                    tells_wait: false,
                },
            },
        }
    }
}

impl<A> QueueLayer<A> {
    /// Finds the address that a connection came from with this function; only asked if no layer further
    /// out has found the client. See [`crate::LimitLayer::with_peer`].
    #[must_use]
    pub fn with_peer(mut self, peer: PeerOf) -> QueueLayer<A> {
        self.settings.peer = peer;
        self
    }

    /// Finds what a request costs with this function, for queues that do not say so themselves.
    #[must_use]
    pub fn with_cost(mut self, cost: CostOf) -> QueueLayer<A> {
        self.settings.cost = Some(cost);
        self
    }

    /// Judges responses by this function instead of [`classify`].
    #[must_use]
    pub fn with_classify(mut self, classify: Classify) -> QueueLayer<A> {
        self.settings.manner.classify = classify;
        self
    }

    /// Tells how long a response waited for its turn, in milliseconds, rounded up:
    /// `x-tollgate-waited: 12`. Responses that did not wait tell nothing.
    #[must_use]
    pub fn tell_wait(mut self, tells: bool) -> QueueLayer<A> {
        self.settings.manner.tells_wait = tells;
        self
    }
}

impl<S, A: Clone> Layer<S> for QueueLayer<A> {
    type Service = QueueService<S, A>;

    fn layer(&self, inner: S) -> QueueService<S, A> {
        QueueService::new(inner, self.settings.clone())
    }
}

/// 502, 503 and 504 speak of a backend that bears no more, and so does a call of gRPC that ends at once
/// with `DEADLINE_EXCEEDED` or `UNAVAILABLE`. Everything else is an answer, also 500 and 429; but what is
/// marked as [`NotTheBackend`] tells nothing, whatever it says.
pub fn classify(head: &Parts) -> Outcome {
    if head.extensions.get::<NotTheBackend>().is_some() {
        return Outcome::Unknown;
    }
    let grpc = head.headers.get("grpc-status").map(|code| code.as_bytes());
    match head.status {
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
            Outcome::Failed
        }
        _ if matches!(grpc, Some(b"4" | b"14")) => Outcome::Failed,
        _ => Outcome::Answered,
    }
}
