//! The decision on a sliding log, from the summary that the script returns.
//!
//! A log can be long, so the script does not return it. It returns the units in the window, the moment of the reading, and the
//! moments of the deciding units: the oldest, the newest, and the one whose end makes room. These are the core's own formulas
//! ([`tollgate::algorithm::log`]) on these numbers.

use redis::Value;
use tollgate::{Moment, Span};
use tollgate::{QuotaStatus, Verdict};

use super::BadReply;
use super::evaluate::KeyDecision;

/// The decision on `cost` at `now`.
pub(super) fn evaluate(
    limit: u64,
    window: u64,
    found: &Value,
    now: u64,
    cost: u64,
) -> Result<KeyDecision, BadReply> {
    let bad = || BadReply(format!("{found:?} is not the summary of a log"));
    let Value::Array(items) = found else {
        return Err(bad());
    };
    let number = |i: usize| match items.get(i) {
        Some(Value::Int(number)) => u64::try_from(*number).map_err(|_| bad()),
        _ => Err(bad()),
    };
    let (used, at) = (number(0)?, number(1)?);
    let (oldest, newest, frees) = if used > 0 {
        (number(2)?, number(3)?, number(4)?)
    } else {
        (at, at, at)
    };
    // How long until what came at `stamp` is out of the window.
    let out_in = |stamp: u64| {
        if stamp >= now {
            window.saturating_add(stamp - now)
        } else {
            window.saturating_sub(now - stamp)
        }
    };
    let status = |used: u64, oldest: u64, newest: u64| QuotaStatus {
        remaining: limit.saturating_sub(used),
        full_after: Span::from_nanos(if used == 0 { 0 } else { out_in(newest) }),
        next_after: Span::from_nanos(if used == 0 { 0 } else { out_in(oldest) }),
    };
    let before = status(used, oldest, newest);
    let verdict = if cost > limit {
        Verdict::Never
    } else if cost > 0 && used + cost > limit {
        Verdict::Refuse {
            retry_after: Span::from_nanos(out_in(frees)),
        }
    } else {
        Verdict::Pass
    };
    let takes = verdict == Verdict::Pass && cost > 0;
    Ok(KeyDecision {
        verdict,
        before,
        after: if takes {
            status(used + cost, if used == 0 { at } else { oldest }, at)
        } else {
            before
        },
        issued: Moment::from_nanos(if takes { at } else { now }),
    })
}
