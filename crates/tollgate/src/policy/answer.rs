//! The answer to a request, before anybody writes it down for a client.

use super::path::PathFault;
use crate::algorithm::queue::Slot;
use crate::decision::{Origin, Standing, Verdict};
use crate::gate::LimitId;
use crate::store::shared::{SharedKey, SharedOutcome};
use crate::time::Moment;

/// What happens to a request, and why.
#[derive(Clone, Debug)]
pub struct Answer {
    /// What happens to it.
    pub verdict: Verdict,
    /// Why.
    pub basis: Basis,
    /// What is left of the binding limit.
    pub standing: Standing,
    /// When it was decided.
    pub issued: Moment,
    /// Who decided.
    pub origin: Origin,
    /// Every limit that applied, in the order of the policy.
    pub charges: Vec<RuleCharge>,
    /// The key of each charge, if they were taken in a store that a fleet shares.
    pub(super) keys: Vec<SharedKey>,
    /// What that store said of each charge by itself.
    pub(super) outcomes: Vec<SharedOutcome>,
}

/// Why a request is answered as it is. Numbers are places in the policy's lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Basis {
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

/// A limit that applied to a request.
#[derive(Clone, Copy, Debug)]
pub struct RuleCharge {
    /// The rule, by its place; see [`super::PolicyGate::rule`].
    pub rule: usize,
    /// How it took part.
    pub role: Role,
    /// What the request takes from it.
    pub cost: u64,
    /// The tier that the client is in, by its place in the rule.
    pub tier: Option<usize>,
    /// What it would have said, if it was only counted; what was said of all together, if it is enforced.
    pub verdict: Verdict,
    /// The limit that was charged; which quota it has is told by [`super::PolicyGate::quota`].
    pub limit: LimitId,
    /// How many there are at the most, if the request brought its limit along; otherwise the quota says it.
    pub most: Option<u32>,
    /// The key, as far as the store knows it.
    pub(super) hash: u64,
    /// When it was charged, by the clock of whoever did.
    pub(super) issued: Moment,
    /// Was it charged in a store that a fleet shares?
    pub(super) is_shared: bool,
    /// Was it paid from what that store lent to this node, or with a block of it?
    pub(super) is_lent: bool,
    /// What this node's share holds of it, if it was charged elsewhere.
    pub(super) in_share: u64,
    /// The slot that it took, if it is an enforced leaky bucket of this process.
    pub(super) slot: Option<Slot>,
}

impl RuleCharge {
    /// A number that is the same for the same key, to spread clients by.
    pub fn spread(&self) -> u32 {
        (self.hash >> 32) as u32
    }
}

impl Answer {
    /// May the request pass, now or after its delay?
    pub fn is_admitted(&self) -> bool {
        self.verdict.is_admitted()
    }

    /// The charge whose numbers are told.
    pub fn binding(&self) -> Option<&RuleCharge> {
        match self.basis {
            Basis::Charge(at) => self.charges.get(at),
            _ => None,
        }
    }
}
