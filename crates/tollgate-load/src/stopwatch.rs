//! The clock of a run: nanoseconds since it was planned, the same for all threads.

use std::time::{Duration, Instant};

/// A clock that every thread of a run targets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts now.
    #[expect(clippy::disallowed_methods, reason = "a load measures real time")]
    pub(crate) fn start() -> Stopwatch {
        Stopwatch(Instant::now())
    }

    /// Nanoseconds since the start; 584 years fit.
    pub(crate) fn nanos(self) -> u64 {
        nanos(self.0.elapsed())
    }

    /// This moment for a timer. A moment out of range becomes one a day away.
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
