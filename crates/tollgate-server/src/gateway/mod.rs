//! The gateway: a reverse proxy behind the limits and queues of a policy.
//!
//! # Theory
//!
//! It is the layers of `tollgate_tower` over a proxy service:
//!
//! ```text
//! client --> [client] --> [check] --> LimitLayer --> QueueLayer --> [proxy] --> server
//!            framing      form        limits         turn           upstream
//! ```
//!
//! Each thread has an event loop with its own client and server connections; none moves to another thread. Shared state is
//! read by all threads and replaced as a whole: the policy, the upstreams, the bounds.
//!
//! # Invariant
//!
//! A server sees only admitted requests, each once.
//!
//! # Malformed requests
//!
//! | error | response | charged |
//! |---|---|---|
//! | head, or a chunk before anything of its request was handed on | 400 (413, 414, 417, 431, 505) | no |
//! | chunk in a later segment | 400 unless a response has begun; the connection closes | yes: the request was admitted |
//!
//! In the last case an upstream may have seen a part of the request, never all of it.
//!
//! # Files
//!
//! | file | what it does |
//! |---|---|
//! | `client` | client connections: limits, framing, tunnels |
//! | `check` | checks a parsed request of either version of HTTP |
//! | `proxy` | upstreams, servers, their connections, header fields, bodies |
//! | `run` | starts and ends the gateway |
//! | `tls`, `metrics`, `responses` | certificates, metrics, responses of the gateway itself |

mod check;
pub(crate) mod client;
mod metrics;
pub(crate) mod proxy;
mod responses;
mod run;
mod tls;

use tollgate_tower::{GuardedBody, LimitService, QueueService};

use crate::engine::EngineSource;
use proxy::Proxy;
use proxy::body::Download;

pub use metrics::Observations;
pub use proxy::{UpstreamError, UpstreamStats};
pub use run::{GATEWAY_PORT, GatewayError, GatewaySettings, GatewayStarted, POLICY, run};
pub use tls::{CertificateFiles, TlsError};

/// The layers over the proxy.
type Stack = LimitService<QueueService<Proxy, EngineSource>, EngineSource>;
/// The body of their responses.
type StackBody = GuardedBody<GuardedBody<Download>>;
