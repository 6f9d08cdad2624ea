//! The servers of Tollgate: the rate limit service and the gateway.
//!
//! Each front end reads a request into [`tollgate_policy::Facts`], asks the engine for a decision, and writes the response.
//! [`run()`] starts the service, [`gateway::run`] the gateway. `tollgate-cli` is the program around both.
//!
//! Every front end uses the same names for a decision. [`explain::explain`] shows them:
//!
//! ```
//! use tollgate::MonotonicClock;
//! use tollgate_policy::{Facts, PolicyGate};
//! use tollgate_server::explain::explain;
//!
//! let text = b"default: pass\nlimits:\n  - { name: all, match: { path: /rides }, allow: 5/s, burst: 10 }\n";
//! let policy = tollgate_config::parse("tollgate.yaml", text)?.policy;
//! let gate = PolicyGate::new(policy, MonotonicClock::with_unix_time())?;
//! let view = explain(&gate, &Facts { path: "/rides", ..Facts::default() });
//! assert_eq!(view["verdict"], "pass");
//! assert_eq!(view["limits"][0]["name"], "all");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # How the parts fit
//!
//! ```text
//! socket --> net --> http | rls | resp | gateway --facts--> engine --> decision
//!            bounds, front ends                             active policy, metrics
//!            HTTP/1
//! ```
//!
//! | module | content |
//! |---|---|
//! | [`engine`] | the active policy and what outlives a request: reloads, overrides, the state file, metrics |
//! | `net` | listeners, the lifecycle of connections, HTTP/1 |
//! | [`http`], [`rls`], `resp` | the front ends of the service: HTTP API, Envoy, Redis protocol |
//! | [`gateway`] | the reverse proxy |
//! | [`admin`] | the admin port |
//! | `supervisor`, `run` | start and shutdown of a server |
//!
//! # Limits
//!
//! - The service has no TLS; the gateway has. HTTP/2 is served by the gateway and for Envoy only.
//! - The caller opens a shared store ([`engine::OpenStore`]): this crate knows no Redis.
//! - Untrusted clients can grow nothing without a bound. The module docs state each bound with its reason.

pub mod admin;
mod date;
mod decision_view;
pub mod engine;
pub mod explain;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod gateway;
pub mod http;
mod limit_view;
mod metrics;
pub mod names;
mod net;
mod resp;
pub mod rls;
pub(crate) mod run;
mod supervisor;

pub use net::descriptors::{DescriptorReport, descriptor_report};
pub use resp::{PasswordError, RESP_KEYS, RESP_PORT, RespBind, RespError};
pub use run::{ADMIN_PORT, AdminBind, HTTP_PORT, RunError, ServerSettings, Started, run};
