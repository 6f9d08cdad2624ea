//! Shaping: what to do with work that may pass, but not all at once.
//!
//! A limiter decides each request by itself. This module answers two other questions: in which *order* requests
//! start when a backend can serve only some at a time, and *how many* it can serve.
//!
//! - [`fair_queue`] orders waiting requests fairly by weight: start-time fair queuing, SFQ(D).
//! - [`leaky_queue`] releases its items at a constant rate, never faster.
//! - [`guarded`] has the [`AdaptiveLimit`], a concurrency limit that follows the observed backend. [`unguarded`]
//!   has the estimators behind it, and [`adaptive`] their common parts.
//!
//! Everything here is a plain value with `&mut self` methods. Nothing reads a clock, starts a thread,
//! opens a socket or waits; time is an argument where it matters, and the caller owns the waiting.

pub mod fair_queue;
pub mod leaky_queue;

#[allow(
    clippy::float_arithmetic,
    reason = "adjusts limits, decides no request"
)]
pub mod adaptive;

#[allow(
    clippy::float_arithmetic,
    reason = "adjusts limits, decides no request"
)]
mod aimd;

#[allow(
    clippy::float_arithmetic,
    reason = "adjusts limits, decides no request"
)]
mod gradient2;

#[allow(
    clippy::float_arithmetic,
    reason = "adjusts limits, decides no request"
)]
pub mod guarded;

#[allow(
    clippy::float_arithmetic,
    reason = "adjusts limits, decides no request"
)]
pub mod unguarded;

pub use adaptive::{Adaptive, AdaptiveError, Estimator, Sample};
pub use fair_queue::{
    Dispatched, Displaced, Enqueued, FairQueue, FairQueueConfig, FairQueueError, RejectReason,
    Rejected, Ticket,
};
pub use guarded::AdaptiveLimit;
pub use leaky_queue::{LeakyQueue, Refused};
pub use unguarded::EstimatorLimit;
