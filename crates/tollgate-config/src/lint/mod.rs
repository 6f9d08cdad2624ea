//! Warnings and notes about a policy that is valid.
//!
//! A warning is about what will not work as written. A note is about what works but may surprise; a limit with a `reason`
//! gets none. Both depend on the file alone: a warning that is sometimes wrong teaches operators to skip all of them.

mod cover;
mod gateway;
mod limits;
mod lists;
mod pressure;
mod queues;
mod store;

use tollgate::MAX_CHARGES;
use tollgate::Moment;
use tollgate_policy::{DefaultAction, LimitRule, Mode, OverrideAction, Quota};

use crate::read::Draft;
use crate::report::Report;
use cover::is_everything;

/// Reports on a policy at `now`.
pub(crate) fn lint(draft: &Draft, now: Moment, report: &Report<'_>) {
    file(draft, report);
    store::lint(draft, report);
    lists::lint(draft, now, report);
    let policy = &draft.policy;
    let covers = limits::covers(&policy.limits, now);
    let context = limits::Context {
        covers: &covers,
        trusted_headers: &draft.trusted_headers,
        has_gateway: draft.file.has("gateway"),
        now,
    };
    for (rule, spans) in policy.limits.iter().zip(&draft.limits) {
        limits::lint(rule, spans, &context, report);
    }
    if let (DefaultAction::Limit(rule), Some(spans)) = (&policy.default, &draft.default) {
        let context = limits::Context {
            covers: &[],
            ..context
        };
        limits::lint(rule, spans, &context, report);
    }
    always_on(draft, report);
    queues::lint(draft, report);
    pressure::lint(draft, report);
    gateway::lint(draft, report);
}

/// All quotas that a limit can apply.
fn quotas(rule: &LimitRule) -> impl Iterator<Item = &Quota> {
    let tiers = rule.tiers.iter().flat_map(|tiers| &tiers.tiers);
    let overrides = rule.overrides.iter();
    std::iter::once(&rule.quota)
        .chain(&rule.candidate)
        .chain(tiers.map(|tier| &tier.quota))
        .chain(overrides.filter_map(|change| match &change.grant {
            OverrideAction::Quota(quota) => Some(&**quota),
            OverrideAction::Unlimited | OverrideAction::Blocked => None,
        }))
}

/// Does this limit match every request?
fn is_always_on(rule: &LimitRule) -> bool {
    rule.mode != Mode::Off && is_everything(&rule.matches) && rule.except.is_empty()
}

fn file(draft: &Draft, report: &Report<'_>) {
    let policy = &draft.policy;
    let top = &draft.file;
    let all = policy.limits.iter().find(|rule| is_always_on(rule));
    match (&policy.default, all) {
        (DefaultAction::Unset, None) => report.warn(
            top.at("default"),
            "no-default",
            "there is no `default`, so requests that no limit matches pass",
            "add `default: pass` if that is intended, or a limit: `default: { key: ip, allow: 100/s }`",
        ),
        (DefaultAction::Refuse | DefaultAction::Limit(_), Some(rule)) => report.warn(
            top.name_of("default"),
            "default-unreachable",
            format!("limit `{}` matches every request, so `default` has no effect", rule.name),
            "add a `match` to that limit, or remove `default`",
        ),
        _ => {}
    }
    let has_no_limit =
        policy.limits.is_empty() && !matches!(policy.default, DefaultAction::Limit(_));
    if has_no_limit && policy.queues.is_empty() && policy.follow.is_none() {
        report.warn(
            top.at("limits"),
            "no-limits",
            "this policy has no limits",
            "add a limit: `limits: [{ name: per-ip, key: ip, allow: 100/s }]`",
        );
    }
    let default_has = matches!(&policy.default, DefaultAction::Limit(rule) if rule.tiers.is_some());
    let used = default_has
        || policy.limits.iter().any(|rule| rule.tiers.is_some())
        || policy.queues.iter().any(|rule| rule.weights.is_some());
    if !draft.tiers.is_empty() && !used {
        report.warn(
            top.name_of("tiers"),
            "unused-tiers",
            "no limit has a `tier`, so `tiers` has no effect",
            "add `tier: header.x-plan` to the limits that tiers should scale",
        );
    }
    let trusted = policy.proxies.trusted.networks();
    if trusted.is_empty() && top.has("client_address") {
        report.warn(
            top.name_of("client_address"),
            "unused-client-address",
            "`client_address` has no effect without trusted proxies",
            "add `trusted_proxies: [10.0.0.0/8]`, or remove `client_address`",
        );
    }
    for place in &draft.wide_networks {
        report.warn(
            *place,
            "wide-trust",
            "a network this wide does not hold only proxies",
            "every client in it can choose its own address: list the networks of your own proxies",
        );
    }
}

/// Reports limits that match every request, if they are more than one request can be charged to.
fn always_on(draft: &Draft, report: &Report<'_>) {
    let rules = draft.policy.limits.iter().zip(&draft.limits);
    let mut always = rules.filter(|(rule, _)| is_always_on(rule));
    let count = always.clone().count();
    if let Some((_, spans)) = always.nth(MAX_CHARGES) {
        report.error(
            spans.at("name"),
            "too-many-charges",
            format!(
                "{count} limits match every request, and a request can be charged to at most {MAX_CHARGES}"
            ),
            "add a `match` to some of them, or merge several into one",
        );
    }
}
