//! The schedule of a connection: it sends at once (closed loop), or at fixed moments (open loop).
//!
//! # Theory
//!
//! In a closed loop the next request waits for a response, so a server that stalls gets fewer requests while it stalls, and the
//! stall counts once instead of once per request: *coordinated omission*. In an open loop requests are due by the clock alone. A
//! request that cannot be sent in time, because too many are in flight, counts from when it was due.
//!
//! Timers wake to the millisecond. A request that is late by no more than that, on a connection that had room, is late because of
//! this tool; it counts from when it was sent.

use tollgate::Rate;

/// How late a timer may be.
const TIMER_SLACK: u64 = 2_000_000;

/// When one of several connections may send.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    pub(crate) begin: u64,
    /// Requests that begin earlier are the warm-up.
    pub(crate) warm_until: u64,
    /// No request is sent from here on; `u64::MAX` if only the number ends the run.
    pub(crate) stop: u64,
    /// Requests after the warm-up; `u64::MAX` if only the time ends the run.
    pub(crate) quota: u64,
    pub(crate) rate: Option<Rate>,
    /// The number of this connection and the number of connections: they take turns.
    pub(crate) connection: u64,
    pub(crate) connections: u64,
    pub(crate) sent: u64,
    /// Requests sent after the warm-up.
    pub(crate) measured: u64,
    /// The next request could not be sent when it was due.
    pub(crate) is_delayed: bool,
}

impl Schedule {
    /// Whether the connection is done.
    pub(crate) fn is_over(&self, now: u64) -> bool {
        now >= self.stop || self.measured >= self.quota
    }

    /// When the next request is due; `None` in a closed loop.
    pub(crate) fn due(&self) -> Option<u64> {
        let rate = self.rate?;
        let turn =
            u128::from(self.sent) * u128::from(self.connections) + u128::from(self.connection);
        let wait = turn * u128::from(rate.per().as_nanos()) / u128::from(rate.units());
        let wait = u64::try_from(wait).unwrap_or(u64::MAX);
        Some(self.begin.saturating_add(wait))
    }

    /// When the time of a request that is sent now starts.
    pub(crate) fn start(&self, now: u64) -> u64 {
        match self.due() {
            Some(due) if self.is_delayed || now.saturating_sub(due) > TIMER_SLACK => due,
            _ => now,
        }
    }

    /// Records a request whose time starts at `start`.
    pub(crate) fn record_sent(&mut self, start: u64) {
        self.sent += 1;
        if start >= self.warm_until {
            self.measured += 1;
        }
    }

    /// Requests that were due before the end and never sent.
    pub(crate) fn unsent(&self, now: u64) -> u64 {
        let Some(rate) = self.rate else {
            return 0;
        };
        let ended = self.stop.min(now).saturating_sub(self.begin);
        if self.measured >= self.quota || ended == 0 {
            return 0;
        }
        // All turns before the end, less those of other connections.
        let turns = u128::from(ended) * u128::from(rate.units());
        let turns = turns.div_ceil(u128::from(rate.per().as_nanos()));
        let mine =
            (turns + u128::from(self.connections) - 1).saturating_sub(u128::from(self.connection));
        let mine = u64::try_from(mine / u128::from(self.connections.max(1))).unwrap_or(u64::MAX);
        mine.saturating_sub(self.sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(rate: Option<&str>, connection: u64, connections: u64) -> Schedule {
        Schedule {
            begin: 1000,
            warm_until: 0,
            stop: 1_000_001_000,
            quota: u64::MAX,
            rate: rate.map(|rate| rate.parse().unwrap()),
            connection,
            connections,
            sent: 0,
            measured: 0,
            is_delayed: false,
        }
    }

    #[test]
    fn connections_take_turns_and_keep_the_rate_exactly() {
        let mut dues = Vec::new();
        for connection in 0..3 {
            let mut schedule = schedule(Some("7/s"), connection, 3);
            while schedule.due().unwrap() < schedule.stop {
                dues.push(schedule.due().unwrap());
                schedule.record_sent(0);
            }
            assert_eq!(schedule.unsent(u64::MAX), 0);
        }
        dues.sort_unstable();
        let exact: Vec<u64> = (0..7).map(|n| 1000 + n * 1_000_000_000 / 7).collect();
        assert_eq!(dues, exact);
    }

    #[test]
    fn a_delayed_request_counts_from_when_it_was_due() {
        let mut schedule = schedule(Some("1000/s"), 0, 1);
        schedule.record_sent(0);
        let due = 1_001_000;
        assert_eq!(schedule.start(due + 900), due + 900);
        assert_eq!(schedule.start(due + 3_000_000), due);
        schedule.is_delayed = true;
        assert_eq!(schedule.start(due + 900), due);
    }

    #[test]
    fn requests_never_sent_are_counted() {
        let total: u64 = (0..4)
            .map(|connection| schedule(Some("1000/s"), connection, 4).unsent(u64::MAX))
            .sum();
        assert_eq!(total, 1000);
        let half: u64 = (0..4)
            .map(|connection| schedule(Some("1000/s"), connection, 4).unsent(500_001_000))
            .sum();
        assert_eq!(half, 500);
        assert_eq!(schedule(None, 0, 1).unsent(u64::MAX), 0);
    }

    #[test]
    fn the_warm_up_does_not_count_towards_the_quota() {
        let mut schedule = schedule(None, 0, 1);
        (schedule.warm_until, schedule.quota) = (2000, 2);
        [1500, 1600, 2000]
            .iter()
            .for_each(|start| schedule.record_sent(*start));
        assert!(!schedule.is_over(2001));
        schedule.record_sent(2001);
        assert!(schedule.is_over(2002));
    }
}
