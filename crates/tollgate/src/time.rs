//! Points and lengths of time, and their text forms.
//!
//! A [`Moment`] is a point on one clock, a [`Span`] is a length of time; both count nanoseconds in a
//! `u64` (584 years). They are different types so that adding two moments does not compile. A moment
//! means nothing outside the clock that made it and is never sent to another process; spans travel.
//!
//! This module reads no clock: see [`crate::clock`].

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Nanoseconds in each unit of the text form, longest first. `min` comes before `m` so that the
/// longer word wins; a month is left out because it has no fixed length.
const UNITS: &[(&str, u64)] = &[
    ("w", 7 * 86_400 * SECOND),
    ("d", 86_400 * SECOND),
    ("h", 3_600 * SECOND),
    ("m", 60 * SECOND),
    ("s", SECOND),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// Other spellings that are read but never printed.
const ALIASES: &[(&str, &str)] = &[
    ("week", "w"),
    ("weeks", "w"),
    ("day", "d"),
    ("days", "d"),
    ("hour", "h"),
    ("hours", "h"),
    ("hr", "h"),
    ("min", "m"),
    ("mins", "m"),
    ("minute", "m"),
    ("minutes", "m"),
    ("sec", "s"),
    ("secs", "s"),
    ("second", "s"),
    ("seconds", "s"),
    ("msec", "ms"),
    ("µs", "us"),
    ("μs", "us"),
];

const SECOND: u64 = 1_000_000_000;

/// A point on one clock, in nanoseconds since that clock's origin. Never sent to another process.
///
/// ```
/// use tollgate::{Moment, Span};
///
/// let moment = Moment::ORIGIN.plus(Span::from_secs(3));
/// assert_eq!(moment.since(Moment::ORIGIN), Span::from_secs(3));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// The clock's origin.
    pub const ORIGIN: Moment = Moment(0);

    /// The moment `ns` nanoseconds after the clock's origin.
    pub const fn from_nanos(ns: u64) -> Moment {
        Moment(ns)
    }

    /// Nanoseconds since the clock's origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// How long since `earlier`; nothing if the clock stepped back.
    pub const fn since(self, earlier: Moment) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }

    /// The moment `span` later, or the end of the clock if that is nearer.
    #[must_use]
    pub const fn plus(self, span: Span) -> Moment {
        Moment(self.0.saturating_add(span.0))
    }

    /// The moment `span` earlier, or the origin if that is nearer.
    #[must_use]
    pub const fn minus(self, span: Span) -> Moment {
        Moment(self.0.saturating_sub(span.0))
    }
}

/// A length of time in nanoseconds.
///
/// A [`Duration`] is accepted wherever a span is meant; one beyond 584 years is read as 584 years.
///
/// ```
/// use std::time::Duration;
/// use tollgate::Span;
///
/// let span: Span = "1h30m".parse()?;
/// assert_eq!(span, Span::from(Duration::from_secs(5400)));
/// assert_eq!(Duration::from(span), Duration::from_secs(5400));
/// # Ok::<(), tollgate::SpanError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(u64);

impl Span {
    /// No time at all.
    pub const ZERO: Span = Span(0);
    /// The longest span: 584 years.
    pub const MAX: Span = Span(u64::MAX);

    /// `ns` nanoseconds.
    pub const fn from_nanos(ns: u64) -> Span {
        Span(ns)
    }

    /// `ms` milliseconds; 584 years if that would be more.
    pub const fn from_millis(ms: u64) -> Span {
        Span(ms.saturating_mul(1_000_000))
    }

    /// `s` seconds; 584 years if that would be more.
    pub const fn from_secs(s: u64) -> Span {
        Span(s.saturating_mul(SECOND))
    }

    /// The length in nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Whether the length is zero.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Whole seconds, rounded **up**: a client that waits as long must not come back too early.
    pub const fn as_secs_ceil(self) -> u64 {
        self.0.div_ceil(SECOND)
    }
}

impl From<Span> for Duration {
    fn from(span: Span) -> Duration {
        Duration::from_nanos(span.0)
    }
}

impl From<Duration> for Span {
    /// Saturates at 584 years.
    fn from(duration: Duration) -> Span {
        Span(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Span {
    /// The shortest exact form, in the spelling that [`Span::from_str`] reads: `1h30m`, `250ms`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut left = self.0;
        if left == 0 {
            return f.write_str("0s");
        }
        for &(name, ns) in UNITS {
            if left >= ns {
                write!(f, "{}{name}", left / ns)?;
                left %= ns;
            }
        }
        Ok(())
    }
}

/// Why a text is not a span of time.
///
/// ```
/// use tollgate::Span;
///
/// let error = "5".parse::<Span>().unwrap_err();
/// assert_eq!(error.to_string(), "`5` has no unit of time");
/// assert_eq!(error.hint(), "write `5s` or `5ms`");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SpanError {
    /// Nothing was written.
    Empty,
    /// A number was expected where `at` begins.
    NoNumber {
        /// The rest of the text from there.
        at: String,
    },
    /// `number` has no unit behind it.
    NoUnit {
        /// The number as written.
        number: String,
    },
    /// `unit` is not a unit of time.
    UnknownUnit {
        /// The word as written.
        unit: String,
    },
    /// Longer than 584 years.
    TooLong,
}

impl fmt::Display for SpanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("a span of time is missing"),
            Self::NoNumber { at } => write!(f, "a number was expected at `{at}`"),
            Self::NoUnit { number } => write!(f, "`{number}` has no unit of time"),
            Self::UnknownUnit { unit } => write!(f, "`{unit}` is not a unit of time"),
            Self::TooLong => f.write_str("the span is longer than 584 years"),
        }
    }
}

impl SpanError {
    /// What the writer can do now.
    pub fn hint(&self) -> String {
        match self {
            Self::NoUnit { number } => format!("write `{number}s` or `{number}ms`"),
            Self::TooLong => "write a shorter span".into(),
            _ => "write numbers with the units `ns us ms s m h d w`, such as `250ms` or `1h30m`"
                .into(),
        }
    }
}

impl std::error::Error for SpanError {}

/// Splits off the leading run of characters that satisfy `keep`.
fn take_while(text: &str, keep: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !keep(c)).unwrap_or(text.len()))
}

impl FromStr for Span {
    type Err = SpanError;

    /// Reads `250ms`, `1h30m`, `1.5s`, `2 days`. Every number has a unit; a fraction finer than a
    /// nanosecond is rounded up, because a span that limits must not become shorter than written.
    fn from_str(text: &str) -> Result<Span, SpanError> {
        let mut rest = text.trim();
        if rest.is_empty() {
            return Err(SpanError::Empty);
        }
        let mut total: u128 = 0;
        while !rest.is_empty() {
            let (number, after) = take_while(rest, |c| c.is_ascii_digit() || c == '.' || c == '_');
            let (unit, after) = take_while(after.trim_start(), |c| c.is_alphabetic());
            if number.is_empty() {
                return Err(SpanError::NoNumber { at: rest.into() });
            }
            if unit.is_empty() {
                return Err(SpanError::NoUnit {
                    number: number.into(),
                });
            }
            let unit_ns =
                unit_nanos(unit).ok_or_else(|| SpanError::UnknownUnit { unit: unit.into() })?;
            total += decimal_times(number, unit_ns)
                .ok_or_else(|| SpanError::NoNumber { at: number.into() })?;
            if total > u128::from(u64::MAX) {
                return Err(SpanError::TooLong);
            }
            rest = after.trim_start();
        }
        u64::try_from(total)
            .map(Span)
            .map_err(|_| SpanError::TooLong)
    }
}

/// Nanoseconds in a unit, or `None` if it is not a unit.
pub(crate) fn unit_nanos(word: &str) -> Option<u64> {
    let lower = word.to_lowercase();
    let name = ALIASES
        .iter()
        .find(|(alias, _)| *alias == lower)
        .map_or(lower.as_str(), |(_, name)| *name);
    UNITS.iter().find(|(n, _)| *n == name).map(|&(_, ns)| ns)
}

/// `number` (digits, at most one point, `_` between digits) times `unit_ns`, rounded up.
fn decimal_times(number: &str, unit_ns: u64) -> Option<u128> {
    let number = number.replace('_', "");
    let (whole, fraction) = number.split_once('.').unwrap_or((&number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    // 18 digits of a fraction are finer than a nanosecond of a week; more would overflow.
    let digits = fraction.get(..18).unwrap_or(fraction);
    let parse = |s: &str| {
        if s.is_empty() {
            Some(0)
        } else {
            s.parse::<u64>().ok()
        }
    };
    let whole = u128::from(parse(whole)?) * u128::from(unit_ns);
    let scale = 10u128.pow(u32::try_from(digits.len()).ok()?);
    Some(whole + (u128::from(parse(digits)?) * u128::from(unit_ns)).div_ceil(scale))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_parsed_in_all_notations() {
        for (text, ns) in [
            ("250ms", 250_000_000),
            ("1h30m", 5_400 * SECOND),
            ("1.5s", 1_500_000_000),
            ("2 days", 172_800 * SECOND),
            ("90 min", 5_400 * SECOND),
            ("1w", 604_800 * SECOND),
            ("10us", 10_000),
            ("0s", 0),
            ("0.0000000001s", 1),
        ] {
            assert_eq!(text.parse::<Span>(), Ok(Span(ns)), "{text}");
        }
    }

    #[test]
    fn spans_print_in_the_form_they_are_read() {
        for text in ["250ms", "1h30m", "1d", "1w2d3h4m5s6ms7us8ns", "0s"] {
            let span: Span = text.parse().unwrap();
            assert_eq!(span.to_string(), text);
        }
    }

    #[test]
    fn an_invalid_span_names_the_error_and_the_fix() {
        for (text, message) in [
            ("", "a span of time is missing"),
            ("5", "`5` has no unit of time"),
            ("s", "a number was expected at `s`"),
            ("5 parsecs", "`parsecs` is not a unit of time"),
            ("1.2.3s", "a number was expected at `1.2.3`"),
            ("-5s", "a number was expected at `-5s`"),
            ("10000w 99999999999d", "the span is longer than 584 years"),
        ] {
            let error = text.parse::<Span>().unwrap_err();
            assert_eq!(error.to_string(), message);
            assert!(!error.hint().is_empty());
        }
    }

    #[test]
    fn a_clock_that_steps_back_gives_no_time() {
        assert_eq!(Moment(5).since(Moment(9)), Span::ZERO);
        assert_eq!(Moment(9).since(Moment(5)), Span(4));
    }

    #[test]
    fn seconds_are_rounded_up() {
        assert_eq!(Span(1).as_secs_ceil(), 1);
        assert_eq!(Span(SECOND).as_secs_ceil(), 1);
        assert_eq!(Span(SECOND + 1).as_secs_ceil(), 2);
    }
}
