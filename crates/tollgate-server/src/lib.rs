//! The front ends that you run. Each does the same three things: read a request into
//! [`tollgate_policy::Facts`], ask the policy in force, write the answer down.
//!
//! # Layout
//!
//! `engine` holds the policy in force and everything that outlives a request: reloads, overrides, the
//! state file, what is counted. `listen` accepts connections and bounds them. `http` is the door for
//! decisions, `rls` the one for Envoy, `resp` the one for Redis clients, `admin` the one for operators, `gateway`
//! the reverse proxy.

pub mod admin;
mod date;
mod decision_view;
pub mod engine;
pub mod explain;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod gateway;
mod house;
pub mod http;
mod limit_view;
mod listen;
mod metrics;
mod names;
pub mod resp;
pub mod rls;
pub(crate) mod run;

pub use resp::{RESP_KEYS, RESP_PORT, RespBind};
pub use run::{ADMIN_PORT, AdminBind, HTTP_PORT, RunError, Settings, Started, run};
