//! The part of a decision that loans pay for.
//!
//! # Theory
//!
//! Before the store is asked, each charge on a limit that is lent ([`Sharing::Lease`]) goes to its key's
//! [loan](super::loan), and one on a limit that is copied ([`Sharing::Sync`]) to its [copy](super::copy), which for all
//! that follows is a loan that nobody granted. If loans pay for everything, or one knows that the store would refuse, that is the answer
//! and nobody is asked. Otherwise the store is asked for the rest, as always in one question, all or none; a
//! charge whose loan is used up asks for a block with it. What loans have paid meanwhile is put back if the
//! request does not pass.
//!
//! A block may be refused where the request alone would pass. The store says how much is left, and it is asked
//! again with half of that, and the last time without any block: what it says then is what the request is told.
//! Nothing was taken by a question that was refused, so it can be asked again.
//!
//! # Only counted
//!
//! A limit in shadow is lent to in the same way, so that watching a limit costs no more than enforcing it. Where
//! its block is refused and the request passes, it is not asked again: it counts that request as passing if there
//! was room, and takes nothing.
//!
//! # Invariant
//!
//! Whoever leaves ([`Ways`] is dropped) has paid nothing, and nobody waits for what he asked.

use std::sync::Arc;

use super::super::answer::{Role, RuleCharge};
use super::super::gate::{Plan, PolicyGate};
use super::super::rule::{Quota, Sharing};
use super::Fleet;
use super::account::Terms;
use super::copy::CopyTerms;
use super::loan::{Paid, Spend};
use super::loans::{Borrower, Loans, Wish};
use super::terms::LoanTerms;
use crate::clock::Clock;
use crate::decision::{Standing, Verdict};
use crate::store::shared::{SharedKey, SharedOutcome, SharedRequest};
use crate::time::{Moment, Span};

/// Questions for one request at the most: with a block, with a smaller one, without.
const QUESTIONS_MAX: u32 = 3;

/// How one charge is decided.
#[derive(Clone, Copy, Debug)]
pub(super) enum Way {
    /// It does not count.
    Free,
    /// By the store.
    Store,
    /// By the store, and the loan hears of it.
    Ask,
    /// By the store, which is to lend so much with it, nothing any more if that was refused; and which is told first what
    /// passed by a copy.
    Borrow {
        block: u64,
        untold: u64,
        /// Of what was told, what there was no room for.
        unpaid: u64,
    },
    /// By a loan, which paid.
    Paid(Paid),
    /// By a loan, which knows that the store would refuse. Only of limits that are only counted.
    Over(Span),
}

/// How each charge of a request is decided. What is paid is put back if this is dropped, unless it is kept.
#[derive(Debug)]
pub(super) struct Ways {
    loans: Arc<Loans>,
    ways: Vec<(Borrower, u64, Way)>,
    drawn: Moment,
    questions: u32,
}

/// Which look at the loans of a request this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// When it comes.
    First,
    /// When its answer is waited for.
    Asking,
    /// After it waited for somebody else.
    Again,
}

/// What loans come to for a request.
#[derive(Debug)]
pub(super) enum Drawn {
    /// They pay for all of it.
    Paid(Ways),
    /// This charge would be refused by the store: when to come back.
    Refused(usize, Span),
    /// Somebody is asking for the only thing that is missing.
    Wait(Borrower),
    /// The store has to be asked.
    Ask(Ways),
    /// The store gave no answer to somebody else who asked for the only thing that is missing.
    Alone,
}

impl Ways {
    /// What is to be charged at a place beyond the cost of the request; none if the store is not asked for it.
    pub(super) fn asks(&self, at: usize) -> Option<u64> {
        match self.ways.get(at) {
            Some((_, _, Way::Store | Way::Ask)) => Some(0),
            Some((_, _, Way::Borrow { block, .. })) => Some(*block),
            _ => None,
        }
    }

    /// What the store is to be told first at a place, because it passed by a copy.
    pub(super) fn untold(&self, at: usize) -> u64 {
        match self.ways.get(at) {
            Some((_, _, Way::Borrow { untold, .. })) => *untold,
            _ => 0,
        }
    }

    /// Was it paid here?
    pub(super) fn is_paid(&self, at: usize) -> bool {
        matches!(self.ways.get(at), Some((_, _, Way::Paid(_))))
    }

    /// Does the charge have to do with a loan?
    pub(super) fn is_lent(&self, at: usize) -> bool {
        let way = self.ways.get(at).map(|(_, _, way)| way);
        matches!(way, Some(Way::Paid(_) | Way::Borrow { .. }))
    }

    /// The store is not asked after all: others may borrow.
    fn give_up(&mut self) {
        for (of, _, way) in &mut self.ways {
            if let Way::Borrow { .. } = way {
                self.loans.not_sent(of);
                *way = Way::Free;
            }
        }
    }

    /// Makes blocks smaller that the store refused. False if the answer stands as it is.
    pub(super) fn ask_for_less(
        &mut self,
        request: &mut SharedRequest,
        outcomes: &[SharedOutcome],
    ) -> bool {
        let asked = request.charges.iter().zip(outcomes);
        let refused = asked
            .clone()
            .any(|(charge, outcome)| charge.enforced && !outcome.verdict.is_admitted());
        if !refused {
            return false;
        }
        self.questions += 1;
        let last = self.questions + 1 >= QUESTIONS_MAX;
        let mut less = false;
        let asking = self
            .ways
            .iter_mut()
            .filter(|(_, _, way)| matches!(way, Way::Store | Way::Ask | Way::Borrow { .. }));
        for ((_, cost, way), (charge, outcome)) in
            asking.zip(request.charges.iter_mut().zip(outcomes))
        {
            // It was told already.
            charge.owed = 0;
            if let Way::Borrow { unpaid, .. } = way {
                *unpaid = outcome.unpaid.max(*unpaid);
            }
            if let Way::Borrow { block, .. } = way
                && *block > 0
                && (last || !outcome.verdict.is_admitted())
            {
                let room = outcome.standing.remaining.saturating_sub(*cost);
                *block = if last { 0 } else { (*block).min(room / 2) };
                charge.cost = cost.saturating_add(*block);
                less = true;
            }
        }
        less
    }

    /// Takes note of what the store said, and keeps what was paid if the request passes. Outcomes are of those that
    /// were asked; returned is one for every charge.
    pub(super) fn conclude(
        mut self,
        keys: &[SharedKey],
        (nodes, sent): (u32, Moment),
        passes: bool,
        outcomes: &[SharedOutcome],
    ) -> Vec<SharedOutcome> {
        let mut outcomes = outcomes.iter();
        let mut told = Vec::with_capacity(self.ways.len());
        for (at, (of, cost, way)) in self.ways.iter_mut().enumerate() {
            let mut outcome = match *way {
                Way::Store | Way::Ask | Way::Borrow { .. } => match outcomes.next() {
                    Some(outcome) => *outcome,
                    None => nothing(Verdict::Pass, sent),
                },
                Way::Paid(paid) => SharedOutcome {
                    verdict: Verdict::Pass,
                    standing: paid.standing,
                    issued: paid.issued,
                    unpaid: 0,
                },
                Way::Over(retry_after) => nothing(Verdict::Refuse { retry_after }, sent),
                Way::Free => nothing(Verdict::Pass, sent),
            };
            if let Way::Borrow { unpaid, .. } = *way {
                outcome.unpaid = outcome.unpaid.max(unpaid);
            }
            let asked = match *way {
                Way::Borrow { block, .. } => Some((true, block)),
                Way::Ask => Some((false, 0)),
                _ => None,
            };
            if let (Some((borrowed, block)), Some(key)) = (asked, keys.get(at)) {
                let wish = Wish {
                    of: *of,
                    key,
                    nodes,
                    now: sent,
                    cost: *cost,
                    is_first: false,
                };
                let is_taken = outcome.verdict.is_admitted();
                match (passes, is_taken) {
                    // Also without a block: then there was less than was asked for.
                    (true, true) if borrowed => self.loans.granted(&wish, block, sent, &outcome),
                    // Only counted: the block was refused, and the request perhaps not.
                    (_, false) if block > 0 => self.loans.heard(&wish, borrowed, sent, &outcome),
                    (_, false) => self.loans.denied(&wish, borrowed, sent, &outcome),
                    (_, true) => self.loans.heard(&wish, borrowed, sent, &outcome),
                }
                if passes && is_taken {
                    let left = &mut outcome.standing.remaining;
                    *left = left.saturating_add(block);
                } else if passes && block > 0 && outcome.standing.remaining >= *cost {
                    // Only counted: there was room for the request.
                    outcome.verdict = Verdict::Pass;
                }
                *way = Way::Free;
            } else if passes && matches!(way, Way::Paid(_)) {
                *way = Way::Free;
            }
            told.push(outcome);
        }
        told
    }
}

impl Drop for Ways {
    fn drop(&mut self) {
        for (of, cost, way) in &self.ways {
            match way {
                Way::Paid(paid) => {
                    self.loans.undo(*of, paid.issued, *cost, self.drawn);
                }
                Way::Borrow { .. } => self.loans.unanswered(of, self.drawn),
                _ => {}
            }
        }
    }
}

fn nothing(verdict: Verdict, issued: Moment) -> SharedOutcome {
    SharedOutcome {
        verdict,
        standing: Standing::default(),
        issued,
        unpaid: 0,
    }
}

impl<C: Clock> PolicyGate<C> {
    /// How the limit of a charge lends; none if it does not.
    fn lends(&self, charge: &RuleCharge) -> Option<&Terms> {
        let variant = self.variants.get(charge.limit.index())?;
        variant.loans.as_ref()
    }

    /// Is anything lent for these charges?
    pub(super) fn is_lent(&self, plan: &Plan) -> bool {
        plan.charges
            .iter()
            .any(|charge| self.lends(charge).is_some())
    }

    /// Lets loans pay for what they can.
    ///
    /// At the first look nobody takes a turn to ask: that is for whoever waits for the answer. Whoever waited for somebody
    /// else already does not wait again: he asks for himself, or decides alone where somebody else tells the store what
    /// passed by a copy.
    pub(super) fn draw(&self, fleet: &Fleet, plan: &Plan, now: Moment, look: Look) -> Drawn {
        let (is_first, waited) = (look == Look::First, look == Look::Again);
        let nodes = fleet.store.nodes().max(1);
        let mut drawn = Ways {
            loans: Arc::clone(&fleet.loans),
            ways: Vec::with_capacity(plan.charges.len()),
            drawn: now,
            questions: 0,
        };
        let (mut waits, mut asks) = (None, false);
        // Those that can refuse come first: what is only counted is taken if the request passes.
        for first in [true, false] {
            for (at, charge) in plan.charges.iter().enumerate() {
                let of = Borrower {
                    limit: charge.limit,
                    hash: charge.hash,
                };
                if first {
                    drawn.ways.push((of, charge.cost, Way::Free));
                }
                if (charge.role == Role::Enforced) != first || charge.role == Role::Unlimited {
                    continue;
                }
                let spend = match (self.lends(charge), plan.keys.get(at)) {
                    (Some(terms), Some(key)) => fleet.loans.spend(
                        &Wish {
                            of,
                            key,
                            nodes,
                            now,
                            cost: charge.cost,
                            is_first,
                        },
                        terms,
                    ),
                    _ => None,
                };
                let way = match spend {
                    Some(Spend::Paid(paid)) => Way::Paid(paid),
                    Some(Spend::Refused(wait)) if first => return Drawn::Refused(at, wait),
                    Some(Spend::Refused(wait)) => Way::Over(wait),
                    Some(Spend::Borrow { block, untold }) => Way::Borrow {
                        block,
                        untold,
                        unpaid: 0,
                    },
                    Some(Spend::Ask) => Way::Ask,
                    // Somebody else tells the store what passed by the copy: who asked it without telling would be let
                    // pass by a store that does not know.
                    Some(Spend::Wait)
                        if first && matches!(self.lends(charge), Some(Terms::Copy(_))) =>
                    {
                        drawn.give_up();
                        return match waited {
                            true => Drawn::Alone,
                            false => Drawn::Wait(of),
                        };
                    }
                    Some(Spend::Wait) => {
                        waits = Some(of).filter(|_| !waited);
                        Way::Ask
                    }
                    None => Way::Store,
                };
                asks |= match spend {
                    Some(Spend::Paid(_) | Spend::Refused(_)) => false,
                    Some(Spend::Wait) => waited,
                    Some(Spend::Ask | Spend::Borrow { .. }) | None => true,
                };
                if let Some(place) = drawn.ways.get_mut(at) {
                    place.2 = way;
                }
            }
        }
        match (asks, waits) {
            (true, _) => Drawn::Ask(drawn),
            (false, Some(of)) => Drawn::Wait(of),
            (false, None) => Drawn::Paid(drawn),
        }
    }
}

/// How the keys of a quota are accounted for here; none if the store decides everything, or if the quota cannot be shared
/// in this way.
pub(in crate::policy) fn terms(sharing: Sharing, quota: &Quota) -> Option<Terms> {
    match sharing {
        Sharing::Exact => None,
        Sharing::Lease => LoanTerms::of(quota).map(Terms::Lend),
        Sharing::Sync => CopyTerms::of(quota).map(Terms::Copy),
    }
}
