//! Trials: real services on real servers, injected faults, and the promises that must hold.
//!
//! ```text
//! cargo build -p tollgate-cli -p tollgate-trials
//! target/debug/tollgate-trials list
//! target/debug/tollgate-trials all --quick
//! target/debug/tollgate-trials kill blackhole
//! ```
//!
//! | trials | subject |
//! |---|---|
//! | `kill`, `failover`, `freeze`, `flush`, `restart`, `flap`, `blackhole` | one store that fails, recovers, or loses messages |
//! | `reshard`, `node-loss` | a cluster whose slots move, or that loses a primary |
//! | `race`, `shared-store`, `sharing` | exact counts over several nodes, services and sharing modes |
//! | `constant-rate`, `weights`, `noisy-neighbor` | queues of the gateway: rate, tiers, fairness |
//! | `aborts`, `abuse`, `clients` | clients of the gateway that abort, attack, or are real programs |
//!
//! # How to add one
//!
//! Write a function `run(&TrialOptions, &mut Verdicts) -> Result<()>` in `trials` or `shaping`, and add it to [`trials::ALL`]. It
//! states a promise with [`verdicts::Verdicts::promise`], and a promise about time with `promise_time`: a short run skips those.
//!
//! # Parts
//!
//! [`service`] is the real `tollgate serve`, a [`load`] sends it requests, and the [`trials`] inject faults and check the
//! promises ([`verdicts`]). Servers and faults come from `tollgate-testkit`.
//!
//! `shaping` is the same for `tollgate gateway`: queues, noisy neighbors, aborts and abuse.

#![forbid(unsafe_code)]

mod http;
pub mod load;
pub mod policy;
pub mod service;
mod shaping;
pub mod trials;
pub mod verdicts;
