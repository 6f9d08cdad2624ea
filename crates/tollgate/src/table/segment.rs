//! The lock of a segment, and its count of added keys.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::sync::{AtomicU32, relax};

/// Only adding, moving and replacing keys takes this lock, for less than a microsecond (a split: a few).
/// A spin lock: it is never held across anything that waits, and a `Mutex` would be larger than the rest of the
/// segment.
#[derive(Debug)]
pub(super) struct Segment {
    locked: AtomicU32,
    /// Keys added since the segment was last counted.
    added: AtomicU32,
}

impl Default for Segment {
    fn default() -> Segment {
        Segment {
            locked: AtomicU32::new(0),
            added: AtomicU32::new(0),
        }
    }
}

impl Segment {
    pub(super) fn lock(&self) -> SegmentGuard<'_> {
        let mut spins = 0;
        // Acquire pairs with the Release of the previous holder: its keys, words and moves are seen.
        while self
            .locked
            .compare_exchange_weak(0, 1, Acquire, Relaxed)
            .is_err()
        {
            relax(&mut spins);
        }
        SegmentGuard { segment: self }
    }
}

pub(super) struct SegmentGuard<'a> {
    segment: &'a Segment,
}

impl SegmentGuard<'_> {
    /// Notes that a key was added; true once in `every`.
    pub(super) fn note_added(&self, every: u32) -> bool {
        // Relaxed: under the lock.
        let added = self.segment.added.load(Relaxed) + 1;
        let due = added >= every;
        self.segment
            .added
            .store(if due { 0 } else { added }, Relaxed);
        due
    }
}

impl Drop for SegmentGuard<'_> {
    fn drop(&mut self) {
        self.segment.locked.store(0, Release);
    }
}
