//! Charges that are decided before they are made, for requests over several limits.

use std::sync::atomic::Ordering::{AcqRel, Relaxed};

use crate::decision::{QuotaStatus, Verdict};
use crate::sync::AtomicU64;

/// A charge that was decided and not made.
pub(crate) struct Tentative<'a> {
    pub(crate) verdict: Verdict,
    /// The status once the charge is made, or as it is if the charge is refused.
    pub(crate) status: QuotaStatus,
    pub(crate) write: PendingWrite<'a>,
}

/// The write that makes a tentative charge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingWrite<'a> {
    pub(super) cell: &'a AtomicU64,
    /// The word that the charge was decided on.
    pub(crate) word: u64,
    /// The word to write: the same if the charge changes nothing.
    pub(crate) new: u64,
}

impl PendingWrite<'_> {
    /// Does it change anything?
    #[inline(always)]
    pub(crate) fn is_change(&self) -> bool {
        self.new != self.word
    }

    /// Makes the charge, if the state is still what it was decided on.
    #[inline(always)]
    pub(crate) fn commit(&self) -> bool {
        !self.is_change() || self.swap(self.word, self.new)
    }

    /// Takes back a charge that was just committed, if nothing has happened to the key since. Then it
    /// leaves no trace at all.
    pub(crate) fn revert(&self) -> bool {
        !self.is_change() || self.swap(self.new, self.word)
    }

    #[inline(always)]
    fn swap(&self, from: u64, to: u64) -> bool {
        // The argument of `charge_slot` carries over: the decision read the word, then found the key
        // its own; that the word is the same now proves that the key is too.
        self.cell
            .compare_exchange(from, to, AcqRel, Relaxed)
            .is_ok()
    }
}
