//! What a policy says that is probably not meant.
//!
//! Only what can be decided from the file alone is told: a warning that is wrong now and then teaches
//! people to skip them all. Warnings are about what will not work as written; notes are about what works,
//! but surprises, and are not given for a limit that has a `reason`: somebody thought about it.
//!
//! It does not know traffic; that is for simulation.

mod cover;
mod gateway;
mod limits;
mod lists;
mod pressure;
mod queues;
mod store;

use tollgate::CHARGES_MAX;
use tollgate::Moment;
use tollgate_policy::{DefaultAction, LimitRule, Mode};

use crate::read::Draft;
use crate::report::Report;
use cover::is_everything;

/// Says what is unwise about a policy at `now`.
pub(crate) fn lint(draft: &Draft, now: Moment, report: &Report<'_>) {
    file(draft, report);
    store::lint(draft, report);
    lists::lint(draft, now, report);
    let policy = &draft.policy;
    let covers = limits::covers(&policy.limits, now);
    for (rule, spans) in policy.limits.iter().zip(&draft.limits) {
        limits::lint(rule, spans, &covers, now, report);
    }
    if let (DefaultAction::Limit(rule), Some(spans)) = (&policy.default, &draft.default) {
        limits::lint(rule, spans, &[], now, report);
    }
    always_on(draft, report);
    queues::lint(draft, report);
    pressure::lint(draft, report);
    gateway::lint(draft, report);
}

/// Is this limit asked for every request?
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
            "nothing is said about requests that no limit matches; they pass",
            "add `default: pass` if that is meant, or a limit: `default: { key: ip, allow: 100/s }`",
        ),
        (DefaultAction::Refuse | DefaultAction::Limit(_), Some(rule)) => report.warn(
            top.name_of("default"),
            "default-unreachable",
            format!("limit `{}` matches every request, so nothing is left for `default`", rule.name),
            "give that limit a `match`, or leave `default` out",
        ),
        _ => {}
    }
    let limits_nobody =
        policy.limits.is_empty() && !matches!(policy.default, DefaultAction::Limit(_));
    if limits_nobody && policy.queues.is_empty() && policy.follow.is_none() {
        report.warn(
            top.at("limits"),
            "no-limits",
            "this policy limits nobody",
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
            "no limit names where the tier is found, so the tiers scale nothing",
            "add `tier: header.x-plan` to the limits that they are for",
        );
    }
    let trusted = policy.proxies.trusted.networks();
    if trusted.is_empty() && top.has("client_address") {
        report.warn(
            top.name_of("client_address"),
            "unused-client-address",
            "`client_address` is read from trusted proxies only, and there are none",
            "add `trusted_proxies: [10.0.0.0/8]`, or leave `client_address` out",
        );
    }
    for place in &draft.wide_networks {
        report.warn(
            *place,
            "wide-trust",
            "a network this wide is not only proxies",
            "whoever is in it can choose its own address: name the networks of your own proxies",
        );
    }
}

/// A request may be charged to so many limits at the most.
fn always_on(draft: &Draft, report: &Report<'_>) {
    let rules = draft.policy.limits.iter().zip(&draft.limits);
    let mut always = rules.filter(|(rule, _)| is_always_on(rule));
    let count = always.clone().count();
    if let Some((_, spans)) = always.nth(CHARGES_MAX) {
        report.error(
            spans.at("name"),
            "too-many-charges",
            format!(
                "{count} limits match every request; it can be charged to {CHARGES_MAX} at the most"
            ),
            "give some of them a `match`, or put several into one",
        );
    }
}
