//! Tests of the admission queue.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may"
)]

mod adaptive;
mod fair;
mod flows;
mod queue;
mod stress;
