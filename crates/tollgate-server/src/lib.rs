//! The servers: the rate limit service and the gateway. Each front end reads a request into [`tollgate_policy::Facts`], asks
//! the engine for a decision, and writes the response.
//!
//! | module | what it does |
//! |---|---|
//! | `engine` | the active policy and what outlives a request: reloads, overrides, the state file, metrics |
//! | `net` | listeners, the lifecycle of connections, HTTP/1 |
//! | `http`, `rls`, `resp` | the front ends of the service: HTTP API, Envoy, Redis protocol |
//! | `gateway` | the reverse proxy |
//! | `admin` | the admin port |
//! | `supervisor`, `run` | start and end of a server |

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

pub use resp::{PasswordError, RESP_KEYS, RESP_PORT, RespBind, RespError};
pub use run::{ADMIN_PORT, AdminBind, HTTP_PORT, RunError, ServerSettings, Started, run};
