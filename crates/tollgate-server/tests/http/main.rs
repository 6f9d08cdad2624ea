//! The door for decisions, over real sockets.

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
mod documented;
mod fields;
mod lanes;
mod settle;
