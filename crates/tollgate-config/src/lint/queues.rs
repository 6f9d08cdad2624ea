//! Warns of queues that are never used, and of queue settings without effect.

use tollgate_policy::{QueueConcurrency, QueueRule};

use super::cover::{covers, is_everything};
use crate::read::{Draft, FieldSpans};
use crate::report::Report;

/// More requests in flight than one process has with a healthy backend.
const ADAPTIVE_WISE: u32 = 10_000;

/// Reports on the queues of a policy.
pub(super) fn lint(draft: &Draft, report: &Report<'_>) {
    let rules = &draft.policy.queues;
    let last = |rule: &QueueRule| is_everything(&rule.matches) && rule.except.is_empty();
    let first_for_all = rules.iter().position(last);
    for (at, (rule, spans)) in rules.iter().zip(&draft.queues).enumerate() {
        if let Some(earlier) = first_for_all.filter(|earlier| *earlier < at) {
            let earlier = rules.get(earlier).map_or("", |rule| &*rule.name);
            report.warn(
                spans.at("name"),
                "unreachable",
                format!(
                    "no request waits in queue `{}`: `{earlier}` before it matches every request",
                    rule.name
                ),
                "move it before that one; the first queue that matches is used",
            );
        }
        reach(rule, spans, report);
        room(rule, spans, report);
        at_once(rule, spans, report);
        at_once_per_flow(rule, spans, report);
        shares(rule, spans, report);
    }
}

/// Warns of a queue that no request can reach.
fn reach(rule: &QueueRule, spans: &FieldSpans, report: &Report<'_>) {
    if rule.except.iter().any(|e| covers(e, &rule.matches)) {
        report.warn(
            spans.at("except"),
            "unreachable",
            format!(
                "`except` covers all of `match`: queue `{}` applies to no request",
                rule.name
            ),
            "narrow `except`",
        );
    }
}

/// Warns of bounds on waiting requests that contradict each other.
fn room(rule: &QueueRule, spans: &FieldSpans, report: &Report<'_>) {
    let (own, all) = (rule.per_flow, rule.total);
    if own > all {
        report.warn(
            spans.at("waiting_per_flow"),
            "waiting-per-flow-above-waiting",
            format!("{own} requests of one flow can never wait: the queue holds {all}"),
            format!("write less than {all}, so that one flow cannot fill the queue"),
        );
    } else if rule.flow.is_empty() && own < all {
        report.warn(
            spans.at("waiting_per_flow"),
            "one-flow",
            format!("without `flow` all requests are one flow, so at most {own} wait, not {all}"),
            "add `flow: header.x-api-key`, or remove `waiting_per_flow`",
        );
    }
}

/// Warns of an adaptive limit whose maximum bounds nothing.
fn at_once(rule: &QueueRule, spans: &FieldSpans, report: &Report<'_>) {
    if let Some(QueueConcurrency::Adaptive(adaptive)) = rule.at_once
        && adaptive.max > ADAPTIVE_WISE
    {
        report.warn(
            spans.at("at_once"),
            "large-adaptive",
            format!(
                "a `max` of {} is above what a healthy backend reaches, so it bounds nothing",
                adaptive.max
            ),
            format!(
                "write what the backend has handled at its peak, at most {ADAPTIVE_WISE}: the estimate may drift up to it"
            ),
        );
    }
}

/// Warns of a bound on the running requests of one flow that has no effect, or bounds the whole queue.
fn at_once_per_flow(rule: &QueueRule, spans: &FieldSpans, report: &Report<'_>) {
    let Some(own) = rule.at_once_per_flow else {
        return;
    };
    let all = match rule.at_once {
        Some(QueueConcurrency::Fixed(all)) => all,
        Some(QueueConcurrency::Adaptive(adaptive)) => adaptive.max,
        None => u32::MAX,
    };
    if own >= all {
        report.warn(
            spans.at("at_once_per_flow"),
            "at-once-per-flow-without-effect",
            format!("one flow may take all {all}, so this bounds nothing"),
            format!("write less than {all}, or remove `at_once_per_flow`"),
        );
    } else if rule.flow.is_empty() {
        report.warn(
            spans.at("at_once_per_flow"),
            "one-flow",
            format!("without `flow` all requests are one flow, so only {own} run at once"),
            format!("add `flow: header.x-api-key`, or write `at_once: {own}` instead"),
        );
    }
}

/// Warns of weights without effect.
fn shares(rule: &QueueRule, spans: &FieldSpans, report: &Report<'_>) {
    if rule.flow.is_empty() && spans.has("tier") {
        report.warn(
            spans.name_of("tier"),
            "one-flow",
            "`tier` has no effect: weights are between flows, and without `flow` there is one",
            "add `flow: header.x-api-key`, or remove `tier`",
        );
    }
    let equal = |weights: &tollgate_policy::TierWeights| weights.tiers.iter().all(|(_, w)| *w == 1);
    if rule.weights.as_ref().is_some_and(equal) {
        report.warn(
            spans.name_of("tier"),
            "equal-weights",
            "`tier` has no effect: all tiers have a weight of 1",
            "write `tiers: { pro: { weight: 4 } }` at the top, or remove `tier`",
        );
    }
}
