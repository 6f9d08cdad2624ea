//! Fixed window: a fixed number of units in each window of the clock.
//!
//! # Theory
//!
//! Time is cut into windows of length `W` from an anchor; each has its own count. The word holds the
//! low 32 bits of the window's number and the count. Only admitted cost is counted: a counter that
//! also counts refusals would let a refused 7 block a later 3.
//!
//! # Invariant
//!
//! At most `limit` in each window. So any interval no longer than `W` admits at most `2 * limit`, and a client
//! reaches that within a nanosecond of a boundary. Where that matters use a sliding window or a token bucket. A
//! fixed window suits quotas that follow the calendar.
//!
//! # When the clock steps back
//!
//! A step into the previous window keeps the stored window. After a larger step the count moves to the window that
//! the clock now shows.
//!
//! # Why not a counter with an expiry
//!
//! It starts each key's window at its first request, so its reset is not predictable, and the two steps (count,
//! set expiry) must be made one.

use super::scale::Scale;
use super::{EncodedLimit, Epoch, LimitError, PackedAlgorithm, RESERVED, Step};
use crate::decision::{QuotaStatus, Verdict};
use crate::time::{Moment, Span};

/// One less than the count has bits for, so that no word is the reserved one.
const LIMIT_MAX: u64 = u32::MAX as u64 - 1;
/// Windows are numbered in 32 bits; a quarter of that is an epoch.
const EPOCH_BITS: u32 = 30;

/// A compiled fixed window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    limit: u64,
    /// The limit without pressure; `limit` is never more.
    unscaled: u64,
    length: u64,
    /// Start of window 0, less than a window after the origin.
    anchor: u64,
}

/// The effective window of a word at a moment.
struct CurrentWindow {
    number: u64,
    count: u64,
    ends_in: u64,
    repaired: bool,
}

impl Window {
    /// At most `limit` in each window of `length`, the first of which starts at `anchor`.
    ///
    /// # Errors
    /// A limit or a length of zero, or a limit above 2^32 - 2.
    pub fn new(limit: u64, length: Span, anchor: Span) -> Result<Window, LimitError> {
        if limit == 0 {
            return Err(LimitError::ZeroCapacity { what: "limit" });
        }
        if limit > LIMIT_MAX {
            return Err(LimitError::TooLarge {
                what: "limit",
                most: LIMIT_MAX,
            });
        }
        if length.is_zero() {
            return Err(LimitError::ZeroSpan { what: "window" });
        }
        Ok(Window {
            limit,
            unscaled: limit,
            length: length.as_nanos(),
            anchor: anchor.as_nanos() % length.as_nanos(),
        })
    }

    /// The number of the window that `now` lies in, counted from 1 so that a moment before the anchor
    /// has one too, and how far into it.
    #[inline]
    const fn position(&self, now: Moment) -> (u64, u64) {
        let t = now.as_nanos();
        if t >= self.anchor {
            let from_anchor = t - self.anchor;
            (
                (from_anchor / self.length).wrapping_add(1),
                from_anchor % self.length,
            )
        } else {
            (0, self.length - (self.anchor - t))
        }
    }

    #[inline]
    fn window_at(&self, word: Option<u64>, now: Moment) -> CurrentWindow {
        let (number, into) = self.position(now);
        let ends_in = self.length - into;
        let mut now_window = CurrentWindow {
            number,
            count: 0,
            ends_in,
            repaired: false,
        };
        let Some(word) = word else { return now_window };
        let count = word & u64::from(u32::MAX);
        match (number as u32).wrapping_sub((word >> 32) as u32) as i32 {
            1.. => {}
            0 => now_window.count = count,
            -1 => {
                now_window.number = number.wrapping_add(1);
                now_window.count = count;
                now_window.ends_in = ends_in.saturating_add(self.length);
            }
            _ => {
                now_window.count = count;
                now_window.repaired = true;
            }
        }
        now_window
    }

    #[inline]
    const fn word(number: u64, count: u64) -> u64 {
        // count <= LIMIT_MAX, so this is never RESERVED.
        debug_assert!(count < RESERVED >> 32);
        (number << 32) | count
    }
}

impl PackedAlgorithm for Window {
    #[inline(always)]
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
        let w = self.window_at(word, now);
        // A scale alone makes no cost impossible: a cost above the scaled limit takes the whole limit.
        if w.count + cost.min(self.limit) <= self.limit {
            return Step {
                verdict: Verdict::Pass,
                write: Some(Window::word(w.number, w.count + cost)),
            };
        }
        Step {
            verdict: Verdict::refuse(w.ends_in),
            write: w.repaired.then(|| Window::word(w.number, w.count)),
        }
    }

    fn refund(&self, word: u64, now: Moment, cost: u64, issued: Moment) -> Option<u64> {
        let (number, _) = self.position(issued);
        if number as u32 != (word >> 32) as u32 || self.is_unused(word, now) {
            return None; // charged in a window that is over: nothing of it counts any more
        }
        let count = (word & u64::from(u32::MAX)).saturating_sub(cost);
        Some(Window::word(number, count))
    }

    /// The same windows with room for `max` in each, under the same pressure: for a limit whose number comes
    /// with the call. Never more than there is room for in these; with 0 nothing passes.
    fn with_max(&self, max: u32) -> Self {
        let unscaled = u64::from(max).min(self.unscaled);
        let limit = match self.limit == self.unscaled {
            true => unscaled,
            // Both are below 2^32.
            false => (unscaled * self.limit / self.unscaled.max(1)).max(unscaled.min(1)),
        };
        Window {
            limit,
            unscaled,
            ..*self
        }
    }

    fn charge_saturating(&self, word: Option<u64>, now: Moment, cost: u64) -> (Option<u64>, u64) {
        let w = self.window_at(word, now);
        let taken = cost.min(self.limit.saturating_sub(w.count));
        let write = (taken > 0).then(|| Window::word(w.number, w.count + taken));
        (write, cost - taken)
    }

    fn status(&self, word: Option<u64>, now: Moment) -> QuotaStatus {
        let w = self.window_at(word, now);
        let reset = Span::from_nanos(if w.count > 0 { w.ends_in } else { 0 });
        QuotaStatus {
            remaining: self.limit.saturating_sub(w.count),
            full_after: reset,
            next_after: reset,
        }
    }

    #[inline]
    fn is_unused(&self, word: u64, now: Moment) -> bool {
        self.window_at(Some(word), now).count == 0
    }

    fn epoch(&self, now: Moment) -> Epoch {
        // Window 1 starts at the anchor, so window 0 would start one window before it.
        let mut epoch =
            Epoch::from_parts(self.position(now).0, EPOCH_BITS, self.length, self.anchor);
        if epoch.number == 0 {
            epoch.lasts = epoch.lasts.saturating_sub(self.length - self.anchor);
            epoch.from = 0;
        } else {
            epoch.from -= self.length;
        }
        epoch
    }

    fn repair_after_clock_step(&self, word: u64, now: Moment) -> u64 {
        Window::word(self.position(now).0, word & u64::from(u32::MAX))
    }

    fn convert(&self, old: &Self, word: u64, now: Moment) -> Option<u64> {
        let w = old.window_at(Some(word), now);
        // Usage carries over to the current window, whatever its length.
        let same = (old.length, old.anchor) == (self.length, self.anchor);
        let number = if same { w.number } else { self.position(now).0 };
        (w.count > 0).then(|| Window::word(number, w.count))
    }

    #[cold]
    fn scaled(&self, scale: Scale) -> Self {
        Window {
            limit: scale.apply_to(self.unscaled),
            ..*self
        }
    }

    fn capacity(&self) -> u64 {
        self.unscaled
    }

    #[inline(always)]
    fn encode(&self) -> EncodedLimit {
        [self.unscaled, self.length, self.anchor, 0]
    }

    #[inline(always)]
    fn from_encoded(&[limit, length, anchor, ..]: &EncodedLimit) -> Self {
        Window {
            limit,
            unscaled: limit,
            length,
            anchor,
        }
    }
}
