//! The sliding log: every admission with its stamp, so the window is exact.
//!
//! # Theory
//!
//! The window at `t` is `(t - W, t]`: an entry stamped `s` is dead from `s + W` on, so that windows
//! of `W` tile the time line. A request of cost `c` passes if and only if the live entries and `c`
//! together are at most `L`. Hence no window ever holds more than `L`, which is the bound the other
//! limiters are measured against.
//!
//! # When the clock steps back
//!
//! Up to one window back, time stops at the newest stamp. Further back, all stamps are moved
//! back together until the newest is now; some may then lie before zero, hence the wide stamps.

use super::{OracleDecision, OracleVerdict, PASS, at_least_one, to_u64};
use crate::model::{KeyModel, ModelChange};

/// At most `limit` units in any window of `window_ns`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OracleSlidingLog {
    limit: u64,
    window: i128,
    /// Stamp and cost, oldest first, each stamp once.
    entries: Vec<(i128, u64)>,
}

impl OracleSlidingLog {
    /// An empty log.
    pub fn new(limit: u64, window_ns: u64) -> Self {
        Self {
            limit,
            window: at_least_one(window_ns),
            entries: Vec::new(),
        }
    }

    /// Strikes out up to `cost` of the entry stamped `issued`.
    fn refund(&mut self, t: u64, cost: u64, issued: u64) {
        let issued = i128::from(issued);
        for (stamp, logged) in &mut self.entries {
            if *stamp == issued {
                *logged = logged.saturating_sub(cost);
            }
        }
        self.entries.retain(|&(_, logged)| logged > 0);
        self.repair(t);
    }

    /// How far the newest stamp lies ahead of `t`, if that is too far to wait for.
    fn gross(&self, t: u64) -> Option<i128> {
        let ahead = self.entries.last()?.0 - i128::from(t);
        (ahead > self.window).then_some(ahead)
    }

    fn repair(&mut self, t: u64) {
        if let Some(ahead) = self.gross(t) {
            for (stamp, _) in &mut self.entries {
                *stamp -= ahead;
            }
        }
    }

    /// The log that decides at `t`, repaired on a copy.
    fn seen(&self, t: u64) -> Self {
        let mut copy = self.clone();
        copy.repair(t);
        copy
    }

    /// The time that decides: it stops while the clock is behind the newest stamp.
    fn standing(&self, t: u64) -> i128 {
        let t = i128::from(t);
        self.entries.last().map_or(t, |&(newest, _)| newest.max(t))
    }

    fn live(&self, t: u64) -> impl Iterator<Item = &(i128, u64)> {
        let dead_from = self.standing(t) - self.window;
        self.entries
            .iter()
            .filter(move |&&(stamp, _)| stamp > dead_from)
    }

    fn used(&self, t: u64) -> i128 {
        self.live(t).map(|&(_, cost)| i128::from(cost)).sum()
    }

    /// How long until `cost` fits; `None` if it fits now (or never will).
    fn wait_for(&self, t: u64, cost: u64) -> Option<u64> {
        let mut excess = self.used(t) + i128::from(cost) - i128::from(self.limit);
        if excess <= 0 {
            return None;
        }
        for &(stamp, cost) in self.live(t) {
            excess -= i128::from(cost);
            if excess <= 0 {
                return Some(to_u64(stamp + self.window - i128::from(t)));
            }
        }
        None
    }

    fn answer(&self, t: u64, verdict: OracleVerdict) -> OracleDecision {
        let remaining = to_u64(i128::from(self.limit) - self.used(t));
        let next = if remaining < self.limit {
            self.wait_for(t, remaining + 1)
        } else {
            None
        };
        let newest = self.live(t).last().map(|&(stamp, _)| stamp);
        OracleDecision {
            verdict,
            remaining,
            reset_after: newest.map_or(0, |stamp| to_u64(stamp + self.window - i128::from(t))),
            next_after: next.unwrap_or(0),
        }
    }
}

impl KeyModel for OracleSlidingLog {
    /// Logs `cost` at `t` if the window has room.
    fn check(&mut self, t: u64, cost: u64) -> OracleDecision {
        if cost == 0 || cost > self.limit {
            let verdict = if cost == 0 {
                PASS
            } else {
                OracleVerdict::Never
            };
            return self.seen(t).answer(t, verdict);
        }
        self.repair(t);
        if let Some(retry_after) = self.wait_for(t, cost) {
            return self.answer(t, OracleVerdict::Refuse { retry_after });
        }
        let now = self.standing(t);
        let dead_from = now - self.window;
        self.entries.retain(|&(stamp, _)| stamp > dead_from);
        match self.entries.last_mut() {
            Some((stamp, logged)) if *stamp == now => *logged += cost,
            _ => self.entries.push((now, cost)),
        }
        self.answer(t, PASS)
    }

    /// A change of the limit does not repair, and what was logged stays logged.
    fn change(&mut self, t: u64, change: ModelChange) -> Result<OracleDecision, String> {
        match change {
            ModelChange::Refund { cost, issued } => self.refund(t, cost, issued),
            ModelChange::SetCap { cap } => self.limit = cap,
            ModelChange::Late { .. } | ModelChange::SetRate { .. } => {
                return Err(change.unsupported());
            }
        }
        Ok(self.seen(t).answer(t, PASS))
    }
}

#[cfg(test)]
mod tests {
    use super::super::promises;
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn waits_are_minimal() {
        for seed in 1..4 {
            promises::hold(OracleSlidingLog::new(10, 1_000), seed, (400, 300, 11));
        }
    }

    #[test]
    fn no_window_ever_holds_more_than_the_limit() {
        let mut rng = Rng::new(9);
        let mut log = OracleSlidingLog::new(10, 1_000);
        let (mut t, mut taken) = (0u64, Vec::new());
        for _ in 0..3_000 {
            t += rng.below(200);
            let cost = 1 + rng.below(3);
            if log.check(t, cost).passed() {
                taken.push((t, cost));
            }
        }
        for &(end, _) in &taken {
            let held: u64 = taken
                .iter()
                .filter(|&&(at, _)| at <= end && at + 1_000 > end)
                .map(|&(_, cost)| cost)
                .sum();
            assert!(held <= 10);
        }
    }

    #[test]
    fn a_lowered_limit_grows_only_when_enough_has_died() {
        let mut log = OracleSlidingLog::new(10, 100);
        for t in 0..10 {
            log.check(t, 1);
        }
        let answer = log.change(10, ModelChange::SetCap { cap: 4 }).unwrap();
        assert_eq!((answer.remaining, answer.next_after), (0, 96));
    }

    #[test]
    fn a_clock_far_behind_moves_all_stamps_even_when_it_refuses() {
        let mut log = OracleSlidingLog::new(2, 10);
        log.check(95, 1);
        log.check(100, 1);
        assert_eq!(
            log.peek(3, 1).verdict,
            OracleVerdict::Refuse { retry_after: 5 }
        );
        assert_eq!(log.entries, [(95, 1), (100, 1)], "a peek does not repair");
        log.check(3, 1);
        assert_eq!(log.entries, [(-2, 1), (3, 1)]);
    }

    #[test]
    fn a_refund_strikes_out_its_own_entry_and_no_other() {
        let mut log = OracleSlidingLog::new(5, 10);
        log.check(1, 2);
        log.check(2, 3);
        let mut refund = |cost, issued| log.change(3, ModelChange::Refund { cost, issued });
        assert_eq!(refund(9, 2).unwrap().remaining, 3);
        assert_eq!(refund(1, 7).unwrap().remaining, 3);
        assert_eq!(log.peek(3, 0).reset_after, 8);
    }
}
