//! `cost`: how many units a request takes.

use tollgate_policy::path::PathRules;
use tollgate_policy::pattern::PathPattern;
use tollgate_policy::{CostRule, Source};

use super::fields::{Fields, each};
use super::item::Item;
use super::key::source;
use super::matching::{methods_of, path_text};
use super::scalar::integer;
use crate::problem::Place;
use crate::report::{Read, Report, Reported, quoted};
use crate::shape;
use crate::yaml::Value;

/// The maximum cost of one request.
const COST_MAX: u64 = u32::MAX as u64;
const NO_MAX: &str = "a cost that the request sets needs a maximum";

/// Reads a cost: a number, a map of routes, or where the request sets it.
pub(crate) fn cost(node: Item<'_>, v6: u8, paths: PathRules) -> Read<CostRule> {
    match &node.value {
        Value::Map(_) if node.field("from").is_some() => from(node, v6),
        Value::Map(_) => routes(node, paths),
        Value::Scalar { text, .. } if text.contains('.') && !starts_with_digit(text) => {
            let hint = format!("write `cost: {{ from: {text}, default: 1, max: 100 }}`");
            Err(node.error("cost-without-max", NO_MAX, hint))
        }
        _ => units(node).map(CostRule::Constant),
    }
}

fn starts_with_digit(text: &str) -> bool {
    text.trim_start_matches(['-', '+', '.'])
        .starts_with(|c: char| c.is_ascii_digit())
}

fn units(node: Item<'_>) -> Read<u64> {
    integer(node, 1..=COST_MAX, "1")
}

fn from(node: Item<'_>, v6: u8) -> Read<CostRule> {
    let fields = Fields::open(node, "`cost`", shape::CostFrom::FIELDS)?;
    let source = fields.read("from", |n| match source(n, v6)? {
        Source::Address { .. } => Err(n.error(
            "bad-source",
            "an address is not a cost",
            "write which part of a request holds the number, such as `header.x-cost`",
        )),
        source => Ok(source),
    });
    let number = |name: &str| fields.read(name, units);
    let (default, min, max) = (number("default"), number("min"), number("max"));
    let Some(max) = max? else {
        let hint =
            "add `max: 100`: the maximum, and the cost of a request whose value is not a number";
        return Err(fields.error("cost-without-max", NO_MAX, hint));
    };
    let (default, min) = (default?.unwrap_or(1), min?.unwrap_or(1));
    let wrong = |field: &str, message: String, hint: String| {
        let place = fields.at(if fields.get(field).is_some() {
            field
        } else {
            "max"
        });
        Err(fields.report.error(place, "bad-cost", message, hint))
    };
    if min > max {
        let message = format!("`min` {min} is above `max` {max}");
        return wrong("min", message, "swap them".into());
    }
    if !(min..=max).contains(&default) {
        let message = format!("`default` {default} is not between `min` {min} and `max` {max}");
        let hint = format!("write a default from {min} to {max}");
        return wrong("default", message, hint);
    }
    Ok(CostRule::From {
        source: source?.ok_or(Reported)?,
        default,
        least: min,
        most: max,
    })
}

fn routes(node: Item<'_>, paths: PathRules) -> Read<CostRule> {
    let mut default = 1;
    let routes = each(node.entries("`cost`")?, |(name, place, value)| {
        let cost = value.present(name, place).and_then(units);
        if name == "default" {
            default = cost?;
            return Ok(None);
        }
        let (methods, path) = route(name, place, paths, node.report)?;
        Ok(Some((methods, path, cost?)))
    });
    Ok(CostRule::Routes {
        routes: routes?.into_iter().flatten().collect(),
        default,
    })
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
