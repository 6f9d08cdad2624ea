//! Envoy's rate limit service, asked by a real client of gRPC.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

mod afterwards;
mod answers;
mod bad_input;
mod brought;
mod client;
mod converted;
mod hits;
mod speaks;
mod together;
mod wire;
