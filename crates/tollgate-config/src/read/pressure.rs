//! `pressure`: when limits shrink under load, and how far.
//!
//! All fields are optional: without a signal, limits shrink when an operator requests it.

use std::sync::Arc;

use tollgate::{Scale, Span};
use tollgate_policy::PressureRule;

use super::fields::{FieldSpans, Fields, each};
use super::item::Item;
use super::scalar::{percentage, span_within};
use super::tiers::Tier;
use crate::report::{Read, Reported, either, quoted};
use crate::shape;
use crate::suggest::did_you_mean;

const LATENCY_MIN: Span = Span::from_millis(1);
const LATENCY_MAX: Span = Span::from_secs(3600);
/// 100 % in ten-thousandths.
const ALL: u32 = 10_000;

/// Hints for names that other tools use.
fn hint(name: &str) -> Option<String> {
    let hint = match name {
        "error_rate" | "failures" => "did you mean `errors`?",
        "load" | "processor" => "did you mean `cpu`?",
        "min" | "least" => "did you mean `floor`?",
        "tiers" => "did you mean `floors`?",
        "p99" | "p95" | "response_time" => "`latency` is the mean latency of responses",
        _ => return None,
    };
    Some(hint.to_owned())
}

/// Reads the section. `tiers` is none if there is an error in them.
pub(super) fn pressure(node: Item<'_>, tiers: Option<&[Tier]>) -> Read<(PressureRule, FieldSpans)> {
    let fields = Fields::open_with(node, "`pressure`", shape::Pressure::FIELDS, hint)?;
    let latency = fields.read("latency", |n| {
        span_within(n, LATENCY_MIN..=LATENCY_MAX, "500ms")
    });
    let errors = fields.read("errors", |n| threshold(n, "10%"));
    let cpu = fields.read("cpu", |n| threshold(n, "90%"));
    let floor = fields.read("floor", floor);
    let floors = fields.read("floors", |n| floors(n, tiers));
    let rule = PressureRule {
        latency: latency?,
        errors: errors?,
        cpu: cpu?,
        floor: floor?.unwrap_or(PressureRule::default().floor),
        floors: floors?.unwrap_or_default(),
    };
    Ok((rule, fields.spans()))
}

/// A percentage that can be exceeded, but not always is.
fn threshold(node: Item<'_>, sample: &str) -> Read<u32> {
    let message = match percentage(node)? {
        0 => "above `0%` limits would always shrink",
        ALL => "`100%` is never exceeded, so limits would never shrink",
        share => return Ok(share),
    };
    let hint = format!("write a percentage between `0%` and `100%`, such as `{sample}`");
    Err(node.error("bad-share", message, hint))
}

/// The smallest part of a limit that is kept.
fn floor(node: Item<'_>) -> Read<Scale> {
    match percentage(node)? {
        0 => Err(node.error(
            "bad-share",
            "a floor of 0% would refuse all requests under pressure",
            "write at least `0.01%`; `10%` is usual",
        )),
        share => Ok(Scale::from_share(share)),
    }
}

/// The floors of single tiers.
fn floors(node: Item<'_>, tiers: Option<&[Tier]>) -> Read<Vec<(Arc<str>, Scale)>> {
    each(node.entries("`floors`")?, |(name, place, value)| {
        if let Some(tiers) = tiers
            && !tiers.iter().any(|tier| tier.name == name)
        {
            let names = || tiers.iter().map(|tier| tier.name.as_str());
            let hint = match did_you_mean(name, names()) {
                Some(hint) => hint,
                None if tiers.is_empty() => {
                    "add `tiers: { free: {}, pro: { times: 10 } }` at the top, or remove `floors`"
                        .to_owned()
                }
                None => format!("write {}", either(names())),
            };
            let message = format!("{} is not a tier of this file", quoted(name));
            node.report.error(place, "unknown-tier", message, hint);
            value.present(name, place).and_then(floor)?;
            return Err(Reported);
        }
        Ok((Arc::from(name), floor(value.present(name, place)?)?))
    })
}
