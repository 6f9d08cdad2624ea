//! How much of a limit is lent to a node at once, and for how long.
//!
//! # Theory
//!
//! A node that dies takes its block with it. So a block is at most
//!
//! * a `4n`-th of what the limit holds: all `n` nodes together have at most a quarter of it on loan, which is
//!   what may come on top of it in a stretch of time;
//! * what the limit gives in one term: whatever a dead node had is earned again a term later. A limit that gives
//!   nothing in a term is not lent: whoever is so slow needs no loans.
//!
//! Places are not earned: those that were lent come back when their life in the store is over.
//!
//! # What it does not know
//!
//! Demand, and who borrows.

use crate::limit::Algorithm;
use crate::policy::rule::Quota;
use crate::time::Span;

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
    pub(super) capacity: u64,
    /// Units that it gives in a term.
    in_a_term: u64,
    /// How much traffic a block is for, and how long nobody asks after a short grant.
    pub(super) hold: Span,
    /// How long a block can be spent.
    pub(super) term: Span,
    /// Is what is left thrown away all at once, so that a block must end before that?
    pub(super) ends_with_window: bool,
    /// How long a refusal is believed at the most. Places come back at any time.
    pub(super) believed: Span,
}

impl LoanTerms {
    /// How a quota lends; none if it cannot be lent.
    pub(super) fn of(quota: &Quota) -> Option<LoanTerms> {
        let part_of = |span: Span, part: u64| Span::from_nanos(span.as_nanos() / part);
        let (capacity, earned_in, in_a_term) = match *quota.limit.algorithm() {
            Algorithm::TokenBucket { rate, burst } => {
                (burst, rate.time_to_earn(burst), rate.earned_in(TERM))
            }
            Algorithm::Gcra { rate, tolerance } => {
                let capacity = rate.earned_in(tolerance).saturating_add(1);
                (capacity, rate.time_to_earn(capacity), rate.earned_in(TERM))
            }
            Algorithm::FixedWindow { limit, window, .. }
            | Algorithm::SlidingLog { limit, window }
            | Algorithm::SlidingWindow { limit, window, .. } => {
                (limit, part_of(window, 8), given_in_a_term(limit, window))
            }
            Algorithm::Concurrency { limit, ttl } => (limit, part_of(ttl, 8), limit),
            // Slots are in an order, and two rates at once are not kept by a block.
            _ => return None,
        };
        let term = match *quota.limit.algorithm() {
            // What is lent is held there for its whole life, and must not outlive it here.
            Algorithm::Concurrency { ttl, .. } => TERM.min(part_of(ttl, 4)),
            _ => TERM,
        };
        let hold = HOLD.min(part_of(earned_in, 2));
        let is_place = matches!(quota.limit.algorithm(), Algorithm::Concurrency { .. });
        Some(LoanTerms {
            capacity,
            in_a_term,
            hold,
            term,
            believed: if is_place { hold } else { term },
            ends_with_window: matches!(quota.limit.algorithm(), Algorithm::FixedWindow { .. }),
        })
    }

    /// The largest block with so many nodes. Nothing if the limit is too small or too slow to be lent.
    pub(super) fn block_max(&self, nodes: u32) -> u64 {
        let part = self.capacity / LENT_PART / u64::from(nodes.max(1));
        part.min(self.in_a_term)
    }
}

/// What a window gives in a term, if it is used evenly.
fn given_in_a_term(limit: u64, window: Span) -> u64 {
    let product = u128::from(limit) * u128::from(TERM.as_nanos());
    u64::try_from(product / u128::from(window.as_nanos().max(1))).unwrap_or(u64::MAX)
}
