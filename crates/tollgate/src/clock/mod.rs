//! Where time comes from. The only module that reads a clock; everyone else gets a [`Moment`].
//!
//! | clock | late by | cost | for |
//! |---|---|---|---|
//! | [`MonotonicClock`] | nothing | one or two dozen ns | the default |
//! | [`CoarseClock`] | one tick (1 ms) and what its thread is kept waiting | a load | millions of charges a second |
//! | [`ManualClock`] | as you please | a load | tests and simulations |

mod coarse;
mod manual;
mod monotonic;

pub use coarse::CoarseClock;
pub use manual::ManualClock;
pub use monotonic::MonotonicClock;

use crate::time::Moment;

/// A source of moments. Cheap to clone: clones tell the same time.
///
/// ```
/// use tollgate::{Clock, Limiter, Moment};
///
/// /// The time of tokio, which a test can pause.
/// #[derive(Clone)]
/// struct TokioClock(tokio::time::Instant);
///
/// impl Clock for TokioClock {
///     fn now(&self) -> Moment {
///         Moment::ORIGIN.plus(self.0.elapsed().into())
///     }
/// }
///
/// let clock = TokioClock(tokio::time::Instant::now());
/// let limiter = Limiter::with_clock("5/s".parse()?, clock)?;
/// assert!(limiter.check("a").is_admitted());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Clock: Clone + Send + Sync + 'static {
    /// Now, as cheaply as this clock can tell. May be a little late, never early.
    fn now(&self) -> Moment;

    /// Now, read no earlier than everything that this thread has seen before: no moment that another
    /// thread acted on before it let go of a lock is later. Asked for only when a key is added or
    /// something is given back.
    fn fresh(&self) -> Moment {
        self.now()
    }
}
