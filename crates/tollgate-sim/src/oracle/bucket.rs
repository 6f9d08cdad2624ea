//! Buckets in their literal form: a level of tokens that rises with time.
//!
//! # Theory
//!
//! Capacity `C`, `n` tokens per `P` nanoseconds, `n/P` in lowest terms. The level is kept in units
//! of `1/P` token: a token is `P` units, a nanosecond earns `n` units, and a full bucket holds
//! `C*P`. Then
//!
//! ```text
//! level(t) = min(full, level(t') + (t - t')*n)
//! ```
//!
//! is exact for every rate, and a request of cost `c` passes if and only if `level(t) >= c*P`.
//! A GCRA meter is the same bucket with `full = tau*n + P`, possibly a fraction of a token more than
//! a whole number of them. A leaky queue is the same bucket again, its level being the room left in
//! the queue; what is missing from full is the work ahead of the next arrival.
//!
//! # When the clock steps back
//!
//! The line is followed backwards, below zero if need be: what was earned between the two readings
//! is taken away again, so nothing is earned twice. A level more than [`REPAIR_NS`] of income below
//! zero would lock the client out until the clock has caught up, so the bucket restarts empty
//! instead. That is the only thing a refused request writes.
//!
//! # Refunds
//!
//! Tokens given back late would push the level above what it would have been had they never been
//! taken, because a full bucket throws its income away. So what has been earned since the charge is
//! held back: `max(0, c*P - (t2 - t1)*n)` units return. If that is nothing, nothing is written.
//!
//! # Debts
//!
//! A cost that is known afterwards is taken from the level also below zero, down to `-debt` tokens. What is beyond that is
//! forgiven. A level below zero by no more than that is no clock that stepped back.
//!
//! # Another capacity or rate
//!
//! Tokens missing from full stay missing. A full bucket is as good as one never used and is forgotten
//! then; one more than [`REPAIR_NS`] of income below zero, by the clock or by a lowered capacity, restarts
//! empty at that moment.

use super::{OracleDecision, OracleVerdict, PASS, at_least_one, ceil_div, to_u64};
use crate::model::{KeyModel, ModelChange};

/// How far back the clock may step before the state is taken to be from another clock.
pub const REPAIR_NS: u64 = 1_000_000_000;

/// How much a full bucket holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Size {
    /// Whole tokens.
    Tokens(u64),
    /// The income of this many nanoseconds and one token: a GCRA meter.
    Tolerance(u64),
    /// The income of `earned_ns` nanoseconds and whole tokens.
    Credits { earned_ns: i128, tokens: u64 },
}

impl Size {
    /// Units in a full bucket.
    fn full(self, per_ns: i128, per_token: i128) -> i128 {
        let (earned_ns, tokens) = match self {
            Self::Tokens(tokens) => (0, tokens),
            Self::Tolerance(tau_ns) => (i128::from(tau_ns), 1),
            Self::Credits { earned_ns, tokens } => (earned_ns, tokens),
        };
        earned_ns
            .saturating_mul(per_ns)
            .saturating_add(i128::from(tokens).saturating_mul(per_token))
    }
}

/// A token bucket or a GCRA meter for one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OracleBucket {
    size: Size,
    /// Units in a full bucket.
    full: i128,
    /// Units in one token: `P`.
    per_token: i128,
    /// Units earned in one nanosecond: `n`.
    per_ns: i128,
    /// Units below zero that a cost known afterwards may take.
    debt: i128,
    /// The level at the time of the last write. Nothing stored is a bucket never used, which is full
    /// at any time, before and after.
    stored: Option<(u64, i128)>,
}

impl OracleBucket {
    /// A full bucket of `cap` tokens that earns `n` every `p_ns`.
    pub fn token_bucket(cap: u64, n: u64, p_ns: u64) -> Self {
        Self::new(n, p_ns, Size::Tokens(cap))
    }

    /// A GCRA meter never used: one cell every `p_ns/n`, each up to `tau_ns` early.
    pub fn gcra(n: u64, p_ns: u64, tau_ns: u64) -> Self {
        Self::new(n, p_ns, Size::Tolerance(tau_ns))
    }

    /// A full bucket that holds the income of `earned_ns` and `tokens`.
    pub(super) fn credits(n: u64, p_ns: u64, earned_ns: i128, tokens: u64) -> Self {
        Self::new(n, p_ns, Size::Credits { earned_ns, tokens })
    }

    fn new(n: u64, p_ns: u64, size: Size) -> Self {
        let (per_ns, per_token) = lowest_terms(at_least_one(n), at_least_one(p_ns));
        Self {
            size,
            full: size.full(per_ns, per_token),
            per_token,
            per_ns,
            debt: 0,
            stored: None,
        }
    }

    /// The same bucket, which takes up to `tokens` more for costs that are known afterwards.
    #[must_use]
    pub fn with_debt(mut self, tokens: u64) -> Self {
        self.debt = self.units(tokens);
        self
    }

    /// Takes `cost` as far as it may go below zero.
    fn take_late(&mut self, t: u64, cost: u64) {
        let level = self.at(t).max(-self.debt);
        let taken = self.units(cost).min(level + self.debt);
        if taken > 0 {
            self.stored = Some((t, level - taken));
        }
    }

    /// The level at `t` as stored, negative if the clock stepped back below it.
    fn stored_at(&self, t: u64) -> i128 {
        match self.stored {
            None => self.full,
            Some((at, level)) => {
                let earned = (i128::from(t) - i128::from(at)).saturating_mul(self.per_ns);
                level.saturating_add(earned).min(self.full)
            }
        }
    }

    fn is_gross(&self, t: u64) -> bool {
        self.stored_at(t) < -(i128::from(REPAIR_NS).saturating_mul(self.per_ns)) - self.debt
    }

    /// The level that decides at `t`: a state from far in the future counts as empty.
    fn at(&self, t: u64) -> i128 {
        if self.is_gross(t) {
            0
        } else {
            self.stored_at(t)
        }
    }

    /// Restarts empty at `t` if the clock stepped back too far to wait for.
    pub(super) fn repair(&mut self, t: u64) {
        if self.is_gross(t) {
            self.stored = Some((t, 0));
        }
    }

    fn units(&self, cost: u64) -> i128 {
        i128::from(cost).saturating_mul(self.per_token)
    }

    /// How long until a level now at `level` reaches `need`.
    fn wait(&self, level: i128, need: i128) -> i128 {
        ceil_div(need.saturating_sub(level).max(0), self.per_ns)
    }

    /// How long, from `t`, until `cost` could be taken; `None` if it never can.
    pub(super) fn wait_for(&self, t: u64, cost: u64) -> Option<u64> {
        let need = self.units(cost);
        (need <= self.full).then(|| to_u64(self.wait(self.at(t), need)))
    }

    /// How long the work ahead of an arrival at `t` takes.
    fn missing_time(&self, t: u64) -> u64 {
        to_u64(ceil_div(self.full - self.at(t), self.per_ns))
    }

    pub(super) fn answer(&self, t: u64, verdict: OracleVerdict) -> OracleDecision {
        let level = self.at(t);
        let shown = level.max(0);
        let remaining = shown / self.per_token;
        let one_more = (remaining + 1).saturating_mul(self.per_token);
        let next = if one_more > self.full {
            0
        } else {
            self.wait(level, one_more)
        };
        OracleDecision {
            verdict,
            remaining: to_u64(remaining),
            // Debt from a clock behind the state is not part of the debt of the bucket: once the
            // clock has caught up, an empty bucket fills in the usual time.
            reset_after: to_u64(ceil_div(self.full - level.max(-self.debt), self.per_ns)),
            next_after: to_u64(next),
        }
    }

    /// The verdict on `cost` at `t`, without taking it.
    pub(super) fn judge(&self, t: u64, cost: u64) -> OracleVerdict {
        let need = self.units(cost);
        let level = self.at(t);
        if need > self.full {
            OracleVerdict::Never
        } else if cost == 0 || level >= need {
            PASS
        } else {
            OracleVerdict::Refuse {
                retry_after: to_u64(self.wait(level, need)),
            }
        }
    }

    /// Takes `cost`, which `Level::judge` has admitted.
    pub(super) fn take(&mut self, t: u64, cost: u64) {
        if cost > 0 {
            self.stored = Some((t, self.at(t) - self.units(cost)));
        }
    }

    /// Writes what `verdict` on `cost` at `t` writes, and reports what is left.
    pub(super) fn settle(&mut self, t: u64, cost: u64, verdict: OracleVerdict) -> OracleDecision {
        match verdict {
            OracleVerdict::Pass { .. } => self.take(t, cost),
            OracleVerdict::Refuse { .. } => self.repair(t),
            OracleVerdict::Never => {}
        }
        self.answer(t, verdict)
    }

    /// The size is another, the rate the same. What is missing from full stays missing, so the
    /// difference is given or taken at once.
    fn resize(&mut self, t: u64, size: Size) {
        let full = size.full(self.per_ns, self.per_token);
        self.forget_if_full(t);
        self.repair(t);
        if let Some((_, level)) = &mut self.stored {
            *level += full - self.full;
        }
        (self.size, self.full) = (size, full);
        self.repair(t);
    }

    fn forget_if_full(&mut self, t: u64) {
        if self.at(t) >= self.full {
            self.stored = None;
        }
    }

    /// The rate is another. The tokens missing from full stay missing, rounded up to a unit of the new
    /// rate, against the client. The same rate in other words changes nothing.
    fn set_rate(&mut self, t: u64, n: u64, p_ns: u64) {
        let mut next = Self::new(n, p_ns, self.size);
        if (next.per_ns, next.per_token) == (self.per_ns, self.per_token) {
            return self.resize(t, self.size);
        }
        self.forget_if_full(t);
        if self.stored.is_some() {
            let missing = self.full - self.at(t).max(0);
            let missing = ceil_div(missing.saturating_mul(next.per_token), self.per_token);
            next.stored = Some((t, next.full - missing.min(next.full)));
        }
        *self = next;
    }

    fn refund(&mut self, t: u64, cost: u64, issued: u64) {
        let earned_since = i128::from(t.saturating_sub(issued)).saturating_mul(self.per_ns);
        let back = self.units(cost) - earned_since;
        // A bucket never used has nothing to be given back.
        if back > 0 && self.stored.is_some() {
            let level = self.at(t).max(-self.debt);
            let level = level.saturating_add(back).min(self.full);
            self.stored = Some((t, level));
        }
    }
}

impl KeyModel for OracleBucket {
    fn check(&mut self, t: u64, cost: u64) -> OracleDecision {
        self.settle(t, cost, self.judge(t, cost))
    }

    fn change(&mut self, t: u64, change: ModelChange) -> Result<OracleDecision, String> {
        match (change, self.size) {
            (ModelChange::Refund { cost, issued }, _) => self.refund(t, cost, issued),
            (ModelChange::Late { cost }, _) => self.take_late(t, cost),
            (ModelChange::SetCap { cap }, Size::Tokens(_)) => self.resize(t, Size::Tokens(cap)),
            (ModelChange::SetRate { n, p_ns }, _) => self.set_rate(t, n, p_ns),
            _ => return Err(change.unsupported()),
        }
        Ok(self.answer(t, PASS))
    }
}

fn lowest_terms(n: i128, p: i128) -> (i128, i128) {
    let (mut divisor, mut rest) = (n, p);
    while rest != 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    (n / divisor, p / divisor)
}

/// A leaky bucket as a queue of `queue` units of work, the one in service included.
///
/// There is no refund: giving a slot back would schedule a later arrival on top of one that is
/// already promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OracleLeakyQueue {
    /// Longest wait that a request may get.
    max_wait: Option<u64>,
    /// The room left in the queue.
    room: OracleBucket,
}

impl OracleLeakyQueue {
    /// An empty queue that drains `n` units every `p_ns`.
    pub fn new(queue: u64, n: u64, p_ns: u64, max_wait: Option<u64>) -> Self {
        Self {
            max_wait,
            room: OracleBucket::token_bucket(queue, n, p_ns),
        }
    }
}

impl KeyModel for OracleLeakyQueue {
    /// Joins the queue at `t` with `cost` units of work.
    ///
    /// A full queue refuses first: its wait is the time until there is room, even where the longest
    /// wait would then still refuse.
    fn check(&mut self, t: u64, cost: u64) -> OracleDecision {
        let mut verdict = self.room.judge(t, cost);
        if verdict == PASS && cost > 0 {
            let delay = self.room.missing_time(t);
            verdict = match self.max_wait {
                Some(longest) if delay > longest => OracleVerdict::Refuse {
                    retry_after: delay - longest,
                },
                _ => OracleVerdict::Pass { delay },
            };
        }
        self.room.settle(t, cost, verdict)
    }

    fn change(&mut self, t: u64, change: ModelChange) -> Result<OracleDecision, String> {
        match change {
            ModelChange::Refund { .. } => Err(change.unsupported()),
            _ => self.room.change(t, change),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::promises;
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn waits_of_a_token_bucket_are_minimal_for_rates_that_divide_nothing() {
        for (seed, n, p) in [
            (1, 7, 3_000),
            (2, 3, 1),
            (3, 1, 1_000),
            (4, 999, 1_000),
            (5, 10, 4),
        ] {
            let step = 2 * p / n + 3;
            promises::hold(OracleBucket::token_bucket(9, n, p), seed, (step, step, 11));
        }
    }

    #[test]
    fn waits_of_a_meter_are_minimal_when_its_capacity_is_no_whole_number() {
        for (seed, tau) in [(1, 0), (2, 333), (3, 1_999), (4, 5_001)] {
            promises::hold(OracleBucket::gcra(7, 3_000, tau), seed, (700, 300, 13));
        }
    }

    #[test]
    fn waits_of_a_queue_without_a_longest_wait_are_minimal() {
        promises::hold(OracleLeakyQueue::new(6, 3, 1_000, None), 8, (500, 200, 7));
    }

    #[test]
    fn a_longest_wait_refuses_until_the_work_ahead_is_short_enough() {
        let mut queue = OracleLeakyQueue::new(100, 3, 1_000, Some(500));
        for _ in 0..2 {
            assert!(queue.check(0, 1).passed());
        }
        // Two units ahead take 666.67 ns, reported as 667.
        let answer = queue.check(0, 1);
        assert_eq!(answer.verdict, OracleVerdict::Refuse { retry_after: 167 });
        assert!(!queue.peek(166, 1).passed());
        assert_eq!(
            queue.peek(167, 1).verdict,
            OracleVerdict::Pass { delay: 500 }
        );
    }

    #[test]
    fn no_interval_admits_more_than_the_burst_and_its_income() {
        let mut rng = crate::rng::Rng::new(77);
        let mut bucket = OracleBucket::token_bucket(5, 3, 1_000);
        let (mut t, mut taken) = (0u64, Vec::new());
        for _ in 0..2_000 {
            t += rng.below(400);
            let cost = 1 + rng.below(3);
            if bucket.check(t, cost).passed() {
                taken.push((t, cost));
            }
        }
        for (i, &(from, _)) in taken.iter().enumerate() {
            let mut sum = 0;
            for &(to, cost) in taken.iter().skip(i).take(200) {
                sum += cost;
                assert!(sum * 1_000 <= 5 * 1_000 + (to - from) * 3);
            }
        }
    }

    #[test]
    fn a_bucket_from_far_in_the_future_restarts_empty_even_when_it_refuses() {
        let mut bucket = OracleBucket::token_bucket(10, 10, SECOND);
        assert!(bucket.check(100 * SECOND, 10).passed());
        let edge = 99 * SECOND;
        assert_eq!(
            bucket.peek(edge, 1).verdict,
            OracleVerdict::Refuse {
                retry_after: SECOND + SECOND / 10
            }
        );
        let repaired = OracleVerdict::Refuse {
            retry_after: SECOND / 10,
        };
        assert_eq!(bucket.peek(edge - 1, 1).verdict, repaired);
        assert_eq!(
            bucket.stored,
            Some((100 * SECOND, 0)),
            "a peek does not repair"
        );
        assert!(bucket.check(edge - 1, 0).passed());
        assert_eq!(
            bucket.stored,
            Some((100 * SECOND, 0)),
            "a query does not repair"
        );
        assert_eq!(bucket.check(edge - 1, 1).verdict, repaired);
        assert_eq!(bucket.stored, Some((edge - 1, 0)));
    }

    #[test]
    fn a_refund_holds_back_what_was_earned_meanwhile() {
        let mut bucket = OracleBucket::token_bucket(10, 1, SECOND);
        bucket.check(0, 5);
        bucket.check(3 * SECOND, 1);
        let mut refunded = |cost, issued| {
            bucket.refund(3 * SECOND, cost, issued);
            bucket.peek(3 * SECOND, 0).remaining
        };
        assert_eq!(refunded(5, 0), 9);
        assert_eq!(refunded(1, 3 * SECOND), 10);
        assert_eq!(refunded(1, 3 * SECOND), 10, "never above full");
    }

    #[test]
    fn a_new_rate_does_not_move_what_remains() {
        let mut bucket = OracleBucket::token_bucket(10, 7, 3_000);
        bucket.check(0, 6);
        let before = bucket.peek(500, 0).remaining;
        bucket.set_rate(500, 13, 1_000);
        assert_eq!(bucket.peek(500, 0).remaining, before);
    }

    #[test]
    fn the_largest_cost_is_never_and_the_largest_time_is_a_time() {
        let mut bucket = OracleBucket::token_bucket(5, 7, 3 * SECOND);
        assert_eq!(
            bucket.check(u64::MAX, u64::MAX).verdict,
            OracleVerdict::Never
        );
        assert!(bucket.check(u64::MAX, 5).passed());
        assert_eq!(
            bucket.check(0, 1).verdict,
            OracleVerdict::Refuse {
                retry_after: 428_571_429
            }
        );
    }
}
