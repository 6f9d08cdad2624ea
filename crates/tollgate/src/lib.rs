//! Rate limiting inside a Rust process: for each request, pass now, wait, or refuse.
//!
//! Every algorithm is exact, memory is bounded, and a charge takes no lock.
//!
//! # Start here
//!
//! ```
//! use tollgate::Limiter;
//!
//! let limiter = Limiter::new("5/s burst 10".parse()?)?;   // 10 at once, then 5 a second
//! if !limiter.check("rider:42").is_admitted() { /* respond with 429 */ }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Limit`] lists the algorithms and how they are written. A limiter is cheap to clone: clones share the state.
//!
//! | to limit | use |
//! |---|---|
//! | each key by one limit | [`Limiter`]: [`check`](Limiter::check), [`check_n`](Limiter::check_n), [`charge`](Limiter::charge), [`peek`](Limiter::peek), [`settle`](Limiter::settle) |
//! | all requests by one limit | [`UnkeyedLimiter`] |
//! | a request by several limits, all or none | [`Gate`] |
//! | how many requests run at once | [`ConcurrencyLimiter`] and its [`Permit`] |
//! | many keys in one call | [`Limiter::check_batch`] |
//! | by numbers that come with each call | [`Throttle`] and [`InlineQuota`] |
//! | async code that waits | `Limiter::until_ready` (feature `tokio`) |
//! | in tests | [`ManualClock`] |
//! | the order of waiting requests, and how many run at once | [`shape`] |
//!
//! Each module of [`algorithm`] has the theory of one algorithm, the most that any window can admit, and the alternatives that
//! were rejected. [`snapshot`] saves state for the next process.
//!
//! # How a request is decided
//!
//! ```text
//! key, cost --> limiter | gate --> table --> algorithm --> Decision
//!               hash, clock       find the    pure step     verdict, status
//!                                 key's word
//! ```
//!
//! Decisions are integer arithmetic. Time is an argument everywhere except in the clocks.
//!
//! # Limits of the library
//!
//! - Each process counts for itself; `tollgate-policy` and `tollgate-redis` share limits between processes.
//! - Keys are not stored, so they cannot be listed: a table keeps 48 bits of a keyed hash and the place.
//! - At most [`MAX_CHARGES`] limits decide one request.
//!
//! # Rates and spans
//!
//! Rates and spans are read from text:
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

mod calendar;
mod clock;
mod cost;
mod decision;
mod gate;
mod key;
mod limit;
mod limiter;
mod permit;
mod rate;
mod raw;
mod sync;
mod table;
mod throttle;
mod time;
#[cfg(feature = "tokio")]
mod until;

pub mod algorithm;
pub mod shape;
pub mod snapshot;

#[doc(inline)]
pub use algorithm::inline_quota::{InlineQuota, InlineQuotaError, OutOfRange, ThrottleResult};
#[doc(inline)]
pub use algorithm::scale::Scale;
#[doc(inline)]
pub use algorithm::{LimitError, Refund};
pub use calendar::{PeriodBounds, Periods};
pub use clock::{Clock, CoarseClock, ManualClock, MonotonicClock};
pub use cost::{Burst, UnitsError};
pub use decision::{Decision, NotAdmitted, Origin, QuotaStatus, Verdict};
pub use gate::{Admission, Gate, LimitCharge, LimitId};
pub use key::{Hashed, Key, KeyHasher, KeySecret, Keyed};
pub use limit::{Algorithm, DEFAULT_MAX_KEYS, Estimate, Limit, ParseLimitError};
pub use limiter::{Limiter, Settled, UnkeyedLimiter};
pub use permit::{ConcurrencyLimiter, Permit};
pub use rate::{Rate, RateError};
pub use table::{KeyOp, KeyOutcome, MAX_CHARGES};
pub use throttle::{PreparedCall, Throttle};
pub use time::{Moment, Span, SpanError};
#[cfg(feature = "tokio")]
pub use until::UntilReady;

/// Compiles the README's example as a doctest.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
