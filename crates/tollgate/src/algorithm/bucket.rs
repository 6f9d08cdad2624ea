//! Token bucket and GCRA meter: one number, the *theoretical arrival time*.
//!
//! # Theory
//!
//! A bucket of capacity `C` earns one unit every `T`. Let the *backlog* be the time it needs to be full again: `W
//! = (missing units) * T`. It shrinks by one second a second, so the moment `TAT = now + W` does not change
//! between charges, and storing it stores the whole state. With `B = C * T`, a cost `c` passes at `now` if and
//! only if
//!
//! ```text
//! max(TAT, now) + c*T - now  <=  B        and then  TAT = max(TAT, now) + c*T
//! ```
//!
//! which is the generic cell rate algorithm with tolerance `B - T`. A token bucket *is* a GCRA whose
//! tolerance is a whole number of units; [`Bucket::gcra`] allows any tolerance.
//!
//! # Exact for every ratio
//!
//! `T` need not be a whole number of nanoseconds. Reduce the rate to `n` units in `p` nanoseconds and count time
//! in units of `1/n` ns: one unit of cost is `p` ticks, one nanosecond is `n` ticks, all integers and nothing
//! rounded. Only where `n` is above 2^20 or `C*p` above 2^61 is `T` rounded, and then **up**: never more than was
//! promised, slower by less than 4e-8 for usual rates ([`Bucket::is_exact`] reports which).
//!
//! # Invariant
//!
//! After a pass at `now`, `TAT <= now + B`, and each charge moves the TAT by at least its cost. So any
//! window of length `w` admits at most `C + w/T`, for any interleaving of threads and any order of
//! their clock readings. That bound is reached: a full bucket, then the refill.
//!
//! # When the clock steps back
//!
//! The TAT does not change, so time already credited is not credited again and callers wait longer. If the TAT
//! lies more than a second beyond what a pass could have left, the clock was set: the bucket restarts *empty* at
//! the new now.
//!
//! # Debt
//!
//! A cost that is known afterwards cannot be refused. A bucket with a debt ([`Bucket::with_debt`]) takes it beyond empty: the
//! TAT moves up to `C + debt` units ahead, and nothing passes until enough is earned. A limit that replaces a deeper one
//! keeps what was used there in the same way ([`Bucket::with_backlog`]). Both move the bound from which on a clock was set
//! back, so a key waits at most until its debt is earned, even after such a step.
//!
//! # Under a scale
//!
//! A unit has a higher price: `p` grows, the depth stays. [`super::scale`] has the proof.
//!
//! # Why not two words (level and last update)
//!
//! They must change together, so every charge would be a lock or a double-width swap, and every
//! refill rounds. One word needs neither.

mod fast;

pub(crate) use fast::{FastBucket, FastStep};

use super::scale::Scale;
use super::{
    CLOCK_STEP_NS, EncodedLimit, Epoch, LimitError, PackedAlgorithm, RESERVED, Refund, Step,
    mul_div_ceil,
};
use crate::decision::{QuotaStatus, Verdict};
use crate::rate::Rate;
use crate::time::{Moment, Span};

/// Finest subdivision of a nanosecond: keeps unit clocks from wrapping within hours.
const TICKS_PER_NS_MAX: u64 = 1 << 20;
/// Deepest backlog: a quarter of the range of a signed word, so that no sum below overflows.
const DEPTH_MAX: u64 = 1 << 61;
/// An epoch is this many bits of the tick clock: twice the depth, a quarter of the word's range.
const EPOCH_BITS: u32 = 62;
/// Binary digits of a debt that are kept.
const DEBT_DIGITS: u32 = 19;
/// Bits of [`Bucket::beyond`] that are a debt: its digits, and above them how many zeros follow.
const DEBT_BITS: u32 = DEBT_DIGITS + 6;

/// A compiled bucket: everything a decision needs, as integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Ticks in a nanosecond.
    n: u64,
    /// Ticks that one unit of cost is worth.
    p: u64,
    /// The same without pressure; `p` is never less.
    unscaled: u64,
    /// Ticks in a full bucket.
    depth: u64,
    exact: bool,
    /// How far beyond empty a backlog may go: the debt, and above [`DEBT_BITS`] the binary logarithm of the units that an
    /// earlier limit may have left. Only what does not pass looks at it. 31 bits.
    beyond: u32,
}

impl Bucket {
    /// `capacity` units, earned at `rate`.
    ///
    /// # Errors
    /// A capacity of zero, or one that takes more than 73 years to fill.
    pub fn new(rate: Rate, capacity: u64) -> Result<Bucket, LimitError> {
        if capacity == 0 {
            return Err(LimitError::ZeroCapacity { what: "burst" });
        }
        let (n, p) = rate.reduced();
        let depth = |p: u128| {
            u64::try_from(p.checked_mul(u128::from(capacity))?)
                .ok()
                .filter(|d| *d <= DEPTH_MAX)
        };
        if n <= TICKS_PER_NS_MAX
            && let Some(depth) = depth(u128::from(p))
        {
            return Ok(Bucket {
                n,
                p,
                unscaled: p,
                depth,
                exact: true,
                beyond: 0,
            });
        }
        // The finest tick that fits; the time for a unit is rounded up, never down.
        for e in (0..=TICKS_PER_NS_MAX.ilog2()).rev() {
            let rounded = (u128::from(p) << e).div_ceil(u128::from(n));
            if let (Some(depth), Ok(p)) = (depth(rounded), u64::try_from(rounded)) {
                return Ok(Bucket {
                    n: 1 << e,
                    p,
                    unscaled: p,
                    depth,
                    exact: false,
                    beyond: 0,
                });
            }
        }
        Err(LimitError::TooSlow)
    }

    /// A GCRA meter: one cell every `1/rate`, and `tolerance` earlier than due still conforms.
    ///
    /// # Errors
    /// A tolerance of more than 73 years.
    pub fn gcra(rate: Rate, tolerance: Span) -> Result<Bucket, LimitError> {
        Bucket::holding(rate, 1, tolerance)
    }

    /// A bucket that holds `capacity` units and what `rate` earns in `more`, including fractions of a unit.
    pub(super) fn holding(rate: Rate, capacity: u64, more: Span) -> Result<Bucket, LimitError> {
        let base = Bucket::new(rate, capacity)?;
        let depth = u128::from(more.as_nanos()) * u128::from(base.n) + u128::from(base.depth);
        match u64::try_from(depth) {
            Ok(depth) if depth <= DEPTH_MAX => Ok(Bucket { depth, ..base }),
            _ => Err(LimitError::TooSlow),
        }
    }

    /// A bucket on a clock of `n` ticks in a nanosecond: a unit is worth `p` ticks, and a full bucket `depth`. For stores
    /// whose clock is coarser than a nanosecond.
    pub const fn from_ticks(n: u64, p: u64, depth: u64) -> Bucket {
        Bucket {
            n,
            p,
            unscaled: p,
            depth,
            exact: true,
            beyond: 0,
        }
    }

    /// The same bucket, which takes up to `units` more than it holds for costs that are known afterwards. Of numbers above
    /// 524 287 nineteen binary digits are kept ([`Bucket::debt`]).
    ///
    /// # Errors
    /// A bucket and a debt that take more than 73 years to earn.
    pub fn with_debt(self, units: u64) -> Result<Bucket, LimitError> {
        let deepest = u128::from(units) * u128::from(self.unscaled) + u128::from(self.depth);
        if deepest > u128::from(DEPTH_MAX) {
            return Err(LimitError::TooSlow);
        }
        let zeros = (u64::BITS - units.leading_zeros()).saturating_sub(DEBT_DIGITS);
        let digits = u32::try_from(units >> zeros).unwrap_or(0);
        let kept = self.beyond >> DEBT_BITS << DEBT_BITS;
        Ok(Bucket {
            beyond: kept | zeros << DEBT_DIGITS | digits,
            ..self
        })
    }

    /// Units that it takes beyond empty.
    pub const fn debt(&self) -> u64 {
        let digits = self.beyond & ((1 << DEBT_DIGITS) - 1);
        (digits as u64) << ((self.beyond >> DEBT_DIGITS) & 0x3f)
    }

    /// The same bucket, in place of one that may have left a backlog of `units`: none of it is forgiven.
    #[must_use]
    pub fn with_backlog(self, units: u64) -> Bucket {
        if u128::from(units) * u128::from(self.unscaled) <= u128::from(self.deepest()) {
            return self;
        }
        let log = (64 - (units - 1).leading_zeros()).min(63);
        Bucket {
            beyond: self.beyond & ((1 << DEBT_BITS) - 1) | log << DEBT_BITS,
            ..self
        }
    }

    /// Ticks ahead that a TAT has at the most after a charge: a full bucket and the debt.
    #[inline]
    pub const fn deepest(&self) -> u64 {
        // At most DEPTH_MAX: `with_debt` checks it.
        self.depth
            .saturating_add(self.debt().saturating_mul(self.unscaled))
    }

    /// Ticks ahead that a TAT has at the most, unless the clock was set back: [`Bucket::deepest`], or what an earlier limit may
    /// have left.
    #[inline]
    pub const fn farthest(&self) -> u64 {
        let deepest = self.deepest();
        let kept = (self.unscaled as u128) << (self.beyond >> DEBT_BITS);
        if kept <= deepest as u128 || self.beyond >> DEBT_BITS == 0 {
            deepest
        } else if kept < DEPTH_MAX as u128 {
            kept as u64
        } else {
            DEPTH_MAX
        }
    }

    /// Whether the rate is kept exactly. Otherwise the time for a unit was rounded up.
    pub const fn is_exact(&self) -> bool {
        self.exact
    }

    /// The unit clock: wraps, and is only ever compared by signed differences.
    #[inline]
    const fn ticks(&self, now: Moment) -> u64 {
        now.as_nanos().wrapping_mul(self.n)
    }

    /// Ticks to nanoseconds, rounded **up**: a wait one nanosecond short would be refused again.
    #[inline]
    const fn nanos(&self, ticks: u64) -> u64 {
        // Most rates reduce to one tick a nanosecond, which needs no division.
        if self.n == 1 {
            ticks
        } else {
            ticks.div_ceil(self.n)
        }
    }

    /// How far the TAT lies ahead of `now`, and whether the clock was set back, because the distance is impossible
    /// otherwise. The bucket then counts as just emptied.
    #[inline]
    const fn ahead(&self, word: Option<u64>, ticks: u64) -> (u64, bool) {
        let Some(tat) = word else { return (0, false) };
        let difference = tat.wrapping_sub(ticks);
        if difference > i64::MAX as u64 {
            return (0, false);
        }
        if difference > self.depth {
            return self.beyond_empty(difference);
        }
        (difference, false)
    }

    /// The same for a TAT that lies further ahead than the bucket is deep.
    #[cold]
    const fn beyond_empty(&self, difference: u64) -> (u64, bool) {
        if difference > self.farthest() + CLOCK_STEP_NS * self.n {
            return (self.depth, true);
        }
        (difference, false)
    }

    /// The backlog of a word: how far its TAT lies ahead, without what only a small step of the clock explains.
    #[inline]
    const fn backlog(&self, word: Option<u64>, ticks: u64) -> u64 {
        self.capped(self.ahead(word, ticks).0)
    }

    /// The backlog of a TAT that lies so far ahead.
    #[inline]
    const fn capped(&self, raw: u64) -> u64 {
        if raw <= self.depth {
            return raw;
        }
        let farthest = self.farthest();
        if raw < farthest { raw } else { farthest }
    }

    /// The ticks that `cost` is worth, unless the bucket never holds as many.
    #[inline]
    pub(super) const fn worth(&self, cost: u64) -> Option<u64> {
        match cost.checked_mul(self.p) {
            Some(ticks) if ticks <= self.depth => Some(ticks),
            _ => self.whole_for(cost),
        }
    }

    /// A scale alone makes no cost impossible: a cost above the scaled bucket takes the whole bucket.
    #[cold]
    const fn whole_for(&self, cost: u64) -> Option<u64> {
        match cost.checked_mul(self.unscaled) {
            Some(ticks) if ticks <= self.depth => Some(self.depth),
            _ => None,
        }
    }

    /// Units in a full bucket, charged one by one. At least one, if it holds one without pressure.
    const fn holds(&self) -> u64 {
        match self.depth / self.p {
            0 if self.depth >= self.unscaled => 1,
            units => units,
        }
    }

    /// The word for a backlog at `ticks`. The reserved word is one tick later: stricter by less than
    /// a nanosecond, once in 2^64.
    #[inline]
    const fn word(ticks: u64, backlog: u64) -> u64 {
        match ticks.wrapping_add(backlog) {
            RESERVED => 0,
            word => word,
        }
    }

    /// The step of a refused charge. Separate, so that the passing path stays small.
    #[inline(never)]
    fn refused(&self, word: Option<u64>, ticks: u64, need: u64) -> Step {
        let (raw, repaired) = self.ahead(word, ticks);
        Step {
            // Cannot overflow: raw <= 2^61 + H*n, need <= depth, depth <= 2^61, H*n <= 2^50.
            verdict: Verdict::refuse(self.nanos(raw + need - self.depth)),
            write: if repaired {
                Some(Bucket::word(ticks, self.depth))
            } else {
                None
            },
        }
    }

    /// Ticks in a nanosecond, and ticks that one unit of cost is worth without pressure.
    #[inline]
    pub(crate) const fn grid(&self) -> (u64, u64) {
        (self.n, self.unscaled)
    }

    /// Gives back what a charge took beyond what was used, only if nothing was charged after it. At the unscaled
    /// price: no charge paid less, so if the backlog is worth no more, no later charge is part of it.
    pub(super) fn refund_last(&self, word: u64, now: Moment, refund: &Refund) -> Option<u64> {
        let Refund {
            charged,
            kept,
            issued,
            delay,
        } = *refund;
        // A clock that was set back since has taken no time.
        let (waited, delayed) = (now.since(issued).as_nanos(), delay.as_nanos());
        let ahead = delayed.saturating_sub(waited).saturating_mul(self.n);
        let gone = waited.saturating_sub(delayed).saturating_mul(self.n);
        let still = |cost: u64| {
            let left = cost.saturating_mul(self.unscaled).saturating_sub(gone);
            left.saturating_add(ahead)
        };
        let (out, stays) = (still(charged), still(kept));
        let ticks = self.ticks(now);
        let backlog = self.backlog(Some(word), ticks);
        // A delay is rounded up to a nanosecond. A later charge is worth more than that, or nothing is given back.
        let rounded = if delay > Span::ZERO && self.unscaled >= self.n {
            self.n - 1
        } else {
            0
        };
        let is_last = out.checked_sub(backlog);
        let is_last = is_last.is_some_and(|earlier| earlier <= rounded);
        (stays < backlog && is_last).then(|| Bucket::word(ticks, stays))
    }

    /// The time until the bucket is full, before and apart from any new charge. For queues: the wait.
    #[inline]
    pub(super) fn drain_ns(&self, word: Option<u64>, now: Moment) -> u64 {
        self.nanos(self.backlog(word, self.ticks(now)))
    }
}

impl PackedAlgorithm for Bucket {
    #[inline(always)]
    fn charge(&self, word: Option<u64>, now: Moment, cost: u64) -> Step {
        let Some(need) = self.worth(cost) else {
            return Step::never();
        };
        if need == 0 {
            return Step {
                verdict: Verdict::Pass,
                write: None,
            };
        }
        let ticks = self.ticks(now);
        // How far the TAT lies ahead; nothing if it lies behind. What is too far to be anything but a
        // clock that was set back does not pass either, so that is only looked at below.
        let difference = word.map_or(0, |tat| tat.wrapping_sub(ticks));
        let raw = if difference > i64::MAX as u64 {
            0
        } else {
            difference
        };
        if raw <= self.depth - need {
            return Step {
                verdict: Verdict::Pass,
                write: Some(Bucket::word(ticks, raw + need)),
            };
        }
        self.refused(word, ticks, need)
    }

    fn refund(&self, word: u64, now: Moment, cost: u64, issued: Moment) -> Option<u64> {
        // What refilled since `issued` would have overflowed a bucket that was never charged, so only the rest
        // comes back. At the unscaled price: no charge paid less, under any scale.
        let refilled = now.since(issued).as_nanos().saturating_mul(self.n);
        let back = cost.saturating_mul(self.unscaled).saturating_sub(refilled);
        if back == 0 {
            return None;
        }
        let ticks = self.ticks(now);
        let backlog = self.backlog(Some(word), ticks).saturating_sub(back);
        Some(Bucket::word(ticks, backlog))
    }

    fn charge_saturating(&self, word: Option<u64>, now: Moment, cost: u64) -> (Option<u64>, u64) {
        let ticks = self.ticks(now);
        let backlog = self.backlog(word, ticks);
        let wanted = u128::from(cost) * u128::from(self.p);
        let room = self.deepest().saturating_sub(backlog);
        let taken = u64::try_from(wanted).unwrap_or(u64::MAX).min(room);
        let unpaid = (wanted - u128::from(taken)).div_ceil(u128::from(self.p));
        let write = (taken > 0).then(|| Bucket::word(ticks, backlog + taken));
        (write, u64::try_from(unpaid).unwrap_or(u64::MAX))
    }

    fn usage(&self, word: Option<u64>, now: Moment) -> u64 {
        let debt = self
            .backlog(word, self.ticks(now))
            .saturating_sub(self.depth);
        let left = self.status(word, now).remaining;
        let used = self.capacity().saturating_sub(left);
        used.saturating_add(debt.div_ceil(self.p))
    }

    fn status(&self, word: Option<u64>, now: Moment) -> QuotaStatus {
        let (raw, _) = self.ahead(word, self.ticks(now));
        let backlog = self.capped(raw);
        let free = self.depth.saturating_sub(backlog);
        let remaining = if backlog == 0 {
            self.holds()
        } else {
            free / self.p
        };
        QuotaStatus {
            remaining,
            full_after: Span::from_nanos(self.nanos(backlog)),
            // From the backlog as it is, not capped: after a step back of the clock more is left only
            // when time has caught up.
            // (As many as the bucket holds: then less than one unit is missing.)
            next_after: Span::from_nanos(if backlog < self.p && remaining == self.holds() {
                0
            } else {
                let need = self.p.saturating_mul(remaining + 1).min(self.depth);
                self.nanos(raw - (self.depth - need))
            }),
        }
    }

    #[inline]
    fn is_unused(&self, word: u64, now: Moment) -> bool {
        self.ahead(Some(word), self.ticks(now)).0 == 0
    }

    fn epoch(&self, now: Moment) -> Epoch {
        let n = u128::from(self.n);
        // 64 + 20 bits of ticks, less the bits of an epoch: fits.
        let number = ((u128::from(now.as_nanos()) * n) >> EPOCH_BITS) as u64;
        // The first nanosecond at or after the tick that begins an epoch.
        let begin =
            |epoch: u128| u64::try_from((epoch << EPOCH_BITS).div_ceil(n)).unwrap_or(u64::MAX);
        let from = begin(u128::from(number));
        Epoch {
            number,
            from,
            lasts: begin(u128::from(number) + 1) - from,
        }
    }

    fn repair_after_clock_step(&self, _word: u64, now: Moment) -> u64 {
        Bucket::word(self.ticks(now), self.depth)
    }

    fn convert(&self, old: &Self, word: u64, now: Moment) -> Option<u64> {
        let (raw, _) = old.ahead(Some(word), old.ticks(now));
        if raw == 0 {
            return None;
        }
        // Units missing from full are kept. Under the same rate the whole distance is kept, so that
        // a capacity that is lowered and raised again gives nothing away (unless it is beyond repair).
        let backlog = if (old.n, old.p) == (self.n, self.p) {
            self.ahead(Some(raw), 0).0
        } else {
            mul_div_ceil(raw.min(old.farthest()), self.p, old.p)
                .unwrap_or(u64::MAX)
                .min(self.farthest())
        };
        Some(Bucket::word(self.ticks(now), backlog))
    }

    #[cold]
    fn scaled(&self, scale: Scale) -> Self {
        Bucket {
            p: scale.price(self.unscaled),
            ..*self
        }
    }

    fn capacity(&self) -> u64 {
        self.depth / self.unscaled
    }

    #[inline(always)]
    fn encode(&self) -> EncodedLimit {
        // `n` is at most 2^20: the bits above are free.
        [
            self.n | u64::from(self.exact) << 32 | u64::from(self.beyond) << 33,
            self.unscaled,
            self.depth,
            u64::MAX / self.unscaled,
        ]
    }

    #[inline(always)]
    fn from_encoded(&[n, p, depth, _]: &EncodedLimit) -> Self {
        Bucket {
            n: n & 0xffff_ffff,
            p,
            unscaled: p,
            depth,
            exact: n >> 32 & 1 != 0,
            beyond: (n >> 33) as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(rate: &str, capacity: u64) -> Bucket {
        Bucket::new(rate.parse().unwrap(), capacity).unwrap()
    }

    fn at(ns: u64) -> Moment {
        Moment::from_nanos(ns)
    }

    #[test]
    fn usual_rates_are_kept_exactly() {
        for (rate, n, p) in [
            ("5/s", 1, 200_000_000),
            ("7/3s", 7, 3_000_000_000),
            ("3000/s", 3, 1_000_000),
            ("1/day", 1, 86_400_000_000_000),
            ("10_000_000/s", 1, 100),
            ("3_000_000_000/s", 3, 1),
        ] {
            let b = bucket(rate, 1);
            assert_eq!((b.n, b.p, b.exact), (n, p, true), "{rate}");
        }
    }

    #[test]
    fn a_rate_that_does_not_fit_is_rounded_against_the_client() {
        let b = bucket("9_999_991/s", 1);
        assert_eq!((b.n, b.p, b.exact), (1 << 20, 104_857_695, false));
    }

    #[test]
    fn a_bucket_that_fills_in_more_than_73_years_is_an_error() {
        let rate: Rate = "1/day".parse().unwrap();
        assert!(Bucket::new(rate, 26_687).is_ok());
        assert_eq!(Bucket::new(rate, u64::MAX), Err(LimitError::TooSlow));
        assert_eq!(Bucket::gcra(rate, Span::MAX), Err(LimitError::TooSlow));
    }

    #[test]
    fn a_burst_of_zero_is_an_error_and_not_unlimited() {
        let error = Bucket::new("5/s".parse().unwrap(), 0).unwrap_err();
        assert_eq!(error.to_string(), "a burst of 0 would refuse every request");
    }

    #[test]
    fn a_denied_request_costs_nothing() {
        let b = bucket("1/s", 1);
        let word = b.charge(None, at(0), 1).write;
        let step = b.charge(word, at(0), 1);
        assert_eq!(step.write, None);
        assert_eq!(step.verdict, Verdict::refuse(1_000_000_000));
    }

    #[test]
    fn the_reserved_word_is_never_written() {
        let b = bucket("1/s", 2);
        let now = at(u64::MAX - 1_000_000_000);
        let step = b.charge(None, now, 1);
        assert_eq!(step.write, Some(0));
        assert!(!b.is_unused(0, now));
    }

    #[test]
    fn a_late_cost_takes_what_is_left_and_returns_the_unpaid_units() {
        let b = bucket("1/s", 10);
        let (word, unpaid) = b.charge_saturating(None, at(0), 14);
        assert_eq!(unpaid, 4);
        assert_eq!(b.status(word, at(0)).remaining, 0);
        assert_eq!(b.charge_saturating(word, at(0), u64::MAX).1, u64::MAX);
    }

    const S: u64 = 1_000_000_000;

    #[test]
    fn a_cost_known_afterwards_goes_into_debt_up_to_its_bound() {
        let b = bucket("1/s", 10).with_debt(20).unwrap();
        let word = b.charge(None, at(0), 5).write;
        let (word, unpaid) = b.charge_saturating(word, at(0), 15);
        assert_eq!(unpaid, 0);
        let status = b.status(word, at(0));
        assert_eq!(
            (status.remaining, status.full_after),
            (0, Span::from_secs(20))
        );
        assert_eq!(status.next_after, Span::from_secs(11));
        assert_eq!(b.usage(word, at(0)), 20);
        // The wait holds, to the nanosecond.
        assert_eq!(b.charge(word, at(0), 3).verdict, Verdict::refuse(13 * S));
        assert_eq!(
            b.charge(word, at(13 * S - 1), 3).verdict,
            Verdict::refuse(1)
        );
        assert_eq!(b.charge(word, at(13 * S), 3).verdict, Verdict::Pass);
        // What is beyond the bound is forgiven.
        let (word, unpaid) = b.charge_saturating(word, at(0), 15);
        assert_eq!((unpaid, b.usage(word, at(0))), (5, 30));
        assert_eq!(b.charge_saturating(word, at(0), 1), (None, 1));
    }

    #[test]
    fn a_debt_is_no_clock_that_was_set_back() {
        let b = bucket("1/s", 10).with_debt(20).unwrap();
        let (word, _) = b.charge_saturating(None, at(100 * S), 30);
        assert_eq!(b.charge(word, at(100 * S), 1).write, None);
        assert_eq!(b.charge(word, at(99 * S), 1).write, None, "a small step");
        let repaired = b.charge(word, at(99 * S - 1), 1).write;
        assert_eq!(
            repaired,
            Some(109 * S - 1),
            "a large step leaves an empty bucket"
        );
    }

    #[test]
    fn a_refund_pays_a_debt() {
        let b = bucket("1/s", 10).with_debt(20).unwrap();
        let (word, _) = b.charge_saturating(None, at(0), 30);
        let word = b.refund(word.unwrap(), at(0), 12, at(0));
        assert_eq!(b.usage(word, at(0)), 18);
    }

    #[test]
    fn a_debt_is_kept_under_another_rate() {
        let b = bucket("1/s", 10).with_debt(20).unwrap();
        let (word, _) = b.charge_saturating(None, at(0), 25);
        let faster = bucket("5/s", 10).with_debt(20).unwrap();
        let word = faster.convert(&b, word.unwrap(), at(0));
        assert_eq!(faster.usage(word, at(0)), 25);
        let scaled = Scale::from_q16(32_768);
        assert_eq!(
            faster.scaled(scaled).charge(word, at(0), 1).verdict,
            Verdict::refuse(3_400_000_000)
        );
    }

    #[test]
    fn a_debt_that_takes_more_than_73_years_is_an_error() {
        let b = bucket("1/day", 1000);
        assert!(b.with_debt(25_687).is_ok());
        assert_eq!(b.with_debt(25_700), Err(LimitError::TooSlow));
        assert_eq!(b.with_debt(u64::MAX), Err(LimitError::TooSlow));
    }

    #[test]
    fn a_large_debt_is_kept_to_nineteen_binary_digits() {
        for (units, kept) in [
            (0, 0),
            (524_287, 524_287),
            (524_289, 524_288),
            (u64::MAX >> 6, (1 << 58) - (1 << 39)),
        ] {
            let bucket = bucket("3_000_000_000/s", 1).with_debt(units).unwrap();
            assert_eq!(bucket.debt(), kept);
        }
    }

    #[test]
    fn a_burst_that_is_lowered_and_raised_gives_nothing_away() {
        let (low, high) = (bucket("10/s", 5000), bucket("10/s", 6000));
        let kept = low.with_backlog(6000);
        let mut word = high.charge(None, at(0), 6000).write;
        for _ in 0..3 {
            word = kept.convert(&high, word.unwrap(), at(0));
            let step = kept.charge(word, at(0), 1);
            assert_eq!(
                (step.write, step.verdict),
                (None, Verdict::refuse(100 * S + S / 10))
            );
            word = high.convert(&kept, word.unwrap(), at(0));
            assert_eq!(high.status(word, at(0)).remaining, 0);
        }
        // No more than what there was is remembered, however often.
        assert_eq!(low.with_backlog(5000), low);
        assert_eq!(kept.with_backlog(6000), kept);
        assert_eq!(kept.farthest(), 8192 * 100_000_000);
    }

    #[test]
    fn a_bucket_survives_its_words() {
        let b = bucket("7/3s", 10).with_debt(20).unwrap().with_backlog(1000);
        assert_eq!(Bucket::from_encoded(&b.encode()), b);
        assert_eq!(b.deepest(), 30 * 3_000_000_000);
        assert_eq!(b.farthest(), 1024 * 3_000_000_000);
        assert_eq!(b.with_backlog(u64::MAX).farthest(), DEPTH_MAX);
    }
}
