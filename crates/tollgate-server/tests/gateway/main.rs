//! Tests of the gateway: raw bytes in, and the bytes that an upstream receives.

#![allow(clippy::unwrap_used, reason = "a test may")]
#![allow(clippy::expect_used, reason = "a test that cannot run has failed")]
#![allow(clippy::panic, reason = "a test that cannot run has failed")]

mod accept;
mod access_log;
mod answers;
mod bodies;
mod bounds;
mod disconnects;
mod failures;
mod fields;
mod forwarding;
mod framing;
mod health;
mod http_versions;
mod limits;
mod metrics;
mod nginx;
mod queues;
mod refunds;
mod reload;
mod resets;
mod servers;
mod shaping;
mod shutdown;
mod support;
mod tls;
mod tunnels;
mod upgrades;
mod upstream;
mod upstream_stats;
