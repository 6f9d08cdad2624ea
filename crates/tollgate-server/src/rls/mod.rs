//! Envoy's rate limit service (RLS), version 3: the front end for Envoy, Istio and Envoy Gateway.
//!
//! # Theory
//!
//! One gRPC method takes a domain and a list of descriptors, and returns one status for each descriptor with an
//! overall code that Envoy acts on. Policies match them by `domain`, `descriptor` and `entries`. A request has no other
//! facts here.
//!
//! | file | content |
//! |---|---|
//! | `messages` | the messages |
//! | `request` | validation, hits, limits sent with a descriptor |
//! | `decide` | all descriptors of a request as one decision |
//! | `status` | the status of each descriptor |
//! | `connection` | sockets and timeouts around a session of `tollgate-grpc` |
//! | `reflect` | gRPC reflection |
//!
//! # Invariant
//!
//! There is one status for each descriptor, in order. The code `UNKNOWN` is never sent: Envoy lets such a request pass
//! regardless of its `failure_mode_deny`. A request that cannot be decided is a gRPC error, which Envoy handles by that
//! setting.
//!
//! Quota buckets (RLQS) are not supported.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::http;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tonic::Status;
use tonic::body::Body;
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{HealthReporter, HealthService};
use tower_service::Service as TowerService;

mod connection;
mod decide;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
pub mod messages;
mod reflect;
mod request;
mod status;

use crate::engine::{Engine, EngineSource, Protocol};
use crate::net::{Accepted, ListenLimits, admit_all, serve_connections, stopped};
use messages::{SERVICE, SHOULD_RATE_LIMIT};
use tollgate_grpc::{Fallback, FallbackFuture};

/// Largest message to health and reflection: a name or two.
const MAX_OTHER_MESSAGE_BYTES: usize = 4 * 1024;

/// The names that gRPC health reports: the server, the service, and the name under which the reference service is checked.
const HEALTH_NAMES: [&str; 3] = ["", SERVICE, "ratelimit"];

/// The port of Envoy's own examples.
pub const RLS_PORT: u16 = 8081;

/// The service. Clones share its state, so each thread serves one.
#[derive(Clone, Debug)]
pub struct RlsService {
    limits: Arc<Limits>,
    health: HealthReporter,
    stop: watch::Receiver<bool>,
}

/// The engine as the method asks it.
#[derive(Debug)]
struct Limits {
    source: EngineSource,
}

impl RlsService {
    /// A service that stops on the shutdown signal `stop`.
    pub fn new(engine: Arc<Engine>, stop: watch::Receiver<bool>) -> RlsService {
        engine.set_served(Protocol::Rls);
        let source = EngineSource::new(engine, Protocol::Rls);
        RlsService {
            limits: Arc::new(Limits { source }),
            health: HealthReporter::new(),
            stop,
        }
    }

    /// Serves `listener` with at most this many connections at once.
    pub async fn serve(self, listener: TcpListener, connections: usize) {
        let RlsService {
            limits,
            health,
            mut stop,
        } = self;
        for name in HEALTH_NAMES {
            let serving = ServingStatus::Serving;
            health.set_service_status(name, serving).await;
        }
        let (v1, v1alpha) = match reflect::services() {
            Ok(services) => services,
            Err(error) => {
                tracing::error!(%error, "gRPC reflection failed to start");
                return;
            }
        };
        let routes = Routes {
            health: HealthServer::new(HealthService::from_health_reporter(health.clone()))
                .max_decoding_message_size(MAX_OTHER_MESSAGE_BYTES),
            v1: v1.max_decoding_message_size(MAX_OTHER_MESSAGE_BYTES),
            v1alpha: v1alpha.max_decoding_message_size(MAX_OTHER_MESSAGE_BYTES),
        };
        let bounds = ListenLimits {
            connections,
            // Clients keep their connections. Keepalive PINGs detect those that have disconnected.
            idle: Duration::MAX,
            ..ListenLimits::default()
        };
        let (end, ending) = watch::channel(false);
        let shutdown = async move {
            stopped(&mut stop).await;
            // Watches report it before their connections close.
            for name in HEALTH_NAMES {
                let stopping = ServingStatus::NotServing;
                health.set_service_status(name, stopping).await;
            }
            let _ = end.send(true);
        };
        let serving = serve_connections(
            listener,
            || bounds,
            admit_all,
            ending,
            |accepted| {
                let Accepted { stream, state, .. } = accepted;
                connection::serve(stream, Arc::clone(&limits), routes.clone(), state)
            },
        );
        tokio::join!(serving, shutdown);
    }
}

/// All services but the method that the session handles itself, by path.
#[derive(Clone)]
struct Routes<V1, V1Alpha> {
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
        let is_compressed = path == SHOULD_RATE_LIMIT;
        let service = path
            .strip_prefix('/')
            .and_then(|path| path.split('/').next());
        match service.unwrap_or_default() {
            "grpc.health.v1.Health" => self.health.serve(request),
            "grpc.reflection.v1.ServerReflection" => self.v1.serve(request),
            "grpc.reflection.v1alpha.ServerReflection" => self.v1alpha.serve(request),
            _ => Box::pin(async move {
                let detail = match is_compressed {
                    true => {
                        "the message is compressed, which is not supported; send it uncompressed"
                    }
                    false => "the only services are ShouldRateLimit, health and reflection",
                };
                Ok(Status::unimplemented(detail).into_http())
            }),
        }
    }
}
