//! Sliding log: admits exactly `limit` in any window by storing the moment of each unit.
//!
//! # Theory
//!
//! The window is half open, `(t - W, t]`: a unit stamped `ts` expires at `ts + W`, so that windows
//! tile the time line. A ring holds the stamps of the units that were admitted, oldest first, and
//! never more than `limit` of them. A cost passes if and only if the stamps still in the window leave
//! room for it.
//!
//! # Invariant
//!
//! The stamps never decrease along the ring and there are at most `limit`. So *every* interval of
//! length `W` admits at most `limit`: the tightest bound there is.
//!
//! # When the clock steps back
//!
//! By up to a window: the log is read, and stamped, at its newest stamp. Further: all stamps are moved
//! back by the difference.
//!
//! # What it costs
//!
//! `8 * (limit + 1)` bytes for a key, `cost` writes for a charge, `log2(limit)` reads to count. Why
//! not a set keyed by the stamp: two requests in one instant would count once. Why not one word:
//! there is no exact one; [`super::sliding`] is the estimate that fits.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::LimitError;
use super::scale::Scale;
use crate::decision::{QuotaStatus, Verdict};
use crate::time::{Moment, Span};

/// A cell that stores one stamp. The caller has exclusive access to the ring; the atomics only let a shared arena
/// hand the cells out without `unsafe`.
pub trait StampCell {
    /// Reads the stamp.
    fn get(&self) -> u64;
    /// Writes the stamp.
    fn set(&self, stamp: u64);
}

impl StampCell for Cell<u64> {
    fn get(&self) -> u64 {
        Cell::get(self)
    }
    fn set(&self, stamp: u64) {
        Cell::set(self, stamp);
    }
}

impl StampCell for AtomicU64 {
    fn get(&self) -> u64 {
        self.load(Relaxed)
    }
    fn set(&self, stamp: u64) {
        self.store(stamp, Relaxed);
    }
}

/// A compiled sliding log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Log {
    limit: u64,
    /// The limit without pressure, which rings are laid out for; `limit` is never more.
    unscaled: u64,
    window: u64,
}

/// The log of one key: a header (position of the oldest stamp, number of stamps) and a ring of stamps. All zero is
/// an unused key. A ring shorter than the limit refuses as if its length were the limit.
#[derive(Debug)]
pub struct Ring<'a, C> {
    header: &'a C,
    stamps: &'a [C],
}

impl<C> Clone for Ring<'_, C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<C> Copy for Ring<'_, C> {}

impl<'a, C: StampCell> Ring<'a, C> {
    /// A ring over these cells, the first of which is the header. None if there is no room for a
    /// single stamp.
    pub fn over(cells: &'a [C]) -> Option<Ring<'a, C>> {
        match cells.split_first() {
            Some((header, stamps)) if !stamps.is_empty() => Some(Ring { header, stamps }),
            _ => None,
        }
    }

    /// Forgets everything.
    pub fn clear(self) {
        self.header.set(0);
    }

    fn bounds(self) -> (usize, usize) {
        let header = self.header.get();
        let (oldest, len) = ((header >> 32) as usize, (header & 0xffff_ffff) as usize);
        (oldest % self.stamps.len(), len.min(self.stamps.len()))
    }

    fn set_bounds(self, oldest: usize, len: usize) {
        self.header.set((oldest as u64) << 32 | len as u64);
    }

    fn cell(self, from_oldest: usize) -> Option<&'a C> {
        let (oldest, _) = self.bounds();
        self.stamps.get((oldest + from_oldest) % self.stamps.len())
    }

    /// The stamp at `i` from the oldest.
    fn stamp(self, i: usize) -> u64 {
        self.cell(i).map_or(0, StampCell::get)
    }

    fn len(self) -> usize {
        self.bounds().1
    }

    /// The newest stamp: the moment that the last charge was made at.
    pub fn newest(self) -> Option<Moment> {
        let len = self.len();
        (len > 0).then(|| Moment::from_nanos(self.stamp(len - 1)))
    }

    /// Copies another key's ring into this one, the newest stamps if they do not all fit.
    pub fn copy_from<D: StampCell>(self, other: Ring<'_, D>) {
        let len = other.len().min(self.stamps.len());
        let skip = other.len() - len;
        self.set_bounds(0, len);
        for i in 0..len {
            if let Some(cell) = self.cell(i) {
                cell.set(other.stamp(skip + i));
            }
        }
    }
}

/// What the log looks like at a moment.
struct LogView {
    /// The moment that the log is read and stamped at.
    at: u64,
    /// The distance by which all stamps move back, because the clock was set back.
    shift: u64,
    /// Stamps that are out of the window.
    dead: usize,
    /// Stamps that are in it.
    live: usize,
}

impl Log {
    /// At most `limit` in any `window`.
    ///
    /// # Errors
    /// A limit or window of zero, or a limit above 2^24: use a counter or a bucket there.
    pub fn new(limit: u64, window: Span) -> Result<Log, LimitError> {
        const LIMIT_MAX: u64 = 1 << 24;
        if limit == 0 {
            return Err(LimitError::ZeroCapacity { what: "limit" });
        }
        if limit > LIMIT_MAX {
            return Err(LimitError::TooLarge {
                what: "limit of a sliding log",
                most: LIMIT_MAX,
            });
        }
        if window.is_zero() {
            return Err(LimitError::ZeroSpan { what: "window" });
        }
        Ok(Log {
            limit,
            unscaled: limit,
            window: window.as_nanos(),
        })
    }

    /// Cells that the ring of one key needs: its header and a stamp for each unit.
    pub fn cells(&self) -> usize {
        usize::try_from(self.unscaled).unwrap_or(usize::MAX - 1) + 1
    }

    /// The limit, under whatever scale.
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// The greatest cost that can ever pass: the limit without pressure.
    pub const fn capacity(&self) -> u64 {
        self.unscaled
    }

    /// This limit with only `scale` of it left, on the same rings; see [`super::scale`].
    #[must_use]
    pub const fn scaled(&self, scale: Scale) -> Log {
        Log {
            limit: scale.apply_to(self.unscaled),
            ..*self
        }
    }

    /// The window.
    pub const fn window(&self) -> Span {
        Span::from_nanos(self.window)
    }

    fn view_at<C: StampCell>(&self, ring: Ring<'_, C>, now: Moment) -> LogView {
        let t = now.as_nanos();
        let len = ring.len();
        let newest = ring.newest().map_or(0, Moment::as_nanos);
        let back = newest.saturating_sub(t);
        let (at, shift) = if back == 0 {
            (t, 0)
        } else if back <= self.window {
            (newest, 0)
        } else {
            (t, back)
        };
        // The stamps never decrease, so the first that is still in the window is found by halving.
        let (mut low, mut high) = (0, len);
        while low < high {
            let middle = low + (high - low) / 2;
            let age = at.saturating_sub(ring.stamp(middle).saturating_sub(shift));
            if age >= self.window {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        LogView {
            at,
            shift,
            dead: low,
            live: len - low,
        }
    }

    /// How long until the stamp at `i` is out of the window, seen from `now`.
    fn dies_in<C: StampCell>(&self, ring: Ring<'_, C>, f: &LogView, i: usize, now: Moment) -> u64 {
        let stamp = ring.stamp(i).saturating_sub(f.shift);
        let t = now.as_nanos();
        if stamp >= t {
            self.window.saturating_add(stamp - t)
        } else {
            self.window.saturating_sub(t - stamp)
        }
    }

    /// Makes a gross step back of the clock good in the ring itself.
    fn write_repair<C: StampCell>(ring: Ring<'_, C>, f: &LogView) {
        if f.shift > 0 {
            for i in 0..ring.len() {
                if let Some(cell) = ring.cell(i) {
                    cell.set(cell.get().saturating_sub(f.shift));
                }
            }
        }
    }

    /// Decides `cost` at `now`. With `take`, the ring is written; without, this is a peek.
    pub fn charge<C: StampCell>(
        &self,
        ring: Ring<'_, C>,
        now: Moment,
        cost: u64,
        take: bool,
    ) -> (Verdict, QuotaStatus) {
        let f = self.view_at(ring, now);
        let used = f.live as u64;
        if cost > self.unscaled {
            return (Verdict::Never, self.status_in(ring, &f, now, 0));
        }
        // A scale alone makes no cost impossible: a cost above the scaled limit takes the whole limit.
        let asked = cost.min(self.limit);
        // Rings are as long as the limit was when they were laid out; one that is shorter is full
        // earlier.
        let fits = used + asked <= self.limit && used + cost <= ring.stamps.len() as u64;
        if cost > 0 && !fits {
            // The oldest stamp whose expiry makes enough room.
            let to_free = (used + asked).saturating_sub(self.limit).max(1);
            let last = f.dead + usize::try_from(to_free.min(used.max(1)) - 1).unwrap_or(0);
            let retry = self.dies_in(ring, &f, last, now);
            let status = self.status_in(ring, &f, now, 0);
            if take {
                Self::write_repair(ring, &f);
            }
            return (Verdict::refuse(retry), status);
        }
        if !take || cost == 0 {
            return (Verdict::Pass, self.status_in(ring, &f, now, cost));
        }
        Self::write_repair(ring, &f);
        self.push(ring, &f, cost);
        (Verdict::Pass, self.status(ring, now))
    }

    /// Drops the expired stamps and adds `cost` at the effective moment. The caller has checked that it fits.
    fn push<C: StampCell>(&self, ring: Ring<'_, C>, f: &LogView, cost: u64) {
        let (oldest, _) = ring.bounds();
        let cost = usize::try_from(cost).unwrap_or(0);
        ring.set_bounds((oldest + f.dead) % ring.stamps.len(), f.live + cost);
        for i in 0..cost {
            if let Some(cell) = ring.cell(f.live + i) {
                cell.set(f.at);
            }
        }
    }

    /// Takes `cost` that was used already, as far as there is room. Returns what could not be taken.
    pub fn charge_saturating<C: StampCell>(
        &self,
        ring: Ring<'_, C>,
        now: Moment,
        cost: u64,
    ) -> u64 {
        let f = self.view_at(ring, now);
        let room = self
            .limit
            .min(ring.stamps.len() as u64)
            .saturating_sub(f.live as u64);
        let taken = cost.min(room);
        Self::write_repair(ring, &f);
        self.push(ring, &f, taken);
        cost - taken
    }

    /// Gives back up to `cost` units that were charged at `issued`. Exact: those very stamps go.
    pub fn refund<C: StampCell>(&self, ring: Ring<'_, C>, cost: u64, issued: Moment) {
        let len = ring.len();
        let mut left = cost;
        let mut kept = 0;
        for i in 0..len {
            let stamp = ring.stamp(i);
            if left > 0 && stamp == issued.as_nanos() {
                left -= 1;
                continue;
            }
            if let Some(cell) = ring.cell(kept) {
                cell.set(stamp);
            }
            kept += 1;
        }
        ring.set_bounds(ring.bounds().0, kept);
    }

    /// What is left at `now`.
    pub fn status<C: StampCell>(&self, ring: Ring<'_, C>, now: Moment) -> QuotaStatus {
        self.status_in(ring, &self.view_at(ring, now), now, 0)
    }

    /// What would be left at `now` with `more` taken on top.
    fn status_in<C: StampCell>(
        &self,
        ring: Ring<'_, C>,
        f: &LogView,
        now: Moment,
        more: u64,
    ) -> QuotaStatus {
        let used = f.live as u64 + more;
        let of_new = || {
            self.window
                .saturating_add(f.at.saturating_sub(now.as_nanos()))
        };
        let (full_after, next_after) = if used == 0 {
            (0, 0)
        } else {
            let newest = if more > 0 {
                of_new()
            } else {
                self.dies_in(ring, f, f.dead + f.live - 1, now)
            };
            // A limit that was lowered below what is used frees nothing until it is used less.
            let over = usize::try_from(used.saturating_sub(self.limit)).unwrap_or(0);
            let oldest = if f.live > over {
                self.dies_in(ring, f, f.dead + over, now)
            } else {
                newest
            };
            (newest, oldest)
        };
        QuotaStatus {
            remaining: self.limit.saturating_sub(used),
            full_after: Span::from_nanos(full_after),
            next_after: Span::from_nanos(next_after),
        }
    }
}
