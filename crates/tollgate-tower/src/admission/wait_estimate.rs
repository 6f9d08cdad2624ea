//! An estimate of how long the queue takes to empty, for `Retry-After`.
//!
//! # Theory
//!
//! While requests wait, the gap between two dispatches is the price of one place in the queue. The estimate is the
//! moving average of that gap over about 16 dispatches, times the number of waiting requests. If the queue has stalled,
//! the length of the stall is added, because its end is unknown.
//!
//! # Limits
//!
//! - The backend may become faster or slower, and a retried request may be overtaken by flows with a larger share.
//! - All flows are assumed to move equally fast. With a concurrency limit per flow they do not: requests that bypass
//!   waiters of a limited flow are not counted. If a limited flow waits among faster ones, its estimate is too short
//!   (the retry may be rejected again) and that of the others is too long.

use tollgate::{Moment, Span};

/// Weight of a new gap: one part in `2^4`.
const SMOOTHING_SHIFT: u32 = 4;

/// Moving average of the gaps between dispatches.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WaitEstimate {
    last_dispatch: Option<Moment>,
    /// The average gap while requests waited, in nanoseconds.
    gap_ns: Option<u64>,
}

impl WaitEstimate {
    /// Records the dispatch at `now` of a request that arrived at `arrived`.
    pub(super) fn record(&mut self, now: Moment, arrived: Moment) {
        if let Some(last) = self.last_dispatch
            && arrived <= last
        {
            let gap = now.since(last).as_nanos();
            self.gap_ns = Some(match self.gap_ns {
                None => gap,
                Some(average) if gap > average => {
                    average.saturating_add((gap - average) >> SMOOTHING_SHIFT)
                }
                // Rounded up, so that the average can reach the gap.
                Some(average) => average - (average - gap).div_ceil(1 << SMOOTHING_SHIFT),
            });
        }
        self.last_dispatch = Some(now);
    }

    /// How long until `queued` requests are dispatched, the oldest of which arrived at `since`. `None` before any
    /// request has waited.
    pub(super) fn time_to_drain(&self, now: Moment, queued: usize, since: Moment) -> Option<Span> {
        let gap = u128::from(self.gap_ns?);
        let dispatches = u128::try_from(queued).unwrap_or(u128::MAX);
        let stalled = now.since(self.last_dispatch?.max(since)).as_nanos();
        let ns = gap
            .saturating_mul(dispatches)
            .saturating_add(stalled.into());
        Some(Span::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Moment {
        Moment::ORIGIN.plus(Span::from_millis(ms))
    }

    #[test]
    fn estimate_follows_the_gaps_while_requests_wait_and_adds_a_stall() {
        let mut estimate = WaitEstimate::default();
        assert_eq!(estimate.time_to_drain(ms(0), 5, ms(0)), None);
        estimate.record(ms(0), ms(0));
        for dispatch in 1..=100 {
            estimate.record(ms(dispatch * 10), ms(0));
        }
        let until = estimate.time_to_drain(ms(1000), 7, ms(0));
        assert_eq!(until, Some(Span::from_millis(70)));
        let until = estimate.time_to_drain(ms(1500), 7, ms(0));
        assert_eq!(until, Some(Span::from_millis(570)));
        let until = estimate.time_to_drain(ms(9000), 7, ms(8998));
        assert_eq!(until, Some(Span::from_millis(72)));
        // A pause in which the queue was empty changes nothing.
        estimate.record(ms(60_000), ms(60_000));
        let until = estimate.time_to_drain(ms(60_000), 7, ms(60_000));
        assert_eq!(until, Some(Span::from_millis(70)));
        for dispatch in 1..=300 {
            estimate.record(ms(60_000 + dispatch), ms(60_000));
        }
        let until = estimate.time_to_drain(ms(60_300), 10, ms(60_000)).unwrap();
        assert_eq!(until, Span::from_millis(10));
    }
}
