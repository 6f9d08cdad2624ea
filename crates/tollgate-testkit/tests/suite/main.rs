//! The test kit against the servers that it starts.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may"
)]

mod cluster;
mod proxy;
mod sentinels;
mod server;
