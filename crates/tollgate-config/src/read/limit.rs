//! One limit.

use std::sync::Arc;

use tollgate::{Algorithm, Moment};
use tollgate_policy::path::PathRules;
use tollgate_policy::{
    CostRule, FULLY_ENFORCED, LimitRule, Match, MissingKey, Mode, OnStoreError, Quota, Sharing,
    Source, TierQuota, Tiers, WhenOver,
};

use super::fields::{Fields, each, one_or_many};
use super::key::{key, source};
use super::matching::{except, matches};
use super::names::{LIMIT, NOT_OF_DEFAULT, QUOTA};
use super::overrides::overrides;
use super::quota::Written;
use super::scalar::{choice, prose, share, text};
use super::scale::scaled;
use super::sharing::{shared, sharing};
use super::store_error::on_store_error;
use super::tiers::Tier;
use super::when::moment;
use crate::problem::Place;
use crate::report::{Read, Report, quoted};
use crate::yaml::{Node, Value};

/// Where the fields of a limit stand, for what is said about it later.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spots {
    whole: Place,
    values: Vec<(String, Place, Place)>,
}

impl Spots {
    /// Where these fields stand.
    pub(crate) fn of(fields: &Fields<'_>) -> Spots {
        let values = fields.places();
        Spots {
            whole: fields.place,
            values: values
                .map(|(n, name, value)| (n.into(), name, value))
                .collect(),
        }
    }

    /// No fields, only a place for all of it.
    pub(crate) fn whole(place: Place) -> Spots {
        Spots {
            whole: place,
            values: Vec::new(),
        }
    }

    /// Where the value of a field stands, or the whole if it is not there.
    pub(crate) fn at(&self, field: &str) -> Place {
        let found = self.values.iter().find(|(name, ..)| name == field);
        found.map_or(self.whole, |(_, _, value)| *value)
    }

    /// Is the field there?
    pub(crate) fn has(&self, field: &str) -> bool {
        self.values.iter().any(|(name, ..)| name == field)
    }

    /// Where the name of a field stands, or the whole if it is not there.
    pub(crate) fn name_of(&self, field: &str) -> Place {
        let found = self.values.iter().find(|(name, ..)| name == field);
        found.map_or(self.whole, |(_, name, _)| *name)
    }
}

/// What the file says once for all limits.
pub(crate) struct Common<'f> {
    pub(crate) v6: u8,
    pub(crate) paths: PathRules,
    /// None if what is written about them is wrong.
    pub(crate) tiers: Option<&'f [Tier]>,
    /// What happens without the store to limits that do not say.
    pub(crate) on_store_error: Option<OnStoreError>,
    /// How nodes share limits that do not say.
    pub(crate) sharing: Option<Sharing>,
    /// Keys that a limit has room for at the most if it does not say.
    pub(crate) room: usize,
}

/// Keys that all limits of a file have room for together, as far as they do not say: 350 MB of them. One
/// limit has room for a million at the most.
const ROOM: usize = 16_000_000;
/// What a limit has room for in any case.
const ROOM_LEAST: usize = 10_000;

/// The room of each of so many limits.
pub(crate) fn room_of(limits: usize) -> usize {
    (ROOM / limits.max(1)).max(ROOM_LEAST)
}

/// The same rule, with room for at most so many keys under each of its quotas.
fn within(room: usize, mut rule: LimitRule) -> LimitRule {
    let shrink = |quota: &mut Quota| {
        let keys = quota.limit.max_keys().min(room);
        *quota = quota.clone().with_max_keys(keys);
    };
    shrink(&mut rule.quota);
    rule.candidate.iter_mut().for_each(shrink);
    let tiers = rule.tiers.iter_mut().flat_map(|tiers| &mut tiers.tiers);
    tiers.for_each(|tier| shrink(&mut tier.quota));
    rule
}

/// The name that an item of a list cannot do without; `what` it is, the `number`th.
///
/// Returns it, and what the item is called in messages.
pub(super) fn named(
    fields: &Fields<'_>,
    what: &str,
    number: usize,
    why: &str,
    report: &Report<'_>,
) -> (Read<Arc<str>>, String) {
    let found = fields.read("name", |node| {
        let text = text(node, report)?;
        let article = if what.starts_with('u') { "an" } else { "a" };
        check_name(text, node.place, &format!("{article} {what}"), report)?;
        Ok(Arc::<str>::from(text))
    });
    let called = match &found {
        Ok(Some(name)) => format!("{what} `{name}`"),
        _ => format!("{what} {number}"),
    };
    let found = found.and_then(|found| {
        found.ok_or_else(|| {
            let message = format!("{called} has no name");
            report.error(fields.place, "missing-field", message, why)
        })
    });
    (found, called)
}

/// A name: of a limit or of an entry of a list.
pub(crate) fn name(node: &Node, report: &Report<'_>) -> Read<Arc<str>> {
    let text = text(node, report)?;
    check_name(text, node.place, "a limit", report)?;
    Ok(Arc::from(text))
}

/// Can this be a name? It is shown in headers, logs and metrics, so it is plain.
pub(crate) fn check_name(text: &str, place: Place, what: &str, report: &Report<'_>) -> Read<()> {
    let first = text.starts_with(|c: char| c.is_ascii_alphanumeric());
    let rest = text
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c));
    if first && rest && text.len() <= 64 {
        return Ok(());
    }
    Err(report.error(
        place,
        "bad-name",
        format!("{} cannot be the name of {what}", quoted(text)),
        "write at most 64 letters, digits, `-`, `_` and `.`, a letter or digit first: `app-open`",
    ))
}

/// Reads a limit of the list, the `number`th.
pub(crate) fn limit(
    node: &Node,
    number: usize,
    common: &Common<'_>,
    report: &Report<'_>,
) -> Read<(LimitRule, Spots)> {
    let known: Vec<&'static str> = LIMIT.iter().chain(QUOTA).copied().collect();
    let fields = open(node, "a limit", &known, report)?;
    let why = "add `name: app-open`: answers, metrics and logs refer to a limit by its name";
    let (found, what) = named(&fields, "limit", number, why, report);
    let matched = fields.read("match", |n| matches(n, common.paths, report));
    let excepted = fields.read("except", |n| except(n, common.paths, report));
    let replaces = fields.get("replaces").map(one_or_many).unwrap_or_default();
    let replaces = each(replaces, |n| text(n, report).map(Arc::<str>::from));
    let named = found.as_deref().unwrap_or_default().to_owned();
    let rule = body(&fields, &named, &what, matched, common, report);
    let (name, except, rule) = (found?, excepted?.unwrap_or_default(), rule?);
    let replaces = replaces?;
    let spots = Spots::of(&fields);
    Ok((
        LimitRule {
            name,
            except,
            replaces,
            ..rule
        },
        spots,
    ))
}

/// Reads the limit for requests that no other matches.
pub(crate) fn default_limit(
    node: &Node,
    common: &Common<'_>,
    report: &Report<'_>,
) -> Read<(LimitRule, Spots)> {
    let known = LIMIT.iter().chain(QUOTA).copied();
    let known: Vec<&'static str> = known.filter(|f| !NOT_OF_DEFAULT.contains(f)).collect();
    let fields = Fields::open_with(node, "the default limit", &known, report, |name| {
        NOT_OF_DEFAULT.contains(&name).then(|| {
            format!("leave `{name}` out: the default is for every request that no limit matches")
        })
    })?;
    let rule = body(
        &fields,
        "default",
        "the default limit",
        Ok(None),
        common,
        report,
    )?;
    Ok((rule, Spots::of(&fields)))
}

fn open<'n>(
    node: &'n Node,
    what: &str,
    known: &[&'static str],
    report: &Report<'_>,
) -> Read<Fields<'n>> {
    Fields::open_with(node, what, known, report, |name| match name {
        "limit" | "rate" => Some("write `allow: 5/s`".into()),
        "window" | "period" | "interval" => {
            Some("the period is part of `allow`: `allow: 10/min`".into())
        }
        "max-wait" | "max_delay" => Some("did you mean `max_wait`?".into()),
        "tiers" => {
            Some("`tiers` stand at the top of the file; write `tier: header.x-plan` here".into())
        }
        "path" | "method" | "host" | "header" | "query" | "ip" | "domain" | "descriptor" => Some(
            format!("it belongs under `match`: `match: {{ {name}: … }}`"),
        ),
        _ => None,
    })
}

/// What every limit has, with a name or not.
fn body(
    fields: &Fields<'_>,
    name: &str,
    what: &str,
    matched: Read<Option<Match>>,
    common: &Common<'_>,
    report: &Report<'_>,
) -> Read<LimitRule> {
    let written = Written::read(fields, None, what, report);
    let quota = written
        .as_ref()
        .map_err(|e| *e)
        .and_then(|w| w.quota(name, report));
    let key = fields.read("key", |n| key(n, common.v6, report));
    let missing = [
        ("ip", MissingKey::Address { v6: common.v6 }),
        ("shared", MissingKey::Shared),
        ("deny", MissingKey::Deny),
    ];
    let missing_key = fields.read("missing_key", |n| {
        choice(n, "what happens without a key", &missing, report)
    });
    let cost = fields.read("cost", |n| {
        super::cost::cost(n, common.v6, common.paths, report)
    });
    let tiers = tier(fields, what, quota.as_ref().ok(), common, report);
    let key = key.map(Option::unwrap_or_default);
    let overridden = match (&written, &key) {
        (Ok(written), Ok(key)) => {
            fields.read("overrides", |n| overrides(n, key, written, name, report))
        }
        _ => Ok(None),
    };
    let candidate = match &written {
        Ok(written) => fields.read("candidate", |n| {
            let inner = Fields::open(n, "`candidate`", QUOTA, report)?;
            let of = format!("the candidate of {what}");
            Written::read(&inner, Some(written), &of, report)?.quota(name, report)
        }),
        Err(_) => Ok(None),
    };
    let modes = [
        ("enforce", Mode::Enforce),
        ("shadow", Mode::Shadow),
        ("off", Mode::Off),
    ];
    let when_over = when_over(fields, quota.as_ref().ok(), report);
    let on_store_error = on_store_error(fields, report);
    let own_sharing = sharing(fields, report);
    let mode = fields.read("mode", |n| choice(n, "a mode", &modes, report));
    let enforced = fields.read("enforce", |n| share(n, report));
    let expires: Read<Option<Moment>> = fields.read("expires", |n| moment(n, report));
    let owner = fields.read("owner", |n| prose(n, report));
    let reason = fields.read("reason", |n| prose(n, report));
    let captured = match (&matched, &key) {
        (Ok(matched), Ok(key)) => captures(fields, "key", what, matched.as_ref(), key, report),
        _ => Ok(()),
    };
    captured?;
    let says = matches!(&written, Ok(written) if written.max_keys.is_some());
    let room = if says { usize::MAX } else { common.room };
    let rule = within(
        room,
        LimitRule {
            matches: matched?.unwrap_or_default(),
            key: key?,
            missing_key: missing_key?.unwrap_or(MissingKey::Address { v6: common.v6 }),
            candidate: candidate?,
            cost: cost?.unwrap_or_default(),
            tiers: tiers?,
            overrides: overridden?.unwrap_or_default(),
            when_over: when_over?,
            on_store_error: on_store_error?
                .or(common.on_store_error)
                .unwrap_or_default(),
            mode: mode?.unwrap_or_default(),
            enforced: enforced?.unwrap_or(FULLY_ENFORCED),
            expires: expires?,
            owner: owner?,
            reason: reason?,
            ..LimitRule::new(name, quota?)
        },
    );
    shared(rule, (own_sharing?, common.sharing), what, fields, report)
}

/// What a request takes that does not pass.
fn when_over(fields: &Fields<'_>, quota: Option<&Quota>, report: &Report<'_>) -> Read<WhenOver> {
    let words = [
        ("take-nothing", WhenOver::TakeNothing),
        ("take-rest", WhenOver::TakeRest),
    ];
    let Some(node) = fields.get("when_over") else {
        return fields
            .read("when_over", |_| Ok(()))
            .map(|_| WhenOver::TakeNothing);
    };
    let said = choice(
        node,
        "what a request can take that does not pass",
        &words,
        report,
    )?;
    let algorithm = quota.map(|quota| quota.limit.algorithm());
    let place_of = match algorithm {
        Some(Algorithm::Concurrency { .. }) => "concurrency",
        Some(Algorithm::LeakyBucket { .. }) => "leaky-bucket",
        _ => return Ok(said),
    };
    match said {
        WhenOver::TakeNothing => Ok(said),
        WhenOver::TakeRest => Err(report.error(
            node.place,
            "no-rest",
            format!("`take-rest` has no meaning for `{place_of}`: nobody takes a place afterwards"),
            "leave it out, or write `algorithm: fixed-window`",
        )),
    }
}

/// Do the captures that a key, the value of `field`, names stand in its paths?
pub(super) fn captures(
    fields: &Fields<'_>,
    field: &str,
    what: &str,
    matched: Option<&Match>,
    key: &[tollgate_policy::KeyPart],
    report: &Report<'_>,
) -> Read<()> {
    let paths = matched.map(|m| m.paths.as_slice()).unwrap_or_default();
    let mut done = Ok(());
    for (index, part) in key.iter().enumerate() {
        let Source::Capture(name) = &part.source else {
            continue;
        };
        let place = fields
            .get(field)
            .map_or(fields.place, |node| match &node.value {
                Value::List(items) => items.get(index).map_or(node.place, |item| item.place),
                _ => node.place,
            });
        let has = |path: &tollgate_policy::pattern::PathPattern| {
            path.captures().any(|capture| capture == name)
        };
        match paths.iter().find(|path| !has(path)) {
            _ if !paths.iter().any(has) => {
                let known: Vec<&str> = paths.iter().flat_map(|p| p.captures()).collect();
                let hint = match crate::near::nearest(name, known.iter().copied()) {
                    Some(near) => format!("did you mean `path.{near}`?"),
                    None => format!("write `{{{name}}}` in a path of `match`, such as `/api/rides/{{{name}}}`"),
                };
                let message = format!("no path of {what} has a `{{{name}}}`");
                done = Err(report.error(place, "unknown-capture", message, hint));
            }
            Some(path) => report.warn(
                place,
                "partial-capture",
                format!("`{}` has no `{{{name}}}`", path.as_str()),
                match field {
                    "flow" => "requests to that path wait as `missing_key` says; give it a queue of its own",
                    _ => "requests to that path are counted as `missing_key` says; give it a limit of its own",
                },
            ),
            None => {}
        }
    }
    done
}

/// The quotas of the tiers, for a limit that names where the tier is found.
fn tier(
    fields: &Fields<'_>,
    what: &str,
    quota: Option<&tollgate_policy::Quota>,
    common: &Common<'_>,
    report: &Report<'_>,
) -> Read<Option<Tiers>> {
    let Some(node) = fields.get("tier") else {
        return Ok(None);
    };
    let found = tier_source(node, what, "times: 10", common, report)?;
    let (Some(all), Some(quota)) = (common.tiers, quota) else {
        return Ok(None);
    };
    let mut tiers = Vec::new();
    let mut done = Ok(());
    for tier in all {
        match scaled(quota, tier.times) {
            Ok(quota) => tiers.push(TierQuota {
                name: Arc::from(tier.name.as_str()),
                weight: tier.weight,
                quota,
            }),
            Err(cause) => {
                let message = format!(
                    "{what}, {} times for tier `{}`: {cause}",
                    tier.times, tier.name
                );
                done = Err(report.error(tier.place, "bad-tier", message, cause.hint()));
            }
        }
    }
    done.map(|()| {
        Some(Tiers {
            source: found,
            tiers,
        })
    })
}

/// Where the name of a tier is found, in a file that has tiers.
pub(super) fn tier_source(
    node: &Node,
    what: &str,
    sample: &str,
    common: &Common<'_>,
    report: &Report<'_>,
) -> Read<Source> {
    let found = source(node, common.v6, report)?;
    if let Source::Address { .. } = found {
        return Err(report.error(
            node.place,
            "bad-source",
            "an address is not the name of a tier",
            "write where the name of the tier stands, such as `header.x-plan`",
        ));
    }
    if common.tiers.is_some_and(<[Tier]>::is_empty) {
        return Err(report.error(
            node.place,
            "no-tiers",
            format!("{what} names a tier, but the file has none"),
            format!(
                "add `tiers: {{ free: {{}}, pro: {{ {sample} }} }}` at the top, or leave `tier` out"
            ),
        ));
    }
    Ok(found)
}

/// What a request takes at the most, as far as the policy knows.
pub(crate) fn dearest(cost: &CostRule) -> u64 {
    match cost {
        CostRule::Asked => 1,
        CostRule::Constant(cost) => *cost,
        CostRule::Routes { routes, default } => {
            let dearest = routes.iter().map(|(.., cost)| *cost).max();
            dearest.unwrap_or(0).max(*default)
        }
        CostRule::From { most, .. } => *most,
    }
}
