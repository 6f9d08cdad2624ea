//! Tollgate decides for every request whether it may pass now, must wait, or is refused.
//!
//! Exact for every algorithm, bounded in memory, and no lock on the way of a charge.
//!
//! ```
//! use tollgate::{Limit, Limiter};
//!
//! let limiter = Limiter::new(Limit::token_bucket("5/s".parse()?, 10)?)?;
//! if !limiter.check("rider:42").is_admitted() { /* answer 429 */ }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What to reach for
//!
//! | you have | use |
//! |---|---|
//! | one limit, many keys | [`Limiter`]: [`check`](Limiter::check), [`charge`](Limiter::charge), [`peek`](Limiter::peek), [`settle`](Limiter::settle) |
//! | one limit for everybody | [`UnkeyedLimiter`] |
//! | several limits on one request, all or none | [`Gate`] |
//! | so many at once | [`ConcurrencyLimiter`] and its [`Permit`] |
//! | many keys at hand | [`Limiter::check_batch`] |
//! | a limit that comes with each call | [`Throttle`] and its [`InlineQuota`] |
//! | async code that should wait | `Limiter::until_ready` (feature `async`) |
//! | a test | [`ManualClock`] |
//! | fair shares, adaptive limits | [`shape`] |
//!
//! # The road
//!
//! ```text
//! key, cost --> [limiter | gate] --> [table] --> [algorithm] --> Decision
//!                 hash, clock          find the word       pure step      verdict, what is left
//! ```
//!
//! Everything that decides is integers. Time is an argument everywhere but in [`clock`]. How a limit
//! decides, what any window can admit at most and why it is done this way is told in each module of
//! [`algorithm`]; what makes the table never admit too much, in [`table`].
//!
//! Rates and spans are written as people write them:
//!
//! ```
//! use tollgate::{Rate, Span};
//! let rate: Rate = "7/3s".parse()?;
//! assert_eq!((rate.units(), rate.per()), (7, Span::from_secs(3)));
//! assert_eq!("1h30m".parse::<Span>()?, Span::from_secs(5400));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![deny(unsafe_code)]
#![deny(clippy::float_arithmetic)]

pub mod time;

pub mod rate;

pub mod cost;

pub mod key;

pub mod decision;

pub mod algorithm;

pub mod limit;

pub mod calendar;

pub mod clock;

mod sync;

mod raw;

pub mod table;

pub mod snapshot;

pub mod limiter;

pub mod gate;

pub mod permit;

pub mod throttle;

#[cfg(feature = "async")]
pub mod until;

pub mod shape;

pub use algorithm::inline_quota::{InlineQuota, InlineQuotaError, OutOfRange, ThrottleResult};
pub use algorithm::scale::Scale;
pub use algorithm::{LimitError, Refund};
pub use clock::{Clock, CoarseClock, ManualClock, MonotonicClock};
pub use cost::{Burst, Cost, UnitsError};
pub use decision::{Decision, Origin, QuotaStatus, Verdict};
pub use gate::{Admission, Gate, LimitCharge, LimitId};
pub use key::{Hashed, Key, KeyHasher, KeySecret, Keyed};
pub use limit::{Algorithm, Estimate, Limit};
pub use limiter::{Limiter, Settled, UnkeyedLimiter};
pub use permit::{ConcurrencyLimiter, Permit};
pub use rate::{Rate, RateError};
pub use table::{KeyOp, KeyOutcome, MAX_CHARGES};
pub use throttle::{Call, Throttle};
pub use time::{Moment, Span, SpanError};
#[cfg(feature = "async")]
pub use until::NeverReady;

/// The README's example is kept true by this.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
