//! Warnings about a shared store, and about what happens while it does not answer.

use std::net::IpAddr;

use tollgate::{Algorithm, Span};
use tollgate_policy::shared::LOG_MAX;
use tollgate_policy::{DefaultAction, LimitRule, Mode, OnStoreError, Quota, Sharing};

use super::quotas;
use crate::read::{Draft, FieldSpans};
use crate::report::Report;
use crate::store::{SecretSpec, SharedSpec, StoreSpec};

/// Envoy waits for 20 ms by default; the rest is for the network.
const DEADLINE_WISE: Span = Span::from_millis(15);
/// Entries of one log in a shared store before a warning: it is one key, and every request trims it.
const LOG_WISE: u64 = 10_000;
const FIELD: &str = "on_store_error";

/// Reports on the store of a policy.
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

/// Every limit that is not off, with its places.
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
                "`sharing` has no effect with `store: memory`",
                "remove it, or use a shared store: `store: redis://10.0.0.5:6379/0`",
            );
        }
        if spans.has(FIELD) {
            report.warn(
                spans.name_of(FIELD),
                "unused-on-store-error",
                "`on_store_error` has no effect with `store: memory`",
                "remove it, or use a shared store: `store: redis://10.0.0.5:6379/0`",
            );
        }
    }
}

fn secrets(spec: &SharedSpec, spans: &FieldSpans, report: &Report<'_>) {
    if let Some(SecretSpec::Text(_)) = spec.password {
        report.warn(
            spans.at("url"),
            "password-in-file",
            "the password of the store is in the file, and everything that can read the file has it",
            "write `password_env: TOLLGATE_STORE_PASSWORD` or `password_file: /run/secrets/store` beside `url`",
        );
    }
    let secret = spec.password.is_some() || spec.sentinel_password.is_some();
    let far = spec.topology.hosts().find(|host| !is_loopback(host));
    if let (true, None, Some(host)) = (secret, &spec.tls, far) {
        report.warn(
            spans.at("url"),
            "password-in-clear",
            format!("the password is sent to `{host}` in plain text"),
            "write `rediss` or `valkeys` in the scheme for TLS",
        );
    }
}

/// A user without a password does not log in.
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
                "a user without a password does not log in: the default user of the store is used",
                format!("add `{add}: …`, or remove the user"),
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
                "while the store hangs, a decision takes {}, but Envoy waits for only 20ms by default",
                spec.deadline
            ),
            format!("write at most `{DEADLINE_WISE}`, unless all callers wait longer"),
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
                    "the log of limit `{}` has up to {entries} entries for each key, and a shared store keeps at most {LOG_MAX}",
                    rule.name
                ),
                "write `algorithm: sliding-window`, which keeps a few numbers for each key; or lower the limit, in every tier",
            );
        } else if entries > LOG_WISE {
            report.warn(
                spans.at("allow"),
                "large-shared-log",
                format!(
                    "the log of limit `{}` has up to {entries} entries for each key in the shared store, which takes memory and time there",
                    rule.name
                ),
                "write `algorithm: sliding-window`, which keeps a few numbers for each key",
            );
        }
    }
}

/// A single exact limit costs a round trip for every request that matches it, however the other limits are shared.
fn mixed(draft: &Draft, report: &Report<'_>) {
    if rules(draft).all(|(rule, _)| rule.sharing == Sharing::Exact) {
        return;
    }
    let exact = rules(draft).filter(|(rule, _)| rule.sharing == Sharing::Exact);
    for (rule, spans) in exact.filter(|(_, spans)| !spans.has("sharing")) {
        let hint = match rule.quota.supports(Sharing::Lease) {
            true => "write `sharing: lease` in it too, or `sharing: exact` to silence this note",
            false => {
                "it supports no other `sharing`: narrow its `match`, or write `sharing: exact` to silence this note"
            }
        };
        report.note(
            spans.at("name"),
            "mixed-sharing",
            format!(
                "limit `{}` is exact: every request that matches it waits for the store, however its other limits are shared",
                rule.name
            ),
            hint,
        );
    }
}

fn logged(quota: &Quota) -> Option<u64> {
    match *quota.limit.algorithm() {
        Algorithm::SlidingLog { limit, .. } => Some(limit),
        _ => None,
    }
}

/// Limits that are not enforced during an outage. One warning if the file sets that for all of them.
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
                    "limit `{}` is not enforced while the store does not answer: a client that can slow the store down can switch it off",
                    rule.name
                ),
                "write `local`, with which each node enforces its share; a `reason` in the limit silences this",
            );
        }
    }
    if by_file > 0 {
        let (these, them) = match by_file {
            1 => ("1 limit is".to_owned(), "it"),
            count => (format!("{count} limits are"), "them"),
        };
        report.warn(
            draft.file.at(FIELD),
            "unlimited-without-store",
            format!("{these} not enforced while the store does not answer: a client that can slow the store down can switch {them} off"),
            "write `local`, with which each node enforces its share, and `allow` only in limits that may be off",
        );
    }
}
