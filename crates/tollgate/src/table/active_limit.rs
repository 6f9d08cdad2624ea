//! The active limit, its scale under pressure, and its epoch. Every charge reads them, and they change meanwhile.
//!
//! A sequence lock on one cache line. Its *guard* is one word: the number of the change, a bit that is set while
//! the words change, a bit that says that there is no pressure, and the stamp. A reader copies the words between two
//! readings of the guard; if both agree and nothing was changing, the copy is consistent, and the guard has delivered the
//! stamp and the pressure as well. Changes are rare (another limit, scale or epoch) and made by one thread at a time.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::layout::stamp;
use crate::algorithm::scale::Scale;
use crate::algorithm::{EncodedLimit, Epoch, PackedAlgorithm};
use crate::sync::{AtomicU64, fence, relax};
use crate::time::Moment;

/// A copy of the active limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct ActiveLimit<A> {
    /// The limit without pressure, by which words are stored.
    pub(super) limit: A,
    /// The scale of the limit.
    pub(super) scale: Scale,
    /// The stamp of this generation of the limit in this epoch.
    pub(super) stamp: u16,
    /// The epoch that the stamp is good for.
    from: u64,
    lasts: u64,
}

impl<A: PackedAlgorithm> ActiveLimit<A> {
    pub(super) fn new(limit: A, scale: Scale, generation: u64, epoch: Epoch) -> ActiveLimit<A> {
        ActiveLimit {
            limit,
            scale,
            stamp: stamp(generation, epoch.number),
            from: epoch.from,
            lasts: epoch.lasts,
        }
    }

    /// The limit under its scale, which decides.
    #[inline(always)]
    pub(super) fn effective(&self) -> A {
        if self.scale == Scale::ONE {
            self.limit
        } else {
            self.limit.scaled(self.scale)
        }
    }

    /// When the epoch began that the stamp is good for.
    pub(super) const fn since(&self) -> u64 {
        self.from
    }

    /// Does the stamp hold at `now`?
    #[inline(always)]
    pub(super) const fn holds_at(&self, now: Moment) -> bool {
        now.as_nanos().wrapping_sub(self.from) < self.lasts
    }
}

/// Set in the guard while the words change.
const CHANGING: u64 = 1 << 17;
/// Set in the guard if the scale is one.
const FULL_SCALE: u64 = 1 << 16;
/// Changes are counted above the flags. The count wraps after 2^46 of them.
const CHANGE: u64 = 1 << 18;

/// The active limit at full scale, as its words: what the fast path reads.
#[derive(Clone, Copy, Debug)]
pub(super) struct FullScale {
    pub(super) limit: EncodedLimit,
    pub(super) stamp: u64,
    from: u64,
    lasts: u64,
}

impl FullScale {
    /// Does the stamp hold at `now`?
    #[inline(always)]
    pub(super) const fn holds_at(&self, now: Moment) -> bool {
        now.as_nanos().wrapping_sub(self.from) < self.lasts
    }
}

/// Apart, so that readers that need not wait do not carry it.
#[cold]
#[inline(never)]
fn wait(spins: &mut u32) {
    relax(spins);
}

/// The active limit, read without a lock.
#[derive(Debug)]
#[cfg_attr(not(loom), repr(align(64)))]
pub(super) struct ActiveLimitCell<A> {
    guard: AtomicU64,
    limit: [AtomicU64; 4],
    scale: AtomicU64,
    from: AtomicU64,
    lasts: AtomicU64,
    kind: std::marker::PhantomData<A>,
}

/// The guard of a limit once it was changed as often as `changes` counts.
fn guard<A>(changes: u64, limit: &ActiveLimit<A>) -> u64 {
    let full_scale = if limit.scale == Scale::ONE {
        FULL_SCALE
    } else {
        0
    };
    changes | full_scale | u64::from(limit.stamp)
}

impl<A: PackedAlgorithm> ActiveLimitCell<A> {
    pub(super) fn new(first: &ActiveLimit<A>) -> ActiveLimitCell<A> {
        ActiveLimitCell {
            guard: AtomicU64::new(guard(0, first)),
            limit: first.limit.encode().map(AtomicU64::new),
            scale: AtomicU64::new(u64::from(first.scale.as_q16())),
            from: AtomicU64::new(first.from),
            lasts: AtomicU64::new(first.lasts),
            kind: std::marker::PhantomData,
        }
    }

    /// A consistent copy, from some moment since the call began.
    #[inline(always)]
    pub(super) fn read(&self) -> ActiveLimit<A> {
        let mut spins = 0;
        loop {
            if let Some(copy) = self.try_read() {
                return copy;
            }
            wait(&mut spins);
        }
    }

    #[inline(always)]
    fn try_read(&self) -> Option<ActiveLimit<A>> {
        let before = self.guard.load(Acquire);
        let copy = ActiveLimit {
            limit: A::from_encoded(&self.encoded()),
            scale: match before & FULL_SCALE {
                0 => Scale::from_q16_unchecked(self.scale.load(Relaxed) as u32),
                _ => Scale::ONE,
            },
            stamp: before as u16,
            from: self.from.load(Relaxed),
            lasts: self.lasts.load(Relaxed),
        };
        (before & CHANGING == 0 && self.is_unchanged(before)).then_some(copy)
    }

    /// The same for the fast path: none under pressure, or while the limit changes.
    #[inline(always)]
    pub(super) fn read_full_scale(&self) -> Option<FullScale> {
        let before = self.guard.load(Acquire);
        let copy = FullScale {
            limit: self.encoded(),
            stamp: before & 0xffff,
            from: self.from.load(Relaxed),
            lasts: self.lasts.load(Relaxed),
        };
        let is_steady = before & (CHANGING | FULL_SCALE) == FULL_SCALE;
        (is_steady && self.is_unchanged(before)).then_some(copy)
    }

    #[inline(always)]
    fn encoded(&self) -> EncodedLimit {
        self.limit.each_ref().map(|word| word.load(Relaxed))
    }

    /// Is a copy consistent that was made since the guard was read? The Acquire of that reading pairs with the Release
    /// that ends a change, so the words are at least as new as the guard. If one of them comes from a later change,
    /// the fence makes that change's guard visible here.
    #[inline(always)]
    fn is_unchanged(&self, before: u64) -> bool {
        fence(Acquire);
        self.guard.load(Relaxed) == before
    }

    /// Replaces the active limit. The caller holds the lock for changes.
    pub(super) fn write(&self, next: &ActiveLimit<A>) {
        let before = self.guard.load(Relaxed);
        self.guard.store(before | CHANGING, Relaxed);
        // The flag is visible before any of the words.
        fence(Release);
        for (cell, word) in self.limit.iter().zip(next.limit.encode()) {
            cell.store(word, Relaxed);
        }
        self.scale.store(u64::from(next.scale.as_q16()), Relaxed);
        self.from.store(next.from, Relaxed);
        self.lasts.store(next.lasts, Relaxed);
        let changes = (before & !(CHANGE - 1)).wrapping_add(CHANGE);
        self.guard.store(guard(changes, next), Release);
    }
}
