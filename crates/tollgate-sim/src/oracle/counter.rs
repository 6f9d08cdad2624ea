//! Sliding counters: the window cut into parts, the oldest part counted by estimate.
//!
//! # Theory
//!
//! The window `W` is cut into `m` sub-windows of `s = W/m`. In sub-window `k`, at offset `e`, the
//! last `m` counters (the head) count in full and the one before them (the old one) by a share that
//! fades as it leaves the window:
//!
//! ```text
//! linear   old * (s - e) / s
//! strict   old
//! span     old                                        while e*q <  f*s
//!          0                                          once  e*q >= (g+1)*s
//!          old * ((g+1)*s - e*q) / ((g+1-f)*s)        between
//! ```
//!
//! where `f` and `g` are the first and last `q`-th part of the old sub-window in which something was
//! admitted. A request of cost `c` passes if and only if `head + share + c <= L`.
//!
//! Time is multiplied by `m`, so a sub-window is `W` long and its borders are whole numbers even if
//! `m` does not divide `W`.
//!
//! # Invariant
//!
//! While nothing is admitted the estimate never grows: a counter enters the fading place at its full
//! value and only fades there. Waits are therefore found by walking the sub-windows and halving the
//! one in which the request first fits.
//!
//! # When the clock steps back
//!
//! One sub-window back, time stops at the start of the stored one. Further back, all counters
//! are moved so that the stored sub-window is the current one.

use super::{OracleDecision, OracleVerdict, PASS, at_least_one, ceil_div, to_u64};
use crate::model::{KeyModel, ModelChange};
use std::collections::BTreeMap;

/// The counter of one sub-window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    count: u64,
    /// First part of the sub-window in which something was admitted.
    first: i128,
    /// Last such part.
    last: i128,
}

/// How the oldest counter leaves the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fade {
    /// In proportion to the time of it that is still in the window.
    Linear,
    /// Not before it has left entirely.
    Strict,
    /// In proportion to the time of its span that is still in the window, in this many parts.
    Span(i128),
}

/// An estimate: `whole + part / of`.
#[derive(Clone, Copy, Debug)]
struct Estimate {
    whole: i128,
    part: i128,
    of: i128,
}

impl Estimate {
    fn has_room_for(self, cost: i128, limit: i128) -> bool {
        (self.whole + cost - limit) * self.of + self.part <= 0
    }

    fn room(self, limit: i128) -> i128 {
        ((limit - self.whole) * self.of - self.part)
            .div_euclid(self.of)
            .max(0)
    }
}

/// A sliding window estimated from the counters of its sub-windows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OracleSlidingCounter {
    limit: u64,
    /// Length of a sub-window in `m`-ths of a nanosecond, which is `W` in nanoseconds.
    window: i128,
    /// The number of sub-windows in a window, `m`.
    sub: i128,
    fade: Fade,
    /// Index of the sub-window last charged.
    newest: Option<i128>,
    /// What was admitted, by sub-window.
    cells: BTreeMap<i128, Cell>,
}

impl OracleSlidingCounter {
    /// A counter of `sub` sub-windows that has seen nothing; the oldest is interpolated or, if
    /// `strict`, counts in full. With one sub-window and not `strict` it is the two-counter estimate.
    pub fn new(limit: u64, window_ns: u64, sub: u64, strict: bool) -> Self {
        let fade = if strict { Fade::Strict } else { Fade::Linear };
        Self::with_fade(limit, window_ns, sub, fade)
    }

    /// The same, with the oldest sub-window spread over the part of it that was used, in `span`-ths.
    pub fn with_span(limit: u64, window_ns: u64, sub: u64, span: u64) -> Self {
        Self::with_fade(limit, window_ns, sub, Fade::Span(at_least_one(span)))
    }

    fn with_fade(limit: u64, window_ns: u64, sub: u64, fade: Fade) -> Self {
        Self {
            limit,
            window: at_least_one(window_ns),
            sub: at_least_one(sub),
            fade,
            newest: None,
            cells: BTreeMap::new(),
        }
    }

    /// Uncounts `cost` counted at `issued`, if that sub-window is still stored. The span of the
    /// sub-window stays: which of its admissions set the edges is not known.
    fn refund(&mut self, t: u64, cost: u64, issued: u64) {
        let charged = self.index(issued);
        self.repair(t);
        let (index, _) = self.place(t);
        let still_counts = (index - self.sub..=index).contains(&charged);
        if let Some(cell) = self.cells.get_mut(&charged)
            && still_counts
            && cell.count > 0
        {
            cell.count = cell.count.saturating_sub(cost);
            self.stand_at(index);
        }
    }

    /// Every write leaves the counters as of its own sub-window: what lies further back is dropped.
    fn stand_at(&mut self, index: i128) {
        self.newest = Some(index);
        let oldest = index - self.sub;
        self.cells.retain(|&at, _| at >= oldest);
    }

    /// Changes the limit; what was counted stays counted.
    fn set_limit(&mut self, t: u64, limit: u64) {
        self.limit = limit;
        self.repair(t);
        let (index, _) = self.place(t);
        self.stand_at(index);
        if self.cells.values().all(|cell| cell.count == 0) {
            self.newest = None;
            self.cells.clear();
        }
    }

    fn index(&self, t: u64) -> i128 {
        (i128::from(t) * self.sub).div_euclid(self.window)
    }

    /// First whole nanosecond of sub-window `index`.
    fn start(&self, index: i128) -> i128 {
        ceil_div(index * self.window, self.sub)
    }

    fn is_gross(&self, t: u64) -> bool {
        self.newest.is_some_and(|newest| newest > self.index(t) + 1)
    }

    fn repair(&mut self, t: u64) {
        if let Some(newest) = self.newest
            && self.is_gross(t)
        {
            let back = newest - self.index(t);
            self.newest = Some(newest - back);
            self.cells = self
                .cells
                .iter()
                .map(|(&at, &cell)| (at - back, cell))
                .collect();
        }
    }

    /// An answer that changes nothing: a state from far in the future is repaired on a copy.
    fn look(&self, t: u64, verdict: OracleVerdict) -> OracleDecision {
        if self.is_gross(t) {
            let mut copy = self.clone();
            copy.repair(t);
            copy.answer(t, verdict)
        } else {
            self.answer(t, verdict)
        }
    }

    /// The sub-window and the offset in it that decide at `t`.
    fn place(&self, t: u64) -> (i128, i128) {
        let now = self.index(t);
        match self.newest {
            Some(newest) if newest > now => (newest, 0),
            _ => (now, i128::from(t) * self.sub - now * self.window),
        }
    }

    /// What the head of sub-window `index` counts, and its old cell.
    fn parts(&self, index: i128) -> (i128, Option<Cell>) {
        let old = index - self.sub;
        let head = self
            .cells
            .range(old + 1..=index)
            .map(|(_, cell)| i128::from(cell.count))
            .sum();
        (head, self.cells.get(&old).copied())
    }

    fn estimate(&self, index: i128, offset: i128) -> Estimate {
        let (head, old) = self.parts(index);
        self.fade(head, old, offset)
    }

    fn fade(&self, head: i128, old: Option<Cell>, offset: i128) -> Estimate {
        let Some(cell) = old else {
            return Estimate {
                whole: head,
                part: 0,
                of: 1,
            };
        };
        let count = i128::from(cell.count);
        match self.fade {
            Fade::Strict => Estimate {
                whole: head + count,
                part: 0,
                of: 1,
            },
            Fade::Linear => Estimate {
                whole: head,
                part: count * (self.window - offset),
                of: self.window,
            },
            Fade::Span(parts) => {
                let (from, to) = (cell.first * self.window, (cell.last + 1) * self.window);
                let gone = offset * parts;
                if gone < from {
                    Estimate {
                        whole: head + count,
                        part: 0,
                        of: 1,
                    }
                } else if gone >= to {
                    Estimate {
                        whole: head,
                        part: 0,
                        of: 1,
                    }
                } else {
                    Estimate {
                        whole: head,
                        part: count * (to - gone),
                        of: to - from,
                    }
                }
            }
        }
    }

    /// Least wait after which `cost`, at most the limit, has room.
    fn wait_for(&self, t: u64, cost: i128) -> u64 {
        let (from, limit) = (i128::from(t), i128::from(self.limit));
        let (index, _) = self.place(t);
        for index in index..=index + self.sub + 1 {
            let (head, old) = self.parts(index);
            let fits = |at: i128| {
                let offset = at * self.sub - index * self.window;
                self.fade(head, old, offset).has_room_for(cost, limit)
            };
            // The nanoseconds of this sub-window, of which there may be none if it is shorter.
            let mut low = self.start(index).max(from);
            let mut high = self.start(index + 1) - 1;
            if low > high || !fits(high) {
                continue;
            }
            while low < high {
                let middle = low + (high - low) / 2;
                if fits(middle) {
                    high = middle;
                } else {
                    low = middle + 1;
                }
            }
            return to_u64(low - from);
        }
        u64::MAX
    }

    fn answer(&self, t: u64, verdict: OracleVerdict) -> OracleDecision {
        let (index, offset) = self.place(t);
        let limit = i128::from(self.limit);
        let remaining = self.estimate(index, offset).room(limit);
        let last_used = self
            .cells
            .range(index - self.sub..=index)
            .rev()
            .find(|(_, cell)| cell.count > 0)
            .map(|(&at, _)| at);
        OracleDecision {
            verdict,
            remaining: to_u64(remaining),
            reset_after: last_used.map_or(0, |at| {
                to_u64(self.start(at + self.sub + 1) - i128::from(t))
            }),
            next_after: if remaining < limit {
                self.wait_for(t, remaining + 1)
            } else {
                0
            },
        }
    }
}

impl KeyModel for OracleSlidingCounter {
    fn check(&mut self, t: u64, cost: u64) -> OracleDecision {
        if cost == 0 || cost > self.limit {
            let verdict = if cost == 0 {
                PASS
            } else {
                OracleVerdict::Never
            };
            return self.look(t, verdict);
        }
        self.repair(t);
        let (index, offset) = self.place(t);
        let (cost_wide, limit) = (i128::from(cost), i128::from(self.limit));
        if !self.estimate(index, offset).has_room_for(cost_wide, limit) {
            let retry_after = self.wait_for(t, cost_wide);
            return self.answer(t, OracleVerdict::Refuse { retry_after });
        }
        let part = match self.fade {
            Fade::Span(parts) => offset * parts / self.window,
            Fade::Linear | Fade::Strict => 0,
        };
        let cell = self.cells.entry(index).or_insert(Cell {
            count: 0,
            first: part,
            last: part,
        });
        if cell.count == 0 {
            (cell.first, cell.last) = (part, part);
        }
        cell.count += cost;
        cell.first = cell.first.min(part);
        cell.last = cell.last.max(part);
        self.stand_at(index);
        self.answer(t, PASS)
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
    use crate::rng::Rng;

    #[test]
    fn waits_of_a_sliding_counter_are_minimal_even_if_the_parts_do_not_divide_the_window() {
        for (seed, sub) in [(1, 1), (2, 2), (3, 4), (4, 7), (5, 3)] {
            for strict in [false, true] {
                promises::hold(
                    OracleSlidingCounter::new(10, 1_000, sub, strict),
                    seed,
                    (400, 1_000 / sub, 11),
                );
            }
        }
    }

    #[test]
    fn waits_of_a_span_counter_are_minimal() {
        for (seed, sub, span) in [(1, 1, 64), (2, 2, 16), (3, 3, 8), (4, 4, 5)] {
            promises::hold(
                OracleSlidingCounter::with_span(10, 1_200, sub, span),
                seed,
                (400, 1_200 / sub, 11),
            );
        }
    }

    #[test]
    fn the_strict_counter_never_passes_the_limit_in_any_window() {
        let mut rng = Rng::new(5);
        let mut counter = OracleSlidingCounter::new(10, 1_000, 4, true);
        let (mut t, mut taken) = (0u64, Vec::new());
        for _ in 0..3_000 {
            t += rng.below(200);
            if counter.check(t, 1).passed() {
                taken.push(t);
            }
        }
        for &end in &taken {
            assert!(
                taken
                    .iter()
                    .filter(|&&at| at <= end && at + 1_000 > end)
                    .count()
                    <= 10
            );
        }
    }

    #[test]
    fn a_clock_far_behind_moves_the_counters_even_when_it_refuses() {
        let mut counter = OracleSlidingCounter::new(4, 10, 1, false);
        counter.check(105, 1);
        counter.check(115, 3);
        let before = counter.clone();
        assert!(!counter.peek(50, 4).passed());
        assert_eq!(counter, before, "a peek does not repair");
        assert!(!counter.check(50, 4).passed());
        assert_eq!(counter.cells.keys().copied().collect::<Vec<_>>(), [4, 5]);
    }

    #[test]
    fn a_refund_reaches_every_stored_sub_window_and_no_other() {
        let mut counter = OracleSlidingCounter::new(10, 30, 3, false);
        counter.check(5, 2);
        counter.check(15, 3);
        counter.check(25, 4);
        let mut refund = |cost, issued| counter.change(25, ModelChange::Refund { cost, issued });
        assert_eq!(refund(9, 15).unwrap().remaining, 4);
        assert_eq!(refund(1, 5).unwrap().remaining, 5);
        assert_eq!(refund(1, 35).unwrap().remaining, 5);
    }

    #[test]
    fn a_cell_emptied_by_a_refund_starts_a_new_span() {
        let mut counter = OracleSlidingCounter::with_span(10, 160, 1, 16);
        counter.check(0, 5);
        counter.refund(0, 5, 0);
        counter.check(155, 5);
        // Spread over the last sixteenth only, so nothing has faded by half time.
        assert_eq!(counter.peek(240, 0).remaining, 5);
    }
}
