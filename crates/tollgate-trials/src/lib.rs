//! Trials: real services on real servers, broken on purpose, and the promises that must hold meanwhile.
//!
//! [`service`] is the real `tollgate serve`, a [`load`] asks it, and the [`trials`] inject faults meanwhile and check the
//! promises ([`verdicts`]). Servers and faults come from `tollgate-testkit`.
//!
//! `shaping` is the same for `tollgate gateway`: queues, neighbours, aborts and abuse.

#![forbid(unsafe_code)]

mod http;
pub mod load;
pub mod policy;
pub mod service;
mod shaping;
pub mod trials;
pub mod verdicts;
