//! One limit that a request must pay: the one charge type, from matching to the store that decides it.
//!
//! # Theory
//!
//! Matching makes a list of charges. A store decides them in place: each [`Charge`] leaves it with an [`Outcome`] that
//! says whether it passes, who paid, and when. The decision is built from the same list, and a refund goes back along
//! it: [`Source`] says which layer paid.
//!
//! # Invariant
//!
//! A charge is decided once. A layer leaves alone what another layer has decided ([`Charge::is_open`]).

use std::sync::Arc;

use crate::shared::SharedKey;
use tollgate::LimitId;
use tollgate::{Moment, Span};
use tollgate::{QuotaStatus, Verdict};

/// How a limit takes part in a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It can refuse the request.
    Enforced,
    /// It is only counted.
    Shadow,
    /// It is the quota that may come in place of the live one; only counted.
    Candidate,
    /// An override says that this key has no limit here.
    Unlimited,
}

/// A limit that applies to a request.
#[derive(Clone, Debug)]
pub struct Charge {
    /// The rule, by its place; see [`super::PolicyGate::rule`].
    pub rule: usize,
    /// How it takes part.
    pub role: Role,
    /// What the request takes from it.
    pub cost: u64,
    /// The tier that the client is in, by its place in the rule.
    pub tier: Option<usize>,
    /// What it would have said, if it is only counted; what was said of all together, if it is enforced.
    pub verdict: Verdict,
    /// Is it the peak of the rule's limit, which stands behind the charge on the limit itself? Both are taken, or none.
    pub is_peak: bool,
    /// The limit that is charged; which quota it has is told by [`super::PolicyGate::quota`].
    pub limit: LimitId,
    /// How many there are at the most, if the request brought its limit along; otherwise the quota says it.
    pub most: Option<u32>,
    /// The key, hashed with this node's secret.
    pub(crate) hash: u64,
    /// The key by its parts, if a shared store may have to know it.
    pub(crate) key: Option<Arc<SharedKey>>,
    /// Units that passed before without the store: it takes them first, as far as they fit.
    pub(crate) debt: u64,
    /// Units of `cost` that a refund leaves taken.
    pub(crate) kept: u64,
    /// What became of it.
    pub(crate) outcome: Outcome,
}

/// Which layer decided a charge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Source {
    /// None yet.
    #[default]
    Open,
    /// None: the key has no limit, or nothing is to be decided.
    Nothing,
    /// The tables of this process, which count for themselves.
    Memory,
    /// A block that the store has granted to this node.
    Lease,
    /// A counter that this node reports to the store afterwards.
    Synced,
    /// The store.
    Store,
    /// This node's share of the limit: the store gave no answer.
    Share,
    /// `on_store_error: allow`.
    Allowed,
    /// `on_store_error: deny`, of this limit or of another one of the request.
    Denied,
}

/// What became of one charge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    /// What this limit says by itself.
    pub(crate) verdict: Verdict,
    /// What is left: after the charge if it was taken, otherwise as it stands.
    pub(crate) status: QuotaStatus,
    /// Who decided.
    pub(crate) source: Source,
    /// When, by the clock of the payer: a refund shows it.
    pub(crate) issued: Moment,
    /// When, by the clock of this node.
    pub(crate) local: Moment,
    /// Units that this node's share took too.
    pub(crate) mirrored: u64,
    /// Units granted beyond the cost (`super::store::Op::Borrow`).
    pub(crate) extra: u64,
    /// Units of debt, or of a forced charge, that did not fit.
    pub(crate) unpaid: u64,
    /// How long after `local` the slot of a leaky bucket begins; zero if it is not known whose delay it is.
    pub(crate) delay: Span,
}

impl Outcome {
    /// Not decided yet.
    pub(crate) fn open(now: Moment) -> Outcome {
        Outcome {
            verdict: Verdict::Pass,
            status: QuotaStatus::default(),
            source: Source::Open,
            issued: now,
            local: now,
            mirrored: 0,
            extra: 0,
            unpaid: 0,
            delay: Span::ZERO,
        }
    }

    /// Is it the store's word, at first or second hand?
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self.source, Source::Lease | Source::Synced | Source::Store)
    }
}

impl Charge {
    /// A number that is the same for the same key, to spread clients by.
    pub fn spread(&self) -> u32 {
        (self.hash >> 32) as u32
    }

    /// Is the next charge taken with this one, or neither?
    pub(crate) fn is_with(&self, next: &Charge) -> bool {
        next.is_peak && (next.rule, next.role, next.hash) == (self.rule, self.role, self.hash)
    }

    /// Is it still to be decided?
    pub(crate) fn is_open(&self) -> bool {
        self.outcome.source == Source::Open
    }

    /// Can it refuse the request?
    pub(crate) fn is_enforced(&self) -> bool {
        self.role == Role::Enforced
    }

    /// Does its limit refuse the request?
    pub(crate) fn refuses(&self) -> bool {
        self.is_enforced() && !self.outcome.verdict.is_admitted()
    }

    /// The same charge, to be decided again by a layer: with nothing decided, taken or owed.
    pub(crate) fn reopened(&self, now: Moment) -> Charge {
        Charge {
            debt: 0,
            kept: 0,
            outcome: Outcome::open(now),
            ..self.clone()
        }
    }
}

/// Do all enforced charges pass that were decided?
pub(crate) fn all_pass(charges: &[Charge]) -> bool {
    !charges.iter().any(Charge::refuses)
}
