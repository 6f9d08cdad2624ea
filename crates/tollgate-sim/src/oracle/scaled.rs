//! A token bucket on a clock that can be slowed.
//!
//! # Theory
//!
//! Instead of changing every bucket under pressure, their clock is slowed: `dV/dt = scale`, a
//! fraction in 65536ths. The clock is kept in 65536ths of a virtual nanosecond, so a change of scale
//! loses nothing, and a bucket reads it in whole nanoseconds, rounded down. All waits the bucket
//! tells are virtual; the real wait is the first nanosecond at which the virtual clock has come so
//! far.
//!
//! # When the clock steps back
//!
//! Behind the last change of scale the virtual clock stands still, so it never runs backwards
//! through a change. After it, a small step back is a small virtual step back, and the bucket's own
//! rule holds.

use super::bucket::TokenBucket;
use super::{Answer, Verdict, ceil_div, to_u64};

/// The scale of an ordinary clock.
pub const FULL_SCALE: u32 = 1 << 16;

/// A token bucket on the virtual clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScaledBucket {
    bucket: TokenBucket,
    /// Real time of the last change of scale.
    changed_at: u64,
    /// Virtual time of the last change of scale, in 65536ths of a nanosecond.
    virtual_then: i128,
    /// 65536ths of a virtual nanosecond per real one.
    scale: i128,
}

impl ScaledBucket {
    /// A full bucket on a clock at full scale.
    pub fn new(cap: u64, n: u64, p_ns: u64) -> Self {
        Self {
            bucket: TokenBucket::new(cap, n, p_ns),
            changed_at: 0,
            virtual_then: 0,
            scale: i128::from(FULL_SCALE),
        }
    }

    /// Runs the clock at `q16` 65536ths of its speed from `t` on; zero is read as one.
    pub fn set_scale(&mut self, t: u64, q16: u32) {
        self.virtual_then = self.fine(t);
        self.changed_at = self.changed_at.max(t);
        self.scale = i128::from(q16.max(1));
    }

    /// The virtual time at `t`, in whole nanoseconds.
    pub fn virtual_time(&self, t: u64) -> u64 {
        to_u64(self.fine(t) >> 16)
    }

    /// Takes `cost` at `t` if the level covers it.
    pub fn check(&mut self, t: u64, cost: u64) -> Answer {
        let answer = self.bucket.check(self.virtual_time(t), cost);
        Answer {
            verdict: match answer.verdict {
                Verdict::Refuse { retry_after } => Verdict::Refuse {
                    retry_after: self.real_wait(t, retry_after),
                },
                other => other,
            },
            remaining: answer.remaining,
            reset_after: self.real_wait(t, answer.reset_after),
            next_after: self.real_wait(t, answer.next_after),
        }
    }

    /// What [`ScaledBucket::check`] would answer.
    pub fn peek(&self, t: u64, cost: u64) -> Answer {
        let mut copy = *self;
        copy.check(t, cost)
    }

    /// The virtual time at `t`, in 65536ths of a nanosecond.
    fn fine(&self, t: u64) -> i128 {
        self.virtual_then + i128::from(t.saturating_sub(self.changed_at)) * self.scale
    }

    /// The real time from `t` in which `wait` virtual nanoseconds pass.
    fn real_wait(&self, t: u64, wait: u64) -> u64 {
        if wait == 0 {
            return 0;
        }
        let goal = (i128::from(self.virtual_time(t)) + i128::from(wait)) << 16;
        let standing = i128::from(self.changed_at.saturating_sub(t));
        to_u64(standing + ceil_div(goal - self.fine(t), self.scale))
    }
}

#[cfg(test)]
mod tests {
    use super::super::promises;
    use super::*;

    #[test]
    fn waits_are_minimal_in_real_time_at_every_scale() {
        for (seed, q16) in [(1, FULL_SCALE), (2, 58_982), (3, 6_554), (4, 3)] {
            let mut bucket = ScaledBucket::new(9, 7, 3_000);
            bucket.set_scale(777, q16);
            let step = 900 * u64::from(FULL_SCALE / q16.min(FULL_SCALE)).min(1_000);
            promises::hold(
                bucket,
                seed,
                (step, 200, 10),
                ScaledBucket::check,
                ScaledBucket::peek,
            );
        }
    }

    #[test]
    fn at_full_scale_nothing_is_changed() {
        let (mut plain, mut scaled) = (TokenBucket::new(3, 7, 30), ScaledBucket::new(3, 7, 30));
        for t in 0..200 {
            assert_eq!(plain.check(t, t % 4), scaled.check(t, t % 4));
        }
    }

    #[test]
    fn the_clock_stands_still_behind_the_last_change_of_scale() {
        let mut bucket = ScaledBucket::new(3, 1, 10);
        bucket.set_scale(100, FULL_SCALE / 2);
        assert_eq!(bucket.virtual_time(40), 100);
        assert!(bucket.check(40, 3).passed());
        assert_eq!(
            bucket.peek(40, 1).verdict,
            Verdict::Refuse { retry_after: 80 }
        );
        assert!(!bucket.peek(119, 1).passed());
        assert!(bucket.peek(120, 1).passed());
    }
}
