//! Warnings about single limits.

use tollgate::{Algorithm, Moment};
use tollgate_policy::{
    CostRule, FULLY_ENFORCED, KeyPart, LimitRule, Match, Mode, OverrideAction, Quota, Source,
    ValueTest, WhenOver,
};

use super::cover::covers as is_wider;
use super::quotas;
use crate::read::{FieldSpans, max_cost, source_text, when};
use crate::report::Report;

/// Bytes of an entry of a sliding log.
const ENTRY_BYTES: u128 = 8;
/// Bytes of all logs of one limit before it is worth a warning.
const LOGS_WARN: u128 = 1 << 30;
/// Bytes of the log of one key before it is worth a warning.
const LOG_WARN: u128 = 1 << 20;
/// Entries of the log of one key: 8 MB.
const LOG_MAX: u64 = 1_000_000;
/// Limits that are compared as backstops of others: enough for any real file, and few enough that no file loads slowly.
const COVERS_MAX: usize = 256;

/// The limits that a client cannot evade by changing its key: always enforced, and counted by address or for all.
pub(super) fn covers(rules: &[LimitRule], now: Moment) -> Vec<&Match> {
    let holds = |rule: &&LimitRule| {
        let by_address = |part: &KeyPart| {
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

/// What the file says beside a limit.
pub(super) struct Context<'f> {
    /// Limits that a client cannot evade, which apply beside it.
    pub(super) covers: &'f [&'f Match],
    /// Headers that clients cannot set.
    pub(super) trusted_headers: &'f [String],
    /// Does the file configure a gateway?
    pub(super) has_gateway: bool,
    pub(super) now: Moment,
}

/// Reports on one limit.
pub(super) fn lint(
    rule: &LimitRule,
    spans: &FieldSpans,
    context: &Context<'_>,
    report: &Report<'_>,
) {
    let now = context.now;
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
                "limit `{}` expired on {} and has no effect",
                rule.name,
                when::day(expires)
            ),
            "remove it, or set a later date",
        );
        return;
    }
    reach(rule, spans, report);
    mode(rule, spans, report);
    cost(rule, spans, report);
    overrides(rule, spans, now, report);
    memory(rule, spans, report);
    missing_key(rule, spans, report);
    rotation(rule, spans, context, report);
    absent_fields(rule, spans, context, report);
    if rule.reason.is_none() {
        surprises(rule, spans, context, report);
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
                "`except` covers all of `match`: limit `{}` applies to no request",
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
            "change a field of it, such as `candidate: { allow: 3/s }`",
        );
    }
}

fn mode(rule: &LimitRule, spans: &FieldSpans, report: &Report<'_>) {
    if rule.mode == Mode::Shadow && rule.enforced != FULLY_ENFORCED {
        report.warn(
            spans.name_of("enforce"),
            "unused-share",
            "`enforce` has no effect with `mode: shadow`",
            "remove `mode` to enforce the limit for that share of the keys",
        );
    } else if rule.enforced == 0 {
        report.warn(
            spans.at("enforce"),
            "unused-share",
            "a limit that is enforced for 0% of the keys is only counted",
            "write `mode: shadow` instead",
        );
    }
}

/// The largest cost that a quota can admit.
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
    let max = max_cost(&rule.cost);
    let tiers = rule.tiers.iter().flat_map(|tiers| &tiers.tiers);
    let tiers = tiers.map(|tier| (format!("tier `{}`", tier.name), &tier.quota));
    let overrides = rule
        .overrides
        .iter()
        .filter_map(|change| match &change.grant {
            OverrideAction::Quota(quota) => Some((
                format!("the override of `{}`", change.key.join(", ")),
                &**quota,
            )),
            _ => None,
        });
    let own = std::iter::once((format!("limit `{}`", rule.name), &rule.quota));
    let too_small = own
        .chain(tiers)
        .chain(overrides)
        .find(|(_, quota)| capacity(quota) < max);
    if let Some((whose, quota)) = too_small {
        report.warn(
            spans.at("cost"),
            "cost-above-capacity",
            format!(
                "a request of cost {max} never passes: {whose} holds at most {}",
                capacity(quota)
            ),
            format!("lower the cost, or raise the capacity to at least {max}"),
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
                "remove it, or set a later date",
            );
        }
    }
}

/// Sliding logs that take much memory, by what they take; beyond a bound they are an error.
fn memory(rule: &LimitRule, spans: &FieldSpans, report: &Report<'_>) {
    let log = |quota: &Quota| match *quota.limit.algorithm() {
        Algorithm::SlidingLog { limit, .. } => Some((limit, quota.limit.max_keys())),
        _ => None,
    };
    let Some((limit, max_keys)) = quotas(rule).filter_map(log).max() else {
        return;
    };
    const HINT: &str =
        "write `algorithm: sliding-window`, which takes 8 bytes for each key, or lower";
    let (place, name) = (spans.at("allow"), &rule.name);
    if limit > LOG_MAX {
        let message = format!(
            "the log of limit `{name}` has {limit} entries for each key; the maximum is {LOG_MAX}"
        );
        report.error(place, "large-log", message, format!("{HINT} `allow`"));
        return;
    }
    let keys = if rule.key.is_empty() { 1 } else { max_keys };
    let one = u128::from(limit) * ENTRY_BYTES;
    let all = one * keys as u128;
    if all > LOGS_WARN {
        let message = format!(
            "the logs of limit `{name}` may take {}: {limit} times {ENTRY_BYTES} bytes for each of {keys} keys",
            size(all)
        );
        report.warn(place, "large-log", message, format!("{HINT} `max_keys`"));
    } else if one > LOG_WARN {
        let message = format!(
            "the log of limit `{name}` takes {} for each key: {limit} times {ENTRY_BYTES} bytes",
            size(one)
        );
        report.warn(place, "large-log", message, format!("{HINT} `allow`"));
    }
}

fn size(bytes: u128) -> String {
    match bytes >> 20 {
        mib @ 0..=10_239 => format!("{mib} MiB"),
        mib => format!("{} GiB", mib >> 10),
    }
}

/// A request that matches by a header or parameter, but whose key is missing, is counted under `missing_key`. So it
/// leaves the limit that is meant for requests without a key.
fn missing_key(rule: &LimitRule, spans: &FieldSpans, report: &Report<'_>) {
    if rule.mode != Mode::Enforce || spans.has("missing_key") {
        return;
    }
    let tests = |tests: &[(String, ValueTest)], name: &str, blank_is_present: bool| {
        tests.iter().any(|(tested, test)| match test {
            ValueTest::Like(_) => tested == name,
            ValueTest::Present => tested == name && blank_is_present,
            ValueTest::Absent => false,
        })
    };
    let is_matched = |part: &&KeyPart| match &part.source {
        Source::Header(name) => tests(&rule.matches.headers, name, false),
        Source::Query(name) => tests(&rule.matches.query, name, true),
        _ => false,
    };
    if let Some(part) = rule.key.iter().find(is_matched) {
        let source = source_text(&part.source);
        report.warn(
            spans.at("key"),
            "matched-without-key",
            format!(
                "a request with a blank or repeated `{source}` can match limit `{}`, but has no key: the limit counts it by \
                 its address",
                rule.name
            ),
            "write `missing_key: deny` to refuse such requests, or `missing_key: ip` if that is meant",
        );
    }
}

/// Can a client choose this value freely?
fn is_chosen(source: &Source, context: &Context<'_>) -> bool {
    if let Source::Header(name) = source {
        return !context.trusted_headers.contains(name);
    }
    matches!(
        source,
        Source::Query(_) | Source::Cookie(_) | Source::Field(_) | Source::Path | Source::Capture(_)
    )
}

fn rotation(rule: &LimitRule, spans: &FieldSpans, context: &Context<'_>, report: &Report<'_>) {
    let is_chosen = |part: &KeyPart| is_chosen(&part.source, context);
    let chosen = !rule.key.is_empty() && rule.key.iter().all(is_chosen);
    if rule.mode != Mode::Enforce || !chosen {
        return;
    }
    if context
        .covers
        .iter()
        .any(|wide| is_wider(wide, &rule.matches))
    {
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
            "a client that changes `{}` with every request gets a new allowance each time",
            names.join("`, `")
        ),
        "add a looser limit with `key: ip` for the same requests, or list headers that a proxy sets or removes in \
         `trusted_headers` at the top",
    );
}

/// Reports fields of `/v1/check` in a limit for requests of a front end that has none.
fn absent_fields(rule: &LimitRule, spans: &FieldSpans, context: &Context<'_>, report: &Report<'_>) {
    let of_envoy = rule.matches.domain.is_some()
        || !rule.matches.descriptor.is_empty()
        || !rule.matches.entries.is_empty();
    let front_end = match (of_envoy, context.has_gateway) {
        (true, _) => "Envoy",
        (false, true) => "a gateway",
        (false, false) => return,
    };
    let key = rule.key.iter().map(|part| ("key", &part.source));
    let tier = rule.tiers.iter().map(|tiers| ("tier", &tiers.source));
    let cost = match &rule.cost {
        CostRule::From { source, .. } => Some(("cost", source)),
        _ => None,
    };
    let mut all = key.chain(tier).chain(cost);
    let Some((part, source)) = all.find(|(_, source)| matches!(source, Source::Field(_))) else {
        return;
    };
    report.warn(
        spans.at(part),
        "no-fields",
        format!(
            "requests of {front_end} have no fields, so `{}` is always missing there",
            source_text(source)
        ),
        "only `/v1/check` and `TOLLGATE.CHECK` have fields; write a part that the requests have, such as `header.x-user`",
    );
}

/// Notes on what works but may surprise.
fn surprises(rule: &LimitRule, spans: &FieldSpans, context: &Context<'_>, report: &Report<'_>) {
    const SILENCE: &str = "a `reason` in the limit silences this note";
    if let Algorithm::Concurrency { ttl, .. } = rule.quota.limit.algorithm() {
        report.note(
            spans.at("algorithm"),
            "permits-expire",
            format!("callers that cannot return a permit, such as forward-auth, hold it for the whole `ttl` of {ttl}"),
            format!("set `ttl` close to the longest request; {SILENCE}"),
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
            "after `take-rest` a bucket is empty and refills at once, whatever the excess was",
            format!(
                "write `algorithm: fixed-window`, which stays exhausted until it ends; {SILENCE}"
            ),
        );
    }
    let is_settled = matches!(rule.cost, CostRule::Asked | CostRule::From { .. });
    if rule.quota.limit.max_debt() > 0 && !is_settled {
        report.note(
            spans.at("when_over"),
            "debt-without-late-costs",
            "`owe` has no effect: the cost is fixed, so a reservation is never settled at another one",
            format!("remove `cost`, or `when_over`; {SILENCE}"),
        );
    }
    if let CostRule::From { source, .. } = &rule.cost
        && is_chosen(source, context)
    {
        report.note(
            spans.at("cost"),
            "cost-from-client",
            format!(
                "the cost is read from `{}`, which a client may be able to set",
                source_text(source)
            ),
            format!("make sure that only your own services can set it; {SILENCE}"),
        );
    }
    if let Some(tiers) = &rule.tiers
        && tiers.members.is_none()
        && is_chosen(&tiers.source, context)
    {
        report.note(
            spans.at("tier"),
            "tier-from-client",
            format!(
                "the tier is read from `{}`, which a client may be able to set",
                source_text(&tiers.source)
            ),
            format!("make sure that your proxy sets or removes it; {SILENCE}"),
        );
    }
}
