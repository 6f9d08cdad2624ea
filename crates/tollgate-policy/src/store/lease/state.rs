//! The lease of one key: a pure state machine without store, lock or clock.
//!
//! ```text
//!            busy: borrow                       granted
//!   Idle ------------------> Borrowing ------------------------> Leased
//!    ^ ^                      |    |                              |  ^
//!    | | until passed   denied|    |no answer          low: borrow|  |granted, denied, no answer
//!    | +---- Refused <--------+    +--> Backoff                   v  |
//!    |          ^                          |                   Prefetching
//!    |          |empty, grant was short    |                      |
//!    |        Leased                       |                      |empty
//!    +-------------- until passed ---------+                  wait as Borrowing
//! ```
//!
//! # Theory
//!
//! A *block* is an exact charge, only larger than the request that needs it. So all nodes together never spend more than
//! was granted. A block is
//!
//! * as large as the demand of one [`LeaseTerms::horizon`], so that a busy key asks the store some twenty times a second
//!   and a quiet one with every request, as if nothing were leased;
//! * at most half of what is left, as far as that is known, so that all nodes share the last units;
//! * at most [`LeaseTerms::block_max`], including what is held and in flight.
//!
//! A refusal stays valid for the wait that it states: only a refund or a change of the limit can end it earlier.
//! So it is cached, but not for longer than [`LeaseTerms::refusal_ttl`], and only for costs that are at least as
//! large. A busy key caches it for a horizon at least: earlier it would only find what was earned in a
//! microsecond. The same holds after a short grant.
//!
//! # Invariant
//!
//! The credit of a block is at most what the store granted with it, less what was spent of it. There are at most two blocks.
//! Their credit and what is being borrowed are together at most the largest lease, also after units were put back.

use super::super::time_until_room;
use super::terms::LeaseTerms;
use crate::charge::Outcome;
use tollgate::{Moment, Span};
use tollgate::{QuotaStatus, Verdict};

/// The next block is borrowed when one part in this many is left.
const LOW_PART: u64 = 4;
/// A key without requests for this many horizons returns its block.
const QUIET_HORIZONS: u64 = 3;

/// Units that the store has charged already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) credit: u64,
    /// When the store granted it, by its clock, and by the clock of this node.
    pub(super) issued: Moment,
    pub(super) local: Moment,
    /// Whether this node's share took all of it too.
    pub(super) is_mirrored: bool,
    /// From then on it cannot be spent.
    pub(super) expires: Moment,
}

impl Block {
    fn pay(&mut self, cost: u64, now: Moment) -> bool {
        let pays = now < self.expires && cost <= self.credit;
        if pays {
            self.credit -= cost;
        }
        pays
    }
}

/// The next state when the credit is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Borrow,
    /// The limit is near: costs of at least this much are refused until then.
    Refuse {
        cost: u64,
        until: Moment,
    },
    /// The last borrow got no answer, so what it took may be lost: the store decides each charge until then.
    Exact {
        until: Moment,
    },
}

/// A borrow in flight: its handle, and the units beyond the cost of its request.
#[derive(Clone, Debug)]
pub(super) struct Borrow<B> {
    pub(super) handle: B,
    pub(super) units: u64,
}

/// The state of a lease.
#[derive(Debug)]
pub(super) enum State<B> {
    /// No credit and no information. A quiet key stays here: the store decides each charge.
    Idle,
    /// Charges are paid here.
    Leased {
        current: Block,
        following: Option<Block>,
        next: Next,
    },
    /// Charges are paid here, and another block is in flight.
    Prefetching { current: Block, borrow: Borrow<B> },
    /// No credit. Charges wait for the block.
    Borrowing { borrow: Borrow<B> },
    /// The store would refuse charges of at least `cost`.
    Refused { cost: u64, until: Moment },
    /// Nothing is borrowed before `until`: the store decides each charge.
    Backoff { until: Moment },
}

/// How a charge is paid.
#[derive(Debug)]
pub(super) enum Payment<B> {
    /// By this block, with the status afterwards.
    Paid(Block, QuotaStatus),
    Refused(Span),
    /// By the store.
    Forward,
    /// After this borrow: try again then.
    Wait(B),
    /// Start this borrow, then wait for it.
    Borrow(BorrowRequest),
}

/// A borrow to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BorrowRequest {
    /// For the request that needs it; zero for a prefetch.
    pub(super) cost: u64,
    /// Beyond the cost.
    pub(super) extra: u64,
    /// Whether it is less than the demand, because little is left.
    pub(super) is_short: bool,
}

/// The last status that the store reported, and when it was asked.
#[derive(Clone, Copy, Debug)]
struct LastStatus {
    status: QuotaStatus,
    /// When the store was asked, and when the answer arrived: its moment lies between the two.
    at: Moment,
    answered: Moment,
    /// The cost that it refused, and when that passes.
    refused: Option<(u64, Span)>,
}

impl LastStatus {
    /// When a charge of `cost` passes in the store, if nothing else is charged until then.
    fn passes_at(&self, terms: &LeaseTerms, cost: u64) -> Moment {
        let wait = match self.refused {
            Some((refused, retry_after)) if refused == cost => retry_after,
            _ => {
                let ends = terms.ends_with_window;
                time_until_room(&self.status, terms.capacity, cost, ends)
            }
        };
        self.answered.plus(wait)
    }
}

/// The lease of one key. `B` is a handle of a borrow in flight.
#[derive(Debug)]
pub(super) struct Lease<B> {
    pub(super) state: State<B>,
    /// Start of the current slot of demand, and the demand in it and in the one before.
    slot: Moment,
    demand: [u64; 2],
    last: Option<LastStatus>,
    /// Nothing is prefetched before.
    prefetch_after: Moment,
    /// The largest lease, when it was last paid from.
    most: u64,
}

impl<B> Default for Lease<B> {
    fn default() -> Lease<B> {
        Lease {
            state: State::Idle,
            slot: Moment::ORIGIN,
            demand: [0; 2],
            last: None,
            prefetch_after: Moment::ORIGIN,
            most: 0,
        }
    }
}

impl<B: Clone> Lease<B> {
    /// Records demand, in slots of one horizon.
    pub(super) fn record(&mut self, terms: &LeaseTerms, cost: u64, now: Moment) {
        match now.since(self.slot).as_nanos() / terms.horizon.as_nanos().max(1) {
            0 => {}
            1 => {
                self.demand = [0, self.demand[0]];
                self.slot = self.slot.plus(terms.horizon);
            }
            _ => (self.demand, self.slot) = ([0; 2], now),
        }
        self.demand[0] = self.demand[0].saturating_add(cost);
    }

    fn demanded(&self) -> u64 {
        self.demand[0].max(self.demand[1])
    }

    fn is_busy(&self, cost: u64) -> bool {
        self.demanded() >= cost.saturating_mul(2).max(2)
    }

    /// Units that can be spent here.
    pub(super) fn credit(&self) -> u64 {
        match &self.state {
            State::Leased {
                current, following, ..
            } => current.credit + following.map_or(0, |block| block.credit),
            State::Prefetching { current, .. } => current.credit,
            _ => 0,
        }
    }

    fn in_flight(&self) -> u64 {
        match &self.state {
            State::Prefetching { borrow, .. } | State::Borrowing { borrow } => borrow.units,
            _ => 0,
        }
    }

    /// Units to borrow beyond `cost`. `None`: not worth it, or not possible.
    fn wanted(&self, terms: &LeaseTerms, cost: u64, now: Moment) -> Option<BorrowRequest> {
        // The request that needs it spends `cost` at once.
        let room = self.most.saturating_sub(self.credit());
        let whole = |units: u64| units - units % cost.max(1);
        let demanded = whole(self.demanded().min(room));
        let extra = match self.left(terms, now) {
            Some(left) => whole(demanded.min(left.saturating_sub(cost).div_ceil(2))),
            None => demanded,
        };
        let is_short = extra < demanded;
        (self.is_busy(cost) && extra > 0).then_some(BorrowRequest {
            cost,
            extra,
            is_short,
        })
    }

    /// Pays, or returns what to do instead.
    pub(super) fn pay(
        &mut self,
        terms: &LeaseTerms,
        nodes: u32,
        cost: u64,
        now: Moment,
    ) -> Payment<B> {
        self.most = terms.block_max(nodes);
        let is_fresh = |last: LastStatus| now.since(last.at) < terms.horizon;
        if cost == 0 && !self.last.is_some_and(is_fresh) {
            // A charge of zero asks for the status of the limit.
            return Payment::Forward;
        }
        if let Some(block) = self.pay_here(cost, now) {
            return Payment::Paid(block, self.status());
        }
        let next = match &self.state {
            State::Leased {
                following: Some(_), ..
            } => return Payment::Forward,
            State::Leased { next, .. } => *next,
            State::Prefetching { borrow, .. } | State::Borrowing { borrow } => {
                return Payment::Wait(borrow.handle.clone());
            }
            State::Refused { cost, until } => Next::Refuse {
                cost: *cost,
                until: *until,
            },
            State::Backoff { until } => Next::Exact { until: *until },
            State::Idle => Next::Borrow,
        };
        match next {
            Next::Refuse { cost: least, until } if now < until && cost >= least => {
                // Cached only for a while, but the client is to return when it passes.
                let passes_at = self.last.map(|last| last.passes_at(terms, cost));
                let retry_at = passes_at.map_or(until, |passes_at| passes_at.max(until));
                return Payment::Refused(retry_at.since(now));
            }
            Next::Refuse { until, .. } | Next::Exact { until } if now < until => {
                return Payment::Forward;
            }
            _ => {}
        }
        if self.credit() == 0 {
            self.state = State::Idle;
        }
        match self.wanted(terms, cost, now) {
            Some(wanted) => Payment::Borrow(wanted),
            None => Payment::Forward,
        }
    }

    /// Pays with one block, if one has enough.
    fn pay_here(&mut self, cost: u64, now: Moment) -> Option<Block> {
        match &mut self.state {
            State::Leased {
                current, following, ..
            } => {
                let paid = match current.pay(cost, now) {
                    true => Some(*current),
                    false => match following {
                        Some(block) => block.pay(cost, now).then_some(*block),
                        None => None,
                    },
                };
                // An empty block makes room for the next borrow.
                *following = following.filter(|block| block.credit > 0);
                if current.credit == 0
                    && let Some(block) = following.take()
                {
                    *current = block;
                }
                paid
            }
            State::Prefetching { current, .. } => current.pay(cost, now).then_some(*current),
            _ => None,
        }
    }

    /// The remainder of the limit as far as this node knows, with what it holds.
    fn status(&self) -> QuotaStatus {
        let last = self.last.map(|last| last.status).unwrap_or_default();
        QuotaStatus {
            remaining: last.remaining.saturating_add(self.credit()),
            ..last
        }
    }

    /// The prefetch that is due, if any: a whole block, while the limit is far.
    pub(super) fn prefetch(&mut self, terms: &LeaseTerms, now: Moment) -> Option<BorrowRequest> {
        let State::Leased {
            current,
            following: None,
            next,
        } = &self.state
        else {
            return None;
        };
        let is_calm = match next {
            Next::Borrow => true,
            Next::Refuse { until, .. } | Next::Exact { until } => now >= *until,
        };
        let whole = self.demanded().min(self.most);
        let is_low = current.credit <= whole / LOW_PART;
        if !is_calm || !is_low || now < self.prefetch_after || now >= current.expires {
            return None;
        }
        let is_far = self.left(terms, now).is_none_or(|left| left / 2 >= whole);
        let extra = whole.min(self.most.saturating_sub(self.credit()));
        if !is_far || extra == 0 || !self.is_busy(1) {
            return None;
        }
        let pause = terms.horizon.as_nanos() / LOW_PART;
        self.prefetch_after = now.plus(Span::from_nanos(pause));
        Some(BorrowRequest {
            cost: 0,
            extra,
            is_short: false,
        })
    }

    pub(super) fn start_borrow(&mut self, wanted: BorrowRequest, handle: B) {
        let units = wanted.cost.saturating_add(wanted.extra);
        let borrow = Borrow { handle, units };
        self.state = match std::mem::replace(&mut self.state, State::Idle) {
            State::Leased {
                current,
                following: None,
                ..
            } if current.credit > 0 || wanted.cost == 0 => State::Prefetching { current, borrow },
            _ => State::Borrowing { borrow },
        };
    }

    /// Ends the borrow in flight. Returns a block that found no room, and the handle.
    pub(super) fn finish_borrow(
        &mut self,
        granted: Option<Block>,
        next: Next,
    ) -> (Option<Block>, Option<B>) {
        let granted = granted.filter(|block| block.credit > 0);
        let state = std::mem::replace(&mut self.state, State::Idle);
        let (state, unused, handle) = match state {
            State::Borrowing { borrow } => match (granted, next) {
                (Some(current), next) => (
                    State::Leased {
                        current,
                        following: None,
                        next,
                    },
                    None,
                    Some(borrow.handle),
                ),
                (None, Next::Refuse { cost, until }) => {
                    (State::Refused { cost, until }, None, Some(borrow.handle))
                }
                (None, Next::Exact { until }) => {
                    (State::Backoff { until }, None, Some(borrow.handle))
                }
                (None, Next::Borrow) => (State::Idle, None, Some(borrow.handle)),
            },
            State::Prefetching { current, borrow } => {
                let (current, following) = match granted {
                    Some(block) if current.credit == 0 => (block, None),
                    granted => (current, granted),
                };
                let state = State::Leased {
                    current,
                    following,
                    next,
                };
                (state, None, Some(borrow.handle))
            }
            state => (state, granted, None),
        };
        self.state = state;
        (unused, handle)
    }

    /// Until when a refusal of this cost is cached that the store gave when asked at `sent`.
    pub(super) fn refused_until(
        &self,
        terms: &LeaseTerms,
        cost: u64,
        sent: Moment,
        retry_after: Span,
    ) -> Moment {
        let cached = retry_after.min(terms.refusal_ttl);
        sent.plus(match self.is_busy(cost) && self.most > 0 {
            true => cached.max(terms.horizon),
            false => cached,
        })
    }

    /// Records that the store itself refused a charge of this cost.
    pub(super) fn refused(&mut self, cost: u64, until: Moment) {
        match &mut self.state {
            State::Leased { next, .. } => *next = Next::Refuse { cost, until },
            State::Idle | State::Refused { .. } => self.state = State::Refused { cost, until },
            _ => {}
        }
    }

    /// Records the status in an answer of the store to a charge of `cost`, asked at `sent`.
    pub(super) fn record_status(&mut self, outcome: &Outcome, cost: u64, sent: Moment) {
        self.last = Some(LastStatus {
            status: outcome.status,
            at: sent,
            answered: outcome.local,
            refused: match outcome.verdict {
                Verdict::Refuse { retry_after } if cost > 0 => Some((cost, retry_after)),
                _ => None,
            },
        });
    }

    /// What may be left in the store now: the last status, and what was earned since. An estimate, because other
    /// nodes take, too.
    fn left(&self, terms: &LeaseTerms, now: Moment) -> Option<u64> {
        let last = self.last?;
        let (since, full) = (now.since(last.at), last.status.full_after);
        if since >= full {
            return None;
        }
        let missing = terms.capacity.saturating_sub(last.status.remaining);
        let earned = match terms.ends_with_window {
            true => 0,
            false => {
                let product = u128::from(missing) * u128::from(since.as_nanos());
                u64::try_from(product / u128::from(full.as_nanos().max(1))).unwrap_or(missing)
            }
        };
        Some(last.status.remaining.saturating_add(earned))
    }

    /// Drops a cached refusal after a refund for this key, because it may be wrong now.
    pub(super) fn forget_refusal(&mut self) {
        match &mut self.state {
            State::Refused { .. } => self.state = State::Idle,
            State::Leased {
                next: next @ Next::Refuse { .. },
                ..
            } => *next = Next::Borrow,
            _ => {}
        }
    }

    /// Puts units back into the block that paid them. False: the block was returned, or the lease would be too large.
    pub(super) fn put_back(&mut self, units: u64, issued: Moment, now: Moment) -> bool {
        let all = self.credit().saturating_add(self.in_flight());
        if all.saturating_add(units) > self.most {
            return false;
        }
        let (current, following) = match &mut self.state {
            State::Leased {
                current, following, ..
            } => (current, following.as_mut()),
            State::Prefetching { current, .. } => (current, None),
            _ => return false,
        };
        let mut blocks = std::iter::once(current).chain(following);
        let block = blocks.find(|block| block.issued == issued && now < block.expires);
        if let Some(block) = block {
            block.credit += units;
            return true;
        }
        false
    }

    /// Takes up to `units` for a cost that is known late, and returns how many.
    pub(super) fn take_up_to(&mut self, units: u64, now: Moment) -> u64 {
        let (current, following) = match &mut self.state {
            State::Leased {
                current, following, ..
            } => (current, following.as_mut()),
            State::Prefetching { current, .. } => (current, None),
            _ => return 0,
        };
        let mut taken = 0;
        for block in std::iter::once(current).chain(following) {
            let more = match now < block.expires {
                true => block.credit.min(units - taken),
                false => 0,
            };
            block.credit -= more;
            taken += more;
        }
        taken
    }

    /// Removes a block to return: one that has expired, or with `all` any.
    pub(super) fn take_expired(&mut self, all: bool, now: Moment) -> Option<Block> {
        let is_over = |block: &Block| all || now >= block.expires;
        match &mut self.state {
            State::Leased {
                current, following, ..
            } if is_over(current) && current.credit > 0 => {
                let rest = *current;
                match following.take() {
                    Some(block) => *current = block,
                    None => self.end(),
                }
                Some(rest)
            }
            State::Leased {
                following: following @ Some(_),
                ..
            } if following.as_ref().is_some_and(is_over) => following.take(),
            State::Leased {
                current,
                following: None,
                ..
            } if is_over(current) => {
                self.end();
                None
            }
            State::Prefetching { current, .. } if is_over(current) && current.credit > 0 => {
                let rest = *current;
                current.credit = 0;
                Some(rest)
            }
            _ => None,
        }
    }

    /// Enters the next state after the last block.
    fn end(&mut self) {
        if let State::Leased { next, .. } = &self.state {
            self.state = match *next {
                Next::Exact { until } => State::Backoff { until },
                Next::Refuse { cost, until } => State::Refused { cost, until },
                Next::Borrow => State::Idle,
            };
        }
    }

    /// Whether the key had no requests lately. Units that are returned soon are worth most.
    pub(super) fn is_quiet(&self, terms: &LeaseTerms, now: Moment) -> bool {
        let quiet = terms.horizon.as_nanos().saturating_mul(QUIET_HORIZONS);
        now.since(self.slot).as_nanos() >= quiet
    }

    /// The borrow in flight, if there is one.
    pub(super) fn borrow(&self) -> Option<&B> {
        match &self.state {
            State::Prefetching { borrow, .. } | State::Borrowing { borrow } => Some(&borrow.handle),
            _ => None,
        }
    }

    /// Whether the entry can be dropped.
    pub(super) fn is_unused(&self, terms: &LeaseTerms, now: Moment) -> bool {
        let is_over = match &self.state {
            State::Idle => true,
            State::Refused { until, .. } | State::Backoff { until } => now >= *until,
            _ => false,
        };
        is_over && now.since(self.slot) >= terms.horizon
    }
}
