//! Warnings about `allow` and `deny`.

use tollgate::Moment;
use tollgate_policy::ListRule;

use super::cover::is_everything;
use crate::read::{Draft, FieldSpans, when};
use crate::report::Report;

/// Reports on both lists.
pub(super) fn lint(draft: &Draft, now: Moment, report: &Report<'_>) {
    let policy = &draft.policy;
    for (rule, spans) in policy.allow.iter().zip(&draft.allow) {
        if !expired(rule, spans, now, report) && is_everything(&rule.matches) {
            report.warn(
                spans.at("match"),
                "allow-all",
                format!(
                    "`{}` matches every request, so no limit is ever applied",
                    rule.name
                ),
                "narrow its `match`; to try limits without enforcing them write `mode: shadow`",
            );
        }
    }
    for (rule, spans) in policy.deny.iter().zip(&draft.deny) {
        if !expired(rule, spans, now, report) && is_everything(&rule.matches) {
            report.warn(
                spans.at("match"),
                "deny-all",
                format!("`{}` refuses every request", rule.name),
                "narrow its `match`",
            );
        }
    }
}

fn expired(rule: &ListRule, spans: &FieldSpans, now: Moment, report: &Report<'_>) -> bool {
    let Some(expires) = rule.expires.filter(|expires| *expires <= now) else {
        return false;
    };
    report.warn(
        spans.at("expires"),
        "expired",
        format!(
            "`{}` expired on {} and has no effect",
            rule.name,
            when::day(expires)
        ),
        "remove it, or set a later date",
    );
    true
}
