//! What a request took, held until its true cost is known.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use super::answer::{Answer, Role, RuleCharge};
use super::fleet::{Corrected, LoanOf, Owing};
use super::gate::PolicyGate;
use super::rule::CostRule;
use crate::clock::{Clock, MonotonicClock};
use crate::limit::Algorithm;
use crate::limiter::Limiter;
use crate::queued::HeldSlot;
use crate::store::shared::{SharedLimits, SharedSettle};
use crate::time::Moment;

impl<C: Clock> PolicyGate<C> {
    /// Remembers what an answer took, so that it can be corrected later: once.
    pub fn reserve(&self, answer: &Answer) -> Reservation<C> {
        self.reserve_those(answer, |_| true)
    }

    /// The same without its leaky buckets: for a request that gives back its slots by themselves
    /// ([`PolicyGate::queue_slots`]). A slot that is given back twice would be promised to two.
    pub fn reserve_beside_queues(&self, answer: &Answer) -> Reservation<C> {
        self.reserve_those(answer, |limiter| !limiter.is_queue())
    }

    /// What the charges of an answer would take, to be given back although it was not taken by this answer: by a
    /// caller that is believed to have paid it before. Not of leaky buckets, whose slots are somebody's own.
    /// Nothing is given beyond what the limit holds.
    pub fn give_back(&self, answer: &Answer) -> Reservation<C> {
        let counts = |charge: &RuleCharge| charge.role != Role::Unlimited;
        self.held_of(answer, counts, |limiter| !limiter.is_queue())
    }

    /// The slots that an answer took in leaky buckets of this process. Whoever takes them gives them back
    /// alone: see [`PolicyGate::reserve_beside_queues`].
    pub fn queue_slots(&self, answer: &Answer) -> Vec<HeldSlot<C>> {
        let charges = answer.charges.iter();
        let taken = charges.filter(|charge| answer.is_admitted() && !charge.is_shared);
        let held = taken.filter_map(|charge| {
            let limiter = self.gate.limiter(charge.limit).clone();
            Some(HeldSlot::new(limiter, charge.hash, charge.slot?))
        });
        held.collect()
    }

    fn reserve_those(
        &self,
        answer: &Answer,
        wanted: impl Fn(&Limiter<C>) -> bool,
    ) -> Reservation<C> {
        let taken = |charge: &RuleCharge| {
            answer.is_admitted() && charge.verdict.is_admitted() && charge.role != Role::Unlimited
        };
        self.held_of(answer, taken, wanted)
    }

    fn held_of(
        &self,
        answer: &Answer,
        taken: impl Fn(&RuleCharge) -> bool,
        wanted: impl Fn(&Limiter<C>) -> bool,
    ) -> Reservation<C> {
        let mut held = Vec::new();
        for (at, charge) in answer.charges.iter().enumerate() {
            if !taken(charge) {
                continue;
            }
            let limiter = self.gate.limiter(charge.limit).clone();
            if !wanted(&limiter) {
                continue;
            }
            let elsewhere = match (&self.fleet, answer.keys.get(at)) {
                (Some(fleet), Some(key)) if charge.is_shared => Some(Elsewhere {
                    limits: Arc::clone(&fleet.limits),
                    settle: SharedSettle {
                        limit: charge.limit,
                        key: key.clone(),
                        issued: charge.issued,
                        taken: charge.cost,
                        used: charge.cost,
                    },
                    loan: charge.is_lent.then(|| fleet.loan_of(charge)),
                }),
                _ => None,
            };
            let owes = match (&self.fleet, self.variants.get(charge.limit.index())) {
                (Some(fleet), Some(variant))
                    if !charge.is_shared && charge.role == Role::Enforced =>
                {
                    Some((Arc::clone(&fleet.owing), variant.known_by))
                }
                _ => None,
            };
            held.push(Held {
                owes,
                limiter,
                hash: charge.hash,
                cost: charge.cost,
                here: if charge.is_shared {
                    charge.in_share
                } else {
                    charge.cost
                },
                // What was taken elsewhere was taken from the share of this node when it was answered.
                issued: if charge.is_shared {
                    answer.issued
                } else {
                    charge.issued
                },
                follows: self.rule(charge.rule).is_none_or(|rule| {
                    matches!(rule.cost, CostRule::Asked | CostRule::From { .. })
                }),
                elsewhere,
            });
        }
        Reservation { held }
    }
}

/// What a request took, to be corrected once its true cost is known. Dropping it changes nothing.
#[derive(Debug)]
pub struct Reservation<C = MonotonicClock> {
    held: Vec<Held<C>>,
}

#[derive(Debug)]
struct Held<C> {
    /// Where it is owed to the store, if it was taken without it.
    owes: Option<(Arc<Owing>, u64)>,
    limiter: Limiter<C>,
    hash: u64,
    cost: u64,
    /// What the limiter holds of it. The share of this node may have had no room for what was granted elsewhere.
    here: u64,
    issued: Moment,
    /// Does its cost follow what the caller says?
    follows: bool,
    /// Where it was taken, if not here alone.
    elsewhere: Option<Elsewhere>,
}

#[derive(Debug)]
struct Elsewhere {
    limits: Arc<dyn SharedLimits>,
    settle: SharedSettle,
    /// What it was paid from, if that was lent to this node.
    loan: Option<LoanOf>,
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

    /// Was anything taken in a store that a fleet shares? Then it is settled there, too:
    /// [`Reservation::settle_everywhere`].
    pub fn is_shared(&self) -> bool {
        self.held.iter().any(|held| held.elsewhere.is_some())
    }

    /// Gives back what was not used and takes what was used beyond; places in concurrency limits become
    /// free. Returns what could not be taken because nothing was left. Only in this process: what was taken
    /// elsewhere stays taken there.
    pub fn settle(self, how: Settlement) -> u64 {
        let settled = self.held.iter().map(|held| held.settle_here(how));
        settled.max().unwrap_or(0)
    }

    /// The same, also in the store that a fleet shares: for all limits at the same time. What the store does
    /// not answer stays as it is there: taken.
    pub async fn settle_everywhere(self, how: Settlement) -> u64 {
        let mut unpaid = 0;
        let mut elsewhere = Vec::new();
        for mut held in self.held {
            let Some(used) = held.used(how) else {
                continue;
            };
            let now = held.limiter.clock().now();
            let mut there = held.elsewhere.take();
            let in_loan = there.as_mut().and_then(|there| {
                there.settle.used = used;
                there.loan.take()?.settle(&mut there.settle, now)
            });
            // What is back in a block is as before in the share, which holds all of the block.
            let here = match in_loan {
                Some(Corrected::Block) if !held.is_place() => 0,
                _ => held.settle_here(how),
            };
            match there {
                None => unpaid = unpaid.max(here),
                Some(there) if in_loan.is_none() => elsewhere.push(there),
                Some(_) => {}
            }
        }
        let mut asked: Vec<_> = elsewhere
            .iter()
            .map(|there| Some(there.limits.settle(&there.settle)))
            .collect();
        poll_fn(|context| {
            let mut waits = false;
            for place in &mut asked {
                match place.as_mut().map(|answer| answer.as_mut().poll(context)) {
                    Some(Poll::Ready(settled)) => {
                        unpaid = unpaid.max(settled.unwrap_or(0));
                        *place = None;
                    }
                    Some(Poll::Pending) => waits = true,
                    None => {}
                }
            }
            if waits {
                Poll::Pending
            } else {
                Poll::Ready(())
            }
        })
        .await;
        unpaid
    }
}

impl<C: Clock> Held<C> {
    /// What was used in the end; none if that is what was taken.
    fn used(&self, how: Settlement) -> Option<u64> {
        match how {
            _ if self.is_place() => Some(0),
            Settlement::Cancelled => Some(0),
            Settlement::Actual(units) if self.follows => Some(units),
            Settlement::Actual(_) | Settlement::Done => None,
        }
    }

    fn is_place(&self) -> bool {
        matches!(
            self.limiter.limit().algorithm(),
            Algorithm::Concurrency { .. }
        )
    }

    fn settle_here(&self, how: Settlement) -> u64 {
        let settle = |used: u64| {
            if let (Some((owing, known_by)), Some(back)) = (&self.owes, self.cost.checked_sub(used))
            {
                owing.forgive(*known_by, self.hash, back);
            }
            let (taken, used) = match self.cost.checked_sub(used) {
                // No more comes back than was taken here.
                Some(back) => (self.here, self.here.saturating_sub(back)),
                None => (self.cost, used),
            };
            self.limiter
                .settle_hash(self.hash, self.issued, taken, used)
        };
        self.used(how).map_or(0, |used| settle(used).unpaid)
    }
}
