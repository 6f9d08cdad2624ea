//! The tree of descriptors in a file of the reference service, with everything that it says is wrong.
//!
//! Messages have the words that the reference service has for the same mistake, so that they are found by whoever
//! looks for them; and a place, which it does not tell.

use std::collections::HashMap;

use crate::problem::Place;
use crate::read::scalar::{text, whole, yes};
use crate::report::{Read, Report, Reported, quoted};
use crate::yaml::{Node, Value};

const FILE: &[&str] = &["domain", "descriptors"];
const DESCRIPTOR: &[&str] = &[
    "key",
    "value",
    "rate_limit",
    "descriptors",
    "shadow_mode",
    "detailed_metric",
    "value_to_metric",
    "share_threshold",
    "quota_mode",
    "metadata",
];
const RATE_LIMIT: &[&str] = &[
    "unit",
    "requests_per_unit",
    "unlimited",
    "name",
    "replaces",
    "sleep_on_throttle",
    "algorithm",
];
const UNITS: &[(&str, &str)] = &[
    ("second", "s"),
    ("minute", "min"),
    ("hour", "h"),
    ("day", "d"),
    ("week", "7d"),
    ("month", "30d"),
    ("year", "365d"),
];

/// One file.
#[derive(Debug)]
pub(super) struct Config {
    pub(super) domain: String,
    pub(super) domain_place: Place,
    pub(super) descriptors: Vec<Descriptor>,
}

/// One node of the tree.
#[derive(Debug)]
pub(super) struct Descriptor {
    pub(super) key: String,
    /// None: any value.
    pub(super) value: Option<String>,
    pub(super) place: Place,
    pub(super) limit: Option<RateLimit>,
    pub(super) is_shadow: bool,
    /// Do all values that are like a pattern share one count?
    pub(super) shares: bool,
    pub(super) children: Vec<Descriptor>,
    /// What is not carried over.
    pub(super) notes: Vec<String>,
}

/// What a node allows.
#[derive(Debug)]
pub(super) struct RateLimit {
    pub(super) name: String,
    pub(super) replaces: Vec<String>,
    pub(super) quota: Quota,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Quota {
    Unlimited,
    /// So many in a span as we write it.
    Per(u64, &'static str),
}

impl Descriptor {
    pub(super) fn is_wildcard(&self) -> bool {
        self.value.as_ref().is_some_and(|value| value.contains('*'))
    }
}

/// Reads a file.
pub(super) fn config(root: &Node, report: &Report<'_>) -> Read<Config> {
    let fields = known(root, FILE, report)?;
    let domain = fields.text("domain", report)?.unwrap_or_default();
    let domain_place = fields.place_of("domain");
    if domain.is_empty() {
        return Err(report.error(
            domain_place,
            "empty-domain",
            "config file cannot have empty domain",
            "write `domain: edge`, the domain that the filter of Envoy names",
        ));
    }
    let nodes = fields.get("descriptors");
    Ok(Config {
        domain,
        domain_place,
        descriptors: descriptors(nodes, report)?,
    })
}

fn descriptors(node: Option<&Node>, report: &Report<'_>) -> Read<Vec<Descriptor>> {
    let mut seen: HashMap<(String, Option<String>), usize> = HashMap::new();
    let mut all = Vec::new();
    let mut done = Ok(());
    for node in listed(node, "`descriptors`", report)? {
        let Ok(one) = descriptor(node, report) else {
            done = Err(Reported);
            continue;
        };
        let before = seen.insert((one.key.clone(), one.value.clone()), one.place.line);
        if let Some(line) = before {
            let composite = match &one.value {
                Some(value) => format!("{}_{value}", one.key),
                None => one.key.clone(),
            };
            done = Err(report.error(
                one.place,
                "duplicate-descriptor",
                format!("duplicate descriptor composite key '{composite}'"),
                format!("keep one of the two; the first is in line {line}"),
            ));
        }
        all.push(one);
    }
    done.map(|()| all)
}

fn descriptor(node: &Node, report: &Report<'_>) -> Read<Descriptor> {
    let fields = known(node, DESCRIPTOR, report)?;
    let key = fields.text("key", report)?.unwrap_or_default();
    if key.is_empty() {
        return Err(report.error(
            fields.place_of("key"),
            "empty-key",
            "descriptor has empty key",
            "write `key: remote_address`, or whatever the action of Envoy is called",
        ));
    }
    // An empty value is as none there.
    let value = fields.text("value", report)?.filter(|v| !v.is_empty());
    let limit = match fields.get("rate_limit") {
        Some(node) => Some(rate_limit(node, report)?),
        None => None,
    };
    let is_shadow = fields.yes("shadow_mode", report)?;
    let shares = fields.yes("share_threshold", report)?;
    let mut notes = Vec::new();
    let mut note = |field: &str, code: &'static str, message: String| {
        if fields.get(field).is_some() {
            report.note(fields.place_of(field), code, message.clone(), HINT);
            notes.push(message);
        }
    };
    const HINT: &str = "nothing has to be done unless you need it";
    for field in ["detailed_metric", "value_to_metric"] {
        let message = format!("`{field}` only names metrics, and is left out: ours are by limit");
        note(field, "metric-names", message);
    }
    if fields.yes("quota_mode", report)? {
        let message =
            "`quota_mode` is left out: the limit counts by itself and refuses as any other";
        note("quota_mode", "quota-mode", message.into());
    }
    note(
        "metadata",
        "metadata",
        "`metadata` is left out: answers carry no metadata".into(),
    );
    if limit.as_ref().is_some_and(|limit| limit.sleeps) {
        let message = "`sleep_on_throttle` is left out: nobody is held back".to_owned();
        report.note(
            fields.place_of("rate_limit"),
            "sleep",
            message.clone(),
            HINT,
        );
        notes.push(message);
    }
    let one = Descriptor {
        key,
        value,
        place: fields.place,
        limit: limit.map(|limit| limit.read),
        is_shadow,
        shares,
        children: descriptors(fields.get("descriptors"), report)?,
        notes,
    };
    if shares && !one.is_wildcard() {
        return Err(report.error(
            fields.place_of("share_threshold"),
            "share-threshold",
            "`share_threshold` needs a value with `*`",
            "write a pattern such as `value: /api/*`, or leave it out: without one there is nothing to share",
        ));
    }
    Ok(one)
}

/// A limit, and what is only noted.
struct ReadLimit {
    read: RateLimit,
    sleeps: bool,
}

fn rate_limit(node: &Node, report: &Report<'_>) -> Read<ReadLimit> {
    let fields = known(node, RATE_LIMIT, report)?;
    let name = fields.text("name", report)?.unwrap_or_default();
    let unit = fields.text("unit", report)?.unwrap_or_default();
    let unlimited = fields.yes("unlimited", report)?;
    let mut replaces = Vec::new();
    for node in listed(fields.get("replaces"), "`replaces`", report)? {
        let entry = known(node, &["name"], report)?;
        let replaced = entry.text("name", report)?.unwrap_or_default();
        if replaced.is_empty() {
            return Err(report.error(
                node.place,
                "empty-replaces",
                "should not have an empty replaces entry",
                "write `- name: other`, the name of the limit that this one replaces",
            ));
        }
        if replaced == name {
            return Err(report.error(
                node.place,
                "replaces-itself",
                "replaces should not contain name of same descriptor",
                "name another limit",
            ));
        }
        replaces.push(replaced);
    }
    let quota = if unlimited {
        if !unit.is_empty() {
            return Err(report.error(
                fields.place_of("unit"),
                "unlimited-unit",
                "should not specify rate limit unit when unlimited",
                "leave out `unit`, or `unlimited`",
            ));
        }
        Quota::Unlimited
    } else {
        let lower = unit.to_ascii_lowercase();
        let Some((_, span)) = UNITS.iter().find(|(name, _)| *name == lower) else {
            return Err(report.error(
                fields.place_of("unit"),
                "bad-unit",
                format!("invalid rate limit unit '{unit}'"),
                "write second, minute, hour, day, week, month or year",
            ));
        };
        let count = fields.number("requests_per_unit", u64::from(u32::MAX), report)?;
        Quota::Per(count.unwrap_or(0), span)
    };
    if let Some(algorithm) = fields.text("algorithm", report)?
        && !algorithm.is_empty()
        && !algorithm.eq_ignore_ascii_case("fixed_window")
    {
        report.warn(
            fields.place_of("algorithm"),
            "algorithm",
            format!("{} becomes a fixed window", quoted(&algorithm)),
            "choose an algorithm in the policy: token-bucket, sliding-window and others are there",
        );
    }
    Ok(ReadLimit {
        read: RateLimit {
            name,
            replaces,
            quota,
        },
        sleeps: fields.yes("sleep_on_throttle", report)?,
    })
}

/// The items of a list, if there is one.
pub(super) fn listed<'n>(
    node: Option<&'n Node>,
    what: &str,
    report: &Report<'_>,
) -> Read<&'n [Node]> {
    match node.map(|node| (&node.value, node)) {
        None | Some((Value::Nothing, _)) => Ok(&[]),
        Some((Value::List(items), _)) => Ok(items),
        Some((Value::Bad, _)) => Err(Reported),
        Some((_, node)) => Err(report.error(
            node.place,
            "not-a-list",
            format!("{what} is a list, but this is {}", node.kind()),
            "begin every item with `- `",
        )),
    }
}

/// The fields of a map, all of which are known.
pub(super) struct Known<'n> {
    pub(super) place: Place,
    entries: Vec<(&'n str, Place, &'n Node)>,
}

/// The fields of a map; any that is not known is an error.
pub(super) fn known<'n>(node: &'n Node, names: &[&str], report: &Report<'_>) -> Read<Known<'n>> {
    let Value::Map(entries) = &node.value else {
        let message = format!("a map belongs here, but this is {}", node.kind());
        return Err(report.error(
            node.place,
            "not-a-map",
            message,
            format!(
                "write fields such as `{}: …`",
                names.first().unwrap_or(&"key")
            ),
        ));
    };
    let mut done = Ok(());
    let mut fields = Known {
        place: node.place,
        entries: Vec::new(),
    };
    for (key, value) in entries {
        if names.contains(&key.text.as_str()) {
            fields.entries.push((&key.text, key.place, value));
            continue;
        }
        let hint = match crate::near::nearest(&key.text, names.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("here stand {}", crate::report::list(names.iter().copied())),
        };
        let message = format!("config error, unknown key '{}'", key.text);
        done = Err(report.error(key.place, "unknown-key", message, hint));
    }
    done.map(|()| fields)
}

impl<'n> Known<'n> {
    /// A field that is there and not nothing.
    pub(super) fn get(&self, name: &str) -> Option<&'n Node> {
        let found = self.entries.iter().find(|(n, ..)| *n == name);
        found
            .map(|(.., node)| *node)
            .filter(|node| !matches!(node.value, Value::Nothing))
    }

    /// Where it stands, or the whole map if it does not.
    pub(super) fn place_of(&self, name: &str) -> Place {
        let found = self.entries.iter().find(|(n, ..)| *n == name);
        found.map_or(self.place, |(_, place, _)| *place)
    }

    pub(super) fn text(&self, name: &str, report: &Report<'_>) -> Read<Option<String>> {
        let found = self.get(name).map(|node| text(node, report));
        Ok(found.transpose()?.map(str::to_owned))
    }

    pub(super) fn yes(&self, name: &str, report: &Report<'_>) -> Read<bool> {
        let found = self.get(name).map(|node| yes(node, report));
        Ok(found.transpose()?.unwrap_or(false))
    }

    pub(super) fn number(&self, name: &str, most: u64, report: &Report<'_>) -> Read<Option<u64>> {
        let found = self
            .get(name)
            .map(|node| whole(node, 0, most, "10", report));
        found.transpose()
    }
}
