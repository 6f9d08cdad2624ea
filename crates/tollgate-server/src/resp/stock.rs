//! How many bytes of answers may wait for clients that do not read them.
//!
//! Every connection has [`FREE`]. That alone would not do: many clients send a whole pipeline before they read the
//! first answer, and would wait for us to read while we wait for them. So a connection may borrow more, up to
//! [`MOST`], from a stock that all share; when that is empty, it has to wait. All connections together never keep
//! more than their free parts and the stock.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Answers that every connection may keep for its client.
const FREE: usize = 256 * 1024;
/// Answers that one connection may keep at the most.
const MOST: usize = 16 * 1024 * 1024;
/// What is borrowed at once.
const LOAN: usize = 256 * 1024;
/// What all connections together may borrow.
const STOCK: usize = 64 * 1024 * 1024;

/// Memory for answers that all connections share.
#[derive(Debug)]
pub(super) struct Stock(AtomicUsize);

impl Default for Stock {
    fn default() -> Stock {
        Stock(AtomicUsize::new(STOCK))
    }
}

/// What one connection has borrowed. Given back when it goes.
#[derive(Debug)]
pub(super) struct Loan<'a> {
    stock: &'a Stock,
    amount: usize,
}

impl Stock {
    /// Nothing yet.
    pub(super) fn loan(&self) -> Loan<'_> {
        Loan {
            stock: self,
            amount: 0,
        }
    }
}

impl Loan<'_> {
    /// So many bytes of answers may be kept.
    pub(super) fn allows(&self) -> usize {
        FREE + self.amount
    }

    /// Borrows more, if there is more and this connection may.
    pub(super) fn more(&mut self) -> bool {
        if FREE + self.amount + LOAN > MOST {
            return false;
        }
        // Nothing is published through it: it is only a number.
        let taken = self
            .stock
            .0
            .fetch_update(Relaxed, Relaxed, |left| left.checked_sub(LOAN));
        if taken.is_ok() {
            self.amount += LOAN;
        }
        taken.is_ok()
    }

    /// Gives back what is far beyond what is kept now, so that who reads on but never to the end does not hold it for ever.
    pub(super) fn give_back_beyond(&mut self, kept: usize) {
        while self.amount >= LOAN && kept + 2 * LOAN < self.allows() {
            self.amount -= LOAN;
            self.stock.0.fetch_add(LOAN, Relaxed);
        }
    }

    /// Gives everything back.
    pub(super) fn give_back(&mut self) {
        self.stock.0.fetch_add(self.amount, Relaxed);
        self.amount = 0;
    }
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        self.give_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_needed_any_more_comes_back_though_something_is() {
        let stock = Stock::default();
        let mut loan = stock.loan();
        while loan.more() {}
        let most = loan.allows();
        loan.give_back_beyond(most);
        assert_eq!(loan.allows(), most);
        loan.give_back_beyond(1);
        assert!(loan.allows() <= 1 + 2 * LOAN + FREE);
        drop(loan);
        assert_eq!(stock.0.load(Relaxed), STOCK);
    }

    #[test]
    fn nobody_borrows_more_than_one_may_and_all_no_more_than_there_is() {
        let stock = Stock::default();
        let mut loans: Vec<Loan<'_>> = (0..10).map(|_| stock.loan()).collect();
        for loan in &mut loans {
            while loan.more() {}
            assert!(loan.allows() <= MOST);
        }
        let lent: usize = loans.iter().map(|loan| loan.allows() - FREE).sum();
        assert_eq!(lent, STOCK);
        drop(loans);
        assert!(stock.loan().more(), "what was borrowed has come back");
    }
}
