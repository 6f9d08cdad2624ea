//! A clock that is set by hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::Clock;
use crate::time::{Moment, Span};

/// A clock for tests and simulations: it moves when you move it, in either direction.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{ManualClock, Clock, Moment};
/// let clock = ManualClock::new();
/// clock.advance(Duration::from_secs(3));
/// assert_eq!(clock.now(), Moment::from_nanos(3_000_000_000));
/// ```
#[derive(Clone, Debug, Default)]
pub struct ManualClock {
    // Relaxed throughout: the moment is the whole message, nothing is published through it.
    now: Arc<AtomicU64>,
}

impl ManualClock {
    /// A clock at its origin.
    pub fn new() -> ManualClock {
        ManualClock::default()
    }

    /// Moves on by `span`; stops at the end of the clock.
    pub fn advance(&self, span: impl Into<Span>) {
        let ns = self
            .now
            .load(Relaxed)
            .saturating_add(span.into().as_nanos());
        self.now.store(ns, Relaxed);
    }

    /// Shows `now`, be it earlier or later.
    pub fn set(&self, now: Moment) {
        self.now.store(now.as_nanos(), Relaxed);
    }
}

impl Clock for ManualClock {
    #[inline]
    fn now(&self) -> Moment {
        Moment::from_nanos(self.now.load(Relaxed))
    }
}
