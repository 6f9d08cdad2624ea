//! Every fault of the proxy, seen by a plain client of a real server.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may")]

mod client;
mod lasting;
mod once;
