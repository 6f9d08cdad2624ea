//! Compares a decision with what a step expects.

use tollgate::{ManualClock, Span, Verdict};
use tollgate_config::ExpectedDecision;
use tollgate_policy::{Facts, PolicyDecision, PolicyGate, Reason, Role};
use tollgate_server::names;

use super::Difference;
use crate::span_text::exact;

/// What differs. Numbers that change from one request to the next are compared for the last one of a step.
pub(super) fn differences(
    gate: &PolicyGate<ManualClock>,
    facts: &Facts<'_>,
    decision: &PolicyDecision,
    expected: &ExpectedDecision,
    is_last: bool,
) -> Vec<Difference> {
    let mut found = Vec::new();
    let mut compare = |field, expected: Option<String>, got: Option<String>| {
        let got = got.unwrap_or_else(|| "none".into());
        if let Some(expected) = expected.filter(|expected| *expected != got) {
            found.push(Difference {
                field,
                expected,
                got,
            });
        }
    };
    let verdict = Some(names::verdict(decision.verdict).into());
    compare("verdict", Some(expected.verdict.into()), verdict);
    let reason = Some(names::reason(decision.reason).into());
    compare("reason", expected.reason.map(str::to_owned), reason);
    let limit = expected.limit.clone();
    compare("limit", limit, deciding_rule(gate, decision));
    let shadow = expected.shadow.clone();
    let shadow = shadow.map(|names| list(names.iter().map(|name| &**name)));
    compare("shadow", shadow, Some(list(refusing(gate, decision))));
    let place = gate.place(facts).filter(|_| decision.is_admitted());
    let queue = place.and_then(|place| gate.policy().queues.get(place.queue));
    let queue = queue.map(|queue| queue.name.to_string());
    compare("queue", expected.queue.clone(), queue);
    let weight = expected.weight.map(|weight| weight.to_string());
    compare("weight", weight, place.map(|p| p.weight.to_string()));
    if is_last {
        let (retry_after, delay) = match decision.verdict {
            Verdict::Refuse { retry_after } => (Some(retry_after), None),
            Verdict::Wait { delay } => (None, Some(delay)),
            Verdict::Pass | Verdict::Never => (None, None),
        };
        let text = |span: Option<Span>| span.map(|span| exact(milliseconds(span)));
        compare("retry_after", text(expected.retry_after), text(retry_after));
        compare("delay", text(expected.delay), text(delay));
        let remaining = Some(decision.status.remaining).filter(|units| *units != u64::MAX);
        let number = |number: Option<u64>| number.map(|number| number.to_string());
        compare("remaining", number(expected.remaining), number(remaining));
    }
    found
}

/// Whole milliseconds, rounded up, as in responses.
fn milliseconds(span: Span) -> Span {
    const MILLISECOND: u64 = 1_000_000;
    let up = span.as_nanos().div_ceil(MILLISECOND);
    Span::from_nanos(up.saturating_mul(MILLISECOND))
}

/// The limit or the entry of a list that decided.
fn deciding_rule(gate: &PolicyGate<ManualClock>, decision: &PolicyDecision) -> Option<String> {
    let policy = gate.policy();
    let listed = match decision.reason {
        Reason::AllowList(at) => policy.allow.get(at),
        Reason::DenyList(at) => policy.deny.get(at),
        _ => None,
    };
    let rule = match decision.reason {
        Reason::MissingKey(rule) | Reason::Blocked(rule) => Some(rule),
        _ => decision.binding().map(|charge| charge.rule),
    };
    let rule = rule.and_then(|at| gate.rule(at)).map(|rule| &rule.name);
    let name = listed.map(|entry| &entry.name).or(rule)?;
    Some(name.to_string())
}

/// The limits that would refuse the request if they were enforced.
fn refusing<'g>(
    gate: &'g PolicyGate<ManualClock>,
    decision: &PolicyDecision,
) -> impl Iterator<Item = &'g str> {
    let refusing = decision.charges.iter().filter(|charge| {
        let is_counted_only = matches!(charge.role, Role::Shadow | Role::Candidate);
        is_counted_only && !charge.verdict.is_admitted()
    });
    let rules = refusing.map(|charge| charge.rule).collect::<Vec<_>>();
    let rules = rules.into_iter().filter_map(|at| gate.rule(at));
    rules.map(|rule| &*rule.name)
}

/// `[a, b]`, sorted, each once.
fn list<'n>(names: impl Iterator<Item = &'n str>) -> String {
    let mut names: Vec<&str> = names.collect();
    names.sort_unstable();
    names.dedup();
    format!("[{}]", names.join(", "))
}
