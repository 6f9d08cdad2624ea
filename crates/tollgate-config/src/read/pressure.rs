//! `pressure`: when everybody is to have less for a while, and how far limits give way.
//!
//! Nothing in it is needed: without a signal, limits shrink when an operator says so.

use std::sync::Arc;

use tollgate::{Scale, Span};
use tollgate_policy::PressureRule;

use super::fields::{Fields, map, present};
use super::limit::Spots;
use super::names::PRESSURE;
use super::scalar::{share, span_within};
use super::tiers::Tier;
use crate::near::nearest;
use crate::report::{Read, Report, either, quoted};
use crate::yaml::Node;

const LATENCY_LEAST: Span = Span::from_millis(1);
const LATENCY_MOST: Span = Span::from_secs(3600);
/// Ten-thousandths: all of it.
const ALL: u32 = 10_000;

/// What is known about fields that are not there.
fn hint(name: &str) -> Option<String> {
    let hint = match name {
        "error_rate" | "failures" => "did you mean `errors`?",
        "load" | "processor" => "did you mean `cpu`?",
        "min" | "least" => "did you mean `floor`?",
        "tiers" => "did you mean `floors`?",
        "p99" | "p95" | "response_time" => "`latency` is that of an answer on average",
        _ => return None,
    };
    Some(hint.to_owned())
}

/// Reads what counts as pressure. `tiers` is none if what is written about them is wrong.
pub(super) fn pressure(
    node: &Node,
    tiers: Option<&[Tier]>,
    report: &Report<'_>,
) -> Read<(PressureRule, Spots)> {
    let fields = Fields::open_with(node, "`pressure`", PRESSURE, report, hint)?;
    let latency = fields.read("latency", |n| {
        span_within(n, LATENCY_LEAST, LATENCY_MOST, "500ms", report)
    });
    let errors = fields.read("errors", |n| bound(n, "10%", report));
    let cpu = fields.read("cpu", |n| bound(n, "90%", report));
    let floor = fields.read("floor", |n| scale(n, report));
    let floors = fields.read("floors", |n| floors(n, tiers, report));
    let rule = PressureRule {
        latency: latency?,
        errors: errors?,
        cpu: cpu?,
        floor: floor?.unwrap_or(PressureRule::default().floor),
        floors: floors?.unwrap_or_default(),
    };
    Ok((rule, Spots::of(&fields)))
}

/// A share that can be exceeded, and is not always.
fn bound(node: &Node, sample: &str, report: &Report<'_>) -> Read<u32> {
    let why = match share(node, report)? {
        0 => "any of it at all would be pressure",
        ALL => "nothing is more than all, so this would never be pressure",
        share => return Ok(share),
    };
    Err(report.error(
        node.place,
        "bad-share",
        why,
        format!("write a share between `0%` and `100%`, such as `{sample}`"),
    ))
}

/// What is left of a limit at the least.
fn scale(node: &Node, report: &Report<'_>) -> Read<Scale> {
    let share = share(node, report)?;
    if share == 0 {
        return Err(report.error(
            node.place,
            "bad-share",
            "a floor of 0% would refuse everybody for as long as there is pressure",
            "write at least `0.01%`; `10%` is usual",
        ));
    }
    Ok(Scale::from_share(share))
}

/// What is left for each tier at the least.
fn floors(
    node: &Node,
    tiers: Option<&[Tier]>,
    report: &Report<'_>,
) -> Read<Vec<(Arc<str>, Scale)>> {
    let mut all = Vec::new();
    let mut done = Ok(());
    for (name, place, value) in map(node, "`floors`", &[], report)? {
        let known = match tiers {
            Some(tiers) if !tiers.iter().any(|tier| tier.name == name) => {
                let names = || tiers.iter().map(|tier| tier.name.as_str());
                let hint = match nearest(name, names()) {
                    _ if tiers.is_empty() => {
                        "add `tiers: { free: {}, pro: { times: 10 } }` at the top, or leave `floors` out".to_owned()
                    }
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("write {}", either(names())),
                };
                let message = format!("{} is not a tier of this file", quoted(name));
                Err(report.error(place, "unknown-tier", message, hint))
            }
            _ => Ok(()),
        };
        let floor = present(name, place, value, report).and_then(|n| scale(n, report));
        match (known, floor) {
            (Ok(()), Ok(floor)) => all.push((Arc::from(name), floor)),
            (Err(reported), _) | (_, Err(reported)) => done = Err(reported),
        }
    }
    done.map(|()| all)
}
