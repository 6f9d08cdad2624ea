//! The load generator against servers of the tests.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may"
)]

mod failures;
mod grpc;
mod tls;
