//! The front end that you embed: limits, queues and pacing as layers for any tower service.
//!
//! # Layout
//!
//! `authority` says which policy is in force. `turnstile` is the async side of the fair queue: who waits,
//! whose turn it is, and how many are under way. `slots` waits for the slots that leaky buckets promise, and
//! `channel` lets items out at a constant rate; both to a fraction of a millisecond.

#![forbid(unsafe_code)]

pub mod authority;
pub mod channel;
pub mod slots;
pub mod turnstile;

pub use authority::{Authority, Epoch, InForce};
pub use slots::{SlotWait, Slots};
pub use turnstile::{Outcome, QueueReport, QueueSet, Turn, Turned, Turnstile, Why};
