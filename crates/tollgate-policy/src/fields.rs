//! Responses to clients: header fields, a status, and a body that explains a refusal.
//!
//! # Theory
//!
//! Four families of fields report the same numbers, those of the binding limit:
//!
//! | field | when | content |
//! |---|---|---|
//! | `Retry-After` | refused | seconds until the same request passes, rounded up, at least 1; later by a part that depends on the key, if the policy spreads clients |
//! | `X-RateLimit-Limit`, `-Remaining` | a limit applied | the limit, and what is left |
//! | `X-RateLimit-Reset` | a limit applied | if refused, when the same request passes; otherwise, when the quota is full again |
//! | `RateLimit-Limit`, `-Remaining`, `-Reset` | instead of the three above, if the policy says so | the same |
//! | `RateLimit-Policy` | a limit applied | every enforced limit: `"name";q=10;w=2` |
//! | `RateLimit` | a limit applied | the binding one: `"name";r=9;t=2` |
//! | `Cache-Control: no-store` | not admitted | a refusal concerns one client |
//!
//! `Reset` has no standard. Clients that know only it sleep until it, so on a refusal it is the same moment as
//! `Retry-After` without its spread: waiting until the quota is full would be needlessly long.
//!
//! The last two follow the syntax of draft-ietf-httpapi-ratelimit-headers-11. There `t` is how long the `r` units
//! should last: for a bucket the time that earns them, so that a client that spends them evenly never reaches the
//! limit; for a window of the clock the rest of the window. When refused, `r` is what is left, which is less than
//! the request costs, and `t` is the wait. A concurrency limit has no window; its unit is `concurrent-requests`.
//!
//! # Under pressure
//!
//! Fields report the effective limit. `q` and `X-RateLimit-Limit` shrink with the limit, `w` stays (a bucket needs
//! as long to be full, and holds less), and the remainder and the waits are those under the scale. The body of a
//! refusal then names reduced capacity as the cause.
//!
//! # Invariant
//!
//! No value needs quoting: names of limits are letters, digits, `-`, `_` and `.`, and all other values are
//! numbers. Numbers have at most 15 digits, as structured fields demand. Waits are rounded up.
//!
//! # Alternative rejected
//!
//! An HTTP library's header map: texts are appended to a buffer of the caller, which learns the range of each
//! field, so that all of them can be one allocation.

use std::ops::Range;

use super::charge::{Charge, Role};
use super::gate::PolicyGate;
use super::policy_decision::{PolicyDecision, Reason};
use super::rule::{Quota, XRateLimit};
use tollgate::Algorithm;
use tollgate::Clock;
use tollgate::Scale;
use tollgate::Span;
use tollgate::Verdict;

mod problem;

pub use problem::{
    PROBLEM_TYPE, QUOTA_EXCEEDED, REDUCED_CAPACITY, detail, problem, push_json_text,
};

/// The largest integer of a structured field.
const MOST: u64 = 999_999_999_999_999;
const SECOND: u64 = 1_000_000_000;

/// A response header field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Field {
    /// `Retry-After`.
    RetryAfter,
    /// `X-RateLimit-Limit`.
    Limit,
    /// `X-RateLimit-Remaining`.
    Remaining,
    /// `X-RateLimit-Reset`.
    Reset,
    /// `RateLimit-Limit`.
    UnprefixedLimit,
    /// `RateLimit-Remaining`.
    UnprefixedRemaining,
    /// `RateLimit-Reset`.
    UnprefixedReset,
    /// `RateLimit-Policy`.
    Policy,
    /// `RateLimit`.
    RateLimit,
    /// `Cache-Control`.
    CacheControl,
}

impl Field {
    /// All fields.
    pub const ALL: [Field; 10] = [
        Field::RetryAfter,
        Field::Limit,
        Field::Remaining,
        Field::Reset,
        Field::UnprefixedLimit,
        Field::UnprefixedRemaining,
        Field::UnprefixedReset,
        Field::Policy,
        Field::RateLimit,
        Field::CacheControl,
    ];

    /// The most fields of one response.
    pub const PER_RESPONSE: usize = 7;

    /// The field's name, in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Field::RetryAfter => "retry-after",
            Field::Limit => "x-ratelimit-limit",
            Field::Remaining => "x-ratelimit-remaining",
            Field::Reset => "x-ratelimit-reset",
            Field::UnprefixedLimit => "ratelimit-limit",
            Field::UnprefixedRemaining => "ratelimit-remaining",
            Field::UnprefixedReset => "ratelimit-reset",
            Field::Policy => "ratelimit-policy",
            Field::RateLimit => "ratelimit",
            Field::CacheControl => "cache-control",
        }
    }
}

/// The HTTP status of a decision.
pub fn status(answer: &PolicyDecision) -> u16 {
    match (answer.verdict, answer.reason) {
        (Verdict::Pass | Verdict::Wait { .. }, _) => 200,
        (Verdict::Refuse { .. }, Reason::StoreError(_)) => 503,
        (Verdict::Refuse { .. }, _) => 429,
        (Verdict::Never, Reason::Path(_)) => 400,
        (
            Verdict::Never,
            Reason::DenyList(_) | Reason::MissingKey(_) | Reason::Blocked(_) | Reason::Unmatched,
        ) => 403,
        (Verdict::Never, _) => 422,
    }
}

/// Appends the text of each field to `text` and calls `each` with its range.
///
/// ```
/// use tollgate_policy::fields::fields;
/// use tollgate_policy::{Facts, LimitRule, Policy, PolicyGate, Quota};
/// use tollgate::{Limit, ManualClock};
///
/// let quota = Quota::plain(Limit::token_bucket("5/s".parse()?, 10)?);
/// let policy = Policy { limits: vec![LimitRule::new("app-open", quota)], ..Policy::default() };
/// let gate = PolicyGate::new(policy, ManualClock::new())?;
/// let answer = gate.admit(&Facts::default());
///
/// let (mut text, mut parts) = (String::new(), Vec::new());
/// fields(&gate, &answer, &mut text, &mut |field, part| parts.push((field.name(), part)));
/// let written: Vec<_> = parts.into_iter().map(|(name, part)| (name, &text[part])).collect();
/// assert_eq!(written[3], ("ratelimit-policy", "\"app-open\";q=10;w=2"));
/// assert_eq!(written[4], ("ratelimit", "\"app-open\";r=9;t=2"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn fields<C: Clock>(
    gate: &PolicyGate<C>,
    answer: &PolicyDecision,
    text: &mut String,
    each: &mut impl FnMut(Field, Range<usize>),
) {
    let style = &gate.policy().answers;
    let binding = answer
        .binding()
        .filter(|charge| charge.role == Role::Enforced);
    if let (Verdict::Refuse { retry_after }, true) = (answer.verdict, style.retry_after) {
        let seconds = jittered(whole_seconds(retry_after), style.jitter_percent, binding);
        number_field(text, Field::RetryAfter, seconds, each);
    }
    let reported = binding.and_then(|charge| {
        let quota = gate.quota(charge.limit)?;
        Some((charge, quota, gate.advert(charge.limit)?))
    });
    if let Some((charge, quota, advert)) = reported {
        let scale = gate.scale_of(charge);
        let remaining = answer.status.remaining.min(MOST);
        // The range that is written already.
        let mut written = None;
        if style.x_ratelimit != XRateLimit::Off {
            let [limit, left, end] = match style.x_ratelimit {
                XRateLimit::Unprefixed => [
                    Field::UnprefixedLimit,
                    Field::UnprefixedRemaining,
                    Field::UnprefixedReset,
                ],
                _ => [Field::Limit, Field::Remaining, Field::Reset],
            };
            let start = text.len();
            advert.push_most(scale, charge.most, text);
            each(limit, start..text.len());
            written = Some(number_field(text, left, remaining, each));
            number_field(text, end, reset(style.x_ratelimit, answer), each);
        }
        if style.ratelimit {
            let start = text.len();
            push_policies(gate, answer, text);
            each(Field::Policy, start..text.len());
            let start = text.len();
            text.push_str(advert.name());
            text.push_str(";r=");
            match written {
                Some(part) => text.extend_from_within(part),
                None => push_number(text, remaining),
            }
            let lasts = match answer.verdict {
                Verdict::Refuse { retry_after } => Some(whole_seconds(retry_after)),
                _ => lasting(quota, scale.apply_to(advert.most), advert.window, answer),
            };
            if let Some(lasts) = lasts {
                push_parameter(text, ";t=", lasts);
            }
            each(Field::RateLimit, start..text.len());
        }
    }
    if !answer.is_admitted() {
        let start = text.len();
        text.push_str("no-store");
        each(Field::CacheControl, start..text.len());
    }
}

/// Appends a number, reports its range for this field, and returns the range.
fn number_field(
    text: &mut String,
    field: Field,
    number: u64,
    each: &mut impl FnMut(Field, Range<usize>),
) -> Range<usize> {
    let start = text.len();
    push_number(text, number);
    let part = start..text.len();
    each(field, part.clone());
    part
}

/// The constant part of a quota's fields, computed once.
#[derive(Clone, Debug)]
pub(super) struct Advert {
    most: u64,
    window: Span,
    /// `"name";q=10;w=2`
    policy: Box<str>,
    /// The range of the 10.
    number: Range<usize>,
    /// The end of the quoted name.
    name_end: usize,
}

impl Advert {
    pub(super) fn new(name: &str, quota: &Quota) -> Advert {
        let (most, window) = quota.advertised();
        let mut policy = String::new();
        push_name(&mut policy, name);
        let name_end = policy.len();
        policy.push_str(";q=");
        let start = policy.len();
        push_number(&mut policy, most.min(MOST));
        let number = start..policy.len();
        match quota.limit.algorithm() {
            Algorithm::Concurrency { .. } => policy.push_str(";qu=\"concurrent-requests\""),
            _ => push_parameter(&mut policy, ";w=", whole_seconds(window)),
        }
        Advert {
            most,
            window,
            policy: policy.into(),
            number,
            name_end,
        }
    }

    fn part(&self, range: Range<usize>) -> &str {
        self.policy.get(range).unwrap_or_default()
    }

    /// `"name"`
    fn name(&self) -> &str {
        self.part(0..self.name_end)
    }

    /// Appends the limit; `brought` is its number if the request brought it.
    fn push_most(&self, scale: Scale, brought: Option<u32>, text: &mut String) {
        if let Some(most) = brought {
            let left = |most| if most == 0 { 0 } else { scale.apply_to(most) };
            return push_number(text, left(u64::from(most)));
        }
        // A limit of zero is reported as one.
        if scale == Scale::ONE && self.most > 0 {
            text.push_str(self.part(self.number.clone()));
        } else {
            push_number(text, scale.apply_to(self.most).min(MOST));
        }
    }

    fn push_policy(&self, scale: Scale, brought: Option<u32>, text: &mut String) {
        if scale == Scale::ONE && brought.is_none() {
            text.push_str(&self.policy);
            return;
        }
        text.push_str(self.part(0..self.number.start));
        self.push_most(scale, brought, text);
        text.push_str(self.part(self.number.end..self.policy.len()));
    }
}

/// `"name";q=10;w=2` of every enforced limit, in the order of the policy.
fn push_policies<C: Clock>(gate: &PolicyGate<C>, answer: &PolicyDecision, text: &mut String) {
    let mut between = "";
    let enforced = answer.charges.iter().filter(|c| c.role == Role::Enforced);
    for (charge, advert) in enforced.filter_map(|c| Some((c, gate.advert(c.limit)?))) {
        text.push_str(between);
        between = ", ";
        advert.push_policy(gate.scale_of(charge), charge.most, text);
    }
}

/// How long what is left should last, in seconds.
fn lasting(quota: &Quota, most: u64, window: Span, answer: &PolicyDecision) -> Option<u64> {
    match quota.limit.algorithm() {
        Algorithm::Concurrency { .. } => None,
        Algorithm::FixedWindow { .. } => {
            let to_its_end = answer.status.full_after;
            Some(whole_seconds(if to_its_end.is_zero() {
                window
            } else {
                to_its_end
            }))
        }
        // Nothing is left: the time until a unit is earned.
        _ if answer.status.remaining == 0 => Some(whole_seconds(answer.status.next_after)),
        _ => {
            let (left, most) = (answer.status.remaining.min(most), most.max(1));
            let ns = match left.checked_mul(window.as_nanos()) {
                Some(product) => product / most,
                None => {
                    let product = u128::from(left) * u128::from(window.as_nanos());
                    u64::try_from(product / u128::from(most)).unwrap_or(u64::MAX)
                }
            };
            Some(whole_seconds(Span::from_nanos(ns)))
        }
    }
}

fn reset(reported: XRateLimit, answer: &PolicyDecision) -> u64 {
    let span = match answer.verdict {
        Verdict::Refuse { retry_after } => retry_after,
        _ => answer.status.full_after,
    };
    match reported {
        XRateLimit::Epoch => answer.issued.plus(span).as_nanos().div_ceil(SECOND),
        _ => span.as_secs_ceil(),
    }
}

/// Seconds, rounded up, at least one.
fn whole_seconds(span: Span) -> u64 {
    span.as_secs_ceil().max(1)
}

/// Up to `percent` more, in whole seconds, constant for a key. Waits of a few seconds stay the same, because the
/// field has no fractions of a second.
fn jittered(seconds: u64, percent: u32, of: Option<&Charge>) -> u64 {
    let most_more = u128::from(seconds) * u128::from(percent) / 100;
    let spread = u128::from(of.map_or(0, Charge::spread));
    let more = ((most_more + 1) * spread) >> 32;
    seconds.saturating_add(u64::try_from(more).unwrap_or(u64::MAX))
}

fn push_name(text: &mut String, name: &str) {
    text.push('"');
    text.push_str(name);
    text.push('"');
}

fn push_parameter(text: &mut String, name: &str, value: u64) {
    text.push_str(name);
    push_number(text, value.min(MOST));
}

/// `00` to `99`.
const PAIRS: &str = "\
    00010203040506070809101112131415161718192021222324252627282930313233343536373839\
    40414243444546474849505152535455565758596061626364656667686970717273747576777879\
    8081828384858687888990919293949596979899";

/// The digits of a number below 100, two of them: `07`.
fn pair_of(number: u64) -> &'static str {
    // Below 200 in any case.
    let at = (number % 100) as usize * 2;
    PAIRS.get(at..at + 2).unwrap_or_default()
}

/// The text of a number below 100, as a static string.
pub fn small_number(number: u64) -> Option<&'static str> {
    let pair = (number < 100).then(|| pair_of(number))?;
    Some(pair.strip_prefix('0').unwrap_or(pair))
}

/// Appends a number in decimal digits, two at a time, without `fmt`.
pub fn push_number(text: &mut String, number: u64) {
    if let Some(small) = small_number(number) {
        return text.push_str(small);
    }
    // As many as the largest number has.
    let mut digits = [0; 20];
    let (mut rest, mut start) = (number, digits.len());
    for pair in digits.rchunks_exact_mut(2) {
        pair.copy_from_slice(pair_of(rest).as_bytes());
        rest /= 100;
        start -= 2;
        if rest == 0 {
            break;
        }
    }
    let digits = digits.get(start..).unwrap_or_default();
    let digits = std::str::from_utf8(digits).unwrap_or_default();
    text.push_str(digits.strip_prefix('0').unwrap_or(digits));
}

#[cfg(test)]
mod tests;
