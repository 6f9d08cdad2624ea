//! Tests of the service as a real binary: behind real proxies, reloaded, killed, and with every feature of the policy
//! file.
//!
//! Programs that the tests need come with `make setup`; without one its tests fail and say so.

#![allow(clippy::unwrap_used, reason = "a test that cannot run has failed")]
#![allow(clippy::expect_used, reason = "a test that cannot run has failed")]
#![allow(clippy::panic, reason = "a test that cannot run has failed")]

mod bench;
mod caddy;
mod envoy;
mod explain;
mod first_run;
mod fleet;
mod gateway;
mod harness;
mod headers;
mod leases;
mod nginx;
mod openapi;
mod policy;
mod proxied;
mod reload;
mod reservations;
mod resp;
mod resp_bounds;
mod rls;
mod rls_fleet;
mod rls_hostile;
mod state;
mod stop;
mod traefik;
