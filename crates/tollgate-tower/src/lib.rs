//! The front end that you embed: limits, queues and pacing as layers for any tower service.
//!
//! # Layout
//!
//! `authority` says which policy is in force. `turnstile` is the async side of the fair queue: who waits,
//! whose turn it is, and how many are under way.

#![forbid(unsafe_code)]

pub mod authority;
pub mod turnstile;

pub use authority::{Authority, Epoch, InForce};
pub use turnstile::{Outcome, QueueReport, QueueSet, Turn, Turned, Turnstile, Why};
