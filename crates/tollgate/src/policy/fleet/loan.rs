//! One key's loan: units that the store has charged already and that this node spends by itself.
//!
//! # Theory
//!
//! A *block* is an exact charge like any other, only larger than the request that brought it: the store
//! decided it, by its clock, together with everything else. So whatever is spent here was granted there, and
//! all nodes together never spend more than was granted. A block is
//!
//! * as large as what this key asked for lately in one [`LoanTerms::hold`], so that a busy key asks the
//!   store some twenty times a second and a quiet one with every request, as if there were no loans;
//! * at most half of what is left, as far as that is known, so that the last units are shared by all nodes;
//! * at most [`LoanTerms::block_max`], so that all nodes together hold at most a quarter of the limit.
//!
//! What is not spent when the block's term is over goes back to the store, or is lost with its node.
//!
//! A refusal is true for as long as it says: nothing but a correction or another limit can make it wrong. So
//! it is remembered, but never for longer than a term, because corrections happen.
//!
//! While somebody borrows, the others wait for what he brings: once. Whoever finds nothing then asks for himself.
//!
//! After a short grant nobody asks for one `hold`. Whoever asks at once finds what was earned in a
//! microsecond, and nearly every request would go to the store; what is earned meanwhile is not lost, because
//! a hold is at most half of the time in which the limit is earned.
//!
//! # Invariant
//!
//! `credit` is at most what the store granted with the block that it is from, less what was spent of it. There
//! is one block at a time: the rest of the one before is given back first.
//!
//! # What it does not know
//!
//! Keys, locks, the store, and which clock `now` is from.

use crate::decision::{Standing, Verdict};
use crate::limit::Algorithm;
use crate::policy::rule::Quota;
use crate::store::shared::SharedOutcome;
use crate::time::{Moment, Span};

/// The demand of this long is lent at once.
const HOLD: Span = Span::from_millis(50);
/// How long a block can be spent.
const TERM: Span = Span::from_secs(1);
/// All nodes together hold at most one part in so many of the limit.
const LENT_PART: u64 = 4;

/// How a limit lends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::policy) struct LoanTerms {
    /// Units that the limit holds at the most.
    capacity: u64,
    /// How much traffic a block is for, and how long nobody asks after a short grant.
    hold: Span,
    /// How long a block can be spent.
    term: Span,
    /// Is what is left thrown away all at once, so that a block must end before that?
    ends_with_window: bool,
}

impl LoanTerms {
    /// How a quota lends; none if it cannot be lent.
    pub(super) fn of(quota: &Quota) -> Option<LoanTerms> {
        let part_of = |span: Span, part: u64| Span::from_nanos(span.as_nanos() / part);
        let (capacity, earned_in) = match *quota.limit.algorithm() {
            Algorithm::TokenBucket { rate, burst } => (burst, rate.time_to_earn(burst)),
            Algorithm::Gcra { rate, tolerance } => {
                let capacity = rate.earned_in(tolerance).saturating_add(1);
                (capacity, rate.time_to_earn(capacity))
            }
            Algorithm::FixedWindow { limit, window, .. }
            | Algorithm::SlidingLog { limit, window }
            | Algorithm::SlidingWindow { limit, window, .. } => (limit, part_of(window, 8)),
            Algorithm::Concurrency { limit, ttl } => (limit, part_of(ttl, 8)),
            // Slots are in an order, and two rates at once are not kept by a block.
            _ => return None,
        };
        let term = match *quota.limit.algorithm() {
            // What is lent is held there for its whole life, and must not outlive it here.
            Algorithm::Concurrency { ttl, .. } => TERM.min(part_of(ttl, 4)),
            _ => TERM,
        };
        Some(LoanTerms {
            capacity,
            hold: HOLD.min(part_of(earned_in, 2)),
            term,
            ends_with_window: matches!(quota.limit.algorithm(), Algorithm::FixedWindow { .. }),
        })
    }

    /// The largest block with so many nodes. Nothing if the limit is too small to be lent.
    pub(super) fn block_max(&self, nodes: u32) -> u64 {
        self.capacity / LENT_PART / u64::from(nodes.max(1))
    }
}

/// What becomes of a request that wants to spend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spend {
    /// It is paid for, by a block that the store granted then, by its clock.
    Paid(Paid),
    /// The store would refuse it, or is not asked so soon again: when to come back.
    Refused(Span),
    /// The store has to be asked, for the request alone.
    Ask,
    /// The store has to be asked: for the request, and for so much more. Nobody else asks for more meanwhile.
    Borrow {
        /// What is to be lent.
        block: u64,
    },
    /// Somebody borrows: what he brings may be enough.
    Wait,
}

/// What a request was paid with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Paid {
    /// When the store granted it, by its clock.
    pub(super) issued: Moment,
    /// What is left of the limit as far as this node knows, with what it has on loan.
    pub(super) standing: Standing,
}

/// Units of a block that was not spent, to be given back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Rest {
    pub(super) units: u64,
    pub(super) issued: Moment,
}

/// What the store said last, and when it was asked.
#[derive(Clone, Copy, Debug)]
struct Told {
    standing: Standing,
    at: Moment,
}

/// The loan of one key.
#[derive(Debug, Default)]
pub(super) struct Loan {
    credit: u64,
    issued: Moment,
    /// From then on the block cannot be spent.
    ends: Moment,
    /// When the present slot of demand began, what was asked for in it and in the one before.
    slot: Moment,
    asked: u64,
    asked_before: u64,
    told: Option<Told>,
    /// Who costs at least this much is refused until then.
    refused: (u64, Moment),
    /// Nobody asks before.
    not_before: Moment,
    asking: bool,
}

impl Loan {
    /// Spends, or says what is to be done. The rest of an earlier block, if there is one, is to be given back.
    pub(super) fn spend(
        &mut self,
        terms: &LoanTerms,
        nodes: u32,
        now: Moment,
        cost: u64,
    ) -> (Spend, Option<Rest>) {
        self.demand(terms, now, cost);
        let ended = self.end(now);
        if cost <= self.credit {
            self.credit -= cost;
            return (Spend::Paid(self.paid()), ended);
        }
        let (refused_cost, until) = self.refused;
        if now < until && cost >= refused_cost {
            return (Spend::Refused(until.since(now)), ended);
        }
        if now < self.not_before {
            return (Spend::Refused(self.not_before.since(now)), ended);
        }
        if self.asking {
            return (Spend::Wait, ended);
        }
        match self.block(terms, nodes, now, cost) {
            0 => (Spend::Ask, ended),
            block => {
                self.asking = true;
                // One block at a time.
                (Spend::Borrow { block }, ended.or_else(|| self.rest()))
            }
        }
    }

    /// What is asked for in one hold.
    fn demand(&mut self, terms: &LoanTerms, now: Moment, cost: u64) {
        let hold = terms.hold.as_nanos().max(1);
        match now.since(self.slot).as_nanos() / hold {
            0 => {}
            1 => {
                self.asked_before = self.asked;
                self.asked = 0;
                self.slot = self.slot.plus(terms.hold);
            }
            _ => {
                (self.asked_before, self.asked) = (0, 0);
                self.slot = now;
            }
        }
        self.asked = self.asked.saturating_add(cost);
    }

    fn wanted(&self) -> u64 {
        self.asked.max(self.asked_before)
    }

    /// Is it asked for often enough to be lent to?
    fn is_busy(&self, cost: u64) -> bool {
        self.wanted() >= cost.saturating_mul(2).max(2)
    }

    fn block(&self, terms: &LoanTerms, nodes: u32, now: Moment, cost: u64) -> u64 {
        if !self.is_busy(cost) {
            return 0;
        }
        let most = self.wanted().min(terms.block_max(nodes));
        match self.left(terms, now) {
            Some(left) => most.min(left.saturating_sub(cost).div_ceil(2)),
            None => most,
        }
    }

    /// What may be left there now: what was told, and what was earned since. A guess, because others take, too.
    fn left(&self, terms: &LoanTerms, now: Moment) -> Option<u64> {
        let told = self.told?;
        let (since, full) = (now.since(told.at), told.standing.full_after);
        if since >= full {
            return None;
        }
        let missing = terms.capacity.saturating_sub(told.standing.remaining);
        let earned = match terms.ends_with_window {
            true => 0,
            false => {
                let product = u128::from(missing) * u128::from(since.as_nanos());
                u64::try_from(product / u128::from(full.as_nanos().max(1))).unwrap_or(missing)
            }
        };
        Some(told.standing.remaining.saturating_add(earned))
    }

    /// The store was asked at `sent` for the request and a block, and took both. What was put back into the block before
    /// meanwhile is to be given back.
    pub(super) fn granted(
        &mut self,
        terms: &LoanTerms,
        nodes: u32,
        sent: Moment,
        (cost, block): (u64, u64),
        outcome: &SharedOutcome,
    ) -> Option<Rest> {
        self.hear(outcome, sent);
        let mut before = None;
        if block > 0 {
            before = self.rest();
            self.credit = block;
            self.issued = outcome.issued;
            self.ends = sent.plus(match terms.ends_with_window {
                // The store was asked after `sent`, so its window ends later than this.
                true => terms.term.min(outcome.standing.full_after),
                false => terms.term,
            });
        }
        if self.is_busy(cost) && block < self.wanted().min(terms.block_max(nodes)) {
            self.not_before = sent.plus(terms.hold);
        }
        before
    }

    /// The store was asked at `sent` for the request alone, and refused it.
    pub(super) fn denied(
        &mut self,
        terms: &LoanTerms,
        nodes: u32,
        sent: Moment,
        cost: u64,
        outcome: &SharedOutcome,
    ) {
        self.hear(outcome, sent);
        if let Verdict::Refuse { retry_after } = outcome.verdict {
            self.refused = (cost, sent.plus(retry_after.min(terms.term)));
        }
        if self.is_busy(cost) && terms.block_max(nodes) > 0 {
            self.not_before = sent.plus(terms.hold);
        }
    }

    /// What the store says of a key.
    pub(super) fn hear(&mut self, outcome: &SharedOutcome, sent: Moment) {
        self.told = Some(Told {
            standing: outcome.standing,
            at: sent,
        });
    }

    /// Whoever borrowed has his answer, or will have none.
    pub(super) fn asked(&mut self) {
        self.asking = false;
    }

    /// Does somebody borrow?
    pub(super) fn is_asked_for(&self) -> bool {
        self.asking
    }

    /// Puts units back that were paid with the block of `issued`. False if that block is over.
    pub(super) fn put_back(&mut self, issued: Moment, units: u64, now: Moment) -> bool {
        let is_this = self.issued == issued && now < self.ends;
        if is_this {
            self.credit = self.credit.saturating_add(units);
        }
        is_this
    }

    /// Takes up to so many units more, for a request that cost more than was said.
    pub(super) fn take_more(&mut self, units: u64, now: Moment) -> u64 {
        if now >= self.ends {
            return 0;
        }
        let taken = units.min(self.credit);
        self.credit -= taken;
        taken
    }

    /// What is left of a block whose time is over.
    pub(super) fn end(&mut self, now: Moment) -> Option<Rest> {
        (now >= self.ends).then(|| self.rest()).flatten()
    }

    /// All that is left of the block.
    pub(super) fn rest(&mut self) -> Option<Rest> {
        let units = std::mem::take(&mut self.credit);
        (units > 0).then_some(Rest {
            units,
            issued: self.issued,
        })
    }

    /// Would nobody notice if it were forgotten?
    pub(super) fn is_idle(&self, terms: &LoanTerms, now: Moment) -> bool {
        let (_, refused) = self.refused;
        self.credit == 0
            && !self.asking
            && now >= refused.max(self.not_before)
            && now.since(self.slot) >= terms.hold
    }

    fn paid(&self) -> Paid {
        let told = self.told.map(|told| told.standing).unwrap_or_default();
        Paid {
            issued: self.issued,
            standing: Standing {
                remaining: told.remaining.saturating_add(self.credit),
                ..told
            },
        }
    }
}
