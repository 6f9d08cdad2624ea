//! The adaptive limit that a policy names, guarded: what a queue in front of a backend should use.
//!
//! An enum rather than a trait object: a plain value that can be cloned, printed and sent. What the
//! estimators do is told in their own modules, what is done against their drifts in [`guarded`](super::guarded).
//!
//! This module knows nothing of clocks, threads or requests.

use super::adaptive::{AdaptiveError, Range, Sample};
use super::aimd::Aimd;
use super::gradient2::Gradient2;
use super::guarded::Guarded;
use super::vegas::Vegas;
use crate::policy::{Adaptive, Estimator};

/// A guarded limit that follows what is seen of the backend.
#[derive(Clone, Debug)]
pub enum Learned {
    /// By failures alone.
    Aimd(Guarded<Aimd>),
    /// By latency against the least.
    Vegas(Guarded<Vegas>),
    /// By latency against what is usual.
    Gradient2(Guarded<Gradient2>),
}

/// The limit that `adaptive` describes.
///
/// # Errors
///
/// Unless `1 <= min <= initial <= max` and the timeout is above 0.
pub fn learned(adaptive: &Adaptive) -> Result<Learned, AdaptiveError> {
    Learned::new(adaptive)
}

impl Learned {
    /// The limit that `adaptive` describes.
    ///
    /// # Errors
    ///
    /// Unless `1 <= min <= initial <= max` and the timeout is above 0.
    pub fn new(adaptive: &Adaptive) -> Result<Self, AdaptiveError> {
        let &Adaptive {
            by,
            min,
            max,
            initial,
            timeout,
        } = adaptive;
        let range = Range { min, initial, max }.check()?;
        let timeout_ns = timeout.as_nanos();
        if timeout_ns == 0 {
            return Err(AdaptiveError::ZeroTimeout);
        }
        Ok(match by {
            Estimator::Aimd => {
                let inner = Aimd::builder().min(min).initial(initial).max(max);
                let inner = inner.timeout_ns(timeout_ns).build()?;
                Self::Aimd(Guarded::new(inner, range, timeout_ns))
            }
            Estimator::Vegas => {
                let inner = Vegas::builder().min(min).initial(initial).max(max);
                Self::Vegas(Guarded::new(inner.build()?, range, timeout_ns))
            }
            Estimator::Gradient2 => {
                let inner = Gradient2::builder().min(min).initial(initial).max(max);
                Self::Gradient2(Guarded::new(inner.build()?, range, timeout_ns))
            }
        })
    }

    /// Goes on under another rule. What was learned is kept, as far as the new range allows, if the
    /// estimator is the same; otherwise it starts from the new `initial`.
    ///
    /// # Errors
    ///
    /// As [`Learned::new`]; then nothing changes.
    pub fn change(&mut self, adaptive: &Adaptive) -> Result<(), AdaptiveError> {
        let mut next = Self::new(adaptive)?;
        match (&mut next, &*self) {
            (Self::Aimd(next), Self::Aimd(old)) => next.take_over(old),
            (Self::Vegas(next), Self::Vegas(old)) => next.take_over(old),
            (Self::Gradient2(next), Self::Gradient2(old)) => next.take_over(old),
            _ => {}
        }
        *self = next;
        Ok(())
    }

    /// How many requests may be in flight now: never below `min`, never above `max`.
    pub fn limit(&self) -> u32 {
        match self {
            Self::Aimd(guarded) => guarded.limit(),
            Self::Vegas(guarded) => guarded.limit(),
            Self::Gradient2(guarded) => guarded.limit(),
        }
    }

    /// Learns from one request that finished at `now_ns`, and returns the limit.
    pub fn sample(&mut self, now_ns: u64, sample: Sample) -> u32 {
        match self {
            Self::Aimd(guarded) => guarded.sample(now_ns, sample),
            Self::Vegas(guarded) => guarded.sample(now_ns, sample),
            Self::Gradient2(guarded) => guarded.sample(now_ns, sample),
        }
    }

    /// Lets time pass, best some ten times a second, and returns the limit. `oldest_running_ns` is for
    /// how long the oldest request in flight has been running, 0 if there is none.
    pub fn tick(&mut self, now_ns: u64, oldest_running_ns: u64) -> u32 {
        match self {
            Self::Aimd(guarded) => guarded.tick(now_ns, oldest_running_ns),
            Self::Vegas(guarded) => guarded.tick(now_ns, oldest_running_ns),
            Self::Gradient2(guarded) => guarded.tick(now_ns, oldest_running_ns),
        }
    }
}
