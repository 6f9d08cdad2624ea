//! Fuzzes the response fields that time the next request: `Retry-After`, `RateLimit` and the older fields.

use std::time::Duration;

use http::StatusCode;
use http::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use sfv::{BareItem, ListEntry, Parser};
use tollgate::Span;
use tollgate_tower::pacing::fuzzing::read_hint;

use crate::{Target, memory};

pub(super) const TARGET: Target = Target {
    name: "retry_hints",
    holds: "a `RateLimit` line yields exactly the numbers of its items, and a malformed one yields none; a refusal never \
            yields less than the same fields on 200; memory is bounded by the longest line",
    run,
};

/// In 2019.
const NOW: u64 = 1_560_000_000;
const LONGEST: usize = 1024;
/// The parsed list of a line with the most items.
const MEMORY_MAX: usize = 256 << 10;
const LINES: [&str; 4] = [
    "ratelimit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "date",
];

fn run(bytes: &[u8]) {
    let Ok(value) = HeaderValue::from_bytes(bytes) else {
        return;
    };
    let read = |name: &HeaderName, value: &HeaderValue| {
        let headers = HeaderMap::from_iter([(name.clone(), value.clone())]);
        let (hint, taken) =
            memory::peak(|| read_hint(StatusCode::TOO_MANY_REQUESTS, &headers, NOW));
        assert!(taken <= MEMORY_MAX, "{taken} bytes of memory");
        hint
    };
    ratelimit(&value, read(&HeaderName::from_static("ratelimit"), &value));
    let (backoff, spread) = read(&RETRY_AFTER, &value);
    assert_eq!(spread, None);
    let is_digits = !bytes.is_empty() && bytes.len() <= 15 && bytes.iter().all(u8::is_ascii_digit);
    if is_digits {
        let seconds = std::str::from_utf8(bytes).ok().and_then(|d| d.parse().ok());
        assert_eq!(Some(backoff), seconds.map(span_of_seconds));
    }
    // All fields at once, one line for each.
    let mut headers = HeaderMap::new();
    for (at, line) in bytes.split(|byte| *byte == b'\n').take(40).enumerate() {
        if let (Some(name), Ok(value)) = (LINES.get(at % 4), HeaderValue::from_bytes(line)) {
            headers.append(*name, value);
        }
    }
    let served = read_hint(StatusCode::OK, &headers, NOW);
    headers.insert(RETRY_AFTER, value);
    let refused = read_hint(StatusCode::SERVICE_UNAVAILABLE, &headers, NOW);
    assert!(refused.0 >= served.0 && refused.1 == served.1);
}

fn span_of_seconds(seconds: u64) -> Span {
    Span::from(Duration::from_secs(seconds))
}

/// Compares with the items of the line.
fn ratelimit(line: &HeaderValue, (backoff, spread): (Span, Option<(Span, Span)>)) {
    let has_hint = backoff > Span::ZERO || spread.is_some();
    let list = Parser::new(line.as_bytes()).parse::<sfv::List>().ok();
    let Some(list) = list.filter(|_| line.len() <= LONGEST) else {
        assert!(!has_hint, "{line:?}");
        return;
    };
    let (mut longest, mut slowest) = (Span::ZERO, None);
    let mut is_valid = true;
    for entry in &list {
        let ListEntry::Item(item) = entry else {
            is_valid = false;
            continue;
        };
        is_valid &= matches!(item.bare_item, BareItem::String(_) | BareItem::Token(_));
        let number = |name: &str| {
            let value = item.params.iter().find(|(key, _)| key.as_str() == name);
            match value {
                Some((_, BareItem::Integer(number))) => u64::try_from(i64::from(*number)).ok(),
                _ => None,
            }
        };
        if let (Some(left), Some(lasts)) = (number("r"), number("t")) {
            let lasts = span_of_seconds(lasts);
            match left {
                0 => longest = longest.max(lasts),
                1..=10 => {
                    let apart = Span::from_nanos(lasts.as_nanos() / left);
                    slowest = slowest.max(Some((apart, lasts)));
                }
                _ => {}
            }
        }
    }
    if has_hint {
        assert!(is_valid, "{line:?}");
        assert_eq!((backoff, spread), (longest, slowest), "{line:?}");
    }
}
