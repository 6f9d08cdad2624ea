//! The step of a bucket at full scale on its encoded words, for the fast path of the table.
//!
//! The same arithmetic as [`Bucket`](super::Bucket), without the cases that a fast path leaves to it: a key never used,
//! a cost of zero or above the capacity, a clock that was set back, the reserved word. For these the functions return
//! `None`, and the caller takes the general step. A test compares the two over random states.
//!
//! Units left are `free / p`. The division is a multiplication by `m = floor((2^64 - 1) / p)` and one correction: with
//! `m*p = 2^64 - e` and `0 < e <= p`, the estimate `free*m / 2^64` lies below `free / p` by `free*e / (p * 2^64)`, which is
//! less than one. So its whole part is the quotient or one less.

use super::RESERVED;
use crate::algorithm::EncodedLimit;
use crate::decision::{QuotaStatus, Verdict};
use crate::time::{Moment, Span};

/// A bucket at full scale, as encoded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FastBucket {
    n: u64,
    p: u64,
    depth: u64,
    reciprocal: u64,
}

/// The result of a charge.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FastStep {
    /// It passes with this word.
    Pass { word: u64 },
    /// It is refused; `missing` ticks are to be earned.
    Refuse { missing: u64 },
}

impl FastBucket {
    #[inline(always)]
    pub(crate) const fn from_encoded(&[n, p, depth, reciprocal]: &EncodedLimit) -> FastBucket {
        FastBucket {
            n: n & 0xffff_ffff,
            p,
            depth,
            reciprocal,
        }
    }

    /// Ticks until the bucket is full. Negative if it is.
    #[inline(always)]
    const fn ahead(&self, word: u64, ticks: u64) -> i64 {
        word.wrapping_sub(ticks).cast_signed()
    }

    #[inline(always)]
    const fn ticks(&self, now: Moment) -> u64 {
        now.as_nanos().wrapping_mul(self.n)
    }

    /// Ticks to nanoseconds, rounded up.
    #[inline(always)]
    const fn nanos(&self, ticks: u64) -> Span {
        Span::from_nanos(match self.n {
            1 => ticks,
            n => ticks.div_ceil(n),
        })
    }

    /// Decides `cost`.
    #[inline(always)]
    pub(crate) fn charge(&self, word: u64, now: Moment, cost: u64) -> Option<FastStep> {
        let need = cost.checked_mul(self.p)?;
        // A cost of zero, or one that never passes. A bucket at full scale holds at least one unit.
        if cost != 1 && need.wrapping_sub(1) >= self.depth {
            return None;
        }
        // At most 2^61, as the depth is.
        let room = self.depth.wrapping_sub(need).cast_signed();
        let ticks = self.ticks(now);
        let ahead = self.ahead(word, ticks);
        if ahead <= room {
            let base = if ahead > 0 { word } else { ticks };
            let word = base.wrapping_add(need);
            return (word != RESERVED).then_some(FastStep::Pass { word });
        }
        let missing = ahead.wrapping_sub(room).cast_unsigned();
        (ahead <= self.depth.cast_signed()).then_some(FastStep::Refuse { missing })
    }

    /// The verdict of a step.
    #[inline(always)]
    pub(crate) const fn verdict(&self, step: FastStep) -> Verdict {
        match step {
            FastStep::Pass { .. } => Verdict::Pass,
            FastStep::Refuse { missing } => Verdict::Refuse {
                retry_after: self.nanos(missing),
            },
        }
    }

    /// What is left with a word that is ahead of `now` by at most the depth, as after each step of [`FastBucket::charge`].
    #[inline(always)]
    pub(crate) const fn status(&self, word: u64, now: Moment) -> QuotaStatus {
        let ahead = self.ahead(word, self.ticks(now));
        let backlog = if ahead > 0 { ahead.cast_unsigned() } else { 0 };
        let free = self.depth.wrapping_sub(backlog);
        let estimate = ((free as u128 * self.reciprocal as u128) >> 64) as u64;
        let rest = free.wrapping_sub(estimate.wrapping_mul(self.p));
        let is_one_less = rest >= self.p;
        let remaining = estimate.wrapping_add(is_one_less as u64);
        let rest = if is_one_less {
            rest.wrapping_sub(self.p)
        } else {
            rest
        };
        // One unit more than the bucket holds is never there.
        let next = self.p.wrapping_sub(rest);
        let next = if next > backlog { 0 } else { next };
        QuotaStatus {
            remaining,
            full_after: self.nanos(backlog),
            next_after: self.nanos(next),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::Bucket;
    use super::*;
    use crate::algorithm::PackedAlgorithm;

    /// A sequence of numbers that look random.
    fn numbers() -> impl FnMut(u64) -> u64 {
        let mut state = 1u64;
        move |below| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let mixed = (state ^ state >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            ((u128::from(mixed ^ mixed >> 32) * u128::from(below)) >> 64) as u64
        }
    }

    /// A number of up to `bits` bits; small ones are as likely as large ones.
    fn spread(bits: u64, next: &mut impl FnMut(u64) -> u64) -> u64 {
        let bits = next(bits + 1);
        next(1 << bits)
    }

    #[test]
    fn the_fast_step_is_the_general_step_wherever_it_decides() {
        let rates = [
            "5/s",
            "7/3s",
            "3000/s",
            "1/day",
            "9_999_991/s",
            "1_000_000_000/s",
            "3_000_000_000/s",
        ];
        let (mut next, mut passed, mut refused) = (numbers(), 0, 0);
        for round in 0..400_000 {
            let rate = rates[round % rates.len()].parse().unwrap();
            let bucket = match round % 3 {
                0 => Bucket::gcra(rate, Span::from_nanos(next(5_000_000_000))),
                _ => Bucket::new(rate, 1 + spread(14, &mut next)),
            };
            let bucket = bucket.unwrap();
            let fast = FastBucket::from_encoded(&bucket.encode());
            let now = Moment::from_nanos(spread(63, &mut next));
            let around = (bucket.depth / 16 * next(40))
                .wrapping_add(next(4))
                .wrapping_sub(2);
            let word = bucket
                .ticks(now)
                .wrapping_add(around)
                .wrapping_sub(bucket.depth / 4);
            let cost = spread(8, &mut next);
            let Some(step) = fast.charge(word, now, cost) else {
                continue;
            };
            let general = bucket.charge(Some(word), now, cost);
            let (write, after) = match step {
                FastStep::Pass { word } => (Some(word), word),
                FastStep::Refuse { .. } => (None, word),
            };
            assert_eq!(
                (fast.verdict(step), write),
                (general.verdict, general.write),
                "{bucket:?} {word} {now:?} {cost}"
            );
            assert_eq!(
                fast.status(after, now),
                bucket.status(Some(after), now),
                "{bucket:?} {after} {now:?}"
            );
            match write {
                Some(_) => passed += 1,
                None => refused += 1,
            }
        }
        assert!(passed > 50_000 && refused > 10_000, "{passed} {refused}");
    }
}
