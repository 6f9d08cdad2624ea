//! What a request takes: `cost`.

use tollgate_policy::path::PathRules;
use tollgate_policy::pattern::PathPattern;
use tollgate_policy::{CostRule, Source};

use super::fields::{Fields, map, present};
use super::key::source;
use super::matching::{methods_of, path_text};
use super::names::COST;
use super::scalar::whole;
use crate::problem::Place;
use crate::report::{Read, Report, quoted};
use crate::yaml::{Node, Value};

/// The most that one request can take.
const COST_MAX: u64 = u32::MAX as u64;

/// Reads a cost: a number, a map of routes, or where the request says it.
pub(crate) fn cost(node: &Node, v6: u8, paths: PathRules, report: &Report<'_>) -> Read<CostRule> {
    match &node.value {
        Value::Map(entries) if entries.iter().any(|(key, _)| key.text == "from") => {
            from(node, v6, report)
        }
        Value::Map(_) => routes(node, paths, report),
        Value::Scalar { text, .. } if text.contains('.') && !starts_with_digit(text) => Err(report
            .error(
                node.place,
                "cost-without-max",
                "a cost that the request names needs a bound",
                format!("write `cost: {{ from: {text}, default: 1, max: 100 }}`"),
            )),
        _ => units(node, report).map(CostRule::Constant),
    }
}

fn starts_with_digit(text: &str) -> bool {
    text.trim_start_matches(['-', '+', '.'])
        .starts_with(|c: char| c.is_ascii_digit())
}

fn units(node: &Node, report: &Report<'_>) -> Read<u64> {
    whole(node, 1, COST_MAX, "1", report)
}

fn from(node: &Node, v6: u8, report: &Report<'_>) -> Read<CostRule> {
    let fields = Fields::open(node, "`cost`", COST, report)?;
    let source = fields.read("from", |n| source(n, v6, report));
    let number = |name: &str| fields.read(name, |n| Ok((units(n, report)?, n.place)));
    let (default, least, most) = (number("default"), number("min"), number("max"));
    if most == Ok(None) {
        return Err(report.error(
            fields.place,
            "cost-without-max",
            "a cost that the request names needs a bound",
            "add `max: 100`: what no request may exceed, and what one that says no number takes",
        ));
    }
    let (source, most) = (source?, most?);
    let default = default?.map_or(1, |(n, _)| n);
    let least = least?;
    let (Some(source), Some((most, most_at))) = (source, most) else {
        return Err(crate::report::Reported);
    };
    let (least, least_at) = least.unwrap_or((1, Place::FILE));
    if least > most {
        return Err(report.error(
            least_at,
            "bad-cost",
            format!("`min` {least} is above `max` {most}"),
            "swap them",
        ));
    }
    if !(least..=most).contains(&default) {
        let at = fields.get("default").map_or(most_at, |n| n.place);
        return Err(report.error(
            at,
            "bad-cost",
            format!("`default` {default} is not between `min` {least} and `max` {most}"),
            format!("write a default from {least} to {most}"),
        ));
    }
    if let Source::Address { .. } = source {
        return Err(report.error(
            fields.get("from").map_or(node.place, |n| n.place),
            "bad-source",
            "an address is not a cost",
            "write where a number stands, such as `header.x-cost`",
        ));
    }
    Ok(CostRule::From {
        source,
        default,
        least,
        most,
    })
}

fn routes(node: &Node, paths: PathRules, report: &Report<'_>) -> Read<CostRule> {
    let mut routes = Vec::new();
    let mut default = 1;
    let mut done = Ok(());
    for (name, place, value) in map(node, "`cost`", COST, report)? {
        let cost = present(name, place, value, report).and_then(|n| units(n, report));
        if name == "default" {
            match cost {
                Ok(cost) => default = cost,
                Err(reported) => done = Err(reported),
            }
            continue;
        }
        match (route(name, place, paths, report), cost) {
            (Ok((methods, path)), Ok(cost)) => routes.push((methods, path, cost)),
            (Err(reported), _) | (_, Err(reported)) => done = Err(reported),
        }
    }
    done.map(|()| CostRule::Routes { routes, default })
}

/// `/x/**`, `POST /x` or `GET,POST /x`.
fn route(
    text: &str,
    place: Place,
    paths: PathRules,
    report: &Report<'_>,
) -> Read<(Vec<String>, PathPattern)> {
    let wrong = |message: String, hint: String| report.error(place, "bad-route", message, hint);
    let (methods, path) = match text.trim().split_once(char::is_whitespace) {
        Some((methods, path)) => (Some(methods), path.trim()),
        None => (None, text.trim()),
    };
    if methods.is_none() && !path.starts_with('/') {
        return Err(wrong(
            format!("{} is neither a route nor a field of `cost`", quoted(text)),
            "write \"POST /export/pdf\", \"/x/**\" or `default` for everything else".into(),
        ));
    }
    let methods = match methods {
        Some(methods) => methods_of(methods).ok_or_else(|| {
            wrong(
                format!("{} is not a method", quoted(methods)),
                "write \"POST /export/pdf\" or \"GET,POST /export/pdf\"".into(),
            )
        })?,
        None => Vec::new(),
    };
    let path = path_text(path, paths).map_err(|(message, hint)| wrong(message, hint))?;
    Ok((methods, path))
}
