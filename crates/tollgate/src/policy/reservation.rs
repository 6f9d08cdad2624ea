//! What a request took, held until its true cost is known.

use super::answer::{Answer, Role, RuleCharge};
use super::gate::PolicyGate;
use super::rule::CostRule;
use crate::clock::{Clock, MonotonicClock};
use crate::limit::Algorithm;
use crate::limiter::Limiter;
use crate::time::Moment;

impl<C: Clock> PolicyGate<C> {
    /// Remembers what an answer took, so that it can be corrected later: once.
    pub fn reserve(&self, answer: &Answer) -> Reservation<C> {
        let taken =
            |charge: &&RuleCharge| charge.verdict.is_admitted() && charge.role != Role::Unlimited;
        let held = answer.charges.iter().filter(taken).map(|charge| Held {
            limiter: self.gate.limiter(charge.limit).clone(),
            hash: charge.hash,
            cost: charge.cost,
            issued: charge.issued,
            follows: self
                .rule(charge.rule)
                .is_none_or(|rule| matches!(rule.cost, CostRule::Asked | CostRule::From { .. })),
        });
        let held = held.collect();
        Reservation {
            held: if answer.is_admitted() {
                held
            } else {
                Vec::new()
            },
        }
    }
}

/// What a request took, to be corrected once its true cost is known. Dropping it changes nothing.
#[derive(Debug)]
pub struct Reservation<C = MonotonicClock> {
    held: Vec<Held<C>>,
}

#[derive(Debug)]
struct Held<C> {
    limiter: Limiter<C>,
    hash: u64,
    cost: u64,
    issued: Moment,
    /// Does its cost follow what the caller says?
    follows: bool,
}

/// How a reservation ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// The work is done and took this much.
    Actual(u64),
    /// The work is done and took what was said.
    Done,
    /// The work was not done: everything is given back.
    Cancelled,
}

impl<C: Clock> Reservation<C> {
    /// Was nothing taken?
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Gives back what was not used and takes what was used beyond; places in concurrency limits become
    /// free. Returns what could not be taken because nothing was left.
    pub fn settle(self, how: Settlement) -> u64 {
        let mut unpaid = 0;
        for held in self.held {
            let is_place = matches!(
                held.limiter.limit().algorithm(),
                Algorithm::Concurrency { .. }
            );
            let actual = match how {
                _ if is_place => 0,
                Settlement::Cancelled => 0,
                Settlement::Actual(units) if held.follows => units,
                Settlement::Actual(_) | Settlement::Done => continue,
            };
            let settled = held
                .limiter
                .settle_hash(held.hash, held.issued, held.cost, actual);
            unpaid = unpaid.max(settled.unpaid);
        }
        unpaid
    }
}
