//! Scaled limits: a limit of which only a fraction is available while a backend is overloaded.
//!
//! # Theory
//!
//! Under load shedding every key has `s` of what was promised, `0 < s <= 1` ([`Scale`]), and all of it again as
//! soon as the overload ends. A table holds millions of words, so no word may change. What changes is how words
//! are *read* ([`super::PackedAlgorithm::scaled`]).
//!
//! | algorithm | what is scaled | what is left |
//! |---|---|---|
//! | token bucket, GCRA, leaky queue | the price of a unit: `P' = ceil(P / s)`; depth `B` stays | `s * rate`, a burst of `s * capacity` |
//! | fixed and sliding window, log, permits | the limit: `max(1, floor(s * L))`; the layout stays | the scaled limit; a key above it waits until its usage is lower |
//!
//! `P'` is rounded up, so the rate is never above `s * rate`; it is below it by less than `1 / P'`, which
//! is one in a million at a thousand units a second.
//!
//! # Why the price and not the depth
//!
//! A word is a moment in ticks. With a smaller depth, a heavily used key would lie beyond the depth and be locked
//! out or repaired. With slower ticks, every word would change its meaning. Under a higher price a word keeps its
//! meaning: the time until full. That time does not change with the scale, and is reported correctly before,
//! during and after.
//!
//! # Invariant: any sequence of scales
//!
//! The proof of [`super::bucket`] does not mention the price: a pass leaves `TAT <= now + B`, and charges
//! only raise it, each by what it pays. So in any window of length `w`, however often the scale changes in
//! it, what is *paid* is at most `B + n*w`. Let `c_i` be admitted under scale `s_i`, at price
//! `P_i >= P / s_i`. Then
//!
//! ```text
//! sum c_i * P_i <= B + n*w        that is        sum c_i / s_i  <=  C + rate * w
//! ```
//!
//! With one scale this is the plain bound with the scaled numbers: at most `s*C + s*rate*w`. With several, let
//! `w_i` be the time under `s_i`, and count what is available in units at the current price. It grows by at most
//! `s_i * rate * w_i`, shrinks by what is admitted, and is revalued when the scale rises, by at most `(s_(i+1) -
//! s_i) * C`. So
//!
//! ```text
//! sum c_i  <=  s_0 * C + sum s_i * rate * w_i + C * sum max(0, s_(i+1) - s_i)
//! ```
//!
//! the scaled allowances and, over a recovery, no more than the burst that is then due anyhow.
//!
//! Counted limits: a pass under `s_i` leaves a count of at most `max(1, s_i * L)`, whatever it was before.
//!
//! # Requests larger than the scaled limit
//!
//! Load shedding must not make a request impossible that the plain limit allows: its sender would be asked to
//! split it, and could not know that waiting helps. So a cost above the scaled capacity takes *all* of it: the
//! request passes when the bucket is full, or the window empty, and leaves nothing. Windows count it whole.
//! Buckets charge `B`, less than `c * P'`, so such requests are slowed by less than `s`: one of cost `c` passes at
//! most every `B / n`, at `c / C` of the plain rate. The bound above holds for all other requests, and for these
//! with `C` in the place of `s*C`.
//!
//! # Refunds
//!
//! A refund does not know the scale of its charge. It uses the *plain* price: no charge ever paid less, so no
//! refund returns more than was taken, in any order of changes. Under pressure a refund therefore returns only `s`
//! of what it would; the rest refills like all usage. The same holds for a charge that is undone because another
//! limit of the same request refused after a lost race. Counted limits refund exactly what was counted. Usage that
//! moves from one limit to another when a policy changes moves in plain units, and is the same fraction of either.
//!
//! # Several threads
//!
//! A charge is decided under one scale, the one it read. A charge that started before the scale fell may still
//! pass under the previous scale.
//!
//! The caller of [`crate::Limiter::set_scale`] decides when there is pressure.

/// A factor in 65536ths, above zero and at most one.
///
/// ```
/// use tollgate::Scale;
///
/// let half = Scale::from_share(5_000);
/// assert_eq!(half.apply_to(10), 5);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scale(u32);

impl Scale {
    /// No pressure.
    pub const ONE: Scale = Scale(1 << 16);

    /// A scale of `q16` 65536ths, clamped to the valid range: neither zero nor above one.
    pub const fn from_q16(q16: u32) -> Scale {
        match q16 {
            0 => Scale(1),
            1..=65_536 => Scale(q16),
            _ => Scale::ONE,
        }
    }

    /// A scale in ten-thousandths, rounded up: a fifth of ten is two, not one.
    pub const fn from_share(ten_thousandths: u32) -> Scale {
        let share = if ten_thousandths > 10_000 {
            10_000
        } else {
            ten_thousandths
        };
        Scale::from_q16((share * 65_536).div_ceil(10_000))
    }

    /// The scale in ten-thousandths, rounded down, for display.
    pub const fn as_share(self) -> u32 {
        // At most 65536 * 10000, which fits.
        self.0 * 10_000 / 65_536
    }

    /// The inverse of [`Scale::as_q16`], without clamping.
    #[inline(always)]
    pub(crate) const fn from_q16_unchecked(q16: u32) -> Scale {
        debug_assert!(q16 != 0 && q16 <= 65_536);
        Scale(q16)
    }

    /// The factor in 65536ths.
    pub const fn as_q16(self) -> u32 {
        self.0
    }

    /// A counted limit under this scale: rounded down, at least 1.
    pub const fn apply_to(self, limit: u64) -> u64 {
        let scaled = (limit as u128 * self.0 as u128) >> 16;
        if scaled == 0 { 1 } else { scaled as u64 }
    }

    /// The price of a unit under this scale: `price / scale`, rounded up.
    pub const fn price(self, price: u64) -> u64 {
        let scale = self.0 as u64;
        // Nearly all prices, without the long division.
        if price >> 48 == 0 {
            return (price << 16).div_ceil(scale);
        }
        let dear = ((price as u128) << 16).div_ceil(scale as u128);
        // Above the depth of any bucket; only that matters then.
        if dear > u64::MAX as u128 {
            u64::MAX
        } else {
            dear as u64
        }
    }
}

#[cfg(test)]
mod tests;
