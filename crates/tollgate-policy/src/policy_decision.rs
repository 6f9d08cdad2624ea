//! The answer to a request, before anybody writes it down for a client.

use super::charge::Charge;
use super::path::PathFault;
use tollgate::Moment;
use tollgate::{Origin, QuotaStatus, Verdict};

/// What happens to a request, and why.
#[derive(Clone, Debug)]
pub struct PolicyDecision {
    /// What happens to it. After `retry_after` the same request passes if nothing else is charged to its limits until then;
    /// with several nodes that share a limit, other nodes may have taken what was earned.
    pub verdict: Verdict,
    /// Why.
    pub reason: Reason,
    /// What is left of the binding limit.
    pub status: QuotaStatus,
    /// When it was decided.
    pub issued: Moment,
    /// Who decided.
    pub origin: Origin,
    /// Every limit that applied, in the order of the policy.
    pub charges: Vec<Charge>,
}

/// Why a request is answered as it is. Numbers are places in the policy's lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// This charge of the answer refused it, or was closest to refusing it.
    Charge(usize),
    /// It is on the list of those who are never limited.
    AllowList(usize),
    /// It is on the list of those who are always refused.
    DenyList(usize),
    /// No enforced limit matches; the policy says what happens then, or does not.
    Unmatched,
    /// Limiting is switched off.
    SwitchedOff,
    /// Its path is not believed.
    Path(PathFault),
    /// It lacks a part of the key of this rule, which then refuses.
    MissingKey(usize),
    /// Its key is blocked by an override of this rule.
    Blocked(usize),
    /// More limits match it than can be charged together.
    TooManyLimits,
    /// The store that a fleet shares gave no answer, and this rule says what happens then.
    StoreError(usize),
}

impl PolicyDecision {
    /// May the request pass, now or after its delay?
    pub fn is_admitted(&self) -> bool {
        self.verdict.is_admitted()
    }

    /// The charge whose numbers are told.
    pub fn binding(&self) -> Option<&Charge> {
        match self.reason {
            Reason::Charge(at) => self.charges.get(at),
            _ => None,
        }
    }
}
