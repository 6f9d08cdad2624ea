//! The real world, broken on purpose.
//!
//! [`servers`] starts real Redis and Valkey servers: alone, behind sentinels, or as a cluster. [`proxy`]
//! stands between a client and such a server and fails as networks do. [`service`] is the real `tollgate serve`, a
//! [`crowd`] asks it, and the [`trials`] break things meanwhile and look whether the promises hold ([`verdicts`]).
//!
//! `shaping` is the same for `tollgate gateway`: queues, neighbours, aborts and abuse.
//!
//! Nothing here is a stand-in: what is missing on this machine is an error that says what to install.

#![forbid(unsafe_code)]

pub mod crowd;
pub mod nginx;
pub mod patience;
pub mod policy;
pub mod proxy;
pub mod servers;
pub mod service;
mod shaping;
pub mod trials;
pub mod trouble;
pub mod verdicts;

pub use trouble::{Outcome, Trouble};
