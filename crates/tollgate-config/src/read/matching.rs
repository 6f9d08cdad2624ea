//! Which requests a limit is for: `match` and `except`.

use tollgate_policy::address::{Cidr, CidrSet};
use tollgate_policy::path::PathRules;
use tollgate_policy::pattern::{PathPattern, TextPattern};
use tollgate_policy::{Match, ValueTest};

use super::fields::{Fields, each, map, one_or_many, present};
use super::key::is_token;
use super::names::MATCH;
use super::scalar::text;
use crate::near::nearest;
use crate::report::{Read, Report, quoted};
use crate::yaml::{Node, Value};

const METHODS: &[&str] = &[
    "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE",
];

/// Reads a `match`.
pub(crate) fn matches(node: &Node, paths: PathRules, report: &Report<'_>) -> Read<Match> {
    let fields = Fields::open(node, "`match`", MATCH, report)?;
    let many = |name: &str| fields.get(name).map(one_or_many).unwrap_or_default();
    let methods = each(many("method"), |n| method(n, report));
    let found_paths = each(many("path"), |n| path(n, paths, report));
    let hosts = each(many("host"), |n| host(n, report));
    let headers = fields.read("header", |n| tests(n, "header", report));
    let query = fields.read("query", |n| tests(n, "query", report));
    let addresses = each(many("ip"), |n| network(n, report));
    let domain = fields.read("domain", |n| text(n, report).map(TextPattern::new));
    let descriptor = fields.read("descriptor", |n| tests(n, "descriptor", report));
    let entries = each(many("entries"), |n| entry(n, report));
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

/// One of all entries of a descriptor: its key, and what must hold for its value.
fn entry(node: &Node, report: &Report<'_>) -> Read<(String, ValueTest)> {
    let mut tests = tests(node, "entries", report)?;
    match (tests.pop(), tests.is_empty()) {
        (Some((_, ValueTest::Absent)), true) => Err(report.error(
            node.place,
            "bad-entries",
            "an entry that is listed is there",
            "write its value, or `true` for any; leave the entry out if it must not be there",
        )),
        (Some(entry), true) => Ok(entry),
        _ => Err(report.error(
            node.place,
            "bad-entries",
            "each item of `entries` is one entry of a descriptor",
            "list all of them in their order: `[{ generic_key: slow }, { remote_address: true }]`",
        )),
    }
}

/// Reads an `except`: a match, or a list of them.
pub(crate) fn except(node: &Node, paths: PathRules, report: &Report<'_>) -> Read<Vec<Match>> {
    each(one_or_many(node), |n| matches(n, paths, report))
}

/// A method, in upper case.
fn method(node: &Node, report: &Report<'_>) -> Read<String> {
    let text = text(node, report)?;
    if !is_token(text) {
        return Err(report.error(
            node.place,
            "bad-method",
            format!("{} is not a method", quoted(text)),
            "write one such as `GET`, or a list: `[GET, POST]`",
        ));
    }
    let method = text.to_ascii_uppercase();
    if let Some(near) = nearest_method(&method) {
        report.warn(
            node.place,
            "unknown-method",
            format!("{} is not a usual method", quoted(text)),
            format!("did you mean `{near}`?"),
        );
    }
    Ok(method)
}

/// `GET` or `GET,POST`, in upper case.
pub(crate) fn methods_of(text: &str) -> Option<Vec<String>> {
    let all = text.split(',').map(str::trim);
    all.map(|word| is_token(word).then(|| word.to_ascii_uppercase()))
        .collect()
}

/// The method that another one was probably meant to be.
fn nearest_method(method: &str) -> Option<&'static str> {
    let lower: Vec<String> = METHODS.iter().map(|m| m.to_lowercase()).collect();
    if METHODS.contains(&method) {
        return None;
    }
    let found = nearest(method, lower.iter().map(String::as_str))?;
    METHODS
        .iter()
        .copied()
        .find(|m| m.eq_ignore_ascii_case(found))
}

/// A pattern for paths.
pub(crate) fn path(node: &Node, rules: PathRules, report: &Report<'_>) -> Read<PathPattern> {
    path_text(text(node, report)?, rules)
        .map_err(|(message, hint)| report.error(node.place, "bad-path", message, hint))
}

/// A pattern for paths that are normalised by these rules.
pub(crate) fn path_text(text: &str, rules: PathRules) -> Result<PathPattern, (String, String)> {
    let written = PathPattern::new(text).map_err(|e| (e.to_string(), e.hint()))?;
    Ok(written.under(rules))
}

fn host(node: &Node, report: &Report<'_>) -> Read<TextPattern> {
    let text = text(node, report)?;
    let wrong = |hint: String| {
        report.error(
            node.place,
            "bad-host",
            format!("{} is not a host", quoted(text)),
            hint,
        )
    };
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
        return Err(wrong(format!("leave the port out: `{name}`")));
    }
    if text.is_empty() || text.contains(['/', ' ', '@']) {
        return Err(wrong(
            "write a name such as `api.example.com` or \"*.example.com\"".into(),
        ));
    }
    Ok(TextPattern::new(&text.to_lowercase()))
}

/// A network, or a single address.
pub(crate) fn network(node: &Node, report: &Report<'_>) -> Read<Cidr> {
    let text = text(node, report)?;
    text.parse::<Cidr>()
        .map_err(|e| report.error(node.place, "bad-network", e.to_string(), e.hint()))
}

/// Names and what must hold for their values.
fn tests(node: &Node, what: &str, report: &Report<'_>) -> Read<Vec<(String, ValueTest)>> {
    let mut all = Vec::new();
    let mut done = Ok(());
    for (name, place, value) in map(node, &format!("`{what}`"), &[], report)? {
        let header = what == "header";
        if header && !is_token(name) || name.is_empty() {
            done = Err(report.error(
                place,
                "bad-name",
                format!("{} is not the name of a {what}", quoted(name)),
                "write letters, digits and hyphens",
            ));
            continue;
        }
        let name = if header {
            name.to_ascii_lowercase()
        } else {
            name.into()
        };
        if all.iter().any(|(other, _)| *other == name) {
            done = Err(report.error(
                place,
                "duplicate-key",
                format!("{} is given twice", quoted(&name)),
                "names of headers are the same in any case; keep one, with a list of patterns if need be",
            ));
            continue;
        }
        match present(&name, place, value, report).and_then(|n| test(n, report)) {
            Ok(test) => all.push((name, test)),
            Err(reported) => done = Err(reported),
        }
    }
    done.map(|()| all)
}

fn test(node: &Node, report: &Report<'_>) -> Read<ValueTest> {
    match &node.value {
        Value::Scalar { text, plain: true } if text == "true" => Ok(ValueTest::Present),
        Value::Scalar { text, plain: true } if text == "false" => Ok(ValueTest::Absent),
        Value::List(items) if items.is_empty() => Err(report.error(
            node.place,
            "empty-list",
            "an empty list matches nothing",
            "write a pattern, `true` for any value, or `false` if it must not be there",
        )),
        _ => {
            each(one_or_many(node), |n| text(n, report).map(TextPattern::new)).map(ValueTest::Like)
        }
    }
}
