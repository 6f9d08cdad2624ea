//! Trials: real services on real servers, injected faults, and the promises that must hold.
//!
//! [`service`] is the real `tollgate serve`, a [`load`] sends it requests, and the [`trials`] inject faults and check the
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
