//! Explanations as JSON: which limits matched and why the others did not, keys, costs, what each limit
//! decides by itself, and the verdict. `tollgate explain` prints it, so it names things as the
//! policy file does.

use serde::Serialize;
use serde_json::Value;
use tollgate_policy::{
    ExplainedKey, ExplainedKeyKind, Explanation, FULLY_ENFORCED, Facts, Mode, PolicyDecision,
    QueueExplanation, Reason, Role, RuleExplanation, Sharing, WhyNot,
};

use crate::decision_view::{DecisionView, millis, remaining, waits};
use crate::engine::EngineGate;
use crate::names;

/// Explains the decision about a request, and charges nothing.
pub fn explain(gate: &EngineGate, facts: &Facts<'_>) -> Value {
    view(gate, gate.explain(facts))
}

/// An explanation in JSON: the decision with all its limits, and what led to it.
pub(crate) fn view(gate: &EngineGate, explanation: Explanation) -> Value {
    let Explanation {
        path,
        answer,
        rules,
        queue,
    } = explanation;
    let fault = match answer.reason {
        Reason::Path(fault) => Some(fault),
        _ => None,
    };
    let limits: Vec<_> = rules
        .iter()
        .map(|rule| RuleView::new(gate, rule, &answer))
        .collect();
    let view = ExplanationView {
        path: path.as_deref(),
        path_fault: fault.map(|fault| fault.to_string()),
        hint: fault.map(|fault| fault.hint()),
        decision: DecisionView::with_limits(gate, &answer, limits),
        queue: queue.as_ref().and_then(|queue| QueueView::new(gate, queue)),
    };
    // Names are texts and numbers are finite, so there is nothing that JSON cannot say.
    serde_json::to_value(view).unwrap_or_default()
}

#[derive(Serialize)]
struct ExplanationView<'a> {
    path: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_fault: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    #[serde(flatten)]
    decision: DecisionView<'a, Vec<Option<RuleView<'a>>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<QueueView<'a>>,
}

/// The queue of an admitted request.
#[derive(Serialize)]
struct QueueView<'a> {
    name: &'a str,
    flow: &'a [String],
    flow_is: &'static str,
    tier: Option<&'a str>,
    weight: u32,
    cost: u64,
}

impl<'a> QueueView<'a> {
    fn new(gate: &'a EngineGate, explained: &'a QueueExplanation) -> Option<QueueView<'a>> {
        let rule = gate.policy().queues.get(explained.place.queue)?;
        let tiers = rule.weights.iter().flat_map(|weights| &weights.tiers);
        let tier = explained.place.tier;
        Some(QueueView {
            name: &rule.name,
            flow: &explained.flow.parts,
            flow_is: key_is(&explained.flow),
            tier: tier.and_then(|tier| tiers.map(|t| &*t.0).nth(tier)),
            weight: explained.place.weight,
            cost: explained.place.cost,
        })
    }
}

fn key_is(key: &ExplainedKey) -> &'static str {
    match key.kind {
        ExplainedKeyKind::Own => "own",
        ExplainedKeyKind::Address => "the client's address, because the key is missing",
        ExplainedKeyKind::Shared => "shared by all whose key and address are unknown",
    }
}

/// One limit and its part in the decision.
#[derive(Serialize)]
struct RuleView<'a> {
    name: &'a str,
    matched: bool,
    why_not: Option<String>,
    key: Option<&'a [String]>,
    key_is: Option<&'static str>,
    tier: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unknown_tier: Option<&'a str>,
    overridden: bool,
    cost: u64,
    role: Option<&'static str>,
    /// The share of keys that the limit is enforced for, if not all.
    #[serde(skip_serializing_if = "Option::is_none")]
    enforce: Option<String>,
    /// Whether this key is among them.
    #[serde(skip_serializing_if = "Option::is_none")]
    is_enforced: Option<bool>,
    quota: Option<String>,
    sharing: Option<&'static str>,
    nodes: Option<u32>,
    above: Option<u64>,
    leased: Option<bool>,
    verdict: Option<&'static str>,
    remaining: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_ms: Option<u64>,
    reset_after_ms: Option<u64>,
}

impl<'a> RuleView<'a> {
    fn new(
        gate: &'a EngineGate,
        explained: &'a RuleExplanation,
        answer: &PolicyDecision,
    ) -> Option<RuleView<'a>> {
        let rule = gate.rule(explained.rule)?;
        let tiers = rule.tiers.iter().flat_map(|tiers| &tiers.tiers);
        let quota = explained.limit.and_then(|limit| gate.quota(limit));
        let nodes = gate.store().map(|store| store.nodes().max(1));
        let shared = quota.zip(nodes);
        let leased = shared.filter(|_| rule.sharing == Sharing::Lease);
        let is_partial = rule.mode == Mode::Enforce && rule.enforced < FULLY_ENFORCED;
        let share = is_partial.then_some(rule.enforced);
        let (retry_after_ms, delay_ms) = explained
            .decision
            .map_or((None, None), |decision| waits(decision.verdict));
        Some(RuleView {
            name: &rule.name,
            matched: explained.why_not.is_none(),
            why_not: explained.why_not.as_ref().map(why_not),
            key: explained.key.as_ref().map(|key| &*key.parts),
            key_is: explained.key.as_ref().map(key_is),
            tier: explained
                .tier
                .and_then(|tier| tiers.map(|t| &*t.name).nth(tier)),
            unknown_tier: explained.unknown_tier.as_deref(),
            overridden: explained.is_overridden,
            cost: explained.cost,
            role: explained.role.map(names::role),
            enforce: share.map(percent),
            is_enforced: share.and(explained.role).map(|role| role == Role::Enforced),
            quota: quota.map(quota_text),
            sharing: nodes.map(|_| rule.sharing.name()),
            nodes,
            above: shared.map(|(quota, nodes)| quota.max_overshoot(rule.sharing, nodes)),
            leased: leased.map(|(quota, nodes)| quota.is_leasable(nodes)),
            verdict: rule_verdict(explained, answer),
            remaining: explained
                .decision
                .and_then(|d| remaining(d.status.remaining)),
            retry_after_ms,
            delay_ms,
            reset_after_ms: explained.decision.map(|d| millis(d.status.full_after)),
        })
    }
}

/// A share in hundredths of a percent.
fn percent(share: u32) -> String {
    let text = format!("{}.{:02}", share / 100, share % 100);
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{text}%")
}

/// The verdict of one limit, unless a list or the switch decides first.
fn rule_verdict(explained: &RuleExplanation, answer: &PolicyDecision) -> Option<&'static str> {
    let decision = explained.decision?;
    Some(match (answer.reason, explained.role) {
        (Reason::Blocked(at), _) if at == explained.rule => "blocked",
        (Reason::AllowList(_) | Reason::DenyList(_) | Reason::SwitchedOff, _) => "not evaluated",
        (_, Some(Role::Unlimited)) => "unlimited",
        _ => names::verdict(decision.verdict),
    })
}

/// A quota as text.
pub fn quota_text(quota: &tollgate_policy::Quota) -> String {
    match (&quota.periods, quota.advertised().0) {
        (Some(periods), units) => format!("{units} in each {}", periods.name()),
        (None, _) => quota.to_string(),
    }
}

fn why_not(why: &WhyNot) -> String {
    match why {
        WhyNot::Off => "its mode is off".into(),
        WhyNot::Expired => "it has expired".into(),
        WhyNot::Method => "another method".into(),
        WhyNot::Path => "another path".into(),
        WhyNot::Host => "another host".into(),
        WhyNot::Header(name) => format!("header {name}"),
        WhyNot::Query(name) => format!("query parameter {name}"),
        WhyNot::Address => "another client address".into(),
        WhyNot::Domain => "another domain".into(),
        WhyNot::Descriptor(name) => format!("descriptor entry {name}"),
        WhyNot::Entries => "other descriptor entries".into(),
        WhyNot::Except => "an exception".into(),
        WhyNot::NotTheDefault => "another limit matched".into(),
        _ => "a condition".into(),
    }
}
