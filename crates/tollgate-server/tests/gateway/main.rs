//! The gateway from outside: raw bytes in, and what a server behind it sees of them.

#![allow(clippy::unwrap_used, reason = "a test may")]
#![allow(clippy::expect_used, reason = "a test that cannot run has failed")]
#![allow(clippy::panic, reason = "a test that cannot run has failed")]

mod accept;
mod answers;
mod bodies;
mod bounds;
mod crossing;
mod endings;
mod failures;
mod fields;
mod framing;
mod health;
mod limits;
mod metrics;
mod nginx;
mod observed;
mod passes;
mod queues;
mod reload;
mod resets;
mod secure;
mod servers;
mod shaping;
mod switching;
mod tunnels;
mod unserved;
mod upstream;
mod vanish;
mod world;
