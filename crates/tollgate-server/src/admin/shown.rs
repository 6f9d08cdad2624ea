//! The policy in force, as operators read it: resolved, so that nothing is left to be looked up.

use serde::Serialize;
use serde_json::{Value, json};
use tollgate_policy::{
    DefaultAction, LimitRule, MissingKey, Mode, Privacy, Quota, Source, WhenOver,
};

use crate::engine::Engine;

/// A value as JSON; what is told here always can be.
pub(super) fn json_of(value: &impl Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}

/// The policy and how it goes with it.
pub(super) fn policy(engine: &Engine) -> Value {
    let health = engine.health();
    let epoch = engine.epoch();
    let policy = epoch.gate.policy();
    let list = |list: &[tollgate_policy::ListRule]| -> Vec<Value> {
        let told = |rule: &tollgate_policy::ListRule| json!({"name": rule.name, "reason": rule.reason, "expires_at": seconds(rule.expires)});
        list.iter().map(told).collect()
    };
    json!({
        "version": epoch.version,
        "source": health.policy.source,
        "content": health.policy.content,
        "loaded_at": health.policy.loaded_at,
        "default": match &policy.default {
            DefaultAction::Unset | DefaultAction::Pass => json!("pass"),
            DefaultAction::Refuse => json!("refuse"),
            DefaultAction::Limit(rule) => limit(rule),
        },
        "key_privacy": match policy.privacy {
            Privacy::Plain => "plain",
            Privacy::Hashed => "hashed",
        },
        "allow": list(&policy.allow),
        "deny": list(&policy.deny),
        "limits": policy.limits.iter().map(limit).collect::<Vec<_>>(),
        "follow_request_limits": policy.follow.as_ref().map(|follow| &follow.domains),
    })
}

fn limit(rule: &LimitRule) -> Value {
    let tiers = rule.tiers.iter().flat_map(|tiers| &tiers.tiers);
    let tiers = tiers.map(|tier| json!({"name": tier.name, "quota": quota(&tier.quota)}));
    json!({
        "name": rule.name,
        "quota": quota(&rule.quota),
        "candidate": rule.candidate.as_ref().map(quota),
        "key": rule.key.iter().map(|part| source(&part.source)).collect::<Vec<_>>(),
        "missing_key": match rule.missing_key {
            MissingKey::Address { .. } => "ip",
            MissingKey::Shared => "shared",
            MissingKey::Deny => "deny",
        },
        "mode": match rule.mode {
            Mode::Enforce => "enforce",
            Mode::Shadow => "shadow",
            Mode::Off => "off",
        },
        "when_over": match rule.when_over {
            WhenOver::ChargeNothing => "take-nothing",
            WhenOver::ChargeRemaining => "take-rest",
        },
        "enforced_ten_thousandths": rule.enforced,
        "max_keys": rule.quota.limit.max_keys(),
        "tier_from": rule.tiers.as_ref().map(|tiers| source(&tiers.source)),
        "tiers": tiers.collect::<Vec<_>>(),
        "overrides": rule.overrides.len(),
        "expires_at": seconds(rule.expires),
        "owner": rule.owner,
        "reason": rule.reason,
    })
}

fn quota(quota: &Quota) -> Value {
    let (units, per) = quota.advertised();
    json!({
        "text": quota.to_string(),
        "units": units,
        "per_seconds": per.as_secs_ceil(),
        "calendar": quota.periods.as_ref().map(|periods| periods.name()),
    })
}

fn source(source: &Source) -> String {
    match source {
        Source::Address { v4: 32, v6: 64 } => "ip".into(),
        Source::Address { v4: 32, v6 } => format!("ip/{v6}"),
        Source::Address { v4, v6 } => format!("ip/{v4}/{v6}"),
        Source::Header(name) => format!("header.{name}"),
        Source::Query(name) => format!("query.{name}"),
        Source::Cookie(name) => format!("cookie.{name}"),
        Source::Path => "path".into(),
        Source::Capture(name) => format!("path.{name}"),
        Source::Method => "method".into(),
        Source::Host => "host".into(),
        Source::Descriptor(name) => format!("descriptor.{name}"),
        Source::Field(name) => format!("field.{name}"),
    }
}

fn seconds(moment: Option<tollgate::Moment>) -> Option<u64> {
    moment.map(|moment| moment.as_nanos() / 1_000_000_000)
}
