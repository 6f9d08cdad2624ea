//! What is unwise about a store that several processes share, and about what happens without it.

use std::net::IpAddr;

use tollgate::{Algorithm, Span};
use tollgate_policy::shared::LOG_MAX;
use tollgate_policy::{
    DefaultAction, LimitRule, Mode, OnStoreError, OverrideAction, Quota, Sharing,
};

use crate::read::{Draft, FieldSpans};
use crate::report::Report;
use crate::store::{SecretSpec, SharedSpec, StoreSpec};

/// Envoy waits for 20 ms unless told otherwise; the rest is for the way there and back.
const DEADLINE_WISE: Span = Span::from_millis(15);
/// Entries of one log in a shared store: it is one key there, and every request walks its old end.
const LOG_WISE: u64 = 10_000;
const FIELD: &str = "on_store_error";

/// Says what is unwise about the store of a policy.
pub(super) fn lint(draft: &Draft, report: &Report<'_>) {
    match &draft.store.spec {
        StoreSpec::Memory => unused(draft, report),
        StoreSpec::Shared(spec) => {
            let spans = &draft.store.spans;
            secrets(spec, spans, report);
            users(spec, spans, report);
            deadline(spec, spans, report);
            logs(draft, report);
            mixed(draft, report);
            allows(draft, report);
        }
    }
}

/// Every limit that does something, with its places.
fn rules(draft: &Draft) -> impl Iterator<Item = (&LimitRule, &FieldSpans)> {
    let default = match (&draft.policy.default, &draft.default) {
        (DefaultAction::Limit(rule), Some(spans)) => Some((rule.as_ref(), spans)),
        _ => None,
    };
    let limits = draft.policy.limits.iter().zip(&draft.limits);
    limits
        .chain(default)
        .filter(|(rule, _)| rule.mode != Mode::Off)
}

fn unused(draft: &Draft, report: &Report<'_>) {
    let limits = rules(draft).map(|(_, spans)| spans);
    for spans in std::iter::once(&draft.file).chain(limits) {
        if spans.has("sharing") {
            report.warn(
                spans.name_of("sharing"),
                "unused-sharing",
                "`sharing` has no effect: the store is this process itself",
                "leave it out, or name a store that a fleet shares: `store: redis://10.0.0.5:6379/0`",
            );
        }
        if spans.has(FIELD) {
            report.warn(
                spans.name_of(FIELD),
                "unused-on-store-error",
                "`on_store_error` has no effect: the store is this process itself",
                "leave it out, or name a store that a fleet shares: `store: redis://10.0.0.5:6379/0`",
            );
        }
    }
}

fn secrets(spec: &SharedSpec, spans: &FieldSpans, report: &Report<'_>) {
    if let Some(SecretSpec::Text(_)) = spec.password {
        report.warn(
            spans.at("url"),
            "password-in-file",
            "the password of the store stands in the file, for everybody who can read it",
            "write `password_env: TOLLGATE_STORE_PASSWORD` or `password_file: /run/secrets/store` beside `url`",
        );
    }
    let secret = spec.password.is_some() || spec.sentinel_password.is_some();
    let far = spec.topology.hosts().find(|host| !is_loopback(host));
    if let (true, None, Some(host)) = (secret, &spec.tls, far) {
        report.warn(
            spans.at("url"),
            "password-in-clear",
            format!(
                "the password goes to `{host}` as plain text: whoever listens in between has it"
            ),
            "write `rediss` or `valkeys` in the scheme for TLS",
        );
    }
}

/// Without a password nobody logs in, whatever the user is called.
fn users(spec: &SharedSpec, spans: &FieldSpans, report: &Report<'_>) {
    let both = [
        (&spec.username, &spec.password, "username", "password_env"),
        (
            &spec.sentinel_username,
            &spec.sentinel_password,
            "sentinel_username",
            "sentinel_password_env",
        ),
    ];
    for (user, password, name, add) in both {
        if user.is_some() && password.is_none() {
            let at = if spans.has(name) { name } else { "url" };
            report.warn(
                spans.at(at),
                "user-without-password",
                "a user without a password does not log in: the store is asked as its default user",
                format!("add `{add}: …`, or leave the user out"),
            );
        }
    }
}

fn is_loopback(host: &str) -> bool {
    let address = host.parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

fn deadline(spec: &SharedSpec, spans: &FieldSpans, report: &Report<'_>) {
    if spec.deadline > DEADLINE_WISE {
        report.warn(
            spans.at("deadline"),
            "slow-deadline",
            format!(
                "while the store hangs, a decision takes {}: Envoy waits for 20ms and then decides without an answer",
                spec.deadline
            ),
            format!("write at most `{DEADLINE_WISE}`, unless all who ask wait longer"),
        );
    }
}

fn logs(draft: &Draft, report: &Report<'_>) {
    for (rule, spans) in rules(draft) {
        let Some(entries) = quotas(rule).filter_map(logged).max() else {
            continue;
        };
        if entries > LOG_MAX {
            report.error(
                spans.at("allow"),
                "large-shared-log",
                format!(
                    "the log of limit `{}` has up to {entries} entries for each key, and a shared store keeps {LOG_MAX} at the most",
                    rule.name
                ),
                "write `algorithm: sliding-window`, which keeps a few numbers for each key; or a smaller limit, in every tier",
            );
        } else if entries > LOG_WISE {
            report.warn(
                spans.at("allow"),
                "large-shared-log",
                format!(
                    "the log of limit `{}` has up to {entries} entries for each key in the shared store, which costs it memory and work",
                    rule.name
                ),
                "write `algorithm: sliding-window`, which keeps a few numbers for each key",
            );
        }
    }
}

/// One limit that the store decides is a round trip for every request that meets it, whatever others are shared by.
fn mixed(draft: &Draft, report: &Report<'_>) {
    if rules(draft).all(|(rule, _)| rule.sharing == Sharing::Exact) {
        return;
    }
    let exact = rules(draft).filter(|(rule, _)| rule.sharing == Sharing::Exact);
    for (rule, spans) in exact.filter(|(_, spans)| !spans.has("sharing")) {
        let hint = match rule.quota.supports(Sharing::Lease) {
            true => {
                "write `sharing: lease` in it, too; or `sharing: exact`, if that is meant, which silences this note"
            }
            false => {
                "it cannot be shared otherwise: `match` it to requests that may wait for the store, or write `sharing: exact`, which silences this note"
            }
        };
        report.note(
            spans.at("name"),
            "mixed-sharing",
            format!(
                "limit `{}` is exact: every request that meets it asks the store, however its other limits are shared",
                rule.name
            ),
            hint,
        );
    }
}

/// All quotas that a limit may come to.
fn quotas(rule: &LimitRule) -> impl Iterator<Item = &Quota> {
    let tiers = rule.tiers.iter().flat_map(|tiers| &tiers.tiers);
    let overrides = rule.overrides.iter();
    std::iter::once(&rule.quota)
        .chain(&rule.candidate)
        .chain(tiers.map(|tier| &tier.quota))
        .chain(overrides.filter_map(|change| match &change.grant {
            OverrideAction::Quota(quota) => Some(quota),
            OverrideAction::Unlimited | OverrideAction::Blocked => None,
        }))
}

fn logged(quota: &Quota) -> Option<u64> {
    match *quota.limit.algorithm() {
        Algorithm::SlidingLog { limit, .. } => Some(limit),
        _ => None,
    }
}

/// Limits that do not limit while the store is away. Said once where it is said once for all of them.
fn allows(draft: &Draft, report: &Report<'_>) {
    let mut by_file = 0_usize;
    for (rule, spans) in rules(draft) {
        let enforced = rule.mode == Mode::Enforce && rule.enforced > 0;
        if rule.on_store_error != OnStoreError::Allow || !enforced {
            continue;
        }
        if !spans.has(FIELD) {
            by_file += 1;
        } else if rule.reason.is_none() {
            report.warn(
                spans.at(FIELD),
                "unlimited-without-store",
                format!(
                    "limit `{}` limits nobody while the store gives no answer; whoever can slow the store down can switch it off",
                    rule.name
                ),
                "write `local`, by which each node enforces its share; a `reason` in the limit silences this",
            );
        }
    }
    if by_file > 0 {
        let (these, them) = match by_file {
            1 => ("1 enforced limit limits".to_owned(), "it"),
            count => (format!("{count} enforced limits limit"), "them"),
        };
        report.warn(
            draft.file.at(FIELD),
            "unlimited-without-store",
            format!("{these} nobody while the store gives no answer; whoever can slow the store down can switch {them} off"),
            "write `local`, by which each node enforces its share, and `allow` only in limits that can do without",
        );
    }
}
