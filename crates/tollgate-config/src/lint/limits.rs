//! What is unwise about single limits.

use tollgate::{Algorithm, Moment};
use tollgate_policy::{
    CostRule, FULLY_ENFORCED, LimitRule, Match, Mode, OverrideAction, Quota, Source, WhenOver,
};

use super::cover::covers as is_wider;
use crate::read::{FieldSpans, max_cost, source_text, when};
use crate::report::Report;

/// Bytes that the logs of one limit may take before it is worth a warning.
const LOG_BYTES: u128 = 1 << 30;
/// Limits that are looked at as backstops for others: enough for any real file, and few enough that a
/// hostile one cannot make loading slow.
const COVERS_MAX: usize = 256;

/// The limits that hold whoever changes its key: enforced for everybody, by address or for all.
pub(super) fn covers(rules: &[LimitRule], now: Moment) -> Vec<&Match> {
    let holds = |rule: &&LimitRule| {
        let by_address = |part: &tollgate_policy::KeyPart| {
            matches!(
                part.source,
                Source::Address { .. } | Source::Method | Source::Host
            )
        };
        rule.mode == Mode::Enforce
            && rule.enforced == FULLY_ENFORCED
            && rule.except.is_empty()
            && rule.expires.is_none_or(|expires| expires > now)
            && rule.key.iter().all(by_address)
    };
    let all = rules.iter().filter(holds).map(|rule| &rule.matches);
    let mut all: Vec<&Match> = all.collect();
    all.sort_by_key(|matches| !super::is_everything(matches));
    all.truncate(COVERS_MAX);
    all
}

/// Says what is unwise about one limit; `covers` hold beside it.
pub(super) fn lint(
    rule: &LimitRule,
    spans: &FieldSpans,
    covers: &[&Match],
    now: Moment,
    report: &Report<'_>,
) {
    if rule.mode == Mode::Off {
        if rule.reason.is_none() {
            report.note(
                spans.at("mode"),
                "off",
                format!("limit `{}` is off: it neither limits nor counts", rule.name),
                "write `mode: shadow` to count without limiting; a `reason` silences this note",
            );
        }
        return;
    }
    if let Some(expires) = rule.expires.filter(|expires| *expires <= now) {
        report.warn(
            spans.at("expires"),
            "expired",
            format!(
                "limit `{}` expired on {} and does nothing any more",
                rule.name,
                when::day(expires)
            ),
            "remove it, or write a later date",
        );
        return;
    }
    reach(rule, spans, report);
    mode(rule, spans, report);
    cost(rule, spans, report);
    overrides(rule, spans, now, report);
    memory(rule, spans, report);
    rotation(rule, spans, covers, report);
    if rule.reason.is_none() {
        surprises(rule, spans, report);
    }
}

fn reach(rule: &LimitRule, spans: &FieldSpans, report: &Report<'_>) {
    if rule
        .except
        .iter()
        .any(|except| is_wider(except, &rule.matches))
    {
        report.warn(
            spans.at("except"),
            "unreachable",
            format!(
                "`except` takes away all that `match` lets in: limit `{}` is for nobody",
                rule.name
            ),
            "narrow `except`",
        );
    }
    if rule.candidate.as_ref() == Some(&rule.quota) {
        report.warn(
            spans.at("candidate"),
            "same-candidate",
            "the candidate is the same as the limit",
            "change what is to be tried, such as `candidate: { allow: 3/s }`",
        );
    }
}

fn mode(rule: &LimitRule, spans: &FieldSpans, report: &Report<'_>) {
    if rule.mode == Mode::Shadow && rule.enforced != FULLY_ENFORCED {
        report.warn(
            spans.name_of("enforce"),
            "unused-share",
            "`enforce` does nothing in `mode: shadow`",
            "leave `mode` out to enforce for that share of the keys",
        );
    } else if rule.enforced == 0 {
        report.warn(
            spans.at("enforce"),
            "unused-share",
            "a limit that is enforced for nobody is a shadow",
            "write `mode: shadow` instead",
        );
    }
}

/// The most that one request can ever take from a quota.
fn capacity(quota: &Quota) -> u64 {
    let limits = std::iter::once(&quota.limit).chain(&quota.peak);
    let capacities = limits.map(|limit| capacity_of(limit.algorithm()));
    capacities.min().unwrap_or(u64::MAX)
}

fn capacity_of(algorithm: &Algorithm) -> u64 {
    match *algorithm {
        Algorithm::TokenBucket { burst, .. } => burst,
        Algorithm::Gcra { rate, tolerance } => rate.earned_in(tolerance).saturating_add(1),
        Algorithm::LeakyBucket { queue, .. } => queue,
        Algorithm::FixedWindow { limit, .. }
        | Algorithm::SlidingLog { limit, .. }
        | Algorithm::SlidingWindow { limit, .. }
        | Algorithm::Concurrency { limit, .. } => limit,
    }
}

fn cost(rule: &LimitRule, spans: &FieldSpans, report: &Report<'_>) {
    let most = max_cost(&rule.cost);
    let tiers = rule.tiers.iter().flat_map(|tiers| &tiers.tiers);
    let tiers = tiers.map(|tier| (format!("tier `{}`", tier.name), &tier.quota));
    let overrides = rule
        .overrides
        .iter()
        .filter_map(|change| match &change.grant {
            OverrideAction::Quota(quota) => Some((
                format!("the override of `{}`", change.key.join(", ")),
                quota,
            )),
            _ => None,
        });
    let own = std::iter::once((format!("limit `{}`", rule.name), &rule.quota));
    let too_small = own
        .chain(tiers)
        .chain(overrides)
        .find(|(_, quota)| capacity(quota) < most);
    if let Some((whose, quota)) = too_small {
        report.warn(
            spans.at("cost"),
            "cost-above-capacity",
            format!(
                "a request of cost {most} never passes: {whose} holds {} at the most",
                capacity(quota)
            ),
            format!("lower the cost, or let it hold at least {most}"),
        );
    }
}

fn overrides(rule: &LimitRule, spans: &FieldSpans, now: Moment, report: &Report<'_>) {
    for change in &rule.overrides {
        if let Some(expires) = change.expires.filter(|expires| *expires <= now) {
            report.warn(
                spans.name_of("overrides"),
                "expired",
                format!(
                    "the override of `{}` expired on {}",
                    change.key.join(", "),
                    when::day(expires)
                ),
                "remove it, or write a later date",
            );
        }
    }
}

fn memory(rule: &LimitRule, spans: &FieldSpans, report: &Report<'_>) {
    let quotas = rule
        .tiers
        .iter()
        .flat_map(|tiers| &tiers.tiers)
        .map(|tier| &tier.quota);
    for quota in std::iter::once(&rule.quota).chain(quotas) {
        let Algorithm::SlidingLog { limit, .. } = *quota.limit.algorithm() else {
            continue;
        };
        let keys = if rule.key.is_empty() {
            1
        } else {
            quota.limit.max_keys()
        };
        let bytes = u128::from(limit) * 8 * keys as u128;
        if bytes > LOG_BYTES {
            report.warn(
                spans.at("allow"),
                "large-log",
                format!(
                    "the log of limit `{}` may take {}: {limit} times 8 bytes for each of {keys} keys",
                    rule.name,
                    sized(bytes)
                ),
                "write `algorithm: sliding-window`, which takes 8 bytes for each key, or lower `max_keys`",
            );
            return;
        }
    }
}

fn sized(bytes: u128) -> String {
    match bytes >> 30 {
        0..=9 => format!("{} MiB", bytes >> 20),
        gib => format!("{gib} GiB"),
    }
}

/// Can a client choose this freely?
fn is_chosen(source: &Source) -> bool {
    matches!(
        source,
        Source::Header(_)
            | Source::Query(_)
            | Source::Cookie(_)
            | Source::Field(_)
            | Source::Path
            | Source::Capture(_)
    )
}

fn rotation(rule: &LimitRule, spans: &FieldSpans, covers: &[&Match], report: &Report<'_>) {
    let chosen = !rule.key.is_empty() && rule.key.iter().all(|part| is_chosen(&part.source));
    if rule.mode != Mode::Enforce || !chosen {
        return;
    }
    if covers.iter().any(|wide| is_wider(wide, &rule.matches)) {
        return;
    }
    let names: Vec<String> = rule
        .key
        .iter()
        .map(|part| source_text(&part.source))
        .collect();
    report.warn(
        spans.at("key"),
        "rotating-key",
        format!(
            "a client that changes `{}` with every request has a new allowance each time",
            names.join("`, `")
        ),
        "add a looser limit with `key: ip` for the same requests, so that changing the key does not help",
    );
}

/// What works, but not as some expect.
fn surprises(rule: &LimitRule, spans: &FieldSpans, report: &Report<'_>) {
    const SILENCE: &str = "a `reason` in the limit silences this note";
    if let Algorithm::Concurrency { ttl, .. } = rule.quota.limit.algorithm() {
        report.note(
            spans.at("algorithm"),
            "permits-expire",
            format!("callers that cannot give a permit back, such as forward-auth, hold it for the whole `ttl` of {ttl}"),
            format!("keep the `ttl` near the longest request; {SILENCE}"),
        );
    }
    let earns_at_once = matches!(
        rule.quota.limit.algorithm(),
        Algorithm::TokenBucket { .. } | Algorithm::Gcra { .. }
    );
    if rule.when_over == WhenOver::ChargeRemaining && earns_at_once {
        report.note(
            spans.at("when_over"),
            "rest-of-a-bucket",
            "after `take-rest` a bucket is empty and earns on at once, however much was over",
            format!(
                "write `algorithm: fixed-window`, which stays used up until it ends; {SILENCE}"
            ),
        );
    }
    if let CostRule::From { source, .. } = &rule.cost
        && is_chosen(source)
    {
        report.note(
            spans.at("cost"),
            "cost-from-client",
            format!(
                "the cost is what `{}` says, and a client may be able to write that",
                source_text(source)
            ),
            format!("see that only your own services can; {SILENCE}"),
        );
    }
    if let Some(tiers) = &rule.tiers
        && is_chosen(&tiers.source)
    {
        report.note(
            spans.at("tier"),
            "tier-from-client",
            format!(
                "the tier is what `{}` says, and a client may be able to write that",
                source_text(&tiers.source)
            ),
            format!("see that your proxy sets or removes it; {SILENCE}"),
        );
    }
}
