//! `tiers`: classes of clients.

use std::collections::HashMap;
use std::sync::Arc;

use tollgate_policy::{KeyPart, Source, TierMembers};

use super::fields::{Fields, each};
use super::item::Item;
use super::key::source;
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
    /// The keys that belong to it.
    pub(crate) keys: Vec<String>,
    /// Where `times` stands, or else the name.
    pub(crate) place: Place,
}

const WEIGHT_MAX: u64 = 1_000_000;
const TIMES_MAX: u64 = 1_000_000;
const DECIMALS_MAX: u32 = 6;
/// Tiers in one file: each is a quota of every limit with a `tier`.
const TIERS_MAX: usize = 64;

/// Keys of all tiers together: larger maps belong to the service that authenticates clients.
const KEYS_MAX: usize = 100_000;

/// Reads the tiers.
pub(crate) fn tiers(node: Item<'_>) -> Read<Vec<Tier>> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let all = each(node.entries("`tiers`")?, |(name, place, value)| {
        tier(name, place, value.present(name, place)?, &mut seen)
    });
    if seen.len() > KEYS_MAX {
        return Err(node.error(
            "too-many",
            format!("the tiers have more than {KEYS_MAX} keys"),
            "let a proxy set a header with the tier, and write `tier: header.x-plan`",
        ));
    }
    if all.as_ref().is_ok_and(|all| all.len() > TIERS_MAX) {
        return Err(node.error(
            "too-many",
            format!("there are more than {TIERS_MAX} tiers"),
            "use `overrides` for single keys",
        ));
    }
    all
}

/// `seen` has the line of each key so far: a key belongs to one tier.
fn tier(name: &str, place: Place, node: Item<'_>, seen: &mut HashMap<String, usize>) -> Read<Tier> {
    let checked = check_name(name, place, "tier", node.report);
    let fields = Fields::open(node, "a tier", shape::Tier::FIELDS)?;
    let times = fields.read("times", times);
    let weight = fields.read("weight", |n| integer(n, 1..=WEIGHT_MAX, "4"));
    let keys = fields.read_each("keys", |n| {
        let key = text(n)?.trim().to_owned();
        match seen.insert(key.clone(), n.place.line) {
            _ if key.is_empty() => {
                Err(n.error("bad-key", "a blank key belongs to no tier", "remove it"))
            }
            Some(line) => Err(n.error(
                "duplicate-key",
                format!("{} belongs to a tier already", quoted(&key)),
                format!("keep one of the two; the other is in line {line}"),
            )),
            None => Ok(key),
        }
    });
    checked?;
    Ok(Tier {
        keys: keys?,
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

/// Where a limit or a queue finds the tier of a request.
pub(crate) struct TierFinder {
    pub(crate) source: Source,
    pub(crate) members: Option<Arc<TierMembers>>,
}

/// Reads where a request names its tier, or `key`: the tier that has the first part of `key` among its keys.
///
/// `all` is none if there is an error in the tiers, and so is `key` if there is one in it.
pub(crate) fn tier_finder(
    node: Item<'_>,
    what: &str,
    sample: &str,
    v6: u8,
    all: Option<&[Tier]>,
    key: Option<&[KeyPart]>,
) -> Read<TierFinder> {
    let is_by_key = text(node)? == "key";
    let bad_source = |message: String, hint: &str| Err(node.error("bad-source", message, hint));
    let found = match (is_by_key, key) {
        (false, _) => KeyPart {
            source: source(node, v6)?,
            trim: true,
            lowercase: false,
        },
        (true, None) => return Err(crate::report::Reported),
        (true, Some(key)) => match key.first() {
            Some(part) => part.clone(),
            None => {
                let message = format!("{what} has no key to find a tier by");
                return bad_source(message, "add a key such as `header.x-api-key`");
            }
        },
    };
    if let Source::Address { .. } = found.source {
        return bad_source(
            "an address is not the name of a tier".to_owned(),
            "write which part of a request names the tier, such as `header.x-plan`",
        );
    }
    if all.is_some_and(<[Tier]>::is_empty) {
        return Err(node.error(
            "no-tiers",
            format!("{what} names a tier, but the file has none"),
            format!(
                "add `tiers: {{ free: {{}}, pro: {{ {sample} }} }}` at the top, or remove `tier`"
            ),
        ));
    }
    let members = is_by_key.then(|| members(all.unwrap_or_default(), found.lowercase));
    if members
        .as_ref()
        .is_some_and(|members| members.tiers.is_empty())
        && all.is_some()
    {
        return Err(node.error(
            "no-tiers",
            "no tier has `keys`",
            format!("list them: `tiers: {{ pro: {{ {sample}, keys: [acme, globex] }} }}`"),
        ));
    }
    Ok(TierFinder {
        source: found.source,
        members: members.map(Arc::new),
    })
}

/// The keys of all tiers.
fn members(all: &[Tier], lowercase: bool) -> TierMembers {
    let fold = |key: &String| match lowercase {
        true => key.to_lowercase(),
        false => key.clone(),
    };
    let keys = all.iter().enumerate();
    let keys = keys.flat_map(|(at, tier)| tier.keys.iter().map(move |key| (fold(key), at)));
    TierMembers {
        lowercase,
        tiers: keys.collect(),
    }
}
