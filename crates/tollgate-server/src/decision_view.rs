//! A decision as clients read it: the same names and values in JSON, in RESP and in explanations.
//!
//! Spans are whole milliseconds, rounded up: a client that waits so long does not come too early.

use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};
use tollgate::{Origin, Span, Verdict};
use tollgate_policy::{Charge, PolicyDecision, Reason, Role};

use crate::engine::{ActivePolicy, EngineGate};
use crate::names;

/// The result of `reserve`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reserved {
    /// Not requested and not needed.
    NotRequested,
    /// Nothing was charged.
    Nothing,
    /// Stored under this name. With a token, callers know it by that.
    Stored(u128, Option<Box<str>>),
    /// The maximum number of reservations is reached.
    Full,
}

/// A decision. `L` is the view of each limit: [`ChargeViews`], or more in an explanation.
#[derive(Serialize)]
pub(crate) struct DecisionView<'a, L> {
    verdict: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    limit: Option<&'a str>,
    reason: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    degraded: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<&'a str>,
    remaining: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_ms: Option<u64>,
    reset_after_ms: u64,
    limits: L,
    #[serde(skip_serializing_if = "Option::is_none")]
    weight: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    policy_version: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reservation: Option<Option<ReservationName>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reservation_error: Option<&'static str>,
}

impl<'a> DecisionView<'a, ChargeViews<'a>> {
    /// A decision of a charge or a peek.
    pub(crate) fn new(
        policy: &'a ActivePolicy,
        answer: &'a PolicyDecision,
        reserved: Reserved,
    ) -> Self {
        let limits = ChargeViews {
            gate: &policy.gate,
            charges: &answer.charges,
        };
        let mut view = DecisionView::with_limits(&policy.gate, answer, limits);
        view.policy_version = Some(policy.version);
        (view.reservation, view.reservation_error) = match reserved {
            Reserved::NotRequested => (None, None),
            Reserved::Nothing => (Some(None), None),
            Reserved::Stored(name, token) => (Some(Some(ReservationName { name, token })), None),
            Reserved::Full => (
                Some(None),
                Some("the maximum number of reservations is reached; settle those that are done"),
            ),
        };
        view
    }

    /// Adds the HTTP status, for a decision inside a batch.
    pub(crate) fn with_status(mut self, status: u16) -> Self {
        self.status = Some(status);
        self
    }
}

impl<'a, L> DecisionView<'a, L> {
    /// A decision with another view of its limits.
    pub(crate) fn with_limits(gate: &'a EngineGate, answer: &'a PolicyDecision, limits: L) -> Self {
        let rule = match answer.reason {
            Reason::MissingKey(rule) | Reason::Blocked(rule) | Reason::StoreError(rule) => {
                Some(rule)
            }
            _ => answer.binding().map(|charge| charge.rule),
        };
        let listed = match answer.reason {
            Reason::AllowList(at) => gate.policy().allow.get(at),
            Reason::DenyList(at) => gate.policy().deny.get(at),
            _ => None,
        };
        let (retry_after_ms, delay_ms) = waits(answer.verdict);
        DecisionView {
            verdict: names::verdict(answer.verdict),
            status: None,
            limit: rule.and_then(|at| gate.rule(at)).map(|rule| &*rule.name),
            reason: names::reason(answer.reason),
            degraded: (answer.origin == Origin::Degraded).then_some(true),
            rule: listed.map(|listed| &*listed.name),
            remaining: remaining(answer.status.remaining),
            retry_after_ms,
            delay_ms,
            reset_after_ms: millis(answer.status.full_after),
            limits,
            weight: weight(gate, answer),
            policy_version: None,
            reservation: None,
            reservation_error: None,
        }
    }
}

/// The limits that applied.
pub(crate) struct ChargeViews<'a> {
    gate: &'a EngineGate,
    charges: &'a [Charge],
}

impl Serialize for ChargeViews<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let view = |charge: &Charge| {
            let is_counted_only = matches!(charge.role, Role::Shadow | Role::Candidate);
            let would_refuse = is_counted_only && !charge.verdict.is_admitted();
            ChargeView {
                name: self.gate.rule(charge.rule).map(|rule| &*rule.name),
                role: names::role(charge.role),
                cost: charge.cost,
                would_refuse: would_refuse.then_some(true),
            }
        };
        // A peak is part of the limit before it.
        let limits = || self.charges.iter().filter(|charge| !charge.is_peak);
        let mut seq = serializer.serialize_seq(Some(limits().count()))?;
        limits().try_for_each(|charge| seq.serialize_element(&view(charge)))?;
        seq.end()
    }
}

/// A limit that applied.
#[derive(Serialize)]
struct ChargeView<'a> {
    name: Option<&'a str>,
    role: &'static str,
    cost: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    would_refuse: Option<bool>,
}

/// The name of a reservation: a token, or 32 hexadecimal digits.
struct ReservationName {
    name: u128,
    token: Option<Box<str>>,
}

impl Serialize for ReservationName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.token {
            Some(token) => serializer.serialize_str(token),
            None => serializer.collect_str(&format_args!("{:032x}", self.name)),
        }
    }
}

/// The weight of the tier that the client is in, where the binding limit has tiers.
fn weight(gate: &EngineGate, answer: &PolicyDecision) -> Option<u32> {
    let binding = answer.binding()?;
    let tiers = gate.rule(binding.rule)?.tiers.as_ref()?;
    tiers.tiers.get(binding.tier?).map(|tier| tier.weight)
}

/// What is left; none where nothing is counted.
pub(crate) fn remaining(units: u64) -> Option<u64> {
    Some(units).filter(|units| *units != u64::MAX)
}

/// When to come back, and how long to wait.
pub(crate) fn waits(verdict: Verdict) -> (Option<u64>, Option<u64>) {
    match verdict {
        Verdict::Refuse { retry_after } => (Some(millis(retry_after)), None),
        Verdict::Wait { delay } => (None, Some(millis(delay))),
        Verdict::Pass | Verdict::Never => (None, None),
    }
}

/// Whole milliseconds, rounded up.
pub(crate) fn millis(span: Span) -> u64 {
    span.as_nanos().div_ceil(1_000_000)
}
