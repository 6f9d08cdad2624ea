//! When a connection may ask: at once (closed loop), or at moments fixed beforehand (open loop), until it is enough.
//!
//! # Theory
//!
//! In a closed loop the next request waits for an answer, so a server that stalls is asked less while it stalls, and the
//! stall counts once however many would have met it: *coordinated omission*. In an open loop requests are due by the
//! clock alone. One that cannot be sent in time, because as many as may be under way are, counts from when it was due.
//!
//! Timers wake to the millisecond. A request that is late by no more than that, on a connection that had room, is late
//! because of this tool; it counts from when it was sent.

use tollgate::Rate;

/// How late a timer may be.
const TIMER_SLACK: u64 = 2_000_000;

/// When one of several connections may ask.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    pub(crate) begin: u64,
    /// Requests that begin earlier are the warm-up.
    pub(crate) warm_until: u64,
    /// Nothing is asked from here on; `u64::MAX` if only the number counts.
    pub(crate) stop: u64,
    /// Requests after the warm-up; `u64::MAX` if only the time counts.
    pub(crate) quota: u64,
    pub(crate) rate: Option<Rate>,
    /// This connection and how many there are: they take turns.
    pub(crate) lane: u64,
    pub(crate) lanes: u64,
    pub(crate) asked: u64,
    /// Those of them after the warm-up.
    pub(crate) counted: u64,
    /// The next request could not be sent when it was due.
    pub(crate) is_held_back: bool,
}

impl Pace {
    /// Is it enough?
    pub(crate) fn is_over(&self, now: u64) -> bool {
        now >= self.stop || self.counted >= self.quota
    }

    /// When the next request is due; `None` in a closed loop.
    pub(crate) fn due(&self) -> Option<u64> {
        let rate = self.rate?;
        let turn = u128::from(self.asked) * u128::from(self.lanes) + u128::from(self.lane);
        let wait = turn * u128::from(rate.per().as_nanos()) / u128::from(rate.units());
        let wait = u64::try_from(wait).unwrap_or(u64::MAX);
        Some(self.begin.saturating_add(wait))
    }

    /// From when a request that is sent now counts.
    pub(crate) fn start(&self, now: u64) -> u64 {
        match self.due() {
            Some(due) if self.is_held_back || now.saturating_sub(due) > TIMER_SLACK => due,
            _ => now,
        }
    }

    /// One was asked that counts from `start`.
    pub(crate) fn note(&mut self, start: u64) {
        self.asked += 1;
        if start >= self.warm_until {
            self.counted += 1;
        }
    }

    /// Requests that were due before the end and never sent.
    pub(crate) fn unsent(&self, now: u64) -> u64 {
        let Some(rate) = self.rate else {
            return 0;
        };
        let ended = self.stop.min(now).saturating_sub(self.begin);
        if self.counted >= self.quota || ended == 0 {
            return 0;
        }
        // All turns that began before the end, less those of other lanes.
        let turns = u128::from(ended) * u128::from(rate.units());
        let turns = turns.div_ceil(u128::from(rate.per().as_nanos()));
        let mine = (turns + u128::from(self.lanes) - 1).saturating_sub(u128::from(self.lane));
        let mine = u64::try_from(mine / u128::from(self.lanes.max(1))).unwrap_or(u64::MAX);
        mine.saturating_sub(self.asked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(rate: Option<&str>, lane: u64, lanes: u64) -> Pace {
        Pace {
            begin: 1000,
            warm_until: 0,
            stop: 1_000_001_000,
            quota: u64::MAX,
            rate: rate.map(|rate| rate.parse().unwrap()),
            lane,
            lanes,
            asked: 0,
            counted: 0,
            is_held_back: false,
        }
    }

    #[test]
    fn lanes_take_turns_and_together_keep_the_rate_exactly() {
        let mut dues = Vec::new();
        for lane in 0..3 {
            let mut pace = pace(Some("7/s"), lane, 3);
            while pace.due().unwrap() < pace.stop {
                dues.push(pace.due().unwrap());
                pace.note(0);
            }
            assert_eq!(pace.unsent(u64::MAX), 0);
        }
        dues.sort_unstable();
        let exact: Vec<u64> = (0..7).map(|n| 1000 + n * 1_000_000_000 / 7).collect();
        assert_eq!(dues, exact);
    }

    #[test]
    fn what_was_held_back_counts_from_when_it_was_due() {
        let mut pace = pace(Some("1000/s"), 0, 1);
        pace.note(0);
        let due = 1_001_000;
        assert_eq!(pace.start(due + 900), due + 900);
        assert_eq!(pace.start(due + 3_000_000), due);
        pace.is_held_back = true;
        assert_eq!(pace.start(due + 900), due);
    }

    #[test]
    fn what_was_never_sent_is_counted() {
        let total: u64 = (0..4)
            .map(|lane| pace(Some("1000/s"), lane, 4).unsent(u64::MAX))
            .sum();
        assert_eq!(total, 1000);
        let half: u64 = (0..4)
            .map(|lane| pace(Some("1000/s"), lane, 4).unsent(500_001_000))
            .sum();
        assert_eq!(half, 500);
        assert_eq!(pace(None, 0, 1).unsent(u64::MAX), 0);
    }

    #[test]
    fn the_warm_up_does_not_count_towards_the_number() {
        let mut pace = pace(None, 0, 1);
        (pace.warm_until, pace.quota) = (2000, 2);
        [1500, 1600, 2000]
            .iter()
            .for_each(|start| pace.note(*start));
        assert!(!pace.is_over(2001));
        pace.note(2001);
        assert!(pace.is_over(2002));
    }
}
