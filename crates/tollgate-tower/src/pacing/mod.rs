//! The pacing layer: a client that waits instead of being refused.
//!
//! # Theory
//!
//! [`PacingLayer`] paces outgoing calls by two sources. Its own limit, if it has one, is a [`Limiter`] that each call is
//! charged to. And for each destination (scheme, host and port) it applies the hints of the last responses:
//!
//! | a response contains | effect |
//! |---|---|
//! | 429 or 503 with `Retry-After`, seconds or a date | no calls until then |
//! | `RateLimit: "name";r=0;t=5` | no calls for 5 seconds |
//! | `RateLimit: "name";r=4;t=2`, at most 10 left | the next calls are half a second apart, for 2 seconds |
//! | `X-RateLimit-Remaining: 0` and `X-RateLimit-Reset`, seconds or since 1970, and no `RateLimit` | no calls until then |
//!
//! Dates are compared with the `Date` of the response, so the two clocks need not agree; without it, with the local clock.
//! Malformed fields are ignored.
//!
//! # Bounds
//!
//! | bound | default |
//! |---|---|
//! | wait of a call (`max_wait`); beyond it the call fails at once with [`PacingError::MaxWait`] | 30 s |
//! | backoff that a server can ask for (`max_backoff`) | 60 s |
//! | destinations, each only while it backs off | 1024 |
//!
//! # If the future is dropped
//!
//! Before the call was sent, its own limit is refunded. A slot of a leaky bucket that the call waited for stays idle.
//!
//! # Limits
//!
//! It never repeats a call. Calls that wait for a token bucket go in no order; a leaky bucket gives each its own slot.
//!
//! ```
//! use std::time::Duration;
//! use tollgate::Limiter;
//! use tollgate_tower::PacingLayer;
//!
//! // At most ten a second to each host, and never more than the hosts themselves allow.
//! let own = Limiter::new("10/s".parse()?)?;
//! let layer = PacingLayer::new(own).with_max_wait(Duration::from_secs(5));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod backoffs;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod hint;
mod service;

pub use service::PacingService;

use std::fmt;
use std::sync::Arc;

use http::request::Parts;
use tollgate::{Clock, Limiter, MonotonicClock, Span};
use tower_layer::Layer;

use backoffs::Backoffs;

/// Finds the key of a call in the own limit.
pub type CallKeyFn = fn(&Parts) -> Option<String>;

/// Paces outgoing calls.
#[derive(Clone, Debug)]
#[must_use = "a layer does nothing until it is applied to a service"]
pub struct PacingLayer<C = MonotonicClock> {
    pacer: Pacer<C>,
}

/// The state and settings that all calls of a layer share.
#[derive(Clone, Debug)]
struct Pacer<C> {
    own: Option<Limiter<C>>,
    clock: C,
    /// For responses without a `Date`.
    wall: MonotonicClock,
    key: Option<CallKeyFn>,
    max_wait: Span,
    max_backoff: Span,
    backoffs: Arc<Backoffs>,
}

impl PacingLayer {
    /// Without a limit of its own: only the hints of servers.
    pub fn server_hints_only() -> PacingLayer {
        PacingLayer::with_limit(None, MonotonicClock::new())
    }
}

impl<C: Clock> PacingLayer<C> {
    /// This limit for each destination, and the hints of servers.
    pub fn new(own: Limiter<C>) -> PacingLayer<C> {
        let clock = own.clock().clone();
        PacingLayer::with_limit(Some(own), clock)
    }

    fn with_limit(own: Option<Limiter<C>>, clock: C) -> PacingLayer<C> {
        PacingLayer {
            pacer: Pacer {
                own,
                clock,
                wall: MonotonicClock::with_unix_time(),
                key: None,
                max_wait: Span::from_secs(30),
                max_backoff: Span::from_secs(60),
                backoffs: Arc::default(),
            },
        }
    }

    /// Finds the key of a call in the own limit. Without a key it is the destination.
    pub fn with_key(mut self, key: CallKeyFn) -> PacingLayer<C> {
        self.pacer.key = Some(key);
        self
    }

    /// The longest wait of a call. The default is 30 seconds.
    pub fn with_max_wait(mut self, wait: impl Into<Span>) -> PacingLayer<C> {
        self.pacer.max_wait = wait.into();
        self
    }

    /// The longest backoff that a server can ask for. The default is 60 seconds.
    pub fn with_max_backoff(mut self, backoff: impl Into<Span>) -> PacingLayer<C> {
        self.pacer.max_backoff = backoff.into();
        self
    }
}

impl<S, C: Clock> Layer<S> for PacingLayer<C> {
    type Service = PacingService<S, C>;

    fn layer(&self, inner: S) -> PacingService<S, C> {
        PacingService::new(inner, Arc::new(self.pacer.clone()))
    }
}

/// A call without a response.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PacingError<E> {
    /// The call would have waited for too long, and was not sent.
    MaxWait {
        /// Its destination.
        destination: String,
        /// How long it would have had to wait, from now on.
        wait: Span,
        /// The longest wait of a call.
        max_wait: Span,
    },
    /// The inner service failed.
    Inner(E),
}

impl<E: fmt::Display> fmt::Display for PacingError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MaxWait {
                destination,
                wait,
                max_wait,
            } => write!(
                f,
                "the next call to {destination} may go in {wait}, above the max_wait of {max_wait}; retry then, or raise max_wait"
            ),
            Self::Inner(error) => error.fmt(f),
        }
    }
}

impl<E: std::error::Error + 'static> std::error::Error for PacingError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::MaxWait { .. } => None,
            Self::Inner(error) => Some(error),
        }
    }
}
