//! Tests of Envoy's rate limit service with an independent gRPC client.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

mod answers;
mod bad_input;
mod client;
mod converted;
mod descriptors;
mod health_and_reflection;
mod hits;
mod late_costs;
mod overrides;
mod wire;
