//! Counts of leases of this node, for monitoring.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What a store has leased to this node since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseReport {
    /// Keys that have a lease or a synced counter here now.
    pub keys: u64,
    /// Blocks that were granted.
    pub blocks: u64,
    /// Of these, those that were prefetched.
    pub blocks_prefetched: u64,
    /// Units of all blocks.
    pub units_borrowed: u64,
    /// Units that were not spent and are returned or in flight back.
    pub units_returned: u64,
    /// Units that synced counters admitted and the store had no room for. They are pushed again.
    pub units_unpaid: u64,
}

/// Counts over all policies.
#[derive(Debug, Default)]
pub(crate) struct LeaseCounts {
    blocks: AtomicU64,
    blocks_prefetched: AtomicU64,
    borrowed: AtomicU64,
    returned: AtomicU64,
}

impl LeaseCounts {
    pub(super) fn granted(&self, units: u64, is_prefetch: bool) {
        self.blocks.fetch_add(1, Relaxed);
        self.blocks_prefetched
            .fetch_add(u64::from(is_prefetch), Relaxed);
        self.borrowed.fetch_add(units, Relaxed);
    }

    pub(super) fn returned(&self, units: u64) {
        self.returned.fetch_add(units, Relaxed);
    }

    pub(super) fn report(&self, keys: u64) -> LeaseReport {
        LeaseReport {
            keys,
            blocks: self.blocks.load(Relaxed),
            blocks_prefetched: self.blocks_prefetched.load(Relaxed),
            units_borrowed: self.borrowed.load(Relaxed),
            units_returned: self.returned.load(Relaxed),
            units_unpaid: 0,
        }
    }
}
