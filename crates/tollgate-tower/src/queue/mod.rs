//! The queue layer: fair queues in front of a service.
//!
//! # Theory
//!
//! A request waits in the first queue of the policy that matches it; if none matches it continues at once. When its permit is
//! granted, the inner service is called. Two things follow from the response: its head is a sample of how the backend fares
//! (duration and [`BackendOutcome`]), and the end of its body releases the permit.
//!
//! Put limits outside and the queue inside: a request over its limit is refused before it waits. A request that waits has been
//! charged, and is refunded if it is never admitted.
//!
//! ```
//! # use tollgate_policy::{QueueConcurrency, Policy, QueueRule};
//! # use tollgate_tower::{LimitLayer, PolicyHandle, QueueLayer};
//! # use axum::{Router, routing::get};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let policy = Policy { queues: vec![QueueRule::new("all", QueueConcurrency::Fixed(64))], ..Policy::default() };
//! let policy = PolicyHandle::new(policy)?;
//! // In axum the layer that is added last is the outermost.
//! let app: Router = Router::new()
//!     .route("/", get(async || "hello"))
//!     .layer(QueueLayer::new(policy.clone()))
//!     .layer(LimitLayer::new(policy));
//! # Ok(())
//! # }
//! ```
//!
//! # If the future is dropped
//!
//! | when | the limits of an outer [`crate::LimitLayer`] | the permit | the sample |
//! |---|---|---|---|
//! | while it waits, or if it is rejected | refunded | none was granted | none |
//! | after the service was called | stay taken | released at once | none |
//! | while the response's body is sent | stay taken | released at once | kept |
//!
//! # What is not the backend's doing
//!
//! A service that forwards requests waits for clients, too. It excludes that from the samples:
//!
//! - its own response to a client's fault carries [`NoBackendSample`] in its extensions;
//! - while the client uploads, it pauses the [`ServiceTimer`](crate::ServiceTimer) in the extensions of the request.
//!
//! # Responses
//!
//! A rejected request is answered 503 with `Retry-After` and a body that names the queue and the reason; a gRPC call
//! `RESOURCE_EXHAUSTED` with the same. With [`QueueLayer::with_wait_header`] responses report how long they waited.
//!
//! # Readiness
//!
//! `poll_ready` is that of the inner service. As in [`crate::limit`], reserved capacity is released while a request waits.

mod service;

pub use service::QueueService;

use http::StatusCode;
use http::response::Parts;
use tower_layer::Layer;

use crate::admission::BackendOutcome;
use crate::facts::{self, CostFn, PeerFn};
use crate::policy_source::PolicySource;

/// In the extensions of a response that is no sample of the backend: the request did not reach it, or the request was malformed.
/// [`classify`] returns [`BackendOutcome::Ignored`] for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoBackendSample;

/// Classifies a response as a sample of the backend.
pub type ClassifyFn = fn(&Parts) -> BackendOutcome;

/// Puts the queues of a policy in front of a service.
#[derive(Clone, Copy, Debug)]
#[must_use = "a layer does nothing until it is applied to a service"]
pub struct QueueLayer<P> {
    source: P,
    peer: PeerFn,
    cost: Option<CostFn>,
    options: ResponseOptions,
}

#[derive(Clone, Copy, Debug)]
struct ResponseOptions {
    classify: ClassifyFn,
    wait_header: bool,
}

impl<P> QueueLayer<P> {
    /// The queues of the active policy of `source`.
    pub fn new(source: P) -> QueueLayer<P>
    where
        P: PolicySource,
    {
        QueueLayer {
            source,
            peer: facts::peer,
            cost: None,
            options: ResponseOptions {
                classify,
                wait_header: false,
            },
        }
    }

    /// Finds the address of the connection's peer, unless an outer layer has found the client. See
    /// [`crate::LimitLayer::with_peer`].
    pub fn with_peer(mut self, peer: PeerFn) -> QueueLayer<P> {
        self.peer = peer;
        self
    }

    /// Finds the cost of a request, for queues whose rule does not state one.
    pub fn with_cost(mut self, cost: CostFn) -> QueueLayer<P> {
        self.cost = Some(cost);
        self
    }

    /// Classifies responses by this function instead of [`classify`].
    pub fn with_classify(mut self, classify: ClassifyFn) -> QueueLayer<P> {
        self.options.classify = classify;
        self
    }

    /// Whether responses that waited report it, in milliseconds rounded up: `x-tollgate-waited: 12`.
    pub fn with_wait_header(mut self, enabled: bool) -> QueueLayer<P> {
        self.options.wait_header = enabled;
        self
    }
}

impl<S, P: Clone> Layer<S> for QueueLayer<P> {
    type Service = QueueService<S, P>;

    fn layer(&self, inner: S) -> QueueService<S, P> {
        QueueService::new(inner, self.clone())
    }
}

/// 502, 503 and 504 mean an overloaded backend, and so does a gRPC call that ends at once with `DEADLINE_EXCEEDED` or
/// `UNAVAILABLE`. Everything else is an answer, also 500 and 429. A response with [`NoBackendSample`] is ignored.
pub fn classify(head: &Parts) -> BackendOutcome {
    if head.extensions.get::<NoBackendSample>().is_some() {
        return BackendOutcome::Ignored;
    }
    let grpc = head.headers.get("grpc-status").map(|code| code.as_bytes());
    match head.status {
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
            BackendOutcome::Overloaded
        }
        _ if matches!(grpc, Some(b"4" | b"14")) => BackendOutcome::Overloaded,
        _ => BackendOutcome::Answered,
    }
}
