//! What was lent to this node so far, for whoever watches it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::super::gate::PolicyGate;
use crate::clock::Clock;

/// What a store has lent to this node, since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LendingReport {
    /// Keys that have a loan or a copy here now.
    pub keys: u64,
    /// Blocks that were granted.
    pub blocks: u64,
    /// Of these, those that were asked for before they were needed.
    pub blocks_ahead: u64,
    /// Units of all blocks.
    pub units_borrowed: u64,
    /// Units that were not spent and are, or were, on their way back.
    pub units_returned: u64,
    /// Units that passed by copies and the store had no room for when it was told. They are told again.
    pub units_over: u64,
}

/// Counts, over all policies.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    blocks: AtomicU64,
    blocks_ahead: AtomicU64,
    borrowed: AtomicU64,
    returned: AtomicU64,
    over: AtomicU64,
}

impl Ledger {
    pub(super) fn lent(&self, units: u64, is_ahead: bool) {
        self.blocks.fetch_add(1, Relaxed);
        self.blocks_ahead.fetch_add(u64::from(is_ahead), Relaxed);
        self.borrowed.fetch_add(units, Relaxed);
    }

    pub(super) fn returned(&self, units: u64) {
        self.returned.fetch_add(units, Relaxed);
    }

    pub(super) fn over(&self, units: u64) {
        self.over.fetch_add(units, Relaxed);
    }

    pub(super) fn report(&self, keys: u64) -> LendingReport {
        LendingReport {
            keys,
            blocks: self.blocks.load(Relaxed),
            blocks_ahead: self.blocks_ahead.load(Relaxed),
            units_borrowed: self.borrowed.load(Relaxed),
            units_returned: self.returned.load(Relaxed),
            units_over: self.over.load(Relaxed),
        }
    }
}

impl<C: Clock> PolicyGate<C> {
    /// What the store has lent to this node; none without a store.
    pub fn lending(&self) -> Option<LendingReport> {
        let fleet = self.fleet.as_ref()?;
        Some(fleet.loans.report())
    }
}
