//! A clock that one thread reads for all others: it reads the time a thousand times a second, and other threads
//! load the result.
//!
//! # What lateness does
//!
//! The clock shows the time of the last tick, so it is late by at most one tick and however long the system keeps
//! the ticking thread from running ([`CoarseClock::worst_lateness`] reports the longest seen). It is never early.
//! Late time refills late, so over any stretch of *this* clock's time no limit admits more than promised; seen
//! with an exact clock, a window of length `w` may be found to hold what `w + lateness` allows: a bucket of `C`
//! and `r` a second admits at most `C + r * (w + lateness)`. At a lateness of 1 ms that is a whole unit only from
//! 1000 a second on.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::{Clock, MonotonicClock};
use crate::time::{Moment, Span};

/// How often the time is looked at.
const TICK: Duration = Duration::from_millis(1);

/// A cheap clock, late by at most a tick. The ticking thread ends when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct CoarseClock {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    exact: MonotonicClock,
    // Relaxed: the moment is the whole message. That a thread which takes a lock sees no earlier
    // moment than the one who let go of it had seen follows from coherence: reads of one atomic
    // that are ordered by the lock never go back.
    now: AtomicU64,
    worst: AtomicU64,
}

impl CoarseClock {
    /// Starts the ticking thread.
    ///
    /// # Errors
    /// The system would not start a thread.
    pub fn new() -> std::io::Result<CoarseClock> {
        let exact = MonotonicClock::new();
        let shared = Arc::new(Shared {
            now: AtomicU64::new(exact.now().as_nanos()),
            exact,
            worst: AtomicU64::new(0),
        });
        let for_thread = Arc::downgrade(&shared);
        std::thread::Builder::new()
            .name("tollgate-clock".into())
            .spawn(move || tick(&for_thread))?;
        Ok(CoarseClock { shared })
    }

    /// The longest that the clock was ever late.
    pub fn worst_lateness(&self) -> Span {
        Span::from_nanos(self.shared.worst.load(Relaxed))
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "this is the module that reads time"
)]
fn tick(shared: &Weak<Shared>) {
    while let Some(shared) = shared.upgrade() {
        let now = shared.exact.now().as_nanos();
        let before = shared.now.load(Relaxed);
        shared.worst.fetch_max(now.saturating_sub(before), Relaxed);
        shared.now.store(now.max(before), Relaxed);
        drop(shared);
        std::thread::sleep(TICK);
    }
}

impl Clock for CoarseClock {
    #[inline]
    fn now(&self) -> Moment {
        Moment::from_nanos(self.shared.now.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_never_early_and_late_only_by_what_it_says() {
        let clock = CoarseClock::new().unwrap();
        let mut latest = 0;
        loop {
            let before = clock.shared.exact.fresh().as_nanos();
            let reading = clock.now().as_nanos();
            let exact = clock.shared.exact.fresh().as_nanos();
            assert!(reading <= exact, "early");
            // By the reading before it: what passes after it is this thread's own lateness.
            latest = latest.max(before.saturating_sub(reading));
            if exact > if cfg!(miri) { 1_000_000 } else { 50_000_000 } {
                break;
            }
        }
        // The lateness that was just seen is known to the clock after its next tick.
        while !cfg!(miri) && clock.worst_lateness().as_nanos() < latest {
            std::thread::yield_now();
        }
    }
}
