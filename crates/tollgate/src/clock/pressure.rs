//! A clock that can be slowed down: the handle by which pressure scales every limit that uses it.

use std::sync::atomic::{AtomicU64, Ordering::*, fence};
use std::sync::{Arc, Mutex, PoisonError};

use super::Clock;
use crate::algorithm::pressure::{Scale, VirtualClock};
use crate::time::{Moment, Span};

/// A clock that runs at a fraction of another one's speed; see [`crate::algorithm::pressure`].
///
/// ```
/// use tollgate::{Limit, Limiter, ManualClock, PressureClock, Scale, Span};
/// let time = ManualClock::new();
/// let pressure = PressureClock::over(time.clone());
/// let limiter = Limiter::with_clock(Limit::token_bucket("10/s".parse()?, 1)?, pressure.clone())?;
/// assert!(limiter.check("a").is_admitted());
/// pressure.set_scale(Scale::from_q16(65_536 / 2)); // half of every rate from now on
/// time.advance(Span::from_millis(100));
/// let refused = limiter.check("a");
/// assert_eq!(refused.wait(), Some(Span::from_millis(100))); // in real time
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct PressureClock<C> {
    below: C,
    shared: Arc<Shared>,
}

/// The virtual clock, readable without a lock: a sequence lock, as in the monotonic clock. Whoever
/// changes it holds the mutex.
#[derive(Debug)]
struct Shared {
    changing: Mutex<VirtualClock>,
    version: AtomicU64,
    words: [AtomicU64; 4],
}

impl<C: Clock> PressureClock<C> {
    /// A clock over `below`, at full speed.
    pub fn over(below: C) -> PressureClock<C> {
        let clock = VirtualClock::new();
        PressureClock {
            below,
            shared: Arc::new(Shared {
                changing: Mutex::new(clock),
                version: AtomicU64::new(0),
                words: clock.to_words().map(AtomicU64::new),
            }),
        }
    }

    /// Runs at another speed from now on.
    pub fn set_scale(&self, scale: Scale) {
        let mut clock = self
            .shared
            .changing
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        clock.set(self.below.fresh(), scale);
        let version = self.shared.version.load(Relaxed);
        self.shared.version.store(version.wrapping_add(1), Relaxed);
        // The odd version is seen before any of the words.
        fence(Release);
        for (cell, word) in self.shared.words.iter().zip(clock.to_words()) {
            cell.store(word, Relaxed);
        }
        self.shared.version.store(version.wrapping_add(2), Release);
    }

    /// The speed in force.
    pub fn scale(&self) -> Scale {
        self.read().scale()
    }

    #[inline]
    fn read(&self) -> VirtualClock {
        loop {
            let before = self.shared.version.load(Acquire);
            let words = self.shared.words.each_ref().map(|w| w.load(Relaxed));
            fence(Acquire);
            if before & 1 == 0 && self.shared.version.load(Relaxed) == before {
                return VirtualClock::from_words(words);
            }
            std::hint::spin_loop();
        }
    }
}

impl<C: Clock> Clock for PressureClock<C> {
    #[inline]
    fn now(&self) -> Moment {
        self.read().at(self.below.now())
    }

    #[inline]
    fn fresh(&self) -> Moment {
        self.read().at(self.below.fresh())
    }

    /// From the real now: `now` is virtual and its real moment is not kept.
    fn real(&self, now: Moment, span: Span) -> Span {
        let clock = self.read();
        let real_now = self.below.now();
        // What has passed since the decision is not to be waited for again.
        let gone = clock.at(real_now).since(now);
        let left = Span::from_nanos(span.as_nanos().saturating_sub(gone.as_nanos()));
        clock.real(real_now, left)
    }
}
