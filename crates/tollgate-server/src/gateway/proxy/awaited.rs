//! How long an answer is waited for, also if nobody waits to its end.
//!
//! Clients who lose patience with a server that hangs would leave no trace otherwise: their requests end
//! neither answered nor failed, and the server would look well just when it is not.
//!
//! The time is counted from the request's last part on. What a client takes to send its body is no fault of
//! the server. When a part is handed on is what is known; it may lie in a buffer for a while.

use std::time::Duration;

use tokio::time::Instant;

use super::body::Progress;
use super::upstream::Observed;

/// A request that a server has.
#[derive(Debug)]
pub(super) struct Awaited<'r> {
    observed: &'r Observed,
    began: Instant,
    progress: Option<&'r Progress>,
    is_over: bool,
}

impl<'r> Awaited<'r> {
    pub(super) fn new(
        observed: &'r Observed,
        began: Instant,
        progress: Option<&'r Progress>,
    ) -> Awaited<'r> {
        Awaited {
            observed,
            began,
            progress,
            is_over: false,
        }
    }

    /// It was answered, or failed. How long did that take?
    pub(super) fn over(mut self) -> Duration {
        self.is_over = true;
        self.took()
    }

    fn took(&self) -> Duration {
        let all = self.began.elapsed();
        self.progress
            .map_or(all, |progress| progress.since_last().min(all))
    }
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        // With a part still to come it is the server who waits.
        if !self.is_over && self.progress.is_none_or(Progress::is_whole) {
            self.observed.given_up(self.took());
        }
    }
}
