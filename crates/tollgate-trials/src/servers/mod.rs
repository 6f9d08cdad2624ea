//! Real servers, for as long as a test needs them.
//!
//! # The road
//!
//! ```text
//! Server, Sentinels, Cluster --> [process] --> [nursery] --> redis-server or valkey-server
//!  what a test holds              folder, log,   the thread that    [kind] knows where it is
//!                                 signals        owns all children
//! ```
//!
//! # Invariant
//!
//! A server ends with what holds it: when it is dropped, when the test panics, and when the whole process is
//! killed. Its folder goes with it, except in the last case. Every wait has a deadline, and its error quotes
//! the server's log.
//!
//! # What it does not know
//!
//! Persistence, unless a test asks for it by options; other machines than this one: all addresses are
//! 127.0.0.1.

mod client;
mod cluster;
mod kind;
mod migration;
mod nursery;
mod ports;
mod process;
mod sentinels;
mod server;
mod tls;

pub use client::Access;
pub use cluster::Cluster;
pub use kind::Kind;
pub use migration::Migration;
pub use sentinels::Sentinels;
pub use server::{Plan, Server};
pub use tls::Certificates;

pub(crate) use ports::next as next_port;
pub(crate) use process::{CONFIG, Process};

/// The address that everything listens at.
pub const HOST: &str = "127.0.0.1";
