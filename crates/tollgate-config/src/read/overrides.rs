//! Other quotas for single keys: `overrides`, and one of them at run time.

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::IpAddr;

use tollgate_policy::address::network_text;
use tollgate_policy::{Grant, KeyPart, LimitRule, Override, Source};

use super::fields::{Fields, each, one_or_many};
use super::key::spelt;
use super::names::{OVERRIDE, QUOTA};
use super::quota::Written;
use super::scalar::{prose, text, yes};
use super::when::moment;
use crate::report::{Read, Report, Reported, quoted};
use crate::yaml::{Node, Value};

/// Reads the overrides of a limit with this key and these fields.
pub(crate) fn overrides(
    node: &Node,
    key: &[KeyPart],
    base: &Written,
    name: &str,
    report: &Report<'_>,
) -> Read<Vec<Override>> {
    let items = match &node.value {
        Value::List(items) => items,
        Value::Bad => return Err(Reported),
        _ => {
            return Err(report.error(
                node.place,
                "not-a-list",
                format!("`overrides` is a list, but this is {}", node.kind()),
                "write `overrides: [{ key: acme, allow: 100/s }]`",
            ));
        }
    };
    let mut seen: HashMap<Vec<String>, usize> = HashMap::new();
    each(items, |node| {
        let found = one(node, key, base, name, report)?;
        match seen.insert(found.key.clone(), node.place.line) {
            Some(line) => Err(report.error(
                node.place,
                "duplicate-override",
                format!("{} has an override already", quoted(&found.key.join(", "))),
                format!("keep one of the two; the first is in line {line}"),
            )),
            None => Ok(found),
        }
    })
}

/// Reads one override for a limit that is resolved already.
pub(crate) fn one_override(node: &Node, rule: &LimitRule, report: &Report<'_>) -> Read<Override> {
    let base = Written::of(&rule.quota).ok_or_else(|| {
        report.error(
            node.place,
            "bad-quota",
            "the algorithm of this limit cannot be overridden",
            "change the limit itself",
        )
    })?;
    one(node, &rule.key, &base, &rule.name, report)
}

fn one(
    node: &Node,
    key: &[KeyPart],
    base: &Written,
    name: &str,
    report: &Report<'_>,
) -> Read<Override> {
    let fields = Fields::open_with(node, "an override", OVERRIDE, report, |field| {
        QUOTA.contains(&field).then(|| {
            format!("`{field}` stays that of the limit; an override changes how much, not how it is counted")
        })
    })?;
    let found = fields.read("key", |n| parts(n, key, report));
    let flag = |name: &str| fields.read(name, |n| yes(n, report));
    let (unlimited, blocked) = (flag("unlimited"), flag("blocked"));
    let expires = fields.read("expires", |n| moment(n, report));
    let reason = fields.read("reason", |n| prose(n, report));
    let quota_field = QUOTA.iter().find_map(|field| fields.name_place(field));
    let quota = quota_field.map(|_| {
        let what = format!("an override of limit `{name}`");
        Written::read(&fields, Some(base), &what, report)?.quota(name, report)
    });
    reason?;
    let (unlimited, blocked) = (unlimited?.unwrap_or(false), blocked?.unwrap_or(false));
    let grant = match (quota, unlimited, blocked) {
        (Some(quota), false, false) => Grant::Quota(quota?),
        (None, true, false) => Grant::Unlimited,
        (None, false, true) => Grant::Blocked,
        // If a field of the quota was misspelt, that was said.
        (None, false, false) => {
            fields.read("allow", |_| Ok(()))?;
            return Err(report.error(
                fields.place,
                "missing-field",
                "this override changes nothing",
                "add `allow: 100/s`, `unlimited: true` or `blocked: true`",
            ));
        }
        _ => {
            return Err(report.error(
                fields.place,
                "conflict",
                "this override says two things at once",
                "keep one of: another quota, `unlimited` and `blocked`",
            ));
        }
    };
    let key = found?.ok_or_else(|| {
        report.error(
            fields.place,
            "missing-field",
            "this override does not say for which key it is",
            "add `key: acme`",
        )
    })?;
    Ok(Override {
        key,
        grant,
        expires: expires?,
    })
}

/// The parts of a key, as they are counted.
fn parts(node: &Node, key: &[KeyPart], report: &Report<'_>) -> Read<Vec<String>> {
    if key.is_empty() {
        return Err(report.error(
            node.place,
            "no-key",
            "this limit has one allowance for everybody, so no key has its own",
            "give the limit a `key`, or change its `allow`",
        ));
    }
    let texts = one_or_many(node);
    if texts.len() != key.len() {
        let names: Vec<String> = key.iter().map(|part| spelt(&part.source)).collect();
        return Err(report.error(
            node.place,
            "bad-key",
            format!("the key of this limit is [{}]", names.join(", ")),
            match key.len() {
                1 => "write one value, and an override for each key".to_owned(),
                parts => format!("write a list of {parts} values, one for each part"),
            },
        ));
    }
    let mut at = key.iter();
    each(texts, |node| {
        let written = text(node, report)?;
        match at.next() {
            Some(part) => counted(node, written, part, report),
            None => Err(Reported),
        }
    })
}

/// A text as it is counted: an address cut to its network, other texts folded.
fn counted(node: &Node, written: &str, part: &KeyPart, report: &Report<'_>) -> Read<String> {
    if let Source::Address { v4, v6 } = part.source {
        let (address, bits) = match written.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (written, None),
        };
        let address = address.parse::<IpAddr>().ok();
        let right = |address: IpAddr| match address {
            IpAddr::V4(_) => bits.is_none_or(|bits| bits == v4.to_string()),
            IpAddr::V6(_) => bits.is_none_or(|bits| bits == v6.to_string()),
        };
        return match address {
            Some(address) if right(address) => Ok(network_text(address, v4, v6)),
            Some(address) => {
                let count = if address.is_ipv4() { v4 } else { v6 };
                Err(report.error(
                    node.place,
                    "bad-key",
                    format!("addresses of this limit are counted by {count} bits"),
                    format!("write `{address}`; for whole networks use `allow` or `deny`, or a limit of their own"),
                ))
            }
            None => Err(report.error(
                node.place,
                "bad-key",
                format!(
                    "{} is not an address, but this limit counts by address",
                    quoted(written)
                ),
                "write one such as `10.1.2.3` or `2001:db8::1`",
            )),
        };
    }
    let folded = part.fold(Cow::Borrowed(written.as_bytes()));
    Ok(String::from_utf8_lossy(&folded).into_owned())
}
