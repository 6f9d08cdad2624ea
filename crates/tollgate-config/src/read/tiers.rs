//! `tiers`: classes of clients.

use super::fields::{Fields, each};
use super::item::Item;
use super::limit::check_name;
use super::scalar::{decimal, integer, text};
use super::scale::Multiplier;
use crate::problem::Place;
use crate::report::{Read, quoted};
use crate::shape;

/// A tier of the file.
#[derive(Clone, Debug)]
pub(crate) struct Tier {
    pub(crate) name: String,
    pub(crate) times: Multiplier,
    pub(crate) weight: u32,
    /// Where `times` stands, or else the name.
    pub(crate) place: Place,
}

const WEIGHT_MAX: u64 = 1_000_000;
const TIMES_MAX: u64 = 1_000_000;
const DECIMALS_MAX: u32 = 6;
/// Tiers in one file: each is a quota of every limit with a `tier`.
const TIERS_MAX: usize = 64;

/// Reads the tiers.
pub(crate) fn tiers(node: Item<'_>) -> Read<Vec<Tier>> {
    let all = each(node.entries("`tiers`")?, |(name, place, value)| {
        tier(name, place, value.present(name, place)?)
    });
    if all.as_ref().is_ok_and(|all| all.len() > TIERS_MAX) {
        return Err(node.error(
            "too-many",
            format!("there are more than {TIERS_MAX} tiers"),
            "use `overrides` for single keys",
        ));
    }
    all
}

fn tier(name: &str, place: Place, node: Item<'_>) -> Read<Tier> {
    let checked = check_name(name, place, "tier", node.report);
    let fields = Fields::open(node, "a tier", shape::Tier::FIELDS)?;
    let times = fields.read("times", times);
    let weight = fields.read("weight", |n| integer(n, 1..=WEIGHT_MAX, "4"));
    checked?;
    Ok(Tier {
        name: name.to_owned(),
        times: times?.unwrap_or(Multiplier::ONE),
        weight: weight?.unwrap_or(1),
        place: fields.get("times").map_or(place, |n| n.place),
    })
}

/// `10` or `2.5`.
fn times(node: Item<'_>) -> Read<Multiplier> {
    let text = text(node)?;
    let message = match decimal(text) {
        None => format!("{} is not a number", quoted(text)),
        Some((_, decimals)) if decimals > DECIMALS_MAX => {
            format!("{} has too many decimals", quoted(text))
        }
        Some((units, decimals)) if units / 10_u64.pow(decimals) > TIMES_MAX => {
            format!("{} is too large", quoted(text))
        }
        Some((units, decimals)) => match Multiplier::from_decimal(units, decimals) {
            Some(times) => return Ok(times),
            None => "0 times a limit would refuse the whole tier".to_owned(),
        },
    };
    let hint = format!(
        "write a number such as `10` or `2.5`, at most {TIMES_MAX}, with at most {DECIMALS_MAX} decimals"
    );
    Err(node.error("bad-number", message, hint))
}
