//! The one place that reads the clock: nanoseconds since the run was planned, the same for all threads.

use std::time::{Duration, Instant};

/// A clock that every thread of a run shares.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch(Instant);

impl Watch {
    /// Counts from now on.
    #[expect(
        clippy::disallowed_methods,
        reason = "what is measured here is real time"
    )]
    pub(crate) fn start() -> Watch {
        Watch(Instant::now())
    }

    /// Nanoseconds so far; 584 years fit.
    pub(crate) fn nanos(self) -> u64 {
        nanos(self.0.elapsed())
    }

    /// That moment, for a timer; a moment that no clock reaches is a day away, and looked at again then.
    pub(crate) fn moment(self, at: u64) -> tokio::time::Instant {
        const DAY: Duration = Duration::from_secs(86_400);
        let far = self.0 + self.0.elapsed() + DAY;
        let wanted = self.0.checked_add(Duration::from_nanos(at)).unwrap_or(far);
        tokio::time::Instant::from_std(wanted.min(far))
    }
}

/// A duration in whole nanoseconds.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
