//! `sharing`: how nodes share a limit in a shared store.

use tollgate::Algorithm;
use tollgate_policy::{LimitRule, Sharing, WhenOver};

use super::fields::Fields;
use super::scalar::choice_or_alias;
use crate::report::Read;

const NAME: &str = "sharing";
/// The words of other tools.
const ALIASES: &[(&str, &str)] = &[
    ("strict", "exact"),
    ("synchronous", "exact"),
    ("redis", "exact"),
    ("borrow", "lease"),
    ("lend", "lease"),
    ("leased", "lease"),
    ("async", "sync"),
    ("cached", "sync"),
    ("global", "sync"),
    ("eventual", "sync"),
];

/// Reads the field of the file or of a limit.
pub(super) fn sharing(fields: &Fields<'_>) -> Read<Option<Sharing>> {
    let words = Sharing::ALL.map(|sharing| (sharing.name(), sharing));
    fields.read(NAME, |node| {
        choice_or_alias(node, "a way to share a limit", &words, ALIASES)
    })
}

/// Sets the limit's own `sharing`, or else that of the file.
///
/// A limit that does not support the file's `sharing` stays exact. Its own is an error if it does not support that.
pub(super) fn apply_sharing(
    rule: LimitRule,
    (own, of_file): (Option<Sharing>, Option<Sharing>),
    what: &str,
    fields: &Fields<'_>,
) -> Read<LimitRule> {
    let sharing = own.or(of_file).unwrap_or_default();
    let takes_rest = rule.when_over == WhenOver::ChargeRemaining && sharing != Sharing::Exact;
    if rule.quota.supports(sharing) && !takes_rest {
        return Ok(LimitRule { sharing, ..rule });
    }
    match (own, fields.get(NAME)) {
        (Some(_), Some(node)) => {
            let (why, hint) = why_not(&rule);
            let message = format!(
                "{what} does not support `sharing: {}`: {why}",
                sharing.name()
            );
            Err(node.error("cannot-share", message, hint))
        }
        _ => Ok(rule),
    }
}

/// Why a limit does not support a `sharing`, and what to write instead.
fn why_not(rule: &LimitRule) -> (&'static str, &'static str) {
    match rule.quota.limit.algorithm() {
        _ if rule.quota.limit.max_debt() > 0 => (
            "a debt is counted in the store, once for all nodes",
            "write `sharing: exact`, or remove `when_over`",
        ),
        _ if rule.when_over == WhenOver::ChargeRemaining => (
            "with `take-rest` a refused request is charged in the store at once",
            "write `sharing: exact`, or remove `when_over`",
        ),
        Algorithm::LeakyBucket { .. } => (
            "the slots of a leaky bucket are in one order for all nodes",
            "write `sharing: exact`, or `algorithm: token-bucket`",
        ),
        Algorithm::SlidingLog { .. } => (
            "the log would hold the times of the pushes, not of the requests",
            "write `sharing: lease`, or `algorithm: sliding-window`",
        ),
        Algorithm::Concurrency { .. } => (
            "a permit is returned to the node that counted it",
            "write `sharing: lease`, with which nodes borrow permits",
        ),
        _ => (
            "burst credits are two buckets, and leased or pushed usage would keep to neither",
            "write `sharing: exact`, or `algorithm: token-bucket`",
        ),
    }
}
