//! What responses say about when to send the next request: `Retry-After`, `RateLimit` and dates.

use std::time::{Duration, UNIX_EPOCH};

use http::StatusCode;
use http::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use sfv::{BareItem, ListEntry, Parser};
use tollgate::Span;
use tollgate_tower::client::fuzzing::{seconds, told};

use crate::{Target, memory};

pub(super) const TARGET: Target = Target {
    name: "hints",
    holds: "a line of `RateLimit` that is understood is one for another reader of structured fields too, and comes to the same numbers; \
            a date that another reader understands too is the same moment, and so is one that it writes; what is not understood says nothing; memory stays small",
    run,
    words: &[
        "\"a\";r=0;t=5",
        "\"a\";r=4;t=2",
        "a;r=1;t=1",
        ", ",
        ";",
        "=",
        "r",
        "t",
        "\"",
        "\\",
        "?1",
        ":YQ==:",
        "1.5",
        "-1",
        "999999999999999",
        "Sun, 06 Nov 1994 08:49:37 GMT",
        "Sunday, 06-Nov-94 08:49:37 GMT",
        "Sun Nov  6 08:49:37 1994",
        "120",
        "(",
        ")",
        "*",
        "\t",
        " ",
    ],
};

/// In 2019: of years with two digits none means another century to other readers.
const NOW: u64 = 1_560_000_000;
const LONGEST: usize = 1024;
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
        let (hint, taken) = memory::most(|| told(StatusCode::TOO_MANY_REQUESTS, &headers, NOW));
        assert!(taken <= 1024, "{taken} bytes of memory");
        hint
    };
    ratelimit(&value, read(&HeaderName::from_static("ratelimit"), &value));
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(date) = httpdate::parse_http_date(text)
    {
        let known = date.duration_since(UNIX_EPOCH).ok();
        let known = known.map(|since| since.as_secs());
        // That reader does not look at every byte: what only it understands is no date.
        assert!(seconds(text, NOW).is_none_or(|ours| Some(ours) == known));
        assert_eq!(seconds(&httpdate::fmt_http_date(date), NOW), known);
    }
    let (hold, spread) = read(&RETRY_AFTER, &value);
    assert_eq!(spread, None);
    let is_digits = !bytes.is_empty() && bytes.len() <= 15 && bytes.iter().all(u8::is_ascii_digit);
    if is_digits {
        let told = std::str::from_utf8(bytes).ok().and_then(|d| d.parse().ok());
        assert_eq!(Some(hold), told.map(whole));
    }
    // All at once, one line for each line: whatever stands together is read without harm.
    let mut headers = HeaderMap::new();
    for (at, line) in bytes.split(|byte| *byte == b'\n').take(40).enumerate() {
        if let (Some(name), Ok(value)) = (LINES.get(at % 4), HeaderValue::from_bytes(line)) {
            headers.append(*name, value);
        }
    }
    let served = told(StatusCode::OK, &headers, NOW);
    headers.insert(RETRY_AFTER, value);
    let refused = told(StatusCode::SERVICE_UNAVAILABLE, &headers, NOW);
    assert!(refused.0 >= served.0 && refused.1 == served.1);
}

fn whole(seconds: u64) -> Span {
    Span::from(Duration::from_secs(seconds))
}

/// What another reader makes of the line: nothing but what it says.
fn ratelimit(line: &HeaderValue, (hold, spread): (Span, Option<(Span, Span)>)) {
    let says_something = hold > Span::ZERO || spread.is_some();
    let list = Parser::new(line.as_bytes()).parse::<sfv::List>().ok();
    let Some(list) = list.filter(|_| line.len() <= LONGEST) else {
        assert!(!says_something, "{line:?}");
        return;
    };
    let (mut longest, mut slowest) = (Span::ZERO, None);
    let mut is_known = true;
    for entry in &list {
        let ListEntry::Item(item) = entry else {
            is_known = false;
            continue;
        };
        is_known &= matches!(item.bare_item, BareItem::String(_) | BareItem::Token(_));
        let number = |name: &str| {
            let value = item.params.iter().find(|(key, _)| key.as_str() == name);
            match value {
                Some((_, BareItem::Integer(number))) => u64::try_from(i64::from(*number)).ok(),
                _ => None,
            }
        };
        if let (Some(left), Some(lasts)) = (number("r"), number("t")) {
            let lasts = whole(lasts);
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
    if says_something {
        assert!(is_known, "{line:?}");
        assert_eq!((hold, spread), (longest, slowest), "{line:?}");
    }
}
