//! Real Redis and Valkey servers.
//!
//! # Invariant
//!
//! A server ends with the value that holds it: when that is dropped, when the test panics, and when the process is
//! killed. Its directory goes with it, except in the last case. Every wait has a deadline, and its error quotes the
//! server's log.
//!
//! Nothing is persisted without an option for it. All addresses are 127.0.0.1.

mod access;
mod cluster;
mod kind;
mod migration;
mod sentinels;
mod server;

pub use access::Access;
pub use cluster::Cluster;
pub use kind::Kind;
pub use migration::Migration;
pub use sentinels::Sentinels;
pub use server::{Plan, Server};

pub use crate::HOST;
pub use crate::certificates::Certificates;

/// The ends of the logs of these servers.
fn logs<'a>(servers: impl IntoIterator<Item = &'a Server>) -> String {
    let log = |server: &Server| format!("-- port {}\n{}", server.port(), server.log());
    let logs: Vec<String> = servers.into_iter().map(log).collect();
    logs.join("\n")
}
