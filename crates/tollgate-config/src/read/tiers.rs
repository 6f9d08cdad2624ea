//! Classes of clients: `tiers`.

use super::fields::{Fields, map, present};
use super::names::TIER;
use super::scalar::{decimal, text, whole};
use super::scale::Times;
use crate::problem::Place;
use crate::report::{Read, Report, quoted};
use crate::yaml::Node;

/// A tier of the file.
#[derive(Clone, Debug)]
pub(crate) struct Tier {
    pub(crate) name: String,
    pub(crate) times: Times,
    pub(crate) weight: u32,
    /// Where `times` stands, or else the name.
    pub(crate) place: Place,
}

const WEIGHT_MAX: u64 = 1_000_000;
const TIMES_MAX: u64 = 1_000_000;
const DECIMALS_MAX: u32 = 6;
/// Tiers in one file: each of them is a quota of every limit that names a tier.
const TIERS_MAX: usize = 64;

/// Reads the tiers.
pub(crate) fn tiers(node: &Node, report: &Report<'_>) -> Read<Vec<Tier>> {
    let mut all = Vec::new();
    let mut done = Ok(());
    for (name, place, value) in map(node, "`tiers`", &[], report)? {
        match present(name, place, value, report).and_then(|n| tier(name, place, n, report)) {
            Ok(tier) => all.push(tier),
            Err(reported) => done = Err(reported),
        }
    }
    if all.len() > TIERS_MAX {
        return Err(report.error(
            node.place,
            "too-many",
            format!("there are more than {TIERS_MAX} tiers"),
            "use `overrides` for single keys",
        ));
    }
    done.map(|()| all)
}

fn tier(name: &str, place: Place, node: &Node, report: &Report<'_>) -> Read<Tier> {
    let named = super::limit::check_name(name, place, "a tier", report);
    let fields = Fields::open(node, "a tier", TIER, report)?;
    let found = fields.read("times", |n| times(n, report));
    let weight = fields.read("weight", |n| whole(n, 1, WEIGHT_MAX, "4", report));
    named?;
    Ok(Tier {
        name: name.to_owned(),
        times: found?.unwrap_or(Times::ONE),
        weight: u32::try_from(weight?.unwrap_or(1)).unwrap_or(u32::MAX),
        place: fields.get("times").map_or(place, |n| n.place),
    })
}

/// `10` or `2.5`.
fn times(node: &Node, report: &Report<'_>) -> Read<Times> {
    let text = text(node, report)?;
    let wrong = |message: String| {
        report.error(
            node.place,
            "bad-number",
            message,
            format!(
                "write how many times as much the tier is allowed, such as `10` or `2.5`; at most {TIMES_MAX}, with {DECIMALS_MAX} decimals"
            ),
        )
    };
    let (units, decimals) =
        decimal(text).ok_or_else(|| wrong(format!("{} is not a number", quoted(text))))?;
    if decimals > DECIMALS_MAX {
        return Err(wrong(format!("{} is too fine", quoted(text))));
    }
    if units / 10_u64.pow(decimals) > TIMES_MAX {
        return Err(wrong(format!("{} is too large", quoted(text))));
    }
    Times::decimal(units, decimals)
        .ok_or_else(|| wrong("0 times as much would refuse the whole tier".into()))
}
