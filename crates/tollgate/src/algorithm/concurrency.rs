//! Concurrency limit: bounds how many requests of a key run at once. A permit that is not released expires.
//!
//! # Theory
//!
//! A permit is a *lease*: it counts until it is released or until it expires, at least `ttl` after it was
//! granted or last renewed. A key's state fits one word: time is cut into intervals of `ttl / (slots - 1)`,
//! and the word counts the permits granted in each of the last few intervals. A permit remembers its interval;
//! releasing it counts that interval down, if it is still in the word. It lives at most an interval longer than
//! `ttl`.
//!
//! # Invariant
//!
//! The word never holds more than `limit` unexpired permits. A holder that continues after its permit has expired
//! is outside this bound. A holder must renew in time (a third of the `ttl` is a good interval) and must stop when
//! renewing reports that the permit is lost.
//!
//! # When the clock steps back
//!
//! Within an interval, permits expire later by the size of the step: nothing is admitted on repeated time. A step
//! back by more than an interval moves the counts to the interval that the clock now shows.
//!
//! # Why not a plain counter
//!
//! A holder that crashes between increment and decrement leaks its permit for ever.
//!
//! # Why not an expiry for each holder
//!
//! It would be exact to the nanosecond, but needs one word for each holder of each key.

use super::scale::Scale;
use super::{EncodedLimit, Epoch, LimitError, PackedAlgorithm, Step};
use crate::decision::{QuotaStatus, Verdict};
use crate::time::{Moment, Span};

/// Bits of the interval's number in the word.
const INTERVAL_BITS: u32 = 16;
/// Most intervals in the word.
const SLOTS_MAX: usize = 6;

/// A concurrency limit: permits counted by the interval they were granted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permits {
    limit: u64,
    /// The limit without pressure, which the word is laid out for; `limit` is never more.
    unscaled: u64,
    /// Length of an interval.
    interval: u64,
    /// Epochs in the word. A permit counts for `slots - 1` intervals after its own.
    slots: u32,
}

/// The effective counts at a moment.
struct PermitCounts {
    interval: u64,
    /// Newest first.
    counts: [u64; SLOTS_MAX],
    into: u64,
    early: u64,
    repaired: bool,
}

impl Permits {
    /// Grants at most `limit` permits at once, each for at least `ttl` and at most 1.2, 1.34 or 1.5 times that.
    /// The larger the limit (up to 255, 4095, 65 535), the coarser the expiry.
    ///
    /// # Errors
    /// A limit or `ttl` of zero, or a limit above 65 535.
    pub fn new(limit: u64, ttl: Span) -> Result<Permits, LimitError> {
        if limit == 0 {
            return Err(LimitError::ZeroCapacity { what: "limit" });
        }
        if ttl.is_zero() {
            return Err(LimitError::ZeroSpan { what: "lease" });
        }
        let slots = match limit {
            0..=255 => 6,
            256..=4095 => 4,
            4096..=65_535 => 3,
            _ => {
                return Err(LimitError::TooLarge {
                    what: "number of permits",
                    most: 65_535,
                });
            }
        };
        Ok(Permits {
            limit,
            unscaled: limit,
            interval: ttl.as_nanos().div_ceil(slots - 1),
            slots: slots as u32,
        })
    }

    /// The length of an interval, and how many of them are counted.
    pub const fn intervals(&self) -> (Span, u32) {
        (Span::from_nanos(self.interval), self.slots)
    }

    /// The word for these counts, newest first, the newest being that of interval number `interval`. A count
    /// above what the word has room for is cut.
    pub fn word_of(&self, interval: u64, counts: impl Iterator<Item = u64>) -> u64 {
        let mut state = self.counts_at(None, Moment::ORIGIN);
        state.interval = interval;
        let most = (1 << self.count_bits()) - 1;
        for (to, count) in state.counts.iter_mut().zip(counts) {
            *to = count.min(most);
        }
        self.word(&state)
    }

    const fn count_bits(&self) -> u32 {
        (64 - INTERVAL_BITS) / self.slots
    }

    fn counts_at(&self, word: Option<u64>, now: Moment) -> PermitCounts {
        let interval = now.as_nanos() / self.interval;
        let into = now.as_nanos() % self.interval;
        let mut state = PermitCounts {
            interval,
            counts: [0; SLOTS_MAX],
            into,
            early: 0,
            repaired: false,
        };
        let Some(word) = word else { return state };
        let mut counts = [0; SLOTS_MAX];
        let mut bits = word;
        for count in counts.iter_mut().take(self.slots as usize) {
            *count = bits & ((1 << self.count_bits()) - 1);
            bits >>= self.count_bits();
        }
        match (interval as u16).wrapping_sub((word >> (64 - INTERVAL_BITS)) as u16) as i16 {
            0 => state.counts = counts,
            ahead @ 1.. => {
                let kept = (self.slots as usize).saturating_sub(ahead as usize);
                for (i, count) in counts.iter().take(kept).enumerate() {
                    if let Some(to) = state.counts.get_mut(i + ahead as usize) {
                        *to = *count;
                    }
                }
            }
            -1 => {
                state.counts = counts;
                state.interval = interval.wrapping_add(1);
                state.early = self.interval - into;
                state.into = 0;
            }
            _ => {
                state.counts = counts;
                state.repaired = true;
            }
        }
        state
    }

    fn word(&self, state: &PermitCounts) -> u64 {
        let counts = state.counts.iter().take(self.slots as usize).rev();
        let packed = counts.fold(0, |bits, count| bits << self.count_bits() | count);
        state.interval << (64 - INTERVAL_BITS) | packed
    }

    /// How long until the permits of the slot `i` intervals old expire.
    fn expires_in(&self, state: &PermitCounts, i: usize) -> u64 {
        let intervals = u64::from(self.slots).saturating_sub(i as u64);
        (intervals.saturating_mul(self.interval) - state.into).saturating_add(state.early)
    }

    /// The wait until at most `most` permits are left, if none is released earlier.
    fn wait_until_at_most(&self, state: &PermitCounts, most: u64) -> u64 {
        let mut live: u64 = state.counts.iter().sum();
        for i in (0..self.slots as usize).rev() {
            live -= state.counts.get(i).copied().unwrap_or(0);
            if live <= most {
                return self.expires_in(state, i);
            }
        }
        0
    }
}

impl PackedAlgorithm for Permits {
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
        let mut state = self.counts_at(word, now);
        let live: u64 = state.counts.iter().sum();
        // A scale alone makes no cost impossible: a cost above the scaled limit takes the whole limit.
        let asked = cost.min(self.limit);
        if live + asked <= self.limit {
            state.counts[0] += cost;
            return Step {
                verdict: Verdict::Pass,
                write: Some(self.word(&state)),
            };
        }
        Step {
            verdict: Verdict::refuse(self.wait_until_at_most(&state, self.limit - asked)),
            write: state.repaired.then(|| self.word(&state)),
        }
    }

    /// A refund is a release: `cost` permits that were granted at `issued` are given back.
    fn refund(&self, word: u64, now: Moment, cost: u64, issued: Moment) -> Option<u64> {
        let mut state = self.counts_at(Some(word), now);
        let age = state
            .interval
            .checked_sub(issued.as_nanos() / self.interval)?;
        let count = state.counts.get_mut(usize::try_from(age).ok()?)?;
        if *count == 0 {
            return None;
        }
        *count = count.saturating_sub(cost);
        Some(self.word(&state))
    }

    fn renew(&self, word: u64, now: Moment, count: u64, issued: Moment) -> Option<u64> {
        let mut state = self.counts_at(Some(word), now);
        let age = usize::try_from(
            state
                .interval
                .checked_sub(issued.as_nanos() / self.interval)?,
        )
        .ok()?;
        let from = state.counts.get_mut(age).filter(|c| **c >= count)?;
        *from -= count;
        state.counts[0] += count;
        Some(self.word(&state))
    }

    fn charge_saturating(&self, word: Option<u64>, now: Moment, cost: u64) -> (Option<u64>, u64) {
        let mut state = self.counts_at(word, now);
        let live: u64 = state.counts.iter().sum();
        let taken = cost.min(self.limit.saturating_sub(live));
        state.counts[0] += taken;
        ((taken > 0).then(|| self.word(&state)), cost - taken)
    }

    fn status(&self, word: Option<u64>, now: Moment) -> QuotaStatus {
        let state = self.counts_at(word, now);
        let live: u64 = state.counts.iter().sum();
        let newest = state.counts.iter().position(|c| *c > 0);
        let wait = |most: u64| Span::from_nanos(self.wait_until_at_most(&state, most));
        QuotaStatus {
            remaining: self.limit.saturating_sub(live),
            full_after: newest.map_or(Span::ZERO, |i| Span::from_nanos(self.expires_in(&state, i))),
            next_after: if live == 0 {
                Span::ZERO
            } else {
                wait(live.min(self.limit) - 1)
            },
        }
    }

    fn is_unused(&self, word: u64, now: Moment) -> bool {
        self.counts_at(Some(word), now)
            .counts
            .iter()
            .all(|c| *c == 0)
    }

    fn epoch(&self, now: Moment) -> Epoch {
        Epoch::from_parts(
            now.as_nanos() / self.interval,
            INTERVAL_BITS - 2,
            self.interval,
            0,
        )
    }

    fn repair_after_clock_step(&self, word: u64, now: Moment) -> u64 {
        let low = word & (u64::MAX >> INTERVAL_BITS);
        (now.as_nanos() / self.interval) << (64 - INTERVAL_BITS) | low
    }

    fn convert(&self, old: &Self, word: u64, now: Moment) -> Option<u64> {
        let before = old.counts_at(Some(word), now);
        let mut state = self.counts_at(None, now);
        let room = (1u64 << self.count_bits()) - 1;
        if (self.slots, self.interval) == (old.slots, old.interval) {
            state = before;
        } else {
            // Other intervals: all that is held counts as granted just now.
            state.counts[0] = before.counts.iter().sum::<u64>().min(room);
        }
        let fresh = state.counts.iter().all(|c| *c == 0);
        (!fresh).then(|| self.word(&state))
    }

    #[cold]
    fn scaled(&self, scale: Scale) -> Self {
        Permits {
            limit: scale.apply_to(self.unscaled),
            ..*self
        }
    }

    fn capacity(&self) -> u64 {
        self.unscaled
    }

    #[inline(always)]
    fn encode(&self) -> EncodedLimit {
        [self.unscaled, self.interval, u64::from(self.slots), 0]
    }

    #[inline(always)]
    fn from_encoded(&[limit, interval, slots, ..]: &EncodedLimit) -> Self {
        Permits {
            limit,
            unscaled: limit,
            interval,
            slots: slots as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Moment {
        Moment::from_nanos(s * 1_000_000_000)
    }

    #[test]
    fn a_permit_lives_at_least_its_ttl_and_at_most_a_fifth_more() {
        let p = Permits::new(2, Span::from_secs(4)).unwrap();
        for start in 0..8 {
            let word = p.charge(None, at(start), 2).write;
            assert!(!p.charge(word, at(start + 4), 1).verdict.is_admitted());
            assert!(p.charge(word, at(start + 5), 1).verdict.is_admitted());
        }
    }

    #[test]
    fn releasing_frees_one_permit_and_a_second_release_frees_none() {
        let p = Permits::new(2, Span::from_secs(4)).unwrap();
        let word = p.charge(None, at(0), 1).write.unwrap();
        let word = p.charge(Some(word), at(1), 1).write.unwrap();
        let word = p.refund(word, at(2), 1, at(0)).unwrap();
        assert_eq!(p.status(Some(word), at(2)).remaining, 1);
        assert_eq!(p.refund(word, at(2), 1, at(0)), None);
    }

    #[test]
    fn renewing_moves_the_expiry_and_reports_a_lost_permit() {
        let p = Permits::new(1, Span::from_secs(4)).unwrap();
        let word = p.charge(None, at(0), 1).write.unwrap();
        let word = p.renew(word, at(3), 1, at(0)).unwrap();
        assert!(!p.charge(Some(word), at(7), 1).verdict.is_admitted());
        assert_eq!(p.renew(word, at(20), 1, at(3)), None);
    }

    #[test]
    fn the_promised_wait_is_the_shortest_that_helps() {
        let p = Permits::new(3, Span::from_secs(4)).unwrap();
        let word = p.charge(None, at(0), 1).write;
        let word = p.charge(word, at(2), 2).write;
        for cost in 1..=3 {
            let Verdict::Refuse { retry_after } = p.charge(word, at(3), cost).verdict else {
                panic!("must be refused");
            };
            let then = at(3).plus(retry_after);
            assert!(p.charge(word, then, cost).verdict.is_admitted());
            let before = then.minus(Span::from_nanos(1));
            assert!(!p.charge(word, before, cost).verdict.is_admitted());
        }
    }
}
