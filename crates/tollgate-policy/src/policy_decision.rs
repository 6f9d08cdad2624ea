//! The decision on a request, before a front end writes it for a client.

use super::charge::Charge;
use super::path::PathFault;
use tollgate::Moment;
use tollgate::{Origin, QuotaStatus, Verdict};

/// A decision and its reason.
#[derive(Clone, Debug)]
#[must_use = "a request that is not admitted must not be served"]
pub struct PolicyDecision {
    /// The verdict. After `retry_after` the same request passes if nothing else is charged to its limits until
    /// then. With several nodes that share a limit, other nodes may have taken what was earned.
    pub verdict: Verdict,
    /// The reason.
    pub reason: Reason,
    /// What is left of the binding limit.
    pub status: QuotaStatus,
    /// When it was made.
    pub issued: Moment,
    /// Where it was made.
    pub origin: Origin,
    /// Every limit that applied, in the order of the policy.
    pub charges: Vec<Charge>,
}

/// Why a request is decided as it is. Numbers are indices into the policy's lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// This charge refused it, or was closest to refusing it.
    Charge(usize),
    /// The allow list matches.
    AllowList(usize),
    /// The deny list matches.
    DenyList(usize),
    /// No enforced limit matches. The policy's default applies, or the request passes uncounted.
    Unmatched,
    /// Only limits that are counted and not enforced match it.
    OnlyCounted,
    /// Limiting is switched off.
    SwitchedOff,
    /// The path cannot be normalised safely.
    Path(PathFault),
    /// It lacks a part of the key of this rule, which then refuses.
    MissingKey(usize),
    /// An override of this rule blocks its key.
    Blocked(usize),
    /// More limits match it than can be charged together.
    TooManyLimits,
    /// The shared store did not answer, and this rule's `on_store_error` decided.
    StoreError(usize),
}

impl PolicyDecision {
    /// Whether the request may pass, now or after its delay.
    pub fn is_admitted(&self) -> bool {
        self.verdict.is_admitted()
    }

    /// The charge whose numbers are reported.
    pub fn binding(&self) -> Option<&Charge> {
        match self.reason {
            Reason::Charge(at) => self.charges.get(at),
            _ => None,
        }
    }
}
