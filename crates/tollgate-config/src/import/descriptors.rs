//! Reads the tree of descriptors in a file of the reference service.
//!
//! Errors have the message of the reference service, so that a search for it finds them, and also a place.

use std::collections::HashMap;

use crate::problem::Place;
use crate::read::Item;
use crate::read::scalar::{boolean, integer, text};
use crate::report::{Read, Reported, list, quoted};
use crate::suggest::did_you_mean;
use crate::yaml::Value;

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
    /// Whether all values that match the pattern share one count.
    pub(super) shares: bool,
    pub(super) children: Vec<Descriptor>,
    /// What the policy cannot express.
    pub(super) notes: Vec<String>,
    /// The position of its file among all files.
    pub(super) file: usize,
}

/// The limit of a node.
#[derive(Debug)]
pub(super) struct RateLimit {
    pub(super) name: String,
    pub(super) replaces: Vec<String>,
    pub(super) quota: Quota,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Quota {
    Unlimited,
    /// This many in a span of the policy.
    Per(u64, &'static str),
}

impl Descriptor {
    /// Sets the file of a node and of all below it, and whether they are only counted.
    pub(super) fn set_file(&mut self, file: usize, shadow: bool) {
        self.file = file;
        self.is_shadow |= shadow;
        for child in &mut self.children {
            child.set_file(file, shadow);
        }
    }

    /// The key and the value, as the reference service joins them.
    pub(super) fn composite(&self) -> String {
        match &self.value {
            Some(value) => format!("{}_{value}", self.key),
            None => self.key.clone(),
        }
    }

    pub(super) fn is_wildcard(&self) -> bool {
        self.value.as_ref().is_some_and(|value| value.contains('*'))
    }
}

/// Reads a file.
pub(super) fn config(root: Item<'_>) -> Read<Config> {
    let fields = known(root, FILE)?;
    let domain = fields.text("domain")?.unwrap_or_default();
    let domain_place = fields.place_of("domain");
    if domain.is_empty() {
        return Err(fields.error(
            "domain",
            "empty-domain",
            "config file cannot have empty domain",
            "write `domain: edge`, the domain that the filter of Envoy names",
        ));
    }
    let nodes = fields.get("descriptors");
    Ok(Config {
        domain,
        domain_place,
        descriptors: descriptors(nodes)?,
    })
}

fn descriptors(node: Option<Item<'_>>) -> Read<Vec<Descriptor>> {
    let mut seen: HashMap<(String, Option<String>), usize> = HashMap::new();
    let mut all = Vec::new();
    let mut done = Ok(());
    for node in listed(node, "`descriptors`")? {
        let fields_report = node.report;
        let Ok(one) = descriptor(node) else {
            done = Err(Reported);
            continue;
        };
        let before = seen.insert((one.key.clone(), one.value.clone()), one.place.line);
        if let Some(line) = before {
            done = Err(fields_report.error(
                one.place,
                "duplicate-descriptor",
                format!("duplicate descriptor composite key '{}'", one.composite()),
                format!("keep one of the two; the first is in line {line}"),
            ));
        }
        all.push(one);
    }
    done.map(|()| all)
}

fn descriptor(node: Item<'_>) -> Read<Descriptor> {
    let fields = known(node, DESCRIPTOR)?;
    let key = fields.text("key")?.unwrap_or_default();
    if key.is_empty() {
        return Err(fields.error(
            "key",
            "empty-key",
            "descriptor has empty key",
            "write `key: remote_address`, or the key that the action of Envoy has",
        ));
    }
    // The reference service treats an empty value as none.
    let value = fields.text("value")?.filter(|v| !v.is_empty());
    let limit = match fields.get("rate_limit") {
        Some(node) => Some(rate_limit(node)?),
        None => None,
    };
    let is_shadow = fields.boolean("shadow_mode")?;
    let shares = fields.boolean("share_threshold")?;
    let mut notes = Vec::new();
    let mut note = |field: &str, code: &'static str, message: String| {
        let place = fields.place_of(field);
        let hint = "nothing has to be done unless it is needed";
        node.report.note(place, code, message.clone(), hint);
        notes.push(message);
    };
    for field in ["detailed_metric", "value_to_metric"] {
        if fields.get(field).is_some() {
            let message = format!("`{field}` is left out: metrics have the name of the limit");
            note(field, "metric-names", message);
        }
    }
    if fields.get("metadata").is_some() {
        let message = "`metadata` is left out: responses have no metadata";
        note("metadata", "metadata", message.into());
    }
    if limit.as_ref().is_some_and(|limit| limit.sleeps) {
        let message = "`sleep_on_throttle` is left out: requests are not delayed";
        note("rate_limit", "sleep", message.into());
    }
    if fields.boolean("quota_mode")? {
        let message = "`quota_mode` is left out: the limit refuses a request alone, not only if all limits in quota mode are over";
        let place = fields.place_of("quota_mode");
        let hint =
            "write `mode: shadow` in the limit to count only, or keep it if it may refuse alone";
        node.report.warn(place, "quota-mode", message, hint);
        notes.push(message.into());
    }
    let one = Descriptor {
        key,
        value,
        place: fields.place(),
        limit: limit.map(|limit| limit.read),
        is_shadow,
        shares,
        children: descriptors(fields.get("descriptors"))?,
        notes,
        file: 0,
    };
    if shares && !one.is_wildcard() {
        return Err(fields.error("share_threshold",
            "share-threshold",
            "`share_threshold` needs a value with `*`",
            "write a pattern such as `value: /api/*`, or remove it: without a pattern there is nothing to share",
        ));
    }
    Ok(one)
}

/// A limit, and what only causes a note.
struct ReadLimit {
    read: RateLimit,
    sleeps: bool,
}

fn rate_limit(node: Item<'_>) -> Read<ReadLimit> {
    let fields = known(node, RATE_LIMIT)?;
    let name = fields.text("name")?.unwrap_or_default();
    let unit = fields.text("unit")?.unwrap_or_default();
    let unlimited = fields.boolean("unlimited")?;
    let mut replaces = Vec::new();
    for node in listed(fields.get("replaces"), "`replaces`")? {
        let entry = known(node, &["name"])?;
        let replaced = entry.text("name")?.unwrap_or_default();
        if replaced.is_empty() {
            return Err(node.error(
                "empty-replaces",
                "should not have an empty replaces entry",
                "write `- name: other`, the name of the limit that this one replaces",
            ));
        }
        if replaced == name {
            return Err(node.error(
                "replaces-itself",
                "replaces should not contain name of same descriptor",
                "name another limit",
            ));
        }
        replaces.push(replaced);
    }
    let quota = if unlimited {
        if !unit.is_empty() {
            return Err(fields.error(
                "unit",
                "unlimited-unit",
                "should not specify rate limit unit when unlimited",
                "remove `unit` or `unlimited`",
            ));
        }
        Quota::Unlimited
    } else {
        let lower = unit.to_ascii_lowercase();
        let Some((_, span)) = UNITS.iter().find(|(name, _)| *name == lower) else {
            return Err(fields.error(
                "unit",
                "bad-unit",
                format!("invalid rate limit unit '{unit}'"),
                "write second, minute, hour, day, week, month or year",
            ));
        };
        let count = fields.number("requests_per_unit", u64::from(u32::MAX))?;
        Quota::Per(count.unwrap_or(0), span)
    };
    if let Some(algorithm) = fields.text("algorithm")?
        && !algorithm.is_empty()
        && !algorithm.eq_ignore_ascii_case("fixed_window")
    {
        node.report.warn(
            fields.place_of("algorithm"),
            "algorithm",
            format!("{} becomes a fixed window", quoted(&algorithm)),
            "choose another algorithm in the policy, such as token-bucket or sliding-window",
        );
    }
    Ok(ReadLimit {
        read: RateLimit {
            name,
            replaces,
            quota,
        },
        sleeps: fields.boolean("sleep_on_throttle")?,
    })
}

/// The items of a list, if there is one.
pub(super) fn listed<'n>(node: Option<Item<'n>>, what: &str) -> Read<Vec<Item<'n>>> {
    let Some(node) = node else {
        return Ok(Vec::new());
    };
    match node.value {
        Value::Nothing => Ok(Vec::new()),
        Value::List(_) => Ok(node.one_or_many()),
        Value::Bad => Err(Reported),
        _ => {
            let message = format!("{what} is a list, but this is {}", node.kind());
            Err(node.error("not-a-list", message, "begin every item with `- `"))
        }
    }
}

/// The fields of a map of another tool's file. A field without a value is as if it was not there.
pub(super) struct Known<'n> {
    node: Item<'n>,
    entries: Vec<(&'n str, Place, Item<'n>)>,
}

/// Opens a map. An unknown field is an error, with the message of the reference service.
pub(super) fn known<'n>(node: Item<'n>, names: &[&str]) -> Read<Known<'n>> {
    let mut entries = Vec::new();
    let mut done = Ok(());
    for (name, place, value) in node.entries("a section")? {
        if names.contains(&name) {
            entries.push((name, place, value));
            continue;
        }
        let names = names.iter().copied();
        let hint = did_you_mean(name, names.clone())
            .unwrap_or_else(|| format!("the fields are {}", list(names)));
        let message = format!("config error, unknown key '{name}'");
        done = Err(node.report.error(place, "unknown-key", message, hint));
    }
    done.map(|()| Known { node, entries })
}

impl<'n> Known<'n> {
    pub(super) fn get(&self, name: &str) -> Option<Item<'n>> {
        let found = self.entries.iter().find(|(n, ..)| *n == name);
        found
            .map(|(.., node)| *node)
            .filter(|node| !matches!(node.value, Value::Nothing))
    }

    /// Where the map begins.
    pub(super) fn place(&self) -> Place {
        self.node.place
    }

    /// Where the name of a field stands; the map if the field is not there.
    pub(super) fn place_of(&self, name: &str) -> Place {
        let found = self.entries.iter().find(|(n, ..)| *n == name);
        found.map_or(self.node.place, |(_, place, _)| *place)
    }

    /// Reports an error at a field.
    pub(super) fn error(
        &self,
        field: &str,
        code: &'static str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Reported {
        let place = self.place_of(field);
        self.node.report.error(place, code, message, hint)
    }

    pub(super) fn text(&self, name: &str) -> Read<Option<String>> {
        let found = self.get(name).map(text);
        Ok(found.transpose()?.map(str::to_owned))
    }

    pub(super) fn boolean(&self, name: &str) -> Read<bool> {
        let found = self.get(name).map(boolean);
        Ok(found.transpose()?.unwrap_or(false))
    }

    pub(super) fn number(&self, name: &str, max: u64) -> Read<Option<u64>> {
        let number = |node| integer(node, 0..=max, "10");
        self.get(name).map(number).transpose()
    }
}
