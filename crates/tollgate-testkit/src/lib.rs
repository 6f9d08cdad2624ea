//! Set-up of tests, trials and benchmarks. No shipped crate depends on it except for its tests.
//!
//! - [`servers`] starts Redis and Valkey: alone, behind sentinels, or as a cluster.
//! - [`proxy`] is between a client and such a server and injects network faults.
//! - [`Process`] runs any other program in a temporary directory; [`web`] has nginx, Caddy and Envoy.
//! - [`tollgate`] runs the built binary, and [`http`] is its client; [`http2`] has frames that no library sends.
//! - [`Directory`] is a temporary directory, and [`free_port`] a free port.
//! - [`wait()`] waits for a condition, with a deadline.
//!
//! Nothing here simulates a server: a missing program is an [`Error`] with the way to install it.

#![forbid(unsafe_code)]
#![allow(clippy::panic, reason = "a test that cannot run has failed")]

pub mod certificates;
mod directory;
pub mod error;
pub mod http;
pub mod http2;
mod ports;
mod process;
mod programs;
pub mod proxy;
pub mod resp;
pub mod servers;
mod spawner;
pub mod tollgate;
pub mod wait;
pub mod web;

pub use directory::Directory;
pub use error::{Error, Result};
pub use ports::free_port;
pub use process::{CONFIG, Process, Ran, run};
pub use programs::program;
pub use rustix::process::Signal;
pub use wait::{Check, now, sleep, wait, wait_async, wait_for};

/// The address that everything listens on.
pub const HOST: &str = "127.0.0.1";
