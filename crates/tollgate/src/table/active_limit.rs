//! The active limit, its scale under pressure, and its epoch. Every charge reads them, and they change meanwhile.
//!
//! A sequence lock on one cache line: readers copy the words and read the version again, which is odd while the words
//! change. Changes are rare (another limit, scale or epoch) and made by one thread at a time. The scale shares a
//! word with the stamp, so it costs no read of its own: without pressure it is a comparison.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::layout::stamp;
use crate::algorithm::scale::Scale;
use crate::algorithm::{Epoch, PackedAlgorithm};
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

/// Stamp and scale as one word, and back.
#[inline(always)]
const fn packed(stamp: u16, scale: Scale) -> u64 {
    (scale.as_q16() as u64) << 32 | stamp as u64
}

#[inline(always)]
const fn unpacked(word: u64) -> (u16, Scale) {
    (word as u16, Scale::from_q16_unchecked((word >> 32) as u32))
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
    version: AtomicU64,
    params: [AtomicU64; 4],
    stamp_and_scale: AtomicU64,
    from: AtomicU64,
    lasts: AtomicU64,
    kind: std::marker::PhantomData<A>,
}

impl<A: PackedAlgorithm> ActiveLimitCell<A> {
    pub(super) fn new(first: &ActiveLimit<A>) -> ActiveLimitCell<A> {
        ActiveLimitCell {
            version: AtomicU64::new(0),
            params: first.limit.encode().map(AtomicU64::new),
            stamp_and_scale: AtomicU64::new(packed(first.stamp, first.scale)),
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
        // Acquire pairs with the Release that ends a change: the words are at least as new.
        let before = self.version.load(Acquire);
        let (stamp, scale) = unpacked(self.stamp_and_scale.load(Relaxed));
        let copy = ActiveLimit {
            limit: A::from_encoded(&self.params.each_ref().map(|w| w.load(Relaxed))),
            scale,
            stamp,
            from: self.from.load(Relaxed),
            lasts: self.lasts.load(Relaxed),
        };
        // If any of the words came from a later change, its odd version is seen below.
        fence(Acquire);
        (before & 1 == 0 && self.version.load(Relaxed) == before).then_some(copy)
    }

    /// Replaces the active limit. The caller holds the lock for changes.
    pub(super) fn write(&self, next: &ActiveLimit<A>) {
        let version = self.version.load(Relaxed);
        self.version.store(version.wrapping_add(1), Relaxed);
        // The odd version is seen before any of the words.
        fence(Release);
        for (cell, word) in self.params.iter().zip(next.limit.encode()) {
            cell.store(word, Relaxed);
        }
        self.stamp_and_scale
            .store(packed(next.stamp, next.scale), Relaxed);
        self.from.store(next.from, Relaxed);
        self.lasts.store(next.lasts, Relaxed);
        self.version.store(version.wrapping_add(2), Release);
    }
}
