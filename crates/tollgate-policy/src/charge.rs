//! One charge of a request on a limit: the one charge type from matching to the store that decides it.
//!
//! # Theory
//!
//! Matching makes a list of charges. A store decides them in place: each [`Charge`] leaves it with an [`Outcome`]
//! that states whether it passes, which layer paid ([`Source`]), and when. The decision is built from the same
//! list, and a refund goes to the layer that paid.
//!
//! # Invariant
//!
//! A charge is decided once. A layer does not touch what another layer has decided ([`Charge::is_open`]).

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
    /// It is the candidate quota of a rule; only counted.
    Candidate,
    /// An override exempts this key.
    Unlimited,
}

/// A limit that applies to a request.
#[derive(Clone, Debug)]
pub struct Charge {
    /// The rule, by its index; see [`super::PolicyGate::rule`].
    pub rule: usize,
    /// How it takes part.
    pub role: Role,
    /// The cost.
    pub cost: u64,
    /// The client's tier, by its index in the rule.
    pub tier: Option<usize>,
    /// The verdict of this limit if it is only counted; the common verdict if it is enforced.
    pub verdict: Verdict,
    /// Whether it is the peak of the limit of the preceding charge. Both are taken, or none.
    pub is_peak: bool,
    /// The limit that is charged; [`super::PolicyGate::quota`] has its quota.
    pub limit: LimitId,
    /// The limit's number, if the request brought its limit along; otherwise the quota has it.
    pub most: Option<u32>,
    /// The key, hashed with this node's secret.
    pub(crate) hash: u64,
    /// The key by its parts, if a shared store may need it.
    pub(crate) key: Option<Arc<SharedKey>>,
    /// Debt: units that passed before without the store. The store takes them first, as far as they fit.
    pub(crate) debt: u64,
    /// Units of `cost` that a refund leaves taken.
    pub(crate) kept: u64,
    /// The outcome.
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
    /// The tables of this process, without a shared store.
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

/// The outcome of one charge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    /// The verdict of this limit by itself.
    pub(crate) verdict: Verdict,
    /// The status: after the charge if it was taken, otherwise as it is.
    pub(crate) status: QuotaStatus,
    /// Where it was decided.
    pub(crate) source: Source,
    /// When, by the clock of the payer. A refund needs it.
    pub(crate) issued: Moment,
    /// When, by the clock of this node.
    pub(crate) local: Moment,
    /// Units that this node's share took as well.
    pub(crate) mirrored: u64,
    /// Units granted beyond the cost (`super::store::Op::Borrow`).
    pub(crate) extra: u64,
    /// Units of debt, or of a forced charge, that did not fit.
    pub(crate) unpaid: u64,
    /// How long after `local` the slot of a leaky bucket begins; zero if it is not known which bucket delays.
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

    /// Whether the store decided it, directly or through a lease or counter.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self.source, Source::Lease | Source::Synced | Source::Store)
    }
}

impl Charge {
    /// A number that is constant for a key, to spread clients.
    pub fn spread(&self) -> u32 {
        (self.hash >> 32) as u32
    }

    /// Whether the next charge is taken together with this one.
    pub(crate) fn is_with(&self, next: &Charge) -> bool {
        next.is_peak && (next.rule, next.role, next.hash) == (self.rule, self.role, self.hash)
    }

    /// Whether it is undecided.
    pub(crate) fn is_open(&self) -> bool {
        self.outcome.source == Source::Open
    }

    /// Whether it can refuse the request.
    pub(crate) fn is_enforced(&self) -> bool {
        self.role == Role::Enforced
    }

    /// Whether its limit refuses the request.
    pub(crate) fn refuses(&self) -> bool {
        self.is_enforced() && !self.outcome.verdict.is_admitted()
    }

    /// A copy for another layer to decide: nothing decided, taken or owed.
    pub(crate) fn reopened(&self, now: Moment) -> Charge {
        Charge {
            debt: 0,
            kept: 0,
            outcome: Outcome::open(now),
            ..self.clone()
        }
    }
}

/// Whether all decided enforced charges pass.
pub(crate) fn all_pass(charges: &[Charge]) -> bool {
    !charges.iter().any(Charge::refuses)
}
