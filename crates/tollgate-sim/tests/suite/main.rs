//! The simulation, its oracle, and rules of the whole repository.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may"
)]

mod adaptive;
mod arrows;
mod command;
mod documented_paths;
mod fleet;
mod load;
mod oracle_timelines;
mod property;
mod seeds;
mod threads;
mod timelines;
mod vocabulary;
