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
//! * at most [`LoanTerms::block_max`], so that all nodes together hold at most a quarter of the limit, and what
//!   a dead node had is soon earned again.
//!
//! What is not spent when the block's term is over goes back to the store, or is lost with its node.
//!
//! While the limit is far, the next block is borrowed *ahead* of need, when a quarter of the present one is
//! left, beside all requests: none of them waits for it.
//!
//! A refusal is true for as long as it says: nothing but a correction or another limit can make it wrong. So
//! it is remembered, but never for longer than a term, because corrections happen.
//!
//! While somebody borrows, the others wait for what he brings: once. Whoever finds nothing then asks for himself.
//!
//! After a short grant nobody who costs as much asks for one `hold`. Whoever asks at once finds what was earned in a
//! microsecond, and nearly every request would go to the store; what is earned meanwhile is not lost, because
//! a hold is at most half of the time in which the limit is earned.
//!
//! # Invariant
//!
//! The credit of a block is at most what the store granted with it, less what was spent of it. There are at most
//! two: one that is spent, and one behind it. Both together, with what is being asked for, are at most the largest
//! block there may be, also after units were put back.
//!
//! # What it does not know
//!
//! Keys, locks, the store, and which clock `now` is from.

use super::terms::LoanTerms;
use crate::decision::{Standing, Verdict};
use crate::store::shared::SharedOutcome;
use crate::time::{Moment, Span};

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
        /// What passed by a copy and is to be told first.
        untold: u64,
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

/// What is left of one grant.
#[derive(Clone, Copy, Debug, Default)]
struct Block {
    credit: u64,
    issued: Moment,
    /// From then on it cannot be spent.
    ends: Moment,
}

impl Block {
    /// What can be spent of it now.
    fn credit(&self, now: Moment) -> u64 {
        if now < self.ends { self.credit } else { 0 }
    }

    /// All that is left of it.
    fn rest(&mut self) -> Option<Rest> {
        let units = std::mem::take(&mut self.credit);
        (units > 0).then_some(Rest {
            units,
            issued: self.issued,
        })
    }
}

/// The loan of one key.
#[derive(Debug, Default)]
pub(super) struct Loan {
    /// What is spent.
    block: Block,
    /// What is spent then.
    next: Block,
    /// Units that are asked for beyond what requests cost, and whether that is less than was wished because little
    /// is left.
    on_the_way: u64,
    is_little: bool,
    /// What may be on loan here at once.
    most: u64,
    /// When the present slot of demand began, what was asked for in it and in the one before.
    slot: Moment,
    asked: u64,
    asked_before: u64,
    told: Option<Told>,
    /// Who costs at least this much is refused until then: the store said so, or had little left.
    refused: (u64, Moment),
    short: (u64, Moment),
    /// Nobody borrows before: a block was lost.
    lost_until: Moment,
    /// Nobody asks ahead before.
    ahead_after: Moment,
    asking: bool,
    is_wished: bool,
}

/// The next block is borrowed when one part in so many of a block is left.
const LOW_PART: u64 = 4;

impl Loan {
    /// Spends, or says what is to be done. The rest of an earlier block, if there is one, is to be given back.
    pub(super) fn spend(
        &mut self,
        terms: &LoanTerms,
        nodes: u32,
        now: Moment,
        (cost, is_first): (u64, bool),
    ) -> (Spend, Option<Rest>) {
        if is_first {
            self.demand(terms, now, cost);
        }
        self.most = terms.block_max(nodes);
        let ended = self.end(now);
        // Who pays nothing wants to know how it stands.
        let is_news = |told: Told| now.since(told.at) < terms.hold;
        if cost == 0 && !self.told.is_some_and(is_news) {
            return (Spend::Ask, ended);
        }
        if let Some(issued) = self.pay(now, cost) {
            return (Spend::Paid(self.paid(issued)), ended);
        }
        for (refused_cost, until) in [self.refused, self.short] {
            if now < until && cost >= refused_cost {
                return (Spend::Refused(until.since(now)), ended);
            }
        }
        if is_first {
            return (Spend::Ask, ended);
        }
        if self.asking {
            return (Spend::Wait, ended);
        }
        match self.block(terms, now, cost) {
            0 => (Spend::Ask, ended),
            block => {
                let wished = self.wished();
                self.ask(block, block < wished - wished % cost.max(1));
                (Spend::Borrow { block, untold: 0 }, ended)
            }
        }
    }

    /// Pays with one block, if one has enough, and says when that was granted.
    fn pay(&mut self, now: Moment, cost: u64) -> Option<Moment> {
        let mut blocks = [&mut self.block, &mut self.next].into_iter();
        let block = blocks.find(|block| cost <= block.credit(now))?;
        block.credit -= cost;
        Some(block.issued)
    }

    /// Is it time to wish for the next block? Once, until somebody looks at the wish.
    pub(super) fn wishes(&mut self, terms: &LoanTerms, now: Moment) -> bool {
        let wishes = !self.is_wished && self.wanted_ahead(terms, now).is_some();
        self.is_wished |= wishes;
        wishes
    }

    /// The turn to borrow ahead, if it is still time for that. Nobody else borrows meanwhile.
    pub(super) fn ahead(&mut self, terms: &LoanTerms, now: Moment) -> Option<u64> {
        self.is_wished = false;
        let block = self.wanted_ahead(terms, now)?;
        self.ask(block, false);
        let part = terms.hold.as_nanos() / LOW_PART;
        self.ahead_after = now.plus(Span::from_nanos(part));
        Some(block)
    }

    /// Nobody will look at the wish.
    pub(super) fn forget_wish(&mut self) {
        self.is_wished = false;
    }

    /// What to borrow before it is needed: a whole block, as long as the limit is far.
    fn wanted_ahead(&self, terms: &LoanTerms, now: Moment) -> Option<u64> {
        let whole = self.wanted().min(self.most);
        let held = self.held();
        let (_, short) = self.short;
        let after = self.ahead_after.max(self.lost_until).max(short);
        if held > whole / LOW_PART || self.asking || now < after {
            return None;
        }
        let is_far = match self.left(terms, now) {
            Some(left) => left / 2 >= whole,
            None => true,
        };
        let block = self.wished();
        (is_far && block > 0 && self.is_busy(1)).then_some(block)
    }

    fn ask(&mut self, block: u64, is_little: bool) {
        self.asking = true;
        self.on_the_way = block;
        self.is_little = is_little;
    }

    /// What is on loan here.
    fn held(&self) -> u64 {
        self.block.credit.saturating_add(self.next.credit)
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

    /// What would be borrowed if there were enough.
    fn wished(&self) -> u64 {
        self.wanted().min(self.most.saturating_sub(self.held()))
    }

    /// Is it asked for often enough to be lent to?
    fn is_busy(&self, cost: u64) -> bool {
        self.wanted() >= cost.saturating_mul(2).max(2)
    }

    /// What to borrow for requests of this cost: for whole requests, because each is paid from one block.
    fn block(&self, terms: &LoanTerms, now: Moment, cost: u64) -> u64 {
        if !self.is_busy(cost) || now < self.lost_until {
            return 0;
        }
        let most = self.wished();
        let most = match self.left(terms, now) {
            Some(left) => most.min(left.saturating_sub(cost).div_ceil(2)),
            None => most,
        };
        most - most % cost.max(1)
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

    /// The store was asked at `sent` for a request that costs so much and a block, and took both; a block ahead of
    /// need comes with no cost. There is no room for three: the rest of the oldest is to be given back.
    pub(super) fn granted(
        &mut self,
        terms: &LoanTerms,
        sent: Moment,
        (cost, units): (u64, u64),
        outcome: &SharedOutcome,
    ) -> Option<Rest> {
        self.hear(outcome, sent);
        let mut oldest = None;
        if units > 0 {
            let block = Block {
                credit: units,
                issued: outcome.issued,
                ends: sent.plus(match terms.ends_with_window {
                    // The store was asked after `sent`, so its window ends later than this.
                    true => terms.term.min(outcome.standing.full_after),
                    false => terms.term,
                }),
            };
            if self.next.credit > 0 {
                oldest = self.block.rest();
                self.block = self.next;
                self.next = block;
            } else if self.block.credit > 0 {
                self.next = block;
            } else {
                self.block = block;
            }
        }
        let is_short = self.is_little || units < self.on_the_way;
        if cost > 0 && self.is_busy(cost) && is_short {
            self.short = (cost, sent.plus(terms.hold));
        }
        oldest
    }

    /// The store was asked at `sent` for the request alone, and refused it.
    pub(super) fn denied(
        &mut self,
        terms: &LoanTerms,
        sent: Moment,
        cost: u64,
        outcome: &SharedOutcome,
    ) {
        self.hear(outcome, sent);
        if let Verdict::Refuse { retry_after } = outcome.verdict {
            self.refused = (cost, sent.plus(retry_after.min(terms.believed)));
        }
        if self.is_busy(cost) && self.most > 0 {
            self.short = (cost, sent.plus(terms.hold));
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
        self.on_the_way = 0;
    }

    /// Whoever borrowed goes away without an answer. What the store may have granted is lost, so nothing is borrowed for a
    /// while: each request is asked for alone.
    pub(super) fn lost(&mut self, terms: &LoanTerms, now: Moment) {
        if self.asking && self.on_the_way > 0 {
            self.lost_until = now.plus(terms.term);
        }
        self.asked();
    }

    /// Something was given back for this key: what was refused may pass now.
    pub(super) fn freed(&mut self) {
        self.refused = (0, Moment::ORIGIN);
        self.short = (0, Moment::ORIGIN);
    }

    /// Does somebody borrow?
    pub(super) fn is_asked_for(&self) -> bool {
        self.asking
    }

    /// Puts units back that were paid with the block of `issued`. False if that block is over, or if there would be
    /// more on loan than may be.
    pub(super) fn put_back(&mut self, issued: Moment, units: u64, now: Moment) -> bool {
        let all = self.held().saturating_add(self.on_the_way);
        if all.saturating_add(units) > self.most {
            return false;
        }
        for block in [&mut self.block, &mut self.next] {
            if block.issued == issued && now < block.ends {
                block.credit += units;
                return true;
            }
        }
        false
    }

    /// Takes up to so many units more, for a request that cost more than was said.
    pub(super) fn take_more(&mut self, units: u64, now: Moment) -> u64 {
        let mut taken = 0;
        for block in [&mut self.block, &mut self.next] {
            let more = block.credit(now).min(units - taken);
            block.credit -= more;
            taken += more;
        }
        taken
    }

    /// What is left of a block whose time is over; of the older one, if both are.
    pub(super) fn end(&mut self, now: Moment) -> Option<Rest> {
        let mut rest = None;
        for _ in 0..2 {
            if rest.is_none() && now >= self.block.ends {
                rest = self.block.rest();
                self.block = std::mem::take(&mut self.next);
            }
        }
        rest
    }

    /// The same, also of a block for which nobody came lately: what is given back soon is worth most.
    pub(super) fn end_if_quiet(&mut self, terms: &LoanTerms, now: Moment) -> Option<Rest> {
        let is_quiet = now.since(self.slot).as_nanos() >= terms.hold.as_nanos().saturating_mul(3);
        match is_quiet && !self.asking {
            true => self.rest(),
            false => self.end(now),
        }
    }

    /// All that is left of the older block; of the other one, if that is empty.
    pub(super) fn rest(&mut self) -> Option<Rest> {
        self.block.rest().or_else(|| self.next.rest())
    }

    /// Would nobody notice if it were forgotten?
    pub(super) fn is_idle(&self, terms: &LoanTerms, now: Moment) -> bool {
        let ((_, refused), (_, short)) = (self.refused, self.short);
        self.held() == 0
            && !self.asking
            && !self.is_wished
            && now >= refused.max(short).max(self.lost_until)
            && now.since(self.slot) >= terms.hold
    }

    fn paid(&self, issued: Moment) -> Paid {
        let told = self.told.map(|told| told.standing).unwrap_or_default();
        Paid {
            issued,
            standing: Standing {
                remaining: told.remaining.saturating_add(self.held()),
                ..told
            },
        }
    }
}
