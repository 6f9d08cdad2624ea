//! Sliding window counter: estimates the usage of the last window from a few counters in one word.
//!
//! # Theory
//!
//! The window `W` is cut into `m` parts of length `s`. The word counts the current part and the `m`
//! before it. `m` of these lie wholly inside the last `W` (the *head*); the oldest (the *tail*, count
//! `c`) is partly over, at an offset `e` into the current part. How much of the tail still counts:
//!
//! | estimate | still counting of the tail | what it assumes |
//! |---|---|---|
//! | [`Tail::Span`] | spread over the parts of it in which something came | first and last arrival are kept to 1/q of a part |
//! | [`Tail::Even`] | `c * (s - e) / s` | arrivals spread evenly; with `m = 1` the well-known two counters |
//! | [`Tail::Whole`] | `c` | nothing: never too little |
//!
//! The limit and the [`Estimate`] choose the layout, so that the counters fit one word:
//!
//! | limit up to | default: parts, divisions | limit up to | strict: parts |
//! |---|---|---|---|
//! | 127 | 3, 8 | 2 047 | 4 |
//! | 1 023 | 2, 16 | 16 383 | 3 |
//! | 65 535 | 1, 64 | 262 143 | 2 |
//! | 16 777 215 | 1, evenly | 16 777 215 | 1 |
//!
//! A cost passes if and only if `head + still + cost <= limit`, compared by cross-multiplication in
//! 128 bits, so that nothing is rounded. The span form follows bursty traffic
//! better than two counters in the same 64 bits, because it knows where in the part the arrivals lay.
//!
//! # Invariant
//!
//! The head never exceeds the limit, so no interval of `W*(m-1)/m` admits more than `limit`. Over a
//! whole `W` the worst case is `2*limit - 1` for the two estimates (a burst at the end of a part, the
//! rest while it is interpolated away) and `limit` for the strict form, which costs at most `1/(m+1)`
//! of the throughput. What the estimates remove is the *instant* double burst of a fixed window.
//!
//! # When the clock steps back
//!
//! A step into the part before leaves the state at the beginning of its own part. After a larger step the counters
//! move to the part that the clock now shows.
//!
//! # Why not the exact log
//!
//! It stores every arrival; this is one word for any limit. Use [`super::log`] where a count must be exact and the
//! limit is small.

mod layout;

pub use layout::{Estimate, Layout, Shape, Tail};

use super::scale::Scale;
use super::{EncodedLimit, Epoch, LimitError, PackedAlgorithm, RESERVED, Step};
use crate::decision::{QuotaStatus, Verdict};
use crate::time::{Moment, Span};

/// Most parts of a window; more would leave too few bits for each.
const PARTS_MAX: usize = 7;
/// Fewest bits for the number of the current part: below, epochs would be shorter than a window.
const INDEX_BITS_MIN: u32 = 8;

/// A compiled sliding counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sliding {
    limit: u64,
    /// The limit without pressure, which the word is laid out for; `limit` is never more.
    unscaled: u64,
    /// The window as it was written.
    window: u64,
    /// Length of a part, rounded up if the parts do not divide the window: a longer window never
    /// admits more.
    part: u64,
    parts: u32,
    tail: Tail,
    /// Bits of a count.
    count_bits: u32,
    /// Bits of the first and of the last arrival within a part; none without spans.
    span_bits: u32,
    index_bits: u32,
}

/// One part of the window: how much came, and in which of its `q` divisions first and last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Part {
    count: u64,
    first: u64,
    last: u64,
}

/// The parts as they stand at a moment.
#[derive(Clone, Copy, Debug)]
struct WindowState {
    index: u64,
    /// Newest first; `parts + 1` of them are used.
    cells: [Part; PARTS_MAX + 1],
    /// Offset into the current part.
    into: u64,
    /// Time until the current part begins, if the clock stepped back out of it.
    early: u64,
    repaired: bool,
}

impl Sliding {
    /// At most `limit` in any `window`, within the accuracy of the estimate.
    ///
    /// # Errors
    /// A limit or window of zero, or a limit above 2^24 - 1.
    pub fn new(limit: u64, window: Span, estimate: Estimate) -> Result<Sliding, LimitError> {
        Sliding::with_layout(limit, window, Layout::for_limit(limit, estimate))
    }

    /// The same with a layout that another limit gets, as recorded timelines have it.
    ///
    /// # Errors
    /// As [`Sliding::new`]; or a layout that does not fit one word beside the limit.
    pub fn with_layout(limit: u64, window: Span, layout: Layout) -> Result<Sliding, LimitError> {
        const LIMIT_MAX: u64 = (1 << 24) - 1;
        let Layout {
            parts,
            divisions,
            tail,
        } = layout;
        if !divisions.is_power_of_two() || divisions > 256 {
            return Err(LimitError::TooLarge {
                what: "number of divisions (a power of two)",
                most: 256,
            });
        }
        let span_bits = divisions.ilog2();
        if limit == 0 {
            return Err(LimitError::ZeroCapacity { what: "limit" });
        }
        if limit > LIMIT_MAX {
            return Err(LimitError::TooLarge {
                what: "limit",
                most: LIMIT_MAX,
            });
        }
        if window.is_zero() {
            return Err(LimitError::ZeroSpan { what: "window" });
        }
        let count_bits = limit.ilog2() + 1;
        let cell_bits = count_bits + 2 * span_bits;
        let most = ((64 - INDEX_BITS_MIN) / cell_bits)
            .saturating_sub(1)
            .min(PARTS_MAX as u32);
        if parts == 0 || parts > most {
            return Err(LimitError::TooLarge {
                what: "number of parts (from 1)",
                most: u64::from(most),
            });
        }
        Ok(Sliding {
            limit,
            unscaled: limit,
            window: window.as_nanos(),
            part: window.as_nanos().div_ceil(u64::from(parts)),
            parts,
            tail,
            count_bits,
            span_bits,
            index_bits: 64 - (parts + 1) * cell_bits,
        })
    }

    /// What it counts in.
    pub const fn shape(&self) -> Shape {
        Shape {
            part: self.part,
            layout: Layout {
                parts: self.parts,
                divisions: 1 << self.span_bits,
                tail: self.tail,
            },
            most: (1 << self.count_bits) - 1,
        }
    }

    /// The word for these parts, newest first, the newest being number `index`: of each its count, and
    /// the first and the last division in which something came. A count above the most is cut.
    pub fn word_of(&self, index: u64, parts: impl Iterator<Item = [u64; 3]>) -> u64 {
        let mut state = self.state_at(None, Moment::ORIGIN);
        state.index = index;
        let most = (1 << self.count_bits) - 1;
        for (cell, [count, first, last]) in state.cells.iter_mut().zip(parts) {
            *cell = Part {
                count: count.min(most),
                first: first.min(self.q() - 1),
                last: last.min(self.q() - 1),
            };
        }
        self.pack(&self.indexed(state))
    }

    const fn cell_bits(&self) -> u32 {
        self.count_bits + 2 * self.span_bits
    }

    /// Divisions of a part.
    const fn q(&self) -> u64 {
        1 << self.span_bits
    }

    fn unpack(&self, word: u64) -> (u64, [Part; PARTS_MAX + 1]) {
        let mut cells = [Part::default(); PARTS_MAX + 1];
        let mut bits = word;
        let mask = |width: u32| (1u64 << width) - 1;
        for cell in cells.iter_mut().take(self.parts as usize + 1) {
            cell.count = bits & mask(self.count_bits);
            cell.first = (bits >> self.count_bits) & mask(self.span_bits);
            cell.last = (bits >> (self.count_bits + self.span_bits)) & mask(self.span_bits);
            bits >>= self.cell_bits();
        }
        (bits, cells)
    }

    fn pack(&self, state: &WindowState) -> u64 {
        let mut word = state.index;
        for cell in state.cells.iter().take(self.parts as usize + 1).rev() {
            word <<= self.cell_bits();
            word |= cell.count
                | cell.first << self.count_bits
                | cell.last << (self.count_bits + self.span_bits);
        }
        if word == RESERVED {
            // Every count is at its most, as only a limit that was lowered can leave them. The head
            // alone is full then, and what the oldest part counts is never asked: take one off it.
            word ^= 1 << (self.parts * self.cell_bits());
        }
        word
    }

    fn state_at(&self, word: Option<u64>, now: Moment) -> WindowState {
        let index = now.as_nanos() / self.part;
        let into = now.as_nanos() % self.part;
        let mut state = WindowState {
            index,
            cells: [Part::default(); PARTS_MAX + 1],
            into,
            early: 0,
            repaired: false,
        };
        let Some(word) = word else { return state };
        let (stored, cells) = self.unpack(word);
        // The signed difference of the low index bits.
        let unused = 64 - self.index_bits;
        let ahead = ((index.wrapping_sub(stored) << unused) as i64) >> unused;
        match ahead {
            0 => state.cells = cells,
            1.. => {
                for (i, cell) in cells.iter().enumerate() {
                    let to = i.saturating_add(usize::try_from(ahead).unwrap_or(usize::MAX));
                    if to <= self.parts as usize {
                        state.cells[to] = *cell;
                    }
                }
            }
            -1 => {
                state.cells = cells;
                state.index = index.wrapping_add(1);
                state.early = self.part - into;
                state.into = 0;
            }
            _ => {
                state.cells = cells;
                state.repaired = true;
            }
        }
        state
    }

    /// Is `head + still(tail, e) + cost <= limit`? `room` is `limit - head - cost`.
    fn tail_fits(&self, tail: Part, e: u64, room: u64) -> bool {
        if tail.count <= room {
            return true;
        }
        match self.tail {
            Tail::Whole => false,
            Tail::Even => {
                u128::from(tail.count) * u128::from(self.part - e)
                    <= u128::from(room) * u128::from(self.part)
            }
            Tail::Span => {
                let (s, q) = (u128::from(self.part), u128::from(self.q()));
                let (f, g) = (u128::from(tail.first), u128::from(tail.last) + 1);
                let at = u128::from(e) * q;
                if at < f * s {
                    return false;
                }
                let left = (g * s).saturating_sub(at);
                u128::from(tail.count) * left <= u128::from(room) * (g - f) * s
            }
        }
    }

    /// The least offset at which the tail fits `room`, if it does before the part is over.
    fn tail_fits_from(&self, tail: Part, room: u64) -> Option<u64> {
        if tail.count <= room {
            return Some(0);
        }
        let (c, r, s) = (
            u128::from(tail.count),
            u128::from(room),
            u128::from(self.part),
        );
        let e = match self.tail {
            Tail::Whole => return None,
            Tail::Even => (s * (c - r)).div_ceil(c),
            Tail::Span => {
                let (f, g) = (u128::from(tail.first), u128::from(tail.last) + 1);
                (g * s * c - r * (g - f) * s).div_ceil(c * u128::from(self.q()))
            }
        };
        u64::try_from(e).ok().filter(|e| *e < self.part)
    }

    /// The least wait until `cost` passes if nothing else comes. `cost` is at most the limit.
    fn wait_for(&self, state: &WindowState, cost: u64) -> u64 {
        let m = self.parts as usize;
        // Parts still to come before the one in which it passes; after m+1 nothing is left.
        for ahead in 0..=m {
            let head: u64 = state.cells.iter().take(m - ahead).map(|c| c.count).sum();
            let Some(room) = self.limit.checked_sub(head + cost) else {
                continue;
            };
            let from = if ahead == 0 { state.into } else { 0 };
            if let Some(e) = self.tail_fits_from(state.cells[m - ahead], room) {
                return self.time_to(state, ahead, e.max(from));
            }
        }
        self.time_to(state, m + 1, 0)
    }

    /// From now to offset `e` in the part that is `ahead` parts on.
    fn time_to(&self, state: &WindowState, ahead: usize, e: u64) -> u64 {
        let parts = u64::try_from(ahead).unwrap_or(u64::MAX);
        parts
            .saturating_mul(self.part)
            .saturating_add(state.early)
            .saturating_add(e)
            .saturating_sub(state.into)
    }

    fn head(&self, state: &WindowState) -> u64 {
        state
            .cells
            .iter()
            .take(self.parts as usize)
            .map(|c| c.count)
            .sum()
    }

    fn remaining(&self, state: &WindowState) -> u64 {
        let tail = state.cells[self.parts as usize];
        let c = u128::from(tail.count);
        // What still counts, rounded up: a part of a unit is not remaining.
        let still = match self.tail {
            Tail::Whole => c,
            Tail::Even => (c * u128::from(self.part - state.into)).div_ceil(u128::from(self.part)),
            Tail::Span => {
                let s = u128::from(self.part);
                let (f, g) = (u128::from(tail.first), u128::from(tail.last) + 1);
                let at = u128::from(state.into) * u128::from(self.q());
                if at < f * s {
                    c
                } else {
                    (c * (g * s).saturating_sub(at)).div_ceil((g - f) * s)
                }
            }
        };
        let still = u64::try_from(still).unwrap_or(u64::MAX);
        self.limit
            .saturating_sub(self.head(state))
            .saturating_sub(still)
    }

    /// Adds `cost` to the current part.
    fn add(&self, state: &mut WindowState, cost: u64) {
        let division = u128::from(state.into) * u128::from(self.q()) / u128::from(self.part);
        let division = u64::try_from(division).unwrap_or(0) & (self.q() - 1);
        let current = &mut state.cells[0];
        if current.count == 0 {
            (current.first, current.last) = (division, division);
        } else {
            current.first = current.first.min(division);
            current.last = current.last.max(division);
        }
        current.count += cost;
    }
}

impl PackedAlgorithm for Sliding {
    fn charge(&self, word: Option<u64>, now: Moment, cost: u64) -> Step {
        if cost > self.unscaled {
            return Step::never();
        }
        if cost == 0 {
            return Step {
                verdict: Verdict::Pass,
                write: None,
            };
        }
        let mut state = self.state_at(word, now);
        // A scale alone makes no cost impossible: a cost above the scaled limit takes the whole limit.
        let asked = cost.min(self.limit);
        let room = self.limit.checked_sub(self.head(&state) + asked);
        if room.is_some_and(|r| self.tail_fits(state.cells[self.parts as usize], state.into, r)) {
            self.add(&mut state, cost);
            return Step {
                verdict: Verdict::Pass,
                write: Some(self.pack(&self.indexed(state))),
            };
        }
        Step {
            verdict: Verdict::refuse(self.wait_for(&state, asked)),
            write: state.repaired.then(|| self.pack(&self.indexed(state))),
        }
    }

    fn refund(&self, word: u64, now: Moment, cost: u64, issued: Moment) -> Option<u64> {
        let mut state = self.state_at(Some(word), now);
        // Only a part that is still counted can give something back.
        let age = state.index.checked_sub(issued.as_nanos() / self.part)?;
        let cell = usize::try_from(age)
            .ok()
            .filter(|age| *age <= self.parts as usize)
            .and_then(|age| state.cells.get_mut(age))?;
        if cell.count == 0 {
            return None;
        }
        cell.count = cell.count.saturating_sub(cost);
        Some(self.pack(&self.indexed(state)))
    }

    fn charge_saturating(&self, word: Option<u64>, now: Moment, cost: u64) -> (Option<u64>, u64) {
        let mut state = self.state_at(word, now);
        let taken = cost.min(self.limit.saturating_sub(self.head(&state)));
        if taken == 0 {
            return (None, cost);
        }
        self.add(&mut state, taken);
        (Some(self.pack(&self.indexed(state))), cost - taken)
    }

    fn status(&self, word: Option<u64>, now: Moment) -> QuotaStatus {
        let state = self.state_at(word, now);
        let remaining = self.remaining(&state);
        let newest = state.cells.iter().position(|c| c.count > 0);
        let full_after = newest.map_or(0, |i| self.time_to(&state, self.parts as usize + 1 - i, 0));
        QuotaStatus {
            remaining,
            full_after: Span::from_nanos(full_after),
            next_after: Span::from_nanos(if remaining == self.limit {
                0
            } else {
                self.wait_for(&state, remaining + 1)
            }),
        }
    }

    #[inline]
    fn is_unused(&self, word: u64, now: Moment) -> bool {
        self.state_at(Some(word), now)
            .cells
            .iter()
            .all(|c| c.count == 0)
    }

    fn epoch(&self, now: Moment) -> Epoch {
        Epoch::from_parts(
            now.as_nanos() / self.part,
            self.index_bits - 2,
            self.part,
            0,
        )
    }

    fn repair_after_clock_step(&self, word: u64, now: Moment) -> u64 {
        let (_, cells) = self.unpack(word);
        let mut state = self.state_at(None, now);
        state.cells = cells;
        self.pack(&self.indexed(state))
    }

    /// Another limit on the same window keeps the old layout if it fits there: in a narrower one, what
    /// was counted under the old limit may find no room.
    fn keeping_layout_of(self, old: &Self) -> Self {
        if (self.window, self.tail) == (old.window, old.tail) && self.limit >> old.count_bits == 0 {
            return Sliding {
                limit: self.limit,
                unscaled: self.unscaled,
                ..*old
            };
        }
        self
    }

    fn convert(&self, old: &Self, word: u64, now: Moment) -> Option<u64> {
        let before = old.state_at(Some(word), now);
        let mut state = self.state_at(None, now);
        let room = (1u64 << self.count_bits) - 1;
        if (self.part, self.parts, self.span_bits) == (old.part, old.parts, old.span_bits) {
            // Same window, another limit: every count stays where it is. One that is above what the
            // new width can hold is cut: it fills the new limit either way.
            state = before;
            for cell in &mut state.cells {
                cell.count = cell.count.min(room);
            }
        } else {
            // Another window: all that still counts is taken to have come just now.
            let used = old.limit.saturating_sub(old.remaining(&before));
            if used > 0 {
                self.add(&mut state, used.min(room));
            }
        }
        let fresh = state.cells.iter().all(|c| c.count == 0);
        (!fresh).then(|| self.pack(&self.indexed(state)))
    }

    #[cold]
    fn scaled(&self, scale: Scale) -> Self {
        Sliding {
            limit: scale.apply_to(self.unscaled),
            ..*self
        }
    }

    fn capacity(&self) -> u64 {
        self.unscaled
    }

    #[inline(always)]
    fn encode(&self) -> EncodedLimit {
        let tail = match self.tail {
            Tail::Span => 0,
            Tail::Even => 1,
            Tail::Whole => 2,
        };
        let bits = self.count_bits << 16 | self.span_bits << 8 | self.index_bits;
        let layout = u64::from(bits) << 32 | u64::from(self.parts) << 8 | tail;
        [self.unscaled, self.part, layout, self.window]
    }

    #[inline(always)]
    fn from_encoded(&[limit, part, layout, window]: &EncodedLimit) -> Self {
        let bits = layout >> 32;
        Sliding {
            limit,
            unscaled: limit,
            window,
            part,
            parts: (layout >> 8 & 255) as u32,
            tail: match layout & 255 {
                0 => Tail::Span,
                1 => Tail::Even,
                _ => Tail::Whole,
            },
            count_bits: (bits >> 16 & 255) as u32,
            span_bits: (bits >> 8 & 255) as u32,
            index_bits: (bits & 255) as u32,
        }
    }
}

impl Sliding {
    /// Keeps the low bits of the index, which is all that the word has room for.
    const fn indexed(&self, mut state: WindowState) -> WindowState {
        state.index &= (1u64 << self.index_bits) - 1;
        state
    }
}

#[cfg(test)]
mod tests;
