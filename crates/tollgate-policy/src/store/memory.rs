//! The store of one process, which also holds a node's share of each limit.
//!
//! # Theory
//!
//! The tables of the core hold the state. A charge takes all enforced limits together or none. If the request
//! passes, the other limits are counted one by one, each with its peak. The decision has the numbers of the
//! binding limit. Those of the others are read on request, which is rare.

use std::sync::Arc;

use super::StoreOp;
use crate::charge::{Charge, Source, all_pass};
use crate::outcome::tightest;
use crate::shared::SharedStore;
use tollgate::Clock;
use tollgate::Limiter;
use tollgate::MAX_CHARGES;
use tollgate::{Admission, Gate, LimitCharge, LimitId};
use tollgate::{Decision, QuotaStatus, Verdict};
use tollgate::{KeyOp, Refund};
use tollgate::{Moment, Span};

/// Every limit of a policy with its state.
#[derive(Debug)]
pub(crate) struct MemoryStore<C> {
    gate: Gate<C>,
    clock: C,
    /// The shared store whose nodes divide the limits, if there is one.
    store: Option<Arc<dyn SharedStore>>,
}

/// The result of the enforced charges.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Decided {
    /// The decision, and the index of the binding charge. `None` if all of them are unlimited.
    By(Decision, Option<usize>),
    /// They are more than can be charged together.
    TooMany,
}

impl Decided {
    fn is_admitted(&self) -> bool {
        matches!(self, Decided::By(decision, _) if decision.is_admitted())
    }
}

/// Whether it is decided with all others of its kind, all or none.
fn is_decided_together(charge: &Charge) -> bool {
    charge.is_enforced() && charge.is_open()
}

/// Records a decision in a charge.
fn mark(charge: &mut Charge, decision: &Decision, source: Source) {
    charge.verdict = decision.verdict;
    charge.outcome.verdict = decision.verdict;
    charge.outcome.issued = decision.issued;
    charge.outcome.local = decision.issued;
    charge.outcome.source = source;
}

/// Refuses charges that are more than can be taken together.
fn too_many(charges: &mut [Charge]) {
    for charge in charges
        .iter_mut()
        .filter(|charge| is_decided_together(charge))
    {
        charge.verdict = Verdict::Never;
        charge.outcome.verdict = Verdict::Never;
        charge.outcome.source = Source::Nothing;
    }
}

impl<C: Clock> MemoryStore<C> {
    pub(crate) fn new(gate: Gate<C>, clock: C, store: Option<Arc<dyn SharedStore>>) -> Self {
        MemoryStore { gate, clock, store }
    }

    pub(crate) fn now(&self) -> Moment {
        self.clock.now()
    }

    pub(crate) fn limiter(&self, limit: LimitId) -> &Limiter<C> {
        self.gate.limiter(limit)
    }

    /// The shared store whose nodes divide the limits, if there is one.
    pub(crate) fn store(&self) -> Option<&Arc<dyn SharedStore>> {
        self.store.as_ref()
    }

    /// This node's number for the limit of a charge, if the request brought one: the number itself, or this node's
    /// share of it in a fleet.
    fn max_here(&self, charge: &Charge) -> Option<u32> {
        let max = charge.most?;
        let Some(store) = &self.store else {
            return Some(max);
        };
        // At least one, as for every limit; but zero stays zero.
        Some((max / store.nodes().max(1)).max(max.min(1)))
    }

    /// Reports the result of `cost` on the limit of a charge.
    pub(crate) fn peek(&self, charge: &Charge, cost: u64) -> Decision {
        let max = self.max_here(charge);
        let peek = KeyOp::Peek { cost, max };
        self.limiter(charge.limit)
            .apply(charge.hash, &peek)
            .decision
    }

    /// What is left of the limit of a charge.
    pub(crate) fn status(&self, charge: &Charge) -> QuotaStatus {
        self.peek(charge, 0).status
    }

    /// Decides all open charges, with [`StoreOp::Charge`] or [`StoreOp::Peek`], and marks them with `source`.
    pub(crate) fn decide(&self, charges: &mut [Charge], op: StoreOp, source: Source) -> Decided {
        let decided = match op {
            StoreOp::Charge => self.charge(charges, source),
            _ => self.peek_all(charges, source),
        };
        let takes = op == StoreOp::Charge && decided.is_admitted();
        for together in charges.chunk_by_mut(Charge::is_with) {
            if together.iter().all(Charge::is_open) {
                let counted = self.count(together, takes);
                for charge in together {
                    mark(charge, &counted, source);
                    if let Verdict::Wait { delay } = counted.verdict {
                        charge.outcome.delay = delay;
                    }
                }
            }
        }
        decided
    }

    /// Charges a limit that is only counted, with its peak; or reports the result.
    fn count(&self, together: &[Charge], takes: bool) -> Decision {
        let charged = takes.then(|| self.charge_within::<2>(together.iter()));
        match charged.flatten() {
            Some(admission) => admission.decision,
            None => self.peek_together(together.iter().enumerate()).0,
        }
    }

    /// Reports the common result of charges, and which of them binds.
    fn peek_together<'c>(
        &self,
        charges: impl Iterator<Item = (usize, &'c Charge)>,
    ) -> (Decision, Option<usize>) {
        let peeked = charges.map(|(at, charge)| (at, charge.cost, self.peek(charge, charge.cost)));
        tightest(peeked, self.clock.now())
    }

    fn peek_all(&self, charges: &mut [Charge], source: Source) -> Decided {
        let enforced = || {
            let numbered = charges.iter().enumerate();
            numbered.filter(|(_, charge)| is_decided_together(charge))
        };
        if enforced().count() > MAX_CHARGES {
            too_many(charges);
            return Decided::TooMany;
        }
        let (decision, binding) = self.peek_together(enforced());
        for charge in charges
            .iter_mut()
            .filter(|charge| is_decided_together(charge))
        {
            mark(charge, &decision, source);
        }
        Decided::By(decision, binding)
    }

    #[inline(always)]
    fn charge(&self, charges: &mut [Charge], source: Source) -> Decided {
        // Usually few; room for many is made only if it is needed.
        let open = || charges.iter().filter(|charge| is_decided_together(charge));
        let few = self.charge_within::<4>(open());
        let admission = few.or_else(|| self.charge_within::<MAX_CHARGES>(open()));
        let Some(Admission { decision, binding }) = admission else {
            too_many(charges);
            return Decided::TooMany;
        };
        let delay = self.delay_of_one(charges, &decision);
        let mut binds = None;
        for (at, charge) in charges.iter_mut().enumerate() {
            if is_decided_together(charge) {
                mark(charge, &decision, source);
                if binds.is_none() && Some(charge.limit) == binding {
                    binds = Some(at);
                }
                if delay > Span::ZERO && self.limiter(charge.limit).is_leaky_bucket() {
                    charge.outcome.delay = delay;
                }
            }
        }
        Decided::By(decision, binds)
    }

    /// The delay of a decision, if one leaky bucket gave it. Several give the longest of their delays, and then
    /// its bucket is not known.
    fn delay_of_one(&self, charges: &[Charge], decision: &Decision) -> Span {
        let Verdict::Wait { delay } = decision.verdict else {
            return Span::ZERO;
        };
        let queues = charges.iter().filter(|charge| {
            is_decided_together(charge) && self.limiter(charge.limit).is_leaky_bucket()
        });
        match queues.count() {
            1 => delay,
            _ => Span::ZERO,
        }
    }

    /// Takes these charges together. `None`, and nothing is taken, if there are more than `N`.
    #[inline(always)]
    fn charge_within<'c, const N: usize>(
        &self,
        charges: impl Iterator<Item = &'c Charge>,
    ) -> Option<Admission> {
        let mut taken = [LimitCharge::default(); N];
        let mut count = 0;
        for charge in charges {
            *taken.get_mut(count)? = LimitCharge::new(charge.limit, charge.hash, charge.cost)
                .with_max(self.max_here(charge));
            count += 1;
        }
        let taken = taken.get(..count).unwrap_or_default();
        Some(self.gate.admit(taken))
    }

    /// Takes up to `cost` of an open charge, and records what did not fit as unpaid.
    pub(crate) fn charge_remaining(&self, charge: &mut Charge, source: Source) {
        let now = self.clock.now();
        let limiter = self.limiter(charge.limit);
        let remaining = KeyOp::ChargeRemaining { cost: charge.cost };
        charge.outcome.unpaid = limiter.apply(charge.hash, &remaining).units;
        charge.outcome.verdict = Verdict::Pass;
        charge.outcome.source = source;
        (charge.outcome.issued, charge.outcome.local) = (now, now);
    }

    /// Takes what the store has taken, as far as there is room, and returns how much that is.
    pub(crate) fn mirror(&self, charge: &Charge, units: u64) -> u64 {
        let limiter = self.limiter(charge.limit);
        limiter.apply(charge.hash, &KeyOp::AddUsage { units }).units
    }

    /// Refunds `taken - kept` units that were taken at the local moment of a charge.
    pub(crate) fn refund(&self, charge: &Charge, taken: u64, kept: u64) {
        if kept < taken {
            let refund = KeyOp::Refund(Refund {
                charged: taken,
                kept,
                issued: charge.outcome.local,
                delay: charge.outcome.delay,
            });
            // A refund reports no units.
            let _ = self.limiter(charge.limit).apply(charge.hash, &refund);
        }
    }

    /// Fills in the result of each charge by itself: [`MemoryStore::decide`] reports only the common one.
    ///
    /// A charge is looked up after the decision, when more may have been earned. So a refusal stands even if no limit refuses any
    /// more: nothing was taken.
    pub(crate) fn fill_in(
        &self,
        charges: &mut [Charge],
        source: Source,
        decided: &Decided,
        is_taken: bool,
    ) {
        for charge in charges.iter_mut().filter(|c| c.outcome.source == source) {
            let cost = if is_taken { 0 } else { charge.cost };
            let peeked = self.peek(charge, cost);
            charge.outcome.status = peeked.status;
            if !is_taken {
                charge.outcome.verdict = peeked.verdict;
            }
        }
        if let Decided::By(decision, Some(binding)) = decided
            && !decision.is_admitted()
            && all_pass(charges)
            && let Some(charge) = charges.get_mut(*binding)
        {
            charge.outcome.verdict = decision.verdict;
            charge.outcome.status = decision.status;
        }
    }
}
