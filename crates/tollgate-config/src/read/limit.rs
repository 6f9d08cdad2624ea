//! Reads one limit: its name, match, key, quota and mode.

use std::sync::Arc;

use tollgate::{Algorithm, LimitError};
use tollgate_policy::path::PathRules;
use tollgate_policy::pattern::PathPattern;
use tollgate_policy::{
    CostRule, FULLY_ENFORCED, KeyPart, LimitRule, Match, MissingKey, Mode, OnStoreError,
    OverrideAction, Quota, Sharing, Source, TierQuota, Tiers, WhenOver,
};

use super::cost::cost;
use super::fields::{FieldSpans, Fields, each};
use super::item::Item;
use super::key::key;
use super::matching::matches;
use super::overrides::overrides;
use super::quota::QuotaFields;
use super::scalar::{choice, integer, percentage, prose, text};
use super::scale::scaled;
use super::sharing::{apply_sharing, sharing};
use super::store_error::on_store_error;
use super::tiers::{Tier, tier_finder};
use super::when::moment;
use crate::problem::Place;
use crate::report::{Read, Report, quoted};
use crate::shape;
use crate::suggest::suggest;

/// What the file sets once for all limits.
pub(crate) struct FileDefaults<'f> {
    pub(crate) v6: u8,
    pub(crate) paths: PathRules,
    /// None if there is an error in them.
    pub(crate) tiers: Option<&'f [Tier]>,
    pub(crate) on_store_error: Option<OnStoreError>,
    pub(crate) sharing: Option<Sharing>,
    /// The maximum number of keys of a limit without `max_keys`.
    pub(crate) max_keys: usize,
}

/// Keys of all limits without `max_keys` together: 350 MB of them.
const TOTAL_KEYS: usize = 16_000_000;
/// The least that each of these limits gets.
const MIN_KEYS: usize = 10_000;

/// The maximum number of keys of each of this many limits.
pub(crate) fn default_max_keys(limits: usize) -> usize {
    (TOTAL_KEYS / limits.max(1)).max(MIN_KEYS)
}

/// Lowers the maximum number of keys of every quota of a rule.
fn cap_keys(rule: &mut LimitRule, max_keys: usize) {
    let cap = |quota: &mut Quota| {
        let keys = quota.limit.max_keys().min(max_keys);
        *quota = quota.clone().with_max_keys(keys);
    };
    cap(&mut rule.quota);
    rule.candidate.iter_mut().for_each(cap);
    let tiers = rule.tiers.iter_mut().flat_map(|tiers| &mut tiers.tiers);
    tiers.for_each(|tier| cap(&mut tier.quota));
}

/// Reads the required name of the `number`th `what` of a list.
///
/// Returns it, and how messages refer to the item.
pub(super) fn required_name(
    fields: &Fields<'_>,
    what: &str,
    number: usize,
    hint: &str,
) -> (Read<Arc<str>>, String) {
    let found = fields.read("name", |node| name(node, what));
    let label = match &found {
        Ok(Some(name)) => format!("{what} `{name}`"),
        _ => format!("{what} {number}"),
    };
    let found = found.and_then(|found| {
        found.ok_or_else(|| fields.error("missing-field", format!("{label} has no name"), hint))
    });
    (found, label)
}

/// Reads the name of a `what`.
pub(crate) fn name(node: Item<'_>, what: &str) -> Read<Arc<str>> {
    let text = text(node)?;
    check_name(text, node.place, what, node.report)?;
    Ok(Arc::from(text))
}

/// Checks that a text can be a name. Names are shown in headers, logs and metrics.
pub(crate) fn check_name(text: &str, place: Place, what: &str, report: &Report<'_>) -> Read<()> {
    let first = text.starts_with(|c: char| c.is_ascii_alphanumeric());
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    if first && text.chars().all(is_plain) && text.len() <= 64 {
        return Ok(());
    }
    Err(report.error(
        place,
        "bad-name",
        format!("{} cannot be the name of a {what}", quoted(text)),
        "write at most 64 letters, digits, `-`, `_` and `.`, a letter or digit first: `app-open`",
    ))
}

/// Reads the `number`th limit of the list.
pub(crate) fn limit(
    node: Item<'_>,
    number: usize,
    defaults: &FileDefaults<'_>,
) -> Read<(LimitRule, FieldSpans)> {
    let known = [shape::Limit::FIELDS, shape::Candidate::FIELDS].concat();
    let fields = Fields::open_with(node, "a limit", &known, hint)?;
    let why = "add `name: app-open`: responses, metrics and logs refer to a limit by its name";
    let (name, what) = required_name(&fields, "limit", number, why);
    let matched = fields.read("match", |n| matches(n, defaults.paths));
    let except = fields.read_each("except", |n| matches(n, defaults.paths));
    let replaces = fields.read_each("replaces", |n| text(n).map(Arc::<str>::from));
    let known_name = name.as_deref().unwrap_or_default().to_owned();
    let rule = body(&fields, &known_name, &what, matched, defaults);
    let rule = LimitRule {
        name: name?,
        except: except?,
        replaces: replaces?,
        ..rule?
    };
    Ok((rule, fields.spans()))
}

/// Reads the limit for requests that no other limit matches.
pub(crate) fn default_limit(
    node: Item<'_>,
    defaults: &FileDefaults<'_>,
) -> Read<(LimitRule, FieldSpans)> {
    const WHAT: &str = "the default limit";
    let mut known = [shape::Limit::FIELDS, shape::Candidate::FIELDS].concat();
    known.retain(|field| !shape::NOT_IN_DEFAULT.contains(field));
    let fields = Fields::open_with(node, WHAT, &known, |name| {
        shape::NOT_IN_DEFAULT.contains(&name).then(|| {
            format!("remove `{name}`: the default limit is for all requests that no limit matches")
        })
    })?;
    let rule = body(&fields, "default", WHAT, Ok(None), defaults)?;
    Ok((rule, fields.spans()))
}

/// Hints for fields of other formats.
fn hint(name: &str) -> Option<String> {
    let hint = match name {
        "limit" | "rate" => "write `allow: 5/s`",
        "window" | "period" | "interval" => "the period is part of `allow`: `allow: 10/min`",
        "max-wait" | "max_delay" => "did you mean `max_wait`?",
        "tiers" => "`tiers` are at the top of the file; write `tier: header.x-plan` here",
        _ => return match_hint(name),
    };
    Some(hint.to_owned())
}

/// The hint for a condition outside of `match`.
pub(super) fn match_hint(name: &str) -> Option<String> {
    let is_condition = shape::Match::FIELDS.contains(&name);
    is_condition.then(|| format!("it belongs under `match`: `match: {{ {name}: … }}`"))
}

/// Reads the fields that a limit has with or without a name.
fn body(
    fields: &Fields<'_>,
    name: &str,
    what: &str,
    matched: Read<Option<Match>>,
    defaults: &FileDefaults<'_>,
) -> Read<LimitRule> {
    let written = QuotaFields::read(fields, None, what);
    let quota = written.as_ref().map_err(|e| *e);
    let quota = quota.and_then(|written| written.quota(name, fields.report));
    let key = fields.read("key", |n| key(n, defaults.v6));
    let by_address = MissingKey::Address { v6: defaults.v6 };
    let missing = [
        ("ip", by_address),
        ("shared", MissingKey::Shared),
        ("deny", MissingKey::Deny),
    ];
    let missing_key = fields.read("missing_key", |n| {
        choice(n, "what happens without a key", &missing)
    });
    let cost = fields.read("cost", |n| cost(n, defaults.v6, defaults.paths));
    let key = key.map(Option::unwrap_or_default);
    let own_key = key.as_deref().ok();
    let tiers = tiers(fields, what, quota.as_ref().ok(), own_key, defaults);
    let overrides = match (&written, &key) {
        (Ok(written), Ok(key)) => fields.read("overrides", |n| overrides(n, key, written, name)),
        _ => Ok(None),
    };
    let candidate = match &written {
        Ok(written) => fields.read("candidate", |n| {
            let inner = Fields::open(n, "`candidate`", shape::Candidate::FIELDS)?;
            let what = format!("the candidate of {what}");
            QuotaFields::read(&inner, Some(written), &what)?.quota(name, fields.report)
        }),
        Err(_) => Ok(None),
    };
    let modes = [
        ("enforce", Mode::Enforce),
        ("shadow", Mode::Shadow),
        ("off", Mode::Off),
    ];
    let when_over = fields.read("when_over", |n| when_over(n, quota.as_ref().ok()));
    let max_debt = fields.read("max_debt", |n| integer(n, 1..=u64::MAX, "100000"));
    let on_store_error = on_store_error(fields);
    let own_sharing = sharing(fields);
    let mode = fields.read("mode", |n| choice(n, "a mode", &modes));
    let enforced = fields.read("enforce", percentage);
    let expires = fields.read("expires", moment);
    let owner = fields.read("owner", prose);
    let reason = fields.read("reason", prose);
    if let (Ok(matched), Ok(key)) = (&matched, &key) {
        captures(fields, "key", what, matched.as_ref(), key)?;
    }
    let mut rule = LimitRule {
        matches: matched?.unwrap_or_default(),
        key: key?,
        missing_key: missing_key?.unwrap_or(by_address),
        candidate: candidate?,
        cost: cost?.unwrap_or_default(),
        tiers: tiers?,
        overrides: overrides?.unwrap_or_default(),
        when_over: match when_over? {
            Some(LateCosts::Take(when_over)) => when_over,
            Some(LateCosts::Owe) | None => WhenOver::default(),
        },
        on_store_error: on_store_error?
            .or(defaults.on_store_error)
            .unwrap_or_default(),
        mode: mode?.unwrap_or_default(),
        enforced: enforced?.unwrap_or(FULLY_ENFORCED),
        expires: expires?,
        owner: owner?,
        reason: reason?,
        ..LimitRule::new(name, quota?)
    };
    if fields.get("max_keys").is_none() {
        cap_keys(&mut rule, defaults.max_keys);
    }
    match (when_over, max_debt?) {
        (Ok(Some(LateCosts::Owe)), Some(max_debt)) => owe(&mut rule, max_debt, fields)?,
        (Ok(Some(LateCosts::Owe)), None) => {
            return Err(fields.error(
                "missing-field",
                format!("{what} has no bound on what a key can owe"),
                "add `max_debt: 100000`: what goes beyond it is forgiven",
            ));
        }
        (_, Some(_)) => {
            return Err(fields.report.error(
                fields.at("max_debt"),
                "no-debt",
                "`max_debt` has no meaning without `when_over: owe`",
                "add `when_over: owe`, or remove it",
            ));
        }
        _ => {}
    }
    apply_sharing(rule, (own_sharing?, defaults.sharing), what, fields)
}

/// What is taken of costs that are known afterwards.
#[derive(Clone, Copy)]
enum LateCosts {
    Take(WhenOver),
    Owe,
}

/// Has every quota of a rule take up to `max_debt` units beyond empty.
fn owe(rule: &mut LimitRule, max_debt: u64, fields: &Fields<'_>) -> Read<()> {
    let owing = |quota: &mut Quota| match quota.peak {
        Some(_) => Err(LimitError::NoDebt),
        None => {
            quota.limit = quota.limit.clone().with_max_debt(max_debt)?;
            Ok(())
        }
    };
    let overrides = rule.overrides.iter_mut();
    let overrides = overrides.filter_map(|change| match &mut change.grant {
        OverrideAction::Quota(quota) => Some(&mut **quota),
        _ => None,
    });
    let tiers = rule.tiers.iter_mut().flat_map(|tiers| &mut tiers.tiers);
    let mut quotas = std::iter::once(&mut rule.quota)
        .chain(&mut rule.candidate)
        .chain(tiers.map(|tier| &mut tier.quota))
        .chain(overrides);
    quotas.try_for_each(owing).map_err(|error| match error {
        LimitError::NoDebt => fields.report.error(
            fields.at("when_over"),
            "no-debt",
            "`owe` needs a bucket, which earns a debt back; a window forgets it when it ends",
            "write `algorithm: token-bucket` or `gcra`, or `when_over: take-rest`",
        ),
        _ => fields.report.error(
            fields.at("max_debt"),
            "large-debt",
            format!("the bucket and its debt cannot be counted: {error}"),
            "lower `max_debt` or the burst, or raise the rate",
        ),
    })
}

/// Reads what is taken of a cost that is not left.
fn when_over(node: Item<'_>, quota: Option<&Quota>) -> Read<LateCosts> {
    let words = [
        ("take-nothing", LateCosts::Take(WhenOver::ChargeNothing)),
        ("take-rest", LateCosts::Take(WhenOver::ChargeRemaining)),
        ("owe", LateCosts::Owe),
    ];
    let when_over = choice(node, "what a refused request can take", &words)?;
    let algorithm = match quota.map(|quota| quota.limit.algorithm()) {
        Some(Algorithm::Concurrency { .. }) => "concurrency",
        Some(Algorithm::LeakyBucket { .. }) => "leaky-bucket",
        _ => return Ok(when_over),
    };
    match when_over {
        LateCosts::Take(WhenOver::ChargeRemaining) => Err(node.error(
            "no-rest",
            format!(
                "`take-rest` has no meaning for `{algorithm}`: no units can be taken afterwards"
            ),
            "remove it, or write `algorithm: fixed-window`",
        )),
        other => Ok(other),
    }
}

/// Checks that the paths of `match` have the captures that a key, the value of `field`, names.
pub(super) fn captures(
    fields: &Fields<'_>,
    field: &str,
    what: &str,
    matched: Option<&Match>,
    key: &[KeyPart],
) -> Read<()> {
    let paths = matched.map(|m| m.paths.as_slice()).unwrap_or_default();
    let items = fields.get(field).map(Item::one_or_many).unwrap_or_default();
    let mut done = Ok(());
    for (part, node) in key.iter().zip(items) {
        let Source::Capture(name) = &part.source else {
            continue;
        };
        let has = |path: &&PathPattern| path.captures().any(|capture| capture == name);
        if !paths.iter().any(|path| has(&path)) {
            let captures = paths.iter().flat_map(|path| path.captures());
            let hint = match suggest(name, captures) {
                Some(near) => format!("did you mean `path.{near}`?"),
                None => format!(
                    "write `{{{name}}}` in a path of `match`, such as `/api/rides/{{{name}}}`"
                ),
            };
            let message = format!("no path of {what} has a `{{{name}}}`");
            done = Err(node.error("unknown-capture", message, hint));
        } else if let Some(path) = paths.iter().find(|path| !has(path)) {
            let item = if field == "flow" { "queue" } else { "limit" };
            node.warn(
                "partial-capture",
                format!("`{}` has no `{{{name}}}`", path.as_str()),
                format!("`missing_key` applies to requests to that path; add a {item} for them"),
            );
        }
    }
    done
}

/// Reads where a request names its tier, and scales the quota for each tier.
fn tiers(
    fields: &Fields<'_>,
    what: &str,
    quota: Option<&Quota>,
    key: Option<&[KeyPart]>,
    defaults: &FileDefaults<'_>,
) -> Read<Option<Tiers>> {
    let Some(node) = fields.get("tier") else {
        return Ok(None);
    };
    let found = tier_finder(node, what, "times: 10", defaults.v6, defaults.tiers, key)?;
    let (Some(all), Some(quota)) = (defaults.tiers, quota) else {
        return Ok(None);
    };
    let tiers = each(all, |tier| match scaled(quota, tier.times) {
        Ok(quota) => Ok(TierQuota {
            name: Arc::from(tier.name.as_str()),
            weight: tier.weight,
            quota,
        }),
        Err(cause) => {
            let (times, name) = (tier.times, &tier.name);
            let message = format!("{what}, {times} times for tier `{name}`: {cause}");
            let report = fields.report;
            Err(report.error(tier.place, "bad-tier", message, cause.hint()))
        }
    });
    Ok(Some(Tiers {
        source: found.source,
        members: found.members,
        tiers: tiers?,
    }))
}

/// The largest cost of one request, as far as the policy sets it.
pub(crate) fn max_cost(cost: &CostRule) -> u64 {
    match cost {
        CostRule::Asked => 1,
        CostRule::Constant(cost) => *cost,
        CostRule::Routes { routes, default } => {
            let costs = routes.iter().map(|(.., cost)| *cost);
            costs.max().unwrap_or(0).max(*default)
        }
        CostRule::From { most, .. } => *most,
    }
}
