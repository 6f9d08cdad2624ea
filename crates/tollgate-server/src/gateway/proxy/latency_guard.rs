//! Measures the latency of a server, also if the client abandons the request.
//!
//! Otherwise clients that give up on a hanging server would leave no trace: their requests end neither answered nor failed,
//! and the server looks fast just when it is not.
//!
//! The time counts from the last part of the request: what a client takes to send its body is not the time of the server.
//! Known is when a part is handed over; it may stay in a buffer for a while.

use std::time::Duration;

use tokio::time::Instant;

use super::body::Progress;
use super::upstream::UpstreamStats;

/// A request that a server has.
#[derive(Debug)]
pub(super) struct LatencyGuard<'r> {
    observed: &'r UpstreamStats,
    start: Instant,
    progress: Option<&'r Progress>,
    is_finished: bool,
}

impl<'r> LatencyGuard<'r> {
    pub(super) fn new(
        observed: &'r UpstreamStats,
        start: Instant,
        progress: Option<&'r Progress>,
    ) -> LatencyGuard<'r> {
        LatencyGuard {
            observed,
            start,
            progress,
            is_finished: false,
        }
    }

    /// The request was answered or failed. Returns its latency.
    pub(super) fn finish(mut self) -> Duration {
        self.is_finished = true;
        self.latency()
    }

    fn latency(&self) -> Duration {
        let all = self.start.elapsed();
        self.progress
            .map_or(all, |progress| progress.since_last().min(all))
    }
}

impl Drop for LatencyGuard<'_> {
    fn drop(&mut self) {
        // While a part of the body is missing, the server waits for the client.
        if !self.is_finished && self.progress.is_none_or(Progress::is_whole) {
            self.observed.record_abandoned(self.latency());
        }
    }
}
