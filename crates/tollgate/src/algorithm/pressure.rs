//! Scaling all limits at once under pressure: a clock that runs slower.
//!
//! # Theory
//!
//! To give every bucket of a group less, millions of entries need not be touched: let the group live
//! on a *virtual clock* `V` that advances `scale` as fast as the real one, `0 < scale <= 1`. Every
//! refill slows down by exactly that factor, in one step, and at scale 1 nothing has changed.
//! `scale` is a number of 65536ths and the virtual time is kept with 16 more bits, so that nothing is
//! rounded from one change to the next.
//!
//! # Invariant
//!
//! `V` never runs backward and never faster than real time, so every bound that holds on it holds in
//! real time with the rate scaled. Bursts that were saved already stay.
//!
//! # Where a clock is not enough
//!
//! A clock slows down all that runs on it, minutes of the calendar included, and there is one for all
//! limits. Where each limit has to give way by itself it is read under a scale instead:
//! [`super::under`].
//!
//! # Counted limits
//!
//! Windows, logs and permits do not refill; there the *limit* is scaled when it is read
//! ([`Scale::of`]), never below 1.
//!
//! # Why not lower every rate
//!
//! That changes the unit of every stored word, key by key, and back again when the pressure is gone.

use crate::time::{Moment, Span};

/// A factor in 65536ths, above zero and at most one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scale(u32);

impl Scale {
    /// No pressure.
    pub const ONE: Scale = Scale(1 << 16);

    /// `q16` 65536ths; anything outside is brought to the nearest end: never a stop, never a gift.
    pub const fn from_q16(q16: u32) -> Scale {
        match q16 {
            0 => Scale(1),
            1..=65_536 => Scale(q16),
            _ => Scale::ONE,
        }
    }

    /// A share in ten-thousandths, rounded up: a fifth of ten is two, not one.
    pub const fn from_share(ten_thousandths: u32) -> Scale {
        let share = if ten_thousandths > 10_000 {
            10_000
        } else {
            ten_thousandths
        };
        Scale::from_q16((share * 65_536).div_ceil(10_000))
    }

    /// As a share in ten-thousandths, rounded down: for people.
    pub const fn as_share(self) -> u32 {
        // At most 65536 * 10000, which fits.
        self.0 * 10_000 / 65_536
    }

    /// What [`Scale::as_q16`] told, taken at its word.
    #[inline(always)]
    pub(crate) const fn again(q16: u32) -> Scale {
        debug_assert!(q16 != 0 && q16 <= 65_536);
        Scale(q16)
    }

    /// The factor in 65536ths.
    pub const fn as_q16(self) -> u32 {
        self.0
    }

    /// A counted limit under this scale: rounded down, at least 1.
    pub const fn of(self, limit: u64) -> u64 {
        let scaled = (limit as u128 * self.0 as u128) >> 16;
        if scaled == 0 { 1 } else { scaled as u64 }
    }

    /// What a unit costs when only this much of all is left: `price / scale`, rounded up.
    pub const fn price(self, price: u64) -> u64 {
        let scale = self.0 as u64;
        // Nearly all prices, without the long division.
        if price >> 48 == 0 {
            return (price << 16).div_ceil(scale);
        }
        let dear = ((price as u128) << 16).div_ceil(scale as u128);
        // Dearer than any bucket is deep, which is all that matters then.
        if dear > u64::MAX as u128 {
            u64::MAX
        } else {
            dear as u64
        }
    }
}

/// A clock that runs at `scale` of the real one since its last change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VirtualClock {
    /// Virtual time at `since`, in 65536ths of a nanosecond.
    virtual_q16: u128,
    since: Moment,
    scale: Scale,
}

impl Default for VirtualClock {
    fn default() -> VirtualClock {
        VirtualClock::new()
    }
}

impl VirtualClock {
    /// Virtual time equal to real time, from the origin on.
    pub const fn new() -> VirtualClock {
        VirtualClock {
            virtual_q16: 0,
            since: Moment::ORIGIN,
            scale: Scale::ONE,
        }
    }

    /// The clock as four words, for whoever shares it between threads.
    pub(crate) const fn to_words(self) -> [u64; 4] {
        [
            self.virtual_q16 as u64,
            (self.virtual_q16 >> 64) as u64,
            self.since.as_nanos(),
            self.scale.0 as u64,
        ]
    }

    pub(crate) const fn from_words([low, high, since, scale]: [u64; 4]) -> VirtualClock {
        VirtualClock {
            virtual_q16: (high as u128) << 64 | low as u128,
            since: Moment::from_nanos(since),
            scale: Scale::from_q16(scale as u32),
        }
    }

    /// The scale in force.
    pub const fn scale(&self) -> Scale {
        self.scale
    }

    const fn at_q16(&self, now: Moment) -> u128 {
        let real = now.since(self.since).as_nanos() as u128;
        self.virtual_q16 + real * self.scale.0 as u128
    }

    /// The virtual moment at `now`.
    pub const fn at(&self, now: Moment) -> Moment {
        Moment::from_nanos((self.at_q16(now) >> 16) as u64)
    }

    /// Runs at another scale from `now` on.
    pub const fn set(&mut self, now: Moment, scale: Scale) {
        self.virtual_q16 = self.at_q16(now);
        if now.as_nanos() > self.since.as_nanos() {
            self.since = now;
        }
        self.scale = scale;
    }

    /// The real time from `now` until `span` of virtual time has passed since the virtual moment of
    /// `now`, rounded up.
    pub fn real(&self, now: Moment, span: Span) -> Span {
        if span.is_zero() {
            return Span::ZERO;
        }
        let target = (u128::from(self.at(now).as_nanos()) + u128::from(span.as_nanos())) << 16;
        let wait = target
            .saturating_sub(self.at_q16(now))
            .div_ceil(u128::from(self.scale.0));
        // Before the last change, if the clock stepped back, virtual time stands still.
        let standing = u128::from(self.since.since(now).as_nanos());
        Span::from_nanos(u64::try_from(wait + standing).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_scale_one_virtual_time_is_real_time() {
        let clock = VirtualClock::new();
        for ns in [0, 1, 999, u64::MAX] {
            assert_eq!(clock.at(Moment::from_nanos(ns)), Moment::from_nanos(ns));
        }
        assert_eq!(
            clock.real(Moment::from_nanos(5), Span::from_nanos(7)),
            Span::from_nanos(7)
        );
    }

    #[test]
    fn every_share_that_people_write_is_told_as_it_was_written() {
        for share in 1..=10_000 {
            let scale = Scale::from_share(share);
            assert_eq!(scale.as_share(), share);
            assert!(scale.of(10_000) >= u64::from(share));
        }
        assert_eq!(Scale::from_share(2_000).of(10), 2);
        assert_eq!(Scale::from_share(10_000), Scale::ONE);
        assert_eq!(Scale::from_share(u32::MAX), Scale::ONE);
    }

    #[test]
    fn a_price_is_rounded_up_and_never_overflows() {
        assert_eq!(Scale::ONE.price(7), 7);
        assert_eq!(Scale::from_q16(32_768).price(7), 14);
        assert_eq!(Scale::from_q16(58_982).price(1_000_000), 1_111_119);
        assert_eq!(Scale::from_q16(1).price(1 << 61), u64::MAX);
        for price in [(1 << 48) - 1, 1 << 48, (1 << 48) + 1] {
            let exact = (u128::from(price) << 16).div_ceil(58_982);
            assert_eq!(u128::from(Scale::from_q16(58_982).price(price)), exact);
        }
    }

    #[test]
    fn a_scale_is_never_a_stop_and_never_a_gift() {
        assert_eq!(Scale::from_q16(0).as_q16(), 1);
        assert_eq!(Scale::from_q16(u32::MAX), Scale::ONE);
        assert_eq!(Scale::from_q16(1).of(10), 1);
        assert_eq!(Scale::from_q16(58_982).of(100), 89);
    }

    #[test]
    fn virtual_time_never_runs_backward_when_the_scale_changes() {
        let mut clock = VirtualClock::new();
        let mut last = Moment::ORIGIN;
        for (i, q16) in [65_536, 6554, 1, 60_000, 32_768, 65_536]
            .into_iter()
            .enumerate()
        {
            let now = Moment::from_nanos(i as u64 * 1_000_003);
            clock.set(now, Scale::from_q16(q16));
            assert!(clock.at(now) >= last);
            last = clock.at(now);
        }
    }
}
