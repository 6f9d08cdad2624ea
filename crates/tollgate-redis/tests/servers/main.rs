//! The store against real servers; `equals_core` compares its decisions with the core's.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may"
)]

mod cluster;
mod common;
mod doctor;
mod errors;
mod nodes;
mod sentinel;
mod standalone;
mod tls;
