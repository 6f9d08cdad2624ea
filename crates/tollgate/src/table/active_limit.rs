//! The limit in force, how much of it is left under pressure, and the epoch it is in; read by every charge
//! and changed while they go on.
//!
//! A sequence lock on one cache line: readers copy the words and look at the version again; it is odd
//! while they change. Changes are rare (another limit, scale or epoch) and made by one thread at a time.
//! The scale shares a word with the stamp, so that it costs no read of its own: without pressure it is a
//! comparison.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::layout::stamp;
use crate::algorithm::scale::Scale;
use crate::algorithm::{Epoch, PackedAlgorithm};
use crate::sync::{AtomicU64, fence, relax};
use crate::time::Moment;

/// A copy of what is in force.
#[derive(Clone, Copy, Debug)]
pub(super) struct ActiveLimit<A> {
    /// The limit without pressure: what words are kept by.
    pub(super) limit: A,
    /// How much of it is left.
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

    /// The limit as it decides: under its scale.
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

/// Out of the way of the readers that need not wait.
#[cold]
#[inline(never)]
fn wait(spins: &mut u32) {
    relax(spins);
}

/// What is in force, to be read without a lock.
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

    /// A copy that was in force as a whole at some moment since the call began.
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

    /// Puts this in force. Only one thread at a time: the caller holds the lock for changes.
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
