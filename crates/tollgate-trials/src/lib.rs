//! The real world, broken on purpose.
//!
//! [`servers`] starts real Redis and Valkey servers: alone, behind sentinels, or as a cluster. [`proxy`]
//! stands between a client and such a server and fails as networks do.
//!
//! Nothing here is a stand-in: what is missing on this machine is an error that says what to install.

#![forbid(unsafe_code)]

pub mod patience;
pub mod proxy;
pub mod servers;
pub mod trouble;

pub use trouble::{Outcome, Trouble};
