//! Limits that a fleet shares, on Redis or Valkey.
//!
//! # The road
//!
//! ```text
//! SharedRequest --> [limits] --calls, by slot--> [charge] --> [send] --> [topology] --> [link] --> one script on the server
//!                    names, numbers, arguments    all or none   deadline,    who serves     one connection that
//!                                                               redirects    the slot       many requests share
//! SharedOutcome <-- [limits] <-------------------- reply, told apart from errors by [fault]
//! ```
//!
//! The decision is made by a script on the server, because that is where the state lives; it does the
//! core's integer steps. What the client is told is worked out here, by the core itself, from the state
//! that the script found.
//!
//! # Invariant
//!
//! A charge is sent at most once. A command that was refused before it ran (`NOSCRIPT`, `MOVED`, `ASK`,
//! `TRYAGAIN`, `READONLY`) may be sent again; one whose answer was lost may have been taken, so it is not.
//!
//! # What it does not know
//!
//! Policies, HTTP, and what happens to a request that the store did not answer.

#![forbid(unsafe_code)]
#![deny(clippy::float_arithmetic)]

mod call;
mod charge;
mod doctor;
mod fault;
mod finish;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod join;
mod limits;
mod link;
mod nodes;
mod report;
mod script;
mod send;
pub mod settings;
mod store;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod testing;
mod topology;
mod upkeep;

pub use doctor::{Finding, Severity, doctor};
pub use link::access::OpenError;
pub use link::{ACCESS_RULE, CLUSTER_RULE};
pub use settings::{Secret, Settings, Tls, Topology};
pub use store::Store;
