//! Tests of the HTTP API over sockets.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

mod auth;
mod bad_input;
mod check;
mod client;
mod fast_path;
mod fields;
mod openapi;
mod settle;
