//! An explanation as JSON: which limits matched and why the others did not, keys, costs, what each limit
//! says by itself, and the verdict. Read by people through `tollgate explain`, so it names things as the
//! policy file does.

use serde_json::{Value, json};
use tollgate::policy::{
    Answer, Basis, ExplainedKey, ExplainedKeyKind, Explanation, Facts, QueueExplanation, Role,
    RuleExplanation, Sharing, WhyNot,
};
use tollgate::{Decision, Origin, Span};

use crate::engine::Gate;
use crate::words;

/// Tells what a request would meet, and takes nothing.
pub fn explain(gate: &Gate, facts: &Facts<'_>) -> Value {
    told(gate, gate.explain(facts))
}

/// An explanation in JSON.
pub(crate) fn told(gate: &Gate, explanation: Explanation) -> Value {
    let Explanation {
        path,
        answer,
        rules,
        queue,
    } = explanation;
    let mut told = json!({
        "path": path,
        "verdict": words::verdict(answer.verdict),
        "reason": words::reason(answer.basis),
        "limit": answer.binding().and_then(|c| gate.rule(c.rule)).map(|rule| &*rule.name),
        "rule": list_rule(gate, &answer),
        "wait_ms": answer.verdict.wait().map(millis),
        "limits": rules.iter().map(|rule| rule_told(gate, rule, &answer)).collect::<Vec<_>>(),
    });
    if let (Basis::Path(fault), Some(object)) = (answer.basis, told.as_object_mut()) {
        object.insert("path_fault".into(), fault.to_string().into());
        object.insert("hint".into(), fault.hint().into());
    }
    if let (true, Some(object)) = (answer.binding().is_some(), told.as_object_mut()) {
        object.insert("remaining".into(), answer.standing.remaining.into());
        object.insert(
            "full_after_ms".into(),
            millis(answer.standing.full_after).into(),
        );
    }
    if let (Origin::Degraded, Some(object)) = (answer.origin, told.as_object_mut()) {
        object.insert("degraded".into(), true.into());
    }
    let queue = queue.and_then(|queue| queue_told(gate, &queue));
    if let (Some(queue), Some(object)) = (queue, told.as_object_mut()) {
        object.insert("queue".into(), queue);
    }
    told
}

/// Where a request that passes waits for its turn, if anywhere.
fn queue_told(gate: &Gate, told: &QueueExplanation) -> Option<Value> {
    let rule = gate.policy().queues.get(told.place.queue)?;
    let tiers = rule.weights.iter().flat_map(|weights| &weights.tiers);
    let tier = told
        .place
        .tier
        .and_then(|tier| tiers.map(|t| &*t.0).nth(tier));
    Some(json!({
        "name": &*rule.name,
        "flow": &told.flow.parts,
        "flow_is": key_is(&told.flow),
        "tier": tier,
        "weight": told.place.weight,
        "cost": told.place.cost,
    }))
}

fn key_is(key: &ExplainedKey) -> &'static str {
    match key.kind {
        ExplainedKeyKind::Own => "own",
        ExplainedKeyKind::Address => "the client's address, because the key is missing",
        ExplainedKeyKind::Shared => "shared by all whose key and address are unknown",
    }
}

fn rule_told(gate: &Gate, told: &RuleExplanation, answer: &Answer) -> Value {
    let Some(rule) = gate.rule(told.rule) else {
        return Value::Null;
    };
    let tiers = rule.tiers.iter().flat_map(|tiers| &tiers.tiers);
    let tier = told.tier.and_then(|tier| tiers.map(|t| &*t.name).nth(tier));
    let quota = told.limit.and_then(|limit| gate.quota(limit));
    let nodes = gate.store().map(|store| store.nodes().max(1));
    let sharing = nodes.map(|_| rule.sharing.name());
    let above = quota
        .zip(nodes)
        .map(|(quota, nodes)| quota.above(rule.sharing, nodes));
    let lent = quota
        .zip(nodes)
        .filter(|_| rule.sharing == Sharing::Lease)
        .map(|(quota, nodes)| quota.is_lent_to(nodes));
    json!({
        "name": &*rule.name,
        "matched": told.why_not.is_none(),
        "why_not": told.why_not.as_ref().map(why_not),
        "key": told.key.as_ref().map(|key| &key.parts),
        "key_is": told.key.as_ref().map(key_is),
        "tier": tier,
        "overridden": told.is_overridden,
        "cost": told.cost,
        "role": told.role.map(words::role),
        "quota": quota.map(quota_text),
        "sharing": sharing,
        "nodes": nodes,
        "above": above,
        "lent": lent,
        "verdict": says(told, answer),
        "remaining": told.decision.map(|d| d.standing.remaining),
        "wait_ms": told.decision.and_then(|d: Decision| d.verdict.wait()).map(millis),
        "full_after_ms": told.decision.map(|d| millis(d.standing.full_after)),
    })
}

/// What a limit says by itself, unless something else has decided before it is asked.
fn says(told: &RuleExplanation, answer: &Answer) -> Option<&'static str> {
    let decision = told.decision?;
    Some(match (answer.basis, told.role) {
        (Basis::Blocked(at), _) if at == told.rule => "blocked",
        (Basis::AllowList(_) | Basis::DenyList(_) | Basis::SwitchedOff, _) => "not asked",
        (_, Some(Role::Unlimited)) => "unlimited",
        _ => words::verdict(decision.verdict),
    })
}

/// A quota as people read it.
pub fn quota_text(quota: &tollgate::policy::Quota) -> String {
    let limit = quota.limit.clone().named("");
    match (&quota.periods, quota.advertised().0) {
        (Some(periods), units) => format!("{units} in each {}", periods.name()),
        (None, _) => limit.to_string(),
    }
}

/// Whole milliseconds, rounded up: a client that waits so long is not early.
pub(crate) fn millis(span: Span) -> u64 {
    span.as_nanos().div_ceil(1_000_000)
}

fn list_rule<'g>(gate: &'g Gate, answer: &Answer) -> Option<&'g str> {
    let policy = gate.policy();
    let name = match answer.basis {
        Basis::AllowList(at) => policy.allow.get(at).map(|rule| &rule.name),
        Basis::DenyList(at) => policy.deny.get(at).map(|rule| &rule.name),
        Basis::MissingKey(at) | Basis::Blocked(at) | Basis::StoreError(at) => {
            gate.rule(at).map(|rule| &rule.name)
        }
        _ => None,
    };
    name.map(|name| &**name)
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
