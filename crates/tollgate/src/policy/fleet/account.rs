//! What a node has of one key: a [loan](super::loan) or a [copy](super::copy), behind one face.
//!
//! # What it does not know
//!
//! Which key it is, and who waits for it.

use super::copy::{Copy, CopyTerms};
use super::loan::{Loan, Rest, Spend};
use super::loans::Wish;
use super::terms::LoanTerms;
use crate::store::shared::SharedOutcome;
use crate::time::Moment;

/// How the keys of a limit are accounted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::policy) enum Terms {
    /// By loans.
    Lend(LoanTerms),
    /// By copies.
    Copy(CopyTerms),
}

/// What this node has of one key.
#[derive(Debug)]
pub(super) enum Account {
    Loan(Loan, LoanTerms),
    Copy(Copy, CopyTerms),
}

impl Account {
    pub(super) fn new(terms: &Terms) -> Account {
        match terms {
            Terms::Lend(terms) => Account::Loan(Loan::default(), *terms),
            Terms::Copy(terms) => Account::Copy(Copy::default(), *terms),
        }
    }

    pub(super) fn spend(&mut self, wish: &Wish<'_>) -> (Spend, Option<Rest>) {
        match self {
            Account::Loan(loan, terms) => {
                loan.spend(terms, wish.nodes, wish.now, (wish.cost, wish.is_first))
            }
            Account::Copy(copy, terms) => {
                let spent = copy.spend(terms, wish.nodes, wish.now, (wish.cost, wish.is_first));
                (spent, None)
            }
        }
    }

    pub(super) fn asked(&mut self) {
        match self {
            Account::Loan(loan, _) => loan.asked(),
            Account::Copy(copy, _) => copy.asked(),
        }
    }

    pub(super) fn is_asked_for(&self) -> bool {
        match self {
            Account::Loan(loan, _) => loan.is_asked_for(),
            Account::Copy(copy, _) => copy.is_asked_for(),
        }
    }

    pub(super) fn hear(&mut self, nodes: u32, sent: Moment, outcome: &SharedOutcome) {
        match self {
            Account::Loan(loan, _) => loan.hear(outcome, sent),
            Account::Copy(copy, _) => copy.hear(nodes, sent, outcome),
        }
    }

    pub(super) fn lost(&mut self, now: Moment) {
        match self {
            Account::Loan(loan, terms) => loan.lost(terms, now),
            Account::Copy(copy, _) => copy.asked(),
        }
    }

    pub(super) fn end(&mut self, now: Moment) -> Option<Rest> {
        match self {
            Account::Loan(loan, terms) => loan.end_if_quiet(terms, now),
            Account::Copy(..) => None,
        }
    }

    pub(super) fn rest(&mut self) -> Option<Rest> {
        match self {
            Account::Loan(loan, _) => loan.rest(),
            Account::Copy(..) => None,
        }
    }

    pub(super) fn is_idle(&self, now: Moment) -> bool {
        match self {
            Account::Loan(loan, terms) => loan.is_idle(terms, now),
            Account::Copy(copy, _) => copy.is_idle(now),
        }
    }
}
