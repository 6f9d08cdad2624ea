//! Pacing for calls that go out: waits instead of being refused.
//!
//! # Theory
//!
//! A client that knows the limit of a server waits until it may call; one that does not is told by the
//! responses. [`PaceLayer`] does both. Its own limit, if it has one, is a [`Limiter`] that is asked before
//! each call. And for each destination (scheme, host and port) it remembers what the last responses said:
//!
//! | a response says | and then |
//! |---|---|
//! | 429 or 503 with `Retry-After`, seconds or a date | nothing is sent there until then |
//! | `RateLimit: "name";r=0;t=5` | nothing is sent there for 5 seconds |
//! | `RateLimit: "name";r=4;t=2`, few left | the next ones are sent half a second apart, for 2 seconds |
//! | `X-RateLimit-Remaining: 0` and `X-RateLimit-Reset`, seconds or since 1970, and no `RateLimit` | nothing is sent there until then |
//!
//! Dates are compared with the `Date` of the response, so it does not matter whether the two clocks agree;
//! without it, with the clock of this machine. What cannot be read says nothing.
//!
//! # Bounds
//!
//! No call waits for longer than `max_wait`; one that would is failed at once, with
//! [`PaceError::TooLong`]. No server holds us for longer than `max_hold`, whatever it says. At most 1024
//! destinations are remembered, and only as long as there is something to remember of them.
//!
//! # If the future is dropped
//!
//! Before the call has gone out, what was taken of the own limit is given back. A slot of a leaky bucket that the call
//! waited for stays idle.
//!
//! # What it does not know
//!
//! When to try again: it never repeats a call. Nor in which order waiting calls go: of those that wait for
//! a token bucket, whoever wakes first takes what is there; a leaky bucket gives each its own slot.
//!
//! ```
//! use tollgate::{Limit, Limiter, Span};
//! use tollgate_tower::PaceLayer;
//!
//! // At most ten a second to each host, and never more than the hosts themselves want.
//! let own = Limiter::new(Limit::token_bucket("10/s".parse()?, 10)?)?;
//! let layer = PaceLayer::new(own).with_max_wait(Span::from_secs(5));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod date;
mod future;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod hint;
mod holds;
mod service;

pub use future::PaceFuture;
pub use service::PaceService;

use std::fmt;
use std::sync::Arc;

use http::request::Parts;
use tollgate::{Clock, Limiter, MonotonicClock, Span};
use tower_layer::Layer;

use holds::Holds;

/// Finds whose allowance of the own limit a call takes.
pub type KeyOf = fn(&Parts) -> Option<String>;

/// Paces calls that go out.
#[derive(Clone, Debug)]
pub struct PaceLayer<C = MonotonicClock> {
    settings: Settings<C>,
    holds: Arc<Holds>,
}

#[derive(Clone, Debug)]
pub(crate) struct Settings<C> {
    own: Option<Limiter<C>>,
    clock: C,
    /// For dates, if a response does not tell the time itself.
    wall: MonotonicClock,
    key: Option<KeyOf>,
    max_wait: Span,
    max_hold: Span,
}

impl PaceLayer {
    /// No limit of its own: only what servers say.
    pub fn obeying() -> PaceLayer {
        PaceLayer::made_of(None, MonotonicClock::new())
    }
}

impl<C: Clock> PaceLayer<C> {
    /// This limit, for each destination by itself, and what servers say.
    pub fn new(own: Limiter<C>) -> PaceLayer<C> {
        let clock = own.clock().clone();
        PaceLayer::made_of(Some(own), clock)
    }

    fn made_of(own: Option<Limiter<C>>, clock: C) -> PaceLayer<C> {
        PaceLayer {
            settings: Settings {
                own,
                clock,
                wall: MonotonicClock::since_1970(),
                key: None,
                max_wait: Span::from_secs(30),
                max_hold: Span::from_secs(60),
            },
            holds: Arc::default(),
        }
    }

    /// Finds the key of the own limit with this function; the destination if it finds none.
    #[must_use]
    pub fn with_key(mut self, key: KeyOf) -> PaceLayer<C> {
        self.settings.key = Some(key);
        self
    }

    /// No call waits for longer. 30 seconds without it.
    #[must_use]
    pub fn with_max_wait(mut self, wait: Span) -> PaceLayer<C> {
        self.settings.max_wait = wait;
        self
    }

    /// No server holds us for longer. 60 seconds without it.
    #[must_use]
    pub fn with_max_hold(mut self, hold: Span) -> PaceLayer<C> {
        self.settings.max_hold = hold;
        self
    }
}

impl<S, C: Clock> Layer<S> for PaceLayer<C> {
    type Service = PaceService<S, C>;

    fn layer(&self, inner: S) -> PaceService<S, C> {
        PaceService::new(inner, self.settings.clone(), Arc::clone(&self.holds))
    }
}

/// Why a call has no response.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PaceError<E> {
    /// It would have waited for too long, and was not sent.
    TooLong {
        /// Where it was to go.
        destination: String,
        /// How long it would have had to wait, from now on.
        wait: Span,
        /// How long a call waits at the most.
        max_wait: Span,
    },
    /// The service failed.
    Inner(E),
}

impl<E: fmt::Display> fmt::Display for PaceError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong {
                destination,
                wait,
                max_wait,
            } => write!(
                f,
                "the next call to {destination} may go in {wait}, and calls wait for {max_wait} at the most; try again then, or raise max_wait"
            ),
            Self::Inner(error) => error.fmt(f),
        }
    }
}

impl<E: std::error::Error + 'static> std::error::Error for PaceError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::TooLong { .. } => None,
            Self::Inner(error) => Some(error),
        }
    }
}
