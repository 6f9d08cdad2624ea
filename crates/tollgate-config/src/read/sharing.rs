//! `sharing`: how nodes share a limit that they count in one store.

use tollgate::Algorithm;
use tollgate_policy::{LimitRule, Sharing, WhenOver};

use super::fields::Fields;
use super::scalar::{choice, text};
use crate::report::{Read, Report, quoted};

const NAME: &str = "sharing";

/// What the fields of the file or of a limit say, if anything.
pub(super) fn sharing(fields: &Fields<'_>, report: &Report<'_>) -> Read<Option<Sharing>> {
    let words = Sharing::ALL.map(|sharing| (sharing.name(), sharing));
    let what = "a way to share a limit";
    fields.read(NAME, |node| {
        // As other tools call them.
        let meant = match text(node, report)? {
            "strict" | "synchronous" | "redis" => "exact",
            "borrow" | "lend" | "leased" => "lease",
            "async" | "cached" | "global" | "eventual" => "sync",
            _ => return choice(node, what, &words, report),
        };
        let said = quoted(text(node, report)?);
        let hint = format!("did you mean `{meant}`?");
        Err(report.error(
            node.place,
            "unknown-word",
            format!("{said} is not {what}"),
            hint,
        ))
    })
}

/// A limit with what it says, or else what the file says. What cannot be shared so stays exact if the file said it for
/// all, and is an error if the limit says so itself.
pub(super) fn shared(
    rule: LimitRule,
    (own, common): (Option<Sharing>, Option<Sharing>),
    what: &str,
    fields: &Fields<'_>,
    report: &Report<'_>,
) -> Read<LimitRule> {
    let sharing = own.or(common).unwrap_or_default();
    let takes_rest = rule.when_over == WhenOver::TakeRest && sharing != Sharing::Exact;
    if rule.quota.can_be(sharing) && !takes_rest {
        return Ok(LimitRule { sharing, ..rule });
    }
    match (own, fields.get(NAME)) {
        (Some(sharing), Some(node)) => {
            let (why, hint) = why(&rule, sharing);
            let message = format!("{what} cannot be shared in this way: {why}");
            Err(report.error(node.place, "cannot-share", message, hint))
        }
        _ => Ok(rule),
    }
}

fn why(rule: &LimitRule, sharing: Sharing) -> (&'static str, &'static str) {
    match (rule.quota.limit.algorithm(), sharing) {
        _ if rule.when_over == WhenOver::TakeRest => (
            "what it takes afterwards is told to the store at once",
            "write `sharing: exact`, or leave `when_over` out",
        ),
        (Algorithm::LeakyBucket { .. }, _) => (
            "the slots of a leaky bucket are in one order for all nodes",
            "write `sharing: exact`, or `algorithm: token-bucket`",
        ),
        (Algorithm::SlidingLog { .. }, _) => (
            "a log would hold the moments at which it is told, not those at which something passed",
            "write `sharing: lease`, or `algorithm: sliding-window`",
        ),
        (Algorithm::Concurrency { .. }, _) => (
            "places are given back to whoever counted them",
            "write `sharing: lease`, by which the store lends places",
        ),
        _ => (
            "burst credits are two rates at once, and what is lent or told later keeps to neither",
            "write `sharing: exact`, or `algorithm: token-bucket`",
        ),
    }
}
