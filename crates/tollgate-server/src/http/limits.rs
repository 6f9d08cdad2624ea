//! The limits in force, for people and tools. It tells what the policy file says, never whom it counts:
//! no keys, no overrides, no values of headers.

use std::fmt::Write;

use tollgate_policy::fields::{push_json_text, push_number};
use tollgate_policy::{LimitRule, Match, Mode, REQUEST_LIMITS, Source, ValueTest};

use crate::engine::Epoch;

/// All limits as JSON.
pub(super) fn listed(epoch: &Epoch) -> String {
    let mut text = String::new();
    push_count(&mut text, "{\"policy_version\":", epoch.version);
    text.push_str(",\"limits\":");
    let follows = epoch.gate.policy().follow.is_some();
    push_list(&mut text, epoch.gate.rules(), |text, rule| {
        push_rule(text, rule, follows && *rule.name == *REQUEST_LIMITS);
    });
    text.push('}');
    text
}

fn push_optional(text: &mut String, value: Option<&str>) {
    match value {
        Some(value) => push_json_text(text, value),
        None => text.push_str("null"),
    }
}

fn push_count(text: &mut String, name: &str, count: u64) {
    text.push_str(name);
    push_number(text, count);
}

fn push_rule(text: &mut String, rule: &LimitRule, is_brought: bool) {
    text.push_str("{\"name\":");
    push_json_text(text, &rule.name);
    text.push_str(",\"description\":");
    match is_brought {
        true => push_json_text(
            text,
            "fixed window, as many and as long as the request says",
        ),
        false => push_json_text(text, &rule.quota.to_string()),
    }
    text.push_str(",\"mode\":\"");
    text.push_str(match rule.mode {
        Mode::Enforce => "enforce",
        Mode::Shadow => "shadow",
        Mode::Off => "off",
    });
    text.push_str("\",\"match\":");
    push_match(text, &rule.matches);
    if !rule.except.is_empty() {
        text.push_str(",\"except\":");
        push_list(text, rule.except.iter(), push_match);
    }
    text.push_str(",\"key\":");
    push_list(text, rule.key.iter(), |text, part| {
        push_json_text(text, &source(&part.source));
    });
    let tiers = rule.tiers.as_ref().map(|tiers| tiers.tiers.as_slice());
    text.push_str(",\"tiers\":");
    push_list(text, tiers.unwrap_or_default().iter(), |text, tier| {
        text.push_str("{\"name\":");
        push_json_text(text, &tier.name);
        push_count(text, ",\"weight\":", u64::from(tier.weight));
        text.push_str(",\"description\":");
        push_json_text(text, &tier.quota.to_string());
        text.push('}');
    });
    match rule.expires {
        // Seconds since 1970, as the clock of the server counts.
        Some(end) => push_count(
            text,
            ",\"expires\":",
            end.as_nanos().div_ceil(1_000_000_000),
        ),
        None => text.push_str(",\"expires\":null"),
    }
    text.push_str(",\"owner\":");
    push_optional(text, rule.owner.as_deref());
    text.push_str(",\"reason\":");
    push_optional(text, rule.reason.as_deref());
    text.push('}');
}

fn push_match(text: &mut String, matches: &Match) {
    let names = |list: &[(String, tollgate_policy::ValueTest)]| -> Vec<String> {
        list.iter().map(|(name, _)| name.clone()).collect()
    };
    let mut lists: Vec<(&str, Vec<String>)> = vec![
        ("methods", matches.methods.clone()),
        (
            "paths",
            matches.paths.iter().map(|p| p.as_str().into()).collect(),
        ),
        (
            "hosts",
            matches.hosts.iter().map(|h| h.as_str().into()).collect(),
        ),
        ("headers", names(&matches.headers)),
        ("query", names(&matches.query)),
        (
            "domain",
            matches.domain.iter().map(|d| d.as_str().into()).collect(),
        ),
        ("descriptor", names(&matches.descriptor)),
        ("entries", matches.entries.iter().map(entry).collect()),
    ];
    lists.retain(|(_, list)| !list.is_empty());
    text.push('{');
    for (at, (name, list)) in lists.iter().enumerate() {
        if at > 0 {
            text.push(',');
        }
        push_json_text(text, name);
        text.push(':');
        push_list(text, list.iter(), |text, item| push_json_text(text, item));
    }
    text.push('}');
}

/// An entry of a descriptor, with the values that it may have.
fn entry((name, test): &(String, ValueTest)) -> String {
    match test {
        ValueTest::Like(texts) => {
            let texts: Vec<&str> = texts.iter().map(|text| text.as_str()).collect();
            format!("{name}={}", texts.join("|"))
        }
        ValueTest::Absent => format!("!{name}"),
        ValueTest::Present => name.clone(),
    }
}

fn push_list<T>(text: &mut String, items: impl Iterator<Item = T>, each: impl Fn(&mut String, T)) {
    text.push('[');
    for (at, item) in items.enumerate() {
        if at > 0 {
            text.push(',');
        }
        each(text, item);
    }
    text.push(']');
}

/// A source as policy files write it.
fn source(source: &Source) -> String {
    match source {
        Source::Address { v6, .. } => {
            let mut text = String::from("ip");
            if *v6 != 64 {
                let _ = write!(text, "/{v6}");
            }
            text
        }
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
