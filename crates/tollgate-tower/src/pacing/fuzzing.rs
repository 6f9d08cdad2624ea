//! The reader of response headers, for the fuzz targets. Not part of the interface: it may change at any time.

use http::{HeaderMap, StatusCode};
use tollgate::Span;

use super::hint::RateLimitHint;

/// The backoff, and the interval and period of spread requests. `now` is in seconds since 1970.
pub fn read_hint(
    status: StatusCode,
    headers: &HeaderMap,
    now: u64,
) -> (Span, Option<(Span, Span)>) {
    let hint = RateLimitHint::read(status, headers, || now);
    let spread = hint.spread;
    (
        hint.backoff,
        spread.map(|spread| (spread.interval, spread.period)),
    )
}
