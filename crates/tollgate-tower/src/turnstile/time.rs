//! The runtime's clock as the core's, so that both can be stopped and moved in a test.

use std::time::Duration;

use tokio::time::Instant;
use tollgate::{Clock, Moment};

/// The longest that anything sleeps in one go: whoever wakes too early looks again.
const LONGEST_SLEEP: Duration = Duration::from_secs(3600);

/// The runtime's clock, counted from when it was made.
#[derive(Clone, Copy, Debug)]
pub(super) struct RuntimeClock {
    origin: Instant,
}

impl RuntimeClock {
    pub(super) fn new() -> RuntimeClock {
        RuntimeClock {
            origin: Instant::now(),
        }
    }

    /// When to wake for `moment`, at the latest.
    pub(super) fn wake_at(self, moment: Moment) -> Instant {
        let sleep = Duration::from(moment.since(self.now())).min(LONGEST_SLEEP);
        Instant::now() + sleep
    }
}

impl Clock for RuntimeClock {
    fn now(&self) -> Moment {
        let since = Instant::now().saturating_duration_since(self.origin);
        Moment::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }
}
