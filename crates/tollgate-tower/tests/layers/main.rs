//! The layers around real services, driven as a server would drive them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may"
)]

mod support;

mod client;
mod dropped;
mod examples;
mod grpc;
mod limit;
mod pace;
mod queue;
mod ready;
mod single;
mod store;
mod unserved;
