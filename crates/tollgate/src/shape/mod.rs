//! Shaping: what to do with work that may pass, but not all at once.
//!
//! A limiter answers yes or no. The parts in here answer two other questions: *who goes next* when a
//! backend can take only so much at a time, and *how much* it can take.
//!
//! - [`fair_queue`] puts waiting requests in an order that is fair by weight: start-time fair
//!   queuing, SFQ(D).
//! - [`leaky_queue`] lets what waits in it out at a constant rate, never faster.
//! - [`guarded`] has the [`AdaptiveLimit`], a number of requests at once that follows what is seen of a
//!   backend. [`unguarded`] has the estimators behind it, and [`adaptive`] what they have in common.
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
