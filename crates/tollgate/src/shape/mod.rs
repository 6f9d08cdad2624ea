//! Shaping: what to do with work that may pass, but not all at once.
//!
//! A limiter answers yes or no. The parts in here answer two other questions: *who goes next* when a
//! backend can take only so much at a time, and *how much* it can take.
//!
//! - [`fair_queue`] puts waiting requests in an order that is fair by weight: start-time fair
//!   queuing, SFQ(D).
//! - [`leaky_queue`] lets what waits in it out at a constant rate, never faster.
//! - [`shuffle`] maps an unbounded set of clients onto a bounded set of queues, so that one loud
//!   client rarely shares all of its queues with a quiet one.
//! - [`pressure`] says how much of all limits is to be left while a backend is in trouble.
//! - [`adaptive`] is what the three estimators of a concurrency limit have in common, and the window
//!   they are fed through: [`aimd`] sees only failures, [`vegas`] and [`gradient2`] see latency.
//! - [`guarded`] keeps each of them from its known drifts, and [`learned`](mod@learned) is the one to use: the
//!   estimator that a policy names, guarded.
//!
//! Everything here is a plain value with `&mut self` methods. Nothing reads a clock, starts a thread,
//! opens a socket or waits; time is an argument where it matters, and the caller owns the waiting.

pub mod fair_queue;
pub mod leaky_queue;
pub mod pressure;
pub mod shuffle;

#[allow(
    clippy::float_arithmetic,
    reason = "adjusts limits, decides no request"
)]
pub mod adaptive;
#[allow(
    clippy::float_arithmetic,
    reason = "adjusts limits, decides no request"
)]
pub mod aimd;

#[allow(
    clippy::float_arithmetic,
    reason = "adjusts limits, decides no request"
)]
pub mod vegas;

#[allow(
    clippy::float_arithmetic,
    reason = "adjusts limits, decides no request"
)]
pub mod gradient2;

#[allow(
    clippy::float_arithmetic,
    reason = "adjusts limits, decides no request"
)]
pub mod guarded;

pub mod learned;

pub use adaptive::{AdaptiveError, AdaptiveLimit, Sample, Windowed};
pub use aimd::{Aimd, AimdBuilder};
pub use fair_queue::{
    Dispatched, Displaced, Enqueued, FairQueue, FairQueueConfig, FairQueueError, RejectReason,
    Rejected, Ticket,
};
pub use gradient2::{Gradient2, Gradient2Builder};
pub use guarded::Guarded;
pub use leaky_queue::{LeakyQueue, Refused};
pub use learned::{Learned, learned};
pub use pressure::{Pressure, Signals, Trouble};
pub use shuffle::{Hand, ShuffleError, ShuffleShard};
pub use vegas::{Vegas, VegasBuilder};
