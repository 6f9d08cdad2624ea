//! The fixed window: a counter that starts anew at every boundary.
//!
//! # Theory
//!
//! Window `k` is `[A + k*W, A + (k+1)*W)`. A request of cost `c` passes if and only if
//! `count + c <= L`, and only what passed is counted. Any interval no longer than `W` admits at most
//! `2*L`: it touches two windows.
//!
//! # When the clock steps back
//!
//! One window back, the stored window continues to count. Further back, the count is moved to the
//! window of the new time, so that the client waits for one boundary and not for the old clock.

use super::{OracleDecision, OracleVerdict, PASS, at_least_one, to_u64};
use crate::model::{KeyModel, ModelChange};

/// At most `limit` units in each window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OracleFixedWindow {
    limit: u64,
    window: i128,
    anchor: i128,
    /// Index of the window last charged, and what was charged in it.
    stored: Option<(i128, u64)>,
}

impl OracleFixedWindow {
    /// Windows of `window_ns`, one of which starts at `anchor_ns`.
    pub fn new(limit: u64, window_ns: u64, anchor_ns: u64) -> Self {
        Self {
            limit,
            window: at_least_one(window_ns),
            anchor: i128::from(anchor_ns),
            stored: None,
        }
    }

    /// Uncounts `cost` counted at `issued`, if that lies in the stored window and it still counts.
    fn refund(&mut self, t: u64, cost: u64, issued: u64) {
        let charged = self.index(issued);
        let counts = self.seen(t).1 > 0;
        if let Some((window, count)) = &mut self.stored
            && *window == charged
            && counts
        {
            *count = count.saturating_sub(cost);
        }
        self.repair(t);
    }

    /// Changes the limit; what was counted stays counted, and a window that is over is forgotten.
    fn set_limit(&mut self, t: u64, limit: u64) {
        self.limit = limit;
        self.repair(t);
        if self.seen(t).1 == 0 {
            self.stored = None;
        }
    }

    fn index(&self, t: u64) -> i128 {
        (i128::from(t) - self.anchor).div_euclid(self.window)
    }

    /// The window that decides at `t` and its count.
    fn seen(&self, t: u64) -> (i128, u64) {
        let now = self.index(t);
        match self.stored {
            Some((window, count)) if window == now || window == now + 1 => (window, count),
            Some((window, count)) if window > now => (now, count),
            _ => (now, 0),
        }
    }

    fn repair(&mut self, t: u64) {
        let now = self.index(t);
        if let Some((window, _)) = &mut self.stored
            && *window > now + 1
        {
            *window = now;
        }
    }

    fn until_end(&self, t: u64, window: i128) -> u64 {
        to_u64(self.anchor + (window + 1) * self.window - i128::from(t))
    }

    fn answer(&self, t: u64, verdict: OracleVerdict) -> OracleDecision {
        let (window, count) = self.seen(t);
        let remaining = self.limit.saturating_sub(count);
        let end = self.until_end(t, window);
        OracleDecision {
            verdict,
            remaining,
            reset_after: if count > 0 { end } else { 0 },
            next_after: if remaining < self.limit { end } else { 0 },
        }
    }
}

impl KeyModel for OracleFixedWindow {
    /// Counts `cost` at `t` if the window has room.
    fn check(&mut self, t: u64, cost: u64) -> OracleDecision {
        let (window, count) = self.seen(t);
        let after = u128::from(count) + u128::from(cost);
        if cost > self.limit {
            self.answer(t, OracleVerdict::Never)
        } else if cost == 0 {
            self.answer(t, PASS)
        } else if after <= u128::from(self.limit) {
            self.stored = Some((window, count + cost));
            self.answer(t, PASS)
        } else {
            self.repair(t);
            self.answer(
                t,
                OracleVerdict::Refuse {
                    retry_after: self.until_end(t, window),
                },
            )
        }
    }

    fn change(&mut self, t: u64, change: ModelChange) -> Result<OracleDecision, String> {
        match change {
            ModelChange::Refund { cost, issued } => self.refund(t, cost, issued),
            ModelChange::SetCap { cap } => self.set_limit(t, cap),
            ModelChange::Late { .. } | ModelChange::SetRate { .. } => {
                return Err(change.unsupported());
            }
        }
        Ok(self.answer(t, PASS))
    }
}

#[cfg(test)]
mod tests {
    use super::super::promises;
    use super::*;

    #[test]
    fn waits_are_minimal_on_both_sides_of_the_anchor() {
        for (seed, anchor) in [(1, 0), (2, 37), (3, 2_000_000)] {
            promises::hold(
                OracleFixedWindow::new(10, 1_000, anchor),
                seed,
                (400, 300, 11),
            );
        }
    }

    #[test]
    fn a_clock_far_behind_moves_the_count_even_when_it_refuses() {
        let mut window = OracleFixedWindow::new(3, 10, 0);
        window.check(100, 3);
        assert_eq!(
            window.peek(80, 1).verdict,
            OracleVerdict::Refuse { retry_after: 10 }
        );
        assert_eq!(window.stored, Some((10, 3)), "a peek does not repair");
        window.check(80, 1);
        assert_eq!(window.stored, Some((8, 3)));
        assert!(window.check(90, 1).passed());
    }

    #[test]
    fn a_refund_of_a_past_window_changes_nothing() {
        let mut window = OracleFixedWindow::new(5, 7, 3);
        window.check(10, 5);
        let mut refund = |cost, issued| window.change(11, ModelChange::Refund { cost, issued });
        assert_eq!(refund(5, 9).unwrap().remaining, 0);
        assert_eq!(refund(2, 10).unwrap().remaining, 2);
    }
}
