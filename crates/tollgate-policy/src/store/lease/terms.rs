//! Sizes and terms of leases.
//!
//! # Theory
//!
//! A node that dies loses its block. So a block is at most
//!
//! * a `4n`-th of what the limit holds: all `n` nodes together lease at most a quarter of it, which bounds the
//!   overshoot in any period;
//! * what the limit gives in one term: what a dead node held is earned again a term later. A limit that gives
//!   nothing in a term is not leased.
//!
//! Permits are not earned: leased permits of a dead node return when they expire in the store.

use crate::rule::Quota;
use tollgate::Algorithm;
use tollgate::Span;

/// The demand of this span is borrowed at once.
const HORIZON: Span = Span::from_millis(50);
/// How long a block can be spent.
const TERM: Span = Span::from_secs(1);
/// All nodes together hold at most one part in this many of the limit.
const LEASED_PART: u64 = 4;

/// How a limit is leased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeaseTerms {
    /// Most units that the limit holds.
    pub(crate) capacity: u64,
    /// Units that it gives in a term.
    in_a_term: u64,
    /// The demand of this span is one block. A short grant stops further borrowing for as long.
    pub(crate) horizon: Span,
    /// How long a block can be spent.
    pub(crate) term: Span,
    /// Whether the remainder, and a block with it, ends with a window.
    pub(crate) ends_with_window: bool,
    /// How long a refusal is cached at most. Permits may be released at any time.
    pub(crate) refusal_ttl: Span,
}

impl LeaseTerms {
    /// How a quota is leased; `None` if it cannot be.
    pub(crate) fn from_quota(quota: &Quota) -> Option<LeaseTerms> {
        // A block would follow only one of two rates.
        if quota.peak.is_some() {
            return None;
        }
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
            // Slots are ordered.
            _ => return None,
        };
        let term = match *quota.limit.algorithm() {
            // A leased permit is held in the store for its whole life, and must not outlive it here.
            Algorithm::Concurrency { ttl, .. } => TERM.min(part_of(ttl, 4)),
            _ => TERM,
        };
        let horizon = HORIZON.min(part_of(earned_in, 2));
        let is_permit = matches!(quota.limit.algorithm(), Algorithm::Concurrency { .. });
        Some(LeaseTerms {
            capacity,
            in_a_term,
            horizon,
            term,
            refusal_ttl: if is_permit { horizon } else { term },
            ends_with_window: matches!(quota.limit.algorithm(), Algorithm::FixedWindow { .. }),
        })
    }

    /// The largest lease of one of this many nodes. Zero if the limit is too small or too slow to be leased.
    pub(crate) fn block_max(&self, nodes: u32) -> u64 {
        let part = self.capacity / LEASED_PART / u64::from(nodes.max(1));
        part.min(self.in_a_term)
    }
}

/// What a window gives in a term under even use.
fn given_in_a_term(limit: u64, window: Span) -> u64 {
    let product = u128::from(limit) * u128::from(TERM.as_nanos());
    u64::try_from(product / u128::from(window.as_nanos().max(1))).unwrap_or(u64::MAX)
}
