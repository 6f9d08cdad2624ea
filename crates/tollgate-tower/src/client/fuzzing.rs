//! What is read of responses, for the fuzz targets. No part of the interface: it may change at any time.

use http::{HeaderMap, StatusCode};
use tollgate::Span;

use super::{date, hint};

/// When to send the next request: not before so long, and how far apart those after it, for how long.
///
/// `now` is in seconds since 1970.
pub fn told(status: StatusCode, headers: &HeaderMap, now: u64) -> (Span, Option<(Span, Span)>) {
    let told = hint::hint(status, headers, || now);
    (told.hold, told.spread)
}

/// Seconds since 1970; none if it is no date, or one before.
pub fn seconds(text: &str, now: u64) -> Option<u64> {
    date::seconds(text, now)
}
