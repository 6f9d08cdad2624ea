//! `match` and `except`: conditions on requests.

use std::collections::HashSet;

use tollgate_policy::address::{Cidr, CidrSet};
use tollgate_policy::path::PathRules;
use tollgate_policy::pattern::{PathPattern, TextPattern};
use tollgate_policy::{Match, ValueTest};

use super::fields::{Fields, each};
use super::item::Item;
use super::key::is_token;
use super::scalar::text;
use crate::report::{Read, quoted};
use crate::shape;
use crate::suggest::suggest;
use crate::yaml::Value;

const METHODS: [&str; 9] = [
    "get", "head", "post", "put", "patch", "delete", "options", "connect", "trace",
];

/// Reads a `match`.
pub(crate) fn matches(node: Item<'_>, paths: PathRules) -> Read<Match> {
    let fields = Fields::open(node, "`match`", shape::Match::FIELDS)?;
    let methods = fields.read_each("method", method);
    let found_paths = fields.read_each("path", |n| path(n, paths));
    let hosts = fields.read_each("host", host);
    let headers = fields.read("header", |n| tests(n, "header"));
    let query = fields.read("query", |n| tests(n, "query"));
    let addresses = fields.read_each("ip", network);
    let domain = fields.read("domain", pattern);
    let descriptor = fields.read("descriptor", |n| tests(n, "descriptor"));
    let entries = fields.read_each("entries", entry);
    Ok(Match {
        methods: methods?,
        paths: found_paths?,
        hosts: hosts?,
        headers: headers?.unwrap_or_default(),
        query: query?.unwrap_or_default(),
        addresses: CidrSet::new(addresses?),
        domain: domain?,
        descriptor: descriptor?.unwrap_or_default(),
        entries: entries?,
    })
}

fn pattern(node: Item<'_>) -> Read<TextPattern> {
    text(node).map(TextPattern::new)
}

/// Reads one item of `entries`: a key, and the test of its value.
fn entry(node: Item<'_>) -> Read<(String, ValueTest)> {
    let mut tests = tests(node, "entries")?;
    match (tests.pop(), tests.is_empty()) {
        (Some((_, ValueTest::Absent)), true) => Err(node.error(
            "bad-entries",
            "`entries` lists the entries that a descriptor has, so none of them can be `false`",
            "write its value, or `true` for any; remove the entry if it must be absent",
        )),
        (Some(entry), true) => Ok(entry),
        _ => Err(node.error(
            "bad-entries",
            "each item of `entries` is one entry of a descriptor",
            "list all of them in their order: `[{ generic_key: slow }, { remote_address: true }]`",
        )),
    }
}

/// A method, in upper case.
fn method(node: Item<'_>) -> Read<String> {
    let text = text(node)?;
    if !is_token(text) {
        return Err(node.error(
            "bad-method",
            format!("{} is not a method", quoted(text)),
            "write one such as `GET`, or a list: `[GET, POST]`",
        ));
    }
    let lower = text.to_ascii_lowercase();
    if !METHODS.contains(&lower.as_str())
        && let Some(near) = suggest(&lower, METHODS)
    {
        node.warn(
            "unknown-method",
            format!("{} is not a standard method", quoted(text)),
            format!("did you mean `{}`?", near.to_ascii_uppercase()),
        );
    }
    Ok(text.to_ascii_uppercase())
}

/// `GET` or `GET,POST`, in upper case.
pub(crate) fn methods_of(text: &str) -> Option<Vec<String>> {
    let all = text.split(',').map(str::trim);
    all.map(|word| is_token(word).then(|| word.to_ascii_uppercase()))
        .collect()
}

/// A pattern for paths.
pub(crate) fn path(node: Item<'_>, rules: PathRules) -> Read<PathPattern> {
    path_text(text(node)?, rules).map_err(|(message, hint)| node.error("bad-path", message, hint))
}

/// A pattern for paths that are normalised by these rules.
pub(crate) fn path_text(text: &str, rules: PathRules) -> Result<PathPattern, (String, String)> {
    let written = PathPattern::new(text).map_err(|e| (e.to_string(), e.hint()))?;
    Ok(written.with_rules(rules))
}

fn host(node: Item<'_>) -> Read<TextPattern> {
    let text = text(node)?;
    let wrong =
        |hint: String| node.error("bad-host", format!("{} is not a host", quoted(text)), hint);
    if let Some((_, rest)) = text.split_once("://") {
        return Err(wrong(format!(
            "write the host alone: `{}`",
            rest.split(['/', ':']).next().unwrap_or_default()
        )));
    }
    if let Some((name, port)) = text.rsplit_once(':')
        && !name.contains(':')
        && port.chars().all(|c| c.is_ascii_digit() || c == '*')
    {
        return Err(wrong(format!("remove the port: `{name}`")));
    }
    if text.is_empty() || text.contains(['/', ' ', '@']) {
        return Err(wrong(
            "write a name such as `api.example.com` or \"*.example.com\"".into(),
        ));
    }
    Ok(TextPattern::new(&text.to_lowercase()))
}

/// A network, or a single address.
pub(crate) fn network(node: Item<'_>) -> Read<Cidr> {
    let text = text(node)?;
    text.parse::<Cidr>()
        .map_err(|e| node.error("bad-network", e.to_string(), e.hint()))
}

/// Reads a map of names and the tests of their values.
fn tests(node: Item<'_>, what: &str) -> Read<Vec<(String, ValueTest)>> {
    let is_header = what == "header";
    let mut seen = HashSet::new();
    each(
        node.entries(&format!("`{what}`"))?,
        |(name, place, value)| {
            let wrong = |code, message: String, hint: &str| {
                Err(node.report.error(place, code, message, hint.to_owned()))
            };
            if is_header && !is_token(name) || name.is_empty() {
                let message = format!("{} is not the name of a {what}", quoted(name));
                return wrong("bad-name", message, "write letters, digits and hyphens");
            }
            let name = match is_header {
                true => name.to_ascii_lowercase(),
                false => name.to_owned(),
            };
            if !seen.insert(name.clone()) {
                let message = format!("{} is given twice", quoted(&name));
                let hint = "header names ignore case; keep one, with a list of patterns if needed";
                return wrong("duplicate-key", message, hint);
            }
            let test = test(value.present(&name, place)?)?;
            Ok((name, test))
        },
    )
}

fn test(node: Item<'_>) -> Read<ValueTest> {
    match &node.value {
        Value::Scalar { text, plain: true } if text == "true" => Ok(ValueTest::Present),
        Value::Scalar { text, plain: true } if text == "false" => Ok(ValueTest::Absent),
        Value::List(items) if items.is_empty() => Err(node.error(
            "empty-list",
            "an empty list matches nothing",
            "write a pattern, `true` for any value, or `false` if it must be absent",
        )),
        _ => each(node.one_or_many(), pattern).map(ValueTest::Like),
    }
}
