//! Clocks. This is the only module that reads one; all others get a [`Moment`].
//!
//! | clock | late by | cost | for |
//! |---|---|---|---|
//! | [`MonotonicClock`] | nothing | one or two dozen ns | the default |
//! | [`CoarseClock`] | one tick (1 ms) and what its thread is kept waiting | a load | millions of charges a second |
//! | [`ManualClock`] | as set | a load | tests and simulations |

mod coarse;
mod manual;
mod monotonic;

pub use coarse::CoarseClock;
pub use manual::ManualClock;
pub use monotonic::MonotonicClock;

use crate::time::Moment;

/// A source of moments. Cheap to clone: clones report the same time.
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
    /// The current moment, as cheaply as possible. May be slightly late, never early.
    fn now(&self) -> Moment;

    /// The current moment, read after everything that this thread has seen: no moment that another thread used
    /// before it released a lock is later. Used only when a key is added or a charge is refunded.
    fn fresh(&self) -> Moment {
        self.now()
    }
}
