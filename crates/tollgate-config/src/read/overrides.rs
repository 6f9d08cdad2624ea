//! `overrides`: other quotas for single keys, in the file or added at run time.

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::IpAddr;

use tollgate_policy::address::network_text;
use tollgate_policy::{KeyPart, LimitRule, Override, OverrideAction, Source};

use super::fields::{Fields, Listed, each};
use super::item::Item;
use super::key::source_text;
use super::quota::QuotaFields;
use super::scalar::{boolean, prose, text};
use super::when::moment;
use crate::report::{Read, quoted};
use crate::shape;

/// Overrides of one limit.
const OVERRIDES_MAX: usize = 100_000;

/// Reads the overrides of a limit with this key and quota.
pub(crate) fn overrides(
    node: Item<'_>,
    key: &[KeyPart],
    base: &QuotaFields,
    name: &str,
) -> Read<Vec<Override>> {
    let listed = Listed {
        name: "overrides",
        hint: "write `overrides: [{ key: acme, allow: 100/s }]`",
        max: (OVERRIDES_MAX, "use `tiers` for classes of keys"),
    };
    let mut seen: HashMap<Vec<String>, usize> = HashMap::new();
    listed.read(node, |node, _| {
        let found = one(node, key, base, name)?;
        match seen.insert(found.key.clone(), node.place.line) {
            Some(line) => Err(node.error(
                "duplicate-override",
                format!("{} has an override already", quoted(&found.key.join(", "))),
                format!("keep one of the two; the first is in line {line}"),
            )),
            None => Ok(found),
        }
    })
}

/// Reads one override for a resolved limit.
pub(crate) fn one_override(node: Item<'_>, rule: &LimitRule) -> Read<Override> {
    let base = QuotaFields::from_quota(&rule.quota).ok_or_else(|| {
        node.error(
            "bad-quota",
            "the algorithm of this limit cannot be overridden",
            "change the limit itself",
        )
    })?;
    one(node, &rule.key, &base, &rule.name)
}

fn one(node: Item<'_>, key: &[KeyPart], base: &QuotaFields, name: &str) -> Read<Override> {
    let mut known = [shape::Override::FIELDS, shape::Candidate::FIELDS].concat();
    known.retain(|field| !shape::FIXED_IN_OVERRIDES.contains(field));
    let fields = Fields::open_with(node, "an override", &known, |field| {
        shape::FIXED_IN_OVERRIDES.contains(&field).then(|| {
            format!("set `{field}` in the limit: an override changes how much it allows, not how it counts")
        })
    })?;
    let message = "this override has no `key`";
    let key = fields.required("key", (message, "add `key: acme`"), |n| parts(n, key));
    let flag = |name: &str| fields.read(name, boolean);
    let (unlimited, blocked) = (flag("unlimited"), flag("blocked"));
    let expires = fields.read("expires", moment);
    let reason = fields.read("reason", prose);
    let mut quota_fields = shape::Candidate::FIELDS.iter();
    let has_quota = quota_fields.any(|field| fields.get(field).is_some());
    let quota = has_quota.then(|| {
        let what = format!("an override of limit `{name}`");
        QuotaFields::read(&fields, Some(base), &what)?.quota(name, node.report)
    });
    reason?;
    let (unlimited, blocked) = (unlimited?.unwrap_or(false), blocked?.unwrap_or(false));
    let grant = match (quota, unlimited, blocked) {
        (Some(quota), false, false) => OverrideAction::Quota(Box::new(quota?)),
        (None, true, false) => OverrideAction::Unlimited,
        (None, false, true) => OverrideAction::Blocked,
        (None, false, false) => {
            let hint = "add `allow: 100/s`, `unlimited: true` or `blocked: true`";
            return Err(match fields.read("allow", |_| Ok(())) {
                Ok(_) => fields.error("missing-field", "this override changes nothing", hint),
                // A field of the quota was misspelt, and is reported already.
                Err(reported) => reported,
            });
        }
        _ => {
            return Err(fields.error(
                "conflict",
                "this override has two conflicting settings",
                "keep one of: another quota, `unlimited` and `blocked`",
            ));
        }
    };
    Ok(Override {
        key: key?,
        grant,
        expires: expires?,
    })
}

/// Reads the parts of a key.
fn parts(node: Item<'_>, key: &[KeyPart]) -> Read<Vec<String>> {
    if key.is_empty() {
        return Err(node.error(
            "no-key",
            "this limit has no `key`, so there is nothing to override",
            "add a `key` to the limit, or change its `allow`",
        ));
    }
    let texts = node.one_or_many();
    if texts.len() != key.len() {
        let names: Vec<String> = key.iter().map(|part| source_text(&part.source)).collect();
        return Err(node.error(
            "bad-key",
            format!("the key of this limit is [{}]", names.join(", ")),
            match key.len() {
                1 => "write one value, and an override for each key".to_owned(),
                parts => format!("write a list of {parts} values, one for each part"),
            },
        ));
    }
    each(texts.into_iter().zip(key), |(node, part)| {
        normalised(node, part)
    })
}

/// A part of a key as requests are counted by it: an address as its network, other texts folded.
fn normalised(node: Item<'_>, part: &KeyPart) -> Read<String> {
    let written = text(node)?;
    let Source::Address { v4, v6 } = part.source else {
        let folded = part.fold(Cow::Borrowed(written.as_bytes()));
        return Ok(String::from_utf8_lossy(&folded).into_owned());
    };
    let (address, prefix) = match written.split_once('/') {
        Some((address, prefix)) => (address, Some(prefix)),
        None => (written, None),
    };
    let Ok(address) = address.parse::<IpAddr>() else {
        return Err(node.error(
            "bad-key",
            format!(
                "{} is not an address, but this limit counts by address",
                quoted(written)
            ),
            "write one such as `10.1.2.3` or `2001:db8::1`",
        ));
    };
    let bits = if address.is_ipv4() { v4 } else { v6 };
    if prefix.is_some_and(|prefix| prefix != bits.to_string()) {
        return Err(node.error(
            "bad-key",
            format!("this limit counts addresses by {bits} bits"),
            format!(
                "write `{address}`; for other networks use `allow` or `deny`, or another limit"
            ),
        ));
    }
    Ok(network_text(address, v4, v6))
}
