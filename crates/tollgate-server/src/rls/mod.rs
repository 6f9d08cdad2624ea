//! Envoy's rate limit service, version 3: the door that Envoy, Istio and Envoy Gateway ask.
//!
//! # Theory
//!
//! One method over gRPC: a domain and a list of descriptors come in, one status for each goes out, with an
//! overall code that Envoy acts on. A descriptor is what the policy calls `descriptor` and `entries`; its domain
//! is `domain`. Everything else of a request is unknown here.
//!
//! | file | what |
//! |---|---|
//! | `messages` | what goes over the wire |
//! | `ask` | what is asked, and bounds |
//! | `decide` | the decision: all descriptors are one |
//! | `status` | what each descriptor is told |
//! | `guard` | a call whose decision panics is an error of that call |
//! | `connection` | sockets and timeouts around a session of `tollgate-grpc` |
//! | `reflect` | the protocol, told to whoever asks for it |
//! | `domains` | the domains that the policy knows |
//!
//! # Invariant
//!
//! There is one status for each descriptor, in order. The code `UNKNOWN` is never sent: Envoy would let the
//! request pass whatever it was told about failures. What cannot be decided is an error of gRPC, which Envoy
//! treats as it was told to.
//!
//! # What it does not know
//!
//! Quota buckets.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::http;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::Instant;
use tonic::body::Body;
use tonic::server::{Grpc, UnaryService};
use tonic::{Request, Response, Status};
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{HealthReporter, HealthService};
use tower_service::Service as TowerService;

mod ask;
mod connection;
mod decide;
mod domains;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod guard;
pub mod messages;
mod reflect;
mod status;

use crate::engine::{Door, Engine, EngineSource};
use crate::listen::pulse::Pulse;
use crate::listen::{Accepted, ListenLimits, accept_until, stopped};
use domains::Domains;
use messages::{RateLimitRequest, RateLimitResponse, SERVICE, SHOULD_RATE_LIMIT};
use tollgate_grpc::{Codec, Fallback, FallbackFuture, parse_timeout};

/// Bytes of a message to any other service than ours: a name or two.
const OTHER_MESSAGE_BYTES: usize = 4 * 1024;

/// The port that Envoy's own examples have.
pub const RLS_PORT: u16 = 8081;

/// What answers, to be served by as many threads as there are. Clones are the same service.
#[derive(Clone, Debug)]
pub struct Service {
    limits: Arc<Limits>,
    health: HealthReporter,
    stop: watch::Receiver<bool>,
}

/// Everything that this door needs to decide.
#[derive(Debug)]
struct Limits {
    source: EngineSource,
    domains: Domains,
}

impl Service {
    /// A service that ends when `stop` says so.
    pub fn new(engine: Arc<Engine>, stop: watch::Receiver<bool>) -> Service {
        let domains = Domains::default();
        let source = EngineSource::new(engine, Door::Rls);
        Service {
            limits: Arc::new(Limits { source, domains }),
            health: HealthReporter::new(),
            stop,
        }
    }

    /// Serves on `listener`, as one of so many threads that share the bounds.
    pub async fn serve(self, listener: TcpListener, threads: usize) {
        let Service {
            limits,
            health,
            mut stop,
        } = self;
        let serving = ServingStatus::Serving;
        health.set_service_status(SERVICE, serving).await;
        let (v1, v1alpha) = match reflect::services() {
            Ok(services) => services,
            Err(error) => {
                tracing::error!(%error, "the protocol cannot be told");
                return;
            }
        };
        let routes = Routes {
            limits,
            health: HealthServer::new(HealthService::from_health_reporter(health.clone()))
                .max_decoding_message_size(OTHER_MESSAGE_BYTES),
            v1: v1.max_decoding_message_size(OTHER_MESSAGE_BYTES),
            v1alpha: v1alpha.max_decoding_message_size(OTHER_MESSAGE_BYTES),
        };
        let bounds = ListenLimits {
            connections: ListenLimits::default().connections.div_ceil(threads.max(1)),
            // Clients keep their connections; whether they are there is asked on the wire.
            idle: Duration::MAX,
            ..ListenLimits::default()
        };
        let begin = |(stream, _, permit): Accepted| {
            let pulse = Arc::new(Pulse::beginning(true));
            let (limits, routes) = (Arc::clone(&routes.limits), routes.clone());
            let served = connection::serve(stream, limits, routes, Arc::clone(&pulse));
            let task = tokio::spawn(async move {
                served.await;
                drop(permit);
            });
            Some((pulse, task.abort_handle()))
        };
        let (end, ending) = watch::channel(false);
        let told = async move {
            stopped(&mut stop).await;
            // Who watches hears of it before its connection ends.
            let ends = ServingStatus::NotServing;
            health.set_service_status("", ends).await;
            health.set_service_status(SERVICE, ends).await;
            let _ = end.send(true);
        };
        let serving = accept_until(listener, bounds.connections, || bounds, ending, begin);
        tokio::join!(serving, told);
    }
}

/// A call under way.
type Calling<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

/// One decision.
#[derive(Clone)]
struct ShouldRateLimit(Arc<Limits>);

impl UnaryService<RateLimitRequest> for ShouldRateLimit {
    type Response = RateLimitResponse;
    type Future = Calling<Response<RateLimitResponse>, Status>;

    fn call(&mut self, request: Request<RateLimitRequest>) -> Self::Future {
        let limits = Arc::clone(&self.0);
        let timeout = request.metadata().get("grpc-timeout");
        let timeout = timeout.and_then(|text| parse_timeout(text.to_str().ok()?));
        let until = timeout.map(|left| Instant::now() + left);
        Box::pin(async move {
            let answered = limits.answer(request.into_inner(), until).await;
            answered.map(Response::new)
        })
    }
}

/// What is served under which path.
#[derive(Clone)]
struct Routes<V1, V1Alpha> {
    limits: Arc<Limits>,
    health: HealthServer<HealthService>,
    v1: V1,
    v1alpha: V1Alpha,
}

impl<V1, V1Alpha> TowerService<http::Request<Body>> for Routes<V1, V1Alpha>
where
    V1: Fallback,
    V1Alpha: Fallback,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = FallbackFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let path = request.uri().path();
        if path == SHOULD_RATE_LIMIT {
            let service = ShouldRateLimit(Arc::clone(&self.limits));
            return Box::pin(async move {
                let codec = Codec::<RateLimitResponse, RateLimitRequest>::default();
                let mut grpc = Grpc::new(codec).max_decoding_message_size(ask::MESSAGE_BYTES);
                Ok(grpc.unary(service, request).await)
            });
        }
        let service = path
            .strip_prefix('/')
            .and_then(|path| path.split('/').next());
        match service.unwrap_or_default() {
            "grpc.health.v1.Health" => self.health.serve(request),
            "grpc.reflection.v1.ServerReflection" => self.v1.serve(request),
            "grpc.reflection.v1alpha.ServerReflection" => self.v1alpha.serve(request),
            _ => Box::pin(async {
                let missing = Status::unimplemented(
                    "there is only ShouldRateLimit here, with health and reflection",
                );
                Ok(missing.into_http())
            }),
        }
    }
}
