//! What a request was paid from, for whoever learns later what it really cost.

use std::sync::Arc;

use super::loans::{Borrower, Loans};
use crate::store::shared::SharedSettle;
use crate::time::Moment;

/// Where a correction was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::policy) enum Corrected {
    /// In a block, all of which was taken from the share when it came.
    Block,
    /// In a copy.
    Copy,
}

/// What a request was paid from, to be corrected there once its true cost is known.
#[derive(Clone, Debug)]
pub(in crate::policy) struct LoanOf {
    loans: Arc<Loans>,
    of: Borrower,
}

impl LoanOf {
    pub(super) fn new(loans: Arc<Loans>, of: Borrower) -> LoanOf {
        LoanOf { loans, of }
    }

    /// Corrects what can be corrected here, and says where. None if the store has to be told what `settle` then says.
    pub(in crate::policy) fn settle(
        &self,
        settle: &mut SharedSettle,
        now: Moment,
    ) -> Option<Corrected> {
        match settle.used.checked_sub(settle.taken) {
            None => {
                let back = settle.taken - settle.used;
                self.loans.freed(&self.of);
                self.loans.put_back(&self.of, settle.issued, back, now)
            }
            Some(more) => {
                let (taken, by) = self.loans.take_more(&self.of, more, now)?;
                settle.taken += taken;
                (settle.taken >= settle.used).then_some(by)
            }
        }
    }
}
