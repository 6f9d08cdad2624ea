//! Bounds the events of a connection that cost the server more than the client.
//!
//! A stream that is opened and reset, a malformed header list, an empty data frame: each is legal, costs the server more
//! than the client, and is rare among well-behaved clients. They share one budget, and a connection that exceeds it
//! is closed. Pings and completed calls cost both sides the same and are not counted: a client that sends them
//! without reading the responses is not read from.

use tokio::time::{Duration, Instant};

/// Events per interval.
const COUNT: u32 = 1_000;
const INTERVAL: Duration = Duration::from_secs(10);

/// The budget of one connection.
#[derive(Debug, Default)]
pub(crate) struct AbuseBudget {
    since: Option<Instant>,
    count: u32,
}

impl AbuseBudget {
    /// Counts one event. Returns false if the budget is exhausted.
    pub(crate) fn spend(&mut self, now: Instant) -> bool {
        if self.since.is_none_or(|since| now - since >= INTERVAL) {
            self.since = Some(now);
            self.count = 0;
        }
        self.count += 1;
        self.count <= COUNT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thousand_events_fit_an_interval_and_no_more() {
        let mut budget = AbuseBudget::default();
        let now = Instant::now();
        assert!((0..COUNT).all(|_| budget.spend(now)));
        assert!(!budget.spend(now + INTERVAL / 2));
        assert!(budget.spend(now + INTERVAL));
    }
}
