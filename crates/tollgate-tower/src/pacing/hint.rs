//! Rate limit hints in responses: when to send the next request.
//!
//! # Theory
//!
//! `RateLimit` is a list of structured fields (RFC 9651): items, each a name with parameters. A line with a mistake anywhere
//! is ignored, as that standard demands. The strictest of several items counts.
//!
//! # Bounds
//!
//! Lines of more than 1024 bytes, and more than 16 lines of a name, are ignored. Numbers have at most 15 digits.

use std::time::UNIX_EPOCH;

use http::StatusCode;
use http::header::{DATE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use sfv::{BareItem, List, ListEntry, Parser};
use tollgate::Span;

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// The longest line that is read.
const MAX_LINE_BYTES: usize = 1024;
/// The most lines that are read.
const MAX_LINES: usize = 16;
/// So few remaining requests are spread over the time until the reset.
const SPREAD_BELOW: u64 = 10;
/// From here on `X-RateLimit-Reset` is a moment in seconds since 1970.
const SINCE_1970: u64 = 1_000_000_000;

/// When to send the next requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RateLimitHint {
    /// No request for this long.
    pub(super) backoff: Span,
    /// The requests after that.
    pub(super) spread: Option<Spread>,
}

/// Requests at least `interval` apart, for `period`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Spread {
    pub(super) interval: Span,
    pub(super) period: Span,
}

impl RateLimitHint {
    /// Reads a response. `now` is in seconds since 1970, for responses without `Date`.
    pub(super) fn read(
        status: StatusCode,
        headers: &HeaderMap,
        now: impl Fn() -> u64,
    ) -> RateLimitHint {
        let now = || {
            let date = single_value(headers, &DATE).and_then(date_seconds);
            date.unwrap_or_else(&now)
        };
        let mut hint = RateLimitHint::default();
        let is_refusal = matches!(
            status,
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
        );
        if let Some(wait) = single_value(headers, &RETRY_AFTER).filter(|_| is_refusal) {
            let until_date = || date_seconds(wait).map(|at| at.saturating_sub(now()));
            hint.backoff = seconds(integer(wait).or_else(until_date).unwrap_or(0));
        }
        let mut has_ratelimit = false;
        for line in headers.get_all(RATELIMIT).iter().take(MAX_LINES) {
            let Some(strictest) = read_ratelimit(line) else {
                continue;
            };
            has_ratelimit = true;
            hint.backoff = hint.backoff.max(strictest.backoff);
            hint.spread = hint.spread.max(strictest.spread);
        }
        if !has_ratelimit
            && single_value(headers, &REMAINING).and_then(integer) == Some(0)
            && let Some(reset) = single_value(headers, &RESET).and_then(integer)
        {
            let from_now = match reset {
                SINCE_1970.. => reset.saturating_sub(now()),
                _ => reset,
            };
            hint.backoff = hint.backoff.max(seconds(from_now));
        }
        hint
    }
}

/// The value of a header that occurs once.
fn single_value<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    let mut values = headers.get_all(name).iter();
    let first = values
        .next()
        .filter(|value| value.len() <= MAX_LINE_BYTES)?;
    let is_single = values.next().is_none();
    first.to_str().ok().map(str::trim).filter(|_| is_single)
}

fn integer(text: &str) -> Option<u64> {
    let is_integer = (1..=15).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    is_integer.then(|| text.parse().ok()).flatten()
}

/// Seconds since 1970 of a date in HTTP's format.
fn date_seconds(text: &str) -> Option<u64> {
    let date = httpdate::parse_http_date(text).ok()?;
    Some(date.duration_since(UNIX_EPOCH).ok()?.as_secs())
}

fn seconds(seconds: u64) -> Span {
    Span::from_nanos(seconds.saturating_mul(1_000_000_000))
}

/// The strictest item of a `RateLimit` line; `None` if the line is malformed.
fn read_ratelimit(line: &HeaderValue) -> Option<RateLimitHint> {
    if line.len() > MAX_LINE_BYTES {
        return None;
    }
    let list: List = Parser::new(line.as_bytes()).parse().ok()?;
    let mut strictest = RateLimitHint::default();
    for entry in &list {
        let ListEntry::Item(item) = entry else {
            return None;
        };
        if !matches!(item.bare_item, BareItem::String(_) | BareItem::Token(_)) {
            return None;
        }
        let parameter = |name: &str| {
            item.params
                .get(name)?
                .as_integer()
                .and_then(|value| u64::try_from(i64::from(value)).ok())
        };
        let (Some(remaining), Some(reset)) = (parameter("r"), parameter("t")) else {
            continue;
        };
        let period = seconds(reset);
        match remaining {
            0 => strictest.backoff = strictest.backoff.max(period),
            1..=SPREAD_BELOW => {
                let interval = Span::from_nanos(period.as_nanos() / remaining);
                strictest.spread = strictest.spread.max(Some(Spread { interval, period }));
            }
            _ => {}
        }
    }
    (!list.is_empty()).then_some(strictest)
}

#[cfg(test)]
mod tests;
