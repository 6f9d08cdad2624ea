//! What a response says about when to send the next request.
//!
//! # Theory
//!
//! `RateLimit` is a list of structured fields (RFC 9651): items, each a text with parameters. It is read as
//! strictly as that standard wants it: a line with a mistake anywhere says nothing. Of several items the
//! strictest counts.
//!
//! # Bounds
//!
//! Lines of more than 1024 bytes and more than 16 lines of a name are not read. Numbers have at most 15
//! digits.

use http::header::{DATE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use http::{HeaderMap as Headers, StatusCode};
use tollgate::Span;

use super::date;

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// Longer lines are not read.
const LONGEST: usize = 1024;
/// Nor more of them.
const LINES: usize = 16;
/// When so few are left, they are spread over the time that they have to last.
const FEW: u64 = 10;
/// No `Reset` is that many seconds from now: it is a moment, counted from 1970.
const SINCE_1970: u64 = 1_000_000_000;

/// When to send the next request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Hint {
    /// Not before so long.
    pub(super) hold: Span,
    /// Those after that: at least so far apart, and for how long that counts.
    pub(super) spread: Option<(Span, Span)>,
}

/// What a response says. `now` is in seconds since 1970, for responses that do not tell the time.
pub(super) fn hint(status: StatusCode, headers: &Headers, now: impl Fn() -> u64) -> Hint {
    let now = || {
        let told = one(headers, &DATE);
        let told = told.and_then(|date| date::seconds(date, now()));
        told.unwrap_or_else(&now)
    };
    let mut hint = Hint::default();
    let refuses = matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
    );
    if let Some(wait) = one(headers, &RETRY_AFTER).filter(|_| refuses) {
        let date = || date::seconds(wait, now()).map(|at| at.saturating_sub(now()));
        hint.hold = span(digits(wait).or_else(date).unwrap_or(0));
    }
    let mut is_told = false;
    for line in headers.get_all(RATELIMIT).iter().take(LINES) {
        let Some(strictest) = read(line) else {
            continue;
        };
        is_told = true;
        hint.hold = hint.hold.max(strictest.hold);
        hint.spread = hint.spread.max(strictest.spread);
    }
    if !is_told
        && one(headers, &REMAINING).and_then(digits) == Some(0)
        && let Some(reset) = one(headers, &RESET).and_then(digits)
    {
        let from_now = match reset {
            SINCE_1970.. => reset.saturating_sub(now()),
            _ => reset,
        };
        hint.hold = hint.hold.max(span(from_now));
    }
    hint
}

/// The only value of a header.
fn one<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    let mut values = headers.get_all(name).iter();
    let first = values.next().filter(|value| value.len() <= LONGEST)?;
    let is_only = values.next().is_none();
    first.to_str().ok().map(str::trim).filter(|_| is_only)
}

fn digits(text: &str) -> Option<u64> {
    let is_number = (1..=15).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

fn span(seconds: u64) -> Span {
    Span::from_nanos(seconds.saturating_mul(1_000_000_000))
}

/// The strictest item of a line of `RateLimit`; none if the line is not what it should be.
fn read(line: &HeaderValue) -> Option<Hint> {
    let mut line = Line {
        rest: line.as_bytes().get(..line.len().min(LONGEST + 1))?,
    };
    if line.rest.len() > LONGEST {
        return None;
    }
    let mut strictest = Hint::default();
    // Before the first item a tab is not allowed, between items it is.
    line.take_while(|byte| byte == b' ');
    loop {
        line.item_name()?;
        let (left, lasts) = line.parameters()?;
        if let (Some(left), Some(lasts)) = (left, lasts) {
            let lasts = span(lasts);
            match left {
                0 => strictest.hold = strictest.hold.max(lasts),
                1..=FEW => {
                    let apart = Span::from_nanos(lasts.as_nanos() / left);
                    strictest.spread = strictest.spread.max(Some((apart, lasts)));
                }
                _ => {}
            }
        }
        line.skip_spaces();
        match line.next() {
            None => return Some(strictest),
            Some(b',') => line.skip_spaces(),
            Some(_) => return None,
        }
    }
}

/// What of a line is not read yet.
struct Line<'a> {
    rest: &'a [u8],
}

impl Line<'_> {
    fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn skip_spaces(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t')) {
            self.next();
        }
    }

    /// Takes bytes while they are such; how many there were.
    fn take_while(&mut self, is: impl Fn(u8) -> bool) -> usize {
        let count = self.rest.iter().take_while(|byte| is(**byte)).count();
        self.rest = self.rest.get(count..).unwrap_or_default();
        count
    }

    /// A text in quotes, or a bare word.
    fn item_name(&mut self) -> Option<()> {
        match self.peek()? {
            b'"' => self.quoted(),
            b'A'..=b'Z' | b'a'..=b'z' | b'*' => self.word(),
            _ => None,
        }
    }

    fn quoted(&mut self) -> Option<()> {
        self.next();
        loop {
            match self.next()? {
                b'"' => return Some(()),
                b'\\' => match self.next()? {
                    b'"' | b'\\' => {}
                    _ => return None,
                },
                b' '..=b'~' => {}
                _ => return None,
            }
        }
    }

    fn word(&mut self) -> Option<()> {
        let is_word =
            |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(&byte);
        (self.take_while(is_word) > 0).then_some(())
    }

    /// The values of `r` and `t`; of two of the same name the last counts, as the standard has it.
    fn parameters(&mut self) -> Option<(Option<u64>, Option<u64>)> {
        let (mut left, mut lasts) = (None, None);
        while self.peek() == Some(b';') {
            self.next();
            self.take_while(|byte| byte == b' ');
            let before = self.rest;
            if !matches!(self.peek()?, b'a'..=b'z' | b'*') {
                return None;
            }
            let is_name =
                |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_-.*".contains(&b);
            let length = self.take_while(is_name);
            let value = match self.peek() {
                Some(b'=') => {
                    self.next();
                    self.value()?
                }
                _ => None,
            };
            match before.get(..length)? {
                b"r" => left = value,
                b"t" => lasts = value,
                _ => {}
            }
        }
        Some((left, lasts))
    }

    /// A value; inside, if it is a whole number of at least zero, that number.
    fn value(&mut self) -> Option<Option<u64>> {
        match self.peek()? {
            b'-' | b'0'..=b'9' => {
                let is_negative = self.peek() == Some(b'-');
                if is_negative {
                    self.next();
                }
                let before = self.rest;
                let length = self.take_while(|byte| byte.is_ascii_digit());
                let whole = before
                    .get(..length)
                    .and_then(|d| std::str::from_utf8(d).ok());
                let whole = digits(whole?)?;
                if self.peek() == Some(b'.') {
                    self.next();
                    let places = self.take_while(|byte| byte.is_ascii_digit());
                    return (length <= 12 && (1..=3).contains(&places)).then_some(None);
                }
                Some((!is_negative).then_some(whole))
            }
            b'"' => self.quoted().map(|()| None),
            b'?' => {
                self.next();
                matches!(self.next()?, b'0' | b'1').then_some(None)
            }
            b':' => {
                self.next();
                self.take_while(|b| b.is_ascii_alphanumeric() || b"+/=".contains(&b));
                (self.next()? == b':').then_some(None)
            }
            _ => {
                let is_begin = matches!(self.peek()?, b'A'..=b'Z' | b'a'..=b'z' | b'*');
                is_begin.then(|| self.word()).flatten().map(|()| None)
            }
        }
    }
}

#[cfg(test)]
mod tests;
