//! Limits that a fleet shares, on Redis or Valkey.
//!
//! # The road
//!
//! ```text
//! SharedRequest --> [limits] --calls, by slot--> [store] --> [link] --> one script on the server
//!                    names, numbers, arguments    deadline     one connection that many requests share
//! SharedOutcome <-- [limits] <-------------------- reply
//! ```
//!
//! The decision is made by a script on the server, because that is where the state lives; it does the
//! core's integer steps. What the client is told is worked out here, by the core itself, from the state
//! that the script found.
//!
//! # Invariant
//!
//! A charge is sent at most once. A command that was refused before it ran (`NOSCRIPT`, `MOVED`, `ASK`,
//! `READONLY`) may be sent again; one whose answer was lost may have been taken, so it is not.
//!
//! # What it does not know
//!
//! Policies, HTTP, and what happens to a request that the store did not answer.

#![forbid(unsafe_code)]
#![deny(clippy::float_arithmetic)]

#[allow(dead_code, reason = "until the store is there")]
mod call;
pub mod settings;

pub use settings::{Secret, Settings, Tls, Topology};
