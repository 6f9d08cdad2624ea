//! Charges that are decided before they are made, for requests over several limits.

use std::sync::atomic::Ordering::{AcqRel, Relaxed};

use crate::decision::Verdict;
use crate::sync::AtomicU64;

/// A charge that was decided and not made.
pub(crate) struct Tentative<'a> {
    pub(crate) verdict: Verdict,
    pub(crate) write: PendingWrite<'a>,
}

/// The write that makes a tentative charge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingWrite<'a> {
    pub(super) cell: &'a AtomicU64,
    /// The word that the charge was decided on.
    pub(crate) word: u64,
    /// The word to write; none if the charge changes nothing.
    pub(crate) new: Option<u64>,
}

impl PendingWrite<'_> {
    /// Makes the charge, if the state is still what it was decided on.
    #[inline(always)]
    pub(crate) fn commit(&self) -> bool {
        self.new.is_none_or(|new| self.swap(self.word, new))
    }

    /// Takes back a charge that was just committed, if nothing has happened to the key since. Then it
    /// leaves no trace at all.
    pub(crate) fn revert(&self) -> bool {
        self.new.is_none_or(|new| self.swap(new, self.word))
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
