//! The gateway: a reverse proxy behind the limits and queues of a policy.
//!
//! # Theory
//!
//! It is the layers of `tollgate_tower` over a proxy service, and nothing more:
//!
//! ```text
//! client --> [listen] --> [check] --> LimitLayer --> QueueLayer --> [proxy] --> server
//!            framing      form        may it pass?   its turn       one try
//! ```
//!
//! Each thread has a loop of its own, with its own listener, its own connections to servers and nothing
//! handed to another thread. What they share is read by all and replaced whole: the policy, the upstreams,
//! the bounds.
//!
//! # Invariant
//!
//! Requests that servers see are requests that were admitted, each once.
//!
//! # Rooms
//!
//! | file | what |
//! |---|---|
//! | `listen` | connections: who may connect, how requests are framed, tunnels |
//! | `check` | what a request must be, whichever HTTP it came in |
//! | `proxy` | upstreams, servers, connections to them, header fields, bodies |
//! | `run` | everything together, from settings to an orderly end |
//! | `tls`, `told`, `answers`, `scratch` | certificates, metrics, what the gateway says itself, where bytes are read to |

mod answers;
mod check;
pub(crate) mod listen;
pub(crate) mod proxy;
mod run;
mod scratch;
mod tls;
mod told;

use tollgate_tower::{GuardedBody, LimitService, QueueService};

use crate::engine::EngineSource;
use proxy::Proxy;
use proxy::body::Download;

pub use proxy::{Observed, UpstreamError};
pub use run::{GATEWAY_PORT, GatewayError, GatewaySettings, GatewayStarted, POLICY, run};
pub use tls::{TlsError, TlsFiles};
pub use told::Observations;

/// The layers over the proxy.
type Stack = LimitService<QueueService<Proxy, EngineSource>, EngineSource>;
/// What they answer with.
type StackBody = GuardedBody<GuardedBody<Download>>;
