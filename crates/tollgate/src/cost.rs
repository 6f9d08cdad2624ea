//! Bursts, which are how much a limit can accumulate, and numbers of units as text.

use std::fmt;
use std::num::IntErrorKind;
use std::str::FromStr;

use crate::algorithm::LimitError;
use crate::rate::Rate;
use crate::time::{Span, SpanError};

/// What a limit can accumulate: a number of units, or what its rate earns in a span.
///
/// ```
/// use tollgate::{Burst, Rate};
///
/// let rate: Rate = "10/s".parse()?;
/// assert_eq!("30s".parse::<Burst>()?.units(rate)?, 300);
/// assert_eq!("1_000".parse::<Burst>()?, Burst::Units(1000));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Burst {
    /// A number of units.
    Units(u64),
    /// What the rate earns in this long, rounded down to whole units.
    Worth(Span),
}

impl Burst {
    /// The number of units at `rate`.
    ///
    /// # Errors
    /// The burst is 0 units: such a limit would refuse every request.
    pub fn units(self, rate: Rate) -> Result<u64, LimitError> {
        let units = match self {
            Burst::Units(units) => units,
            Burst::Worth(span) => rate.earned_in(span),
        };
        if units == 0 {
            return Err(LimitError::ZeroCapacity { what: "burst" });
        }
        Ok(units)
    }
}

impl fmt::Display for Burst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Burst::Units(units) => units.fmt(f),
            Burst::Worth(span) => span.fmt(f),
        }
    }
}

impl FromStr for Burst {
    type Err = UnitsError;

    /// Reads a whole number of units, `10` or `1M`, or a span of credit, `30s`.
    fn from_str(text: &str) -> Result<Burst, UnitsError> {
        match units(text) {
            Ok(number) => Ok(Burst::Units(number)),
            Err(error) => match text.parse::<Span>() {
                Ok(span) => Ok(Burst::Worth(span)),
                Err(SpanError::TooLong) => Err(UnitsError::TooMany { text: text.into() }),
                Err(_) => Err(error),
            },
        }
    }
}

/// Reads a whole number: `10`, `1_000`, `100k`, `1M`.
pub(crate) fn units(text: &str) -> Result<u64, UnitsError> {
    let digits = text.trim().replace('_', "");
    let (digits, times) = match digits.strip_suffix(['k', 'K']) {
        Some(thousands) => (thousands, 1_000),
        None => match digits.strip_suffix('M') {
            Some(millions) => (millions, 1_000_000),
            None => (digits.as_str(), 1_u64),
        },
    };
    let too_many = || UnitsError::TooMany { text: text.into() };
    let number = digits.parse::<u64>().map_err(|error| match error.kind() {
        IntErrorKind::PosOverflow => too_many(),
        _ => UnitsError::NotANumber { text: text.into() },
    })?;
    number.checked_mul(times).ok_or_else(too_many)
}

/// Why a text is not a number of units.
///
/// ```
/// use tollgate::Burst;
///
/// let error = "ten".parse::<Burst>().unwrap_err();
/// assert_eq!(error.to_string(), "`ten` is not a whole number of units");
/// assert_eq!(error.hint(), "write a whole number such as `10`");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnitsError {
    /// Not a whole number, or negative.
    NotANumber {
        /// The text as written.
        text: String,
    },
    /// More than 2^64 - 1.
    TooMany {
        /// The text as written.
        text: String,
    },
}

impl fmt::Display for UnitsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotANumber { text } => write!(f, "`{text}` is not a whole number of units"),
            Self::TooMany { text } => write!(f, "`{text}` is more than can be counted"),
        }
    }
}

impl UnitsError {
    /// What to write instead.
    pub fn hint(&self) -> String {
        match self {
            Self::NotANumber { .. } => "write a whole number such as `10`".into(),
            Self::TooMany { .. } => format!("write at most {}", u64::MAX),
        }
    }
}

impl std::error::Error for UnitsError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_a_number_or_a_span_of_credit() {
        let rate: Rate = "7/3s".parse().unwrap();
        for (text, burst, units) in [
            ("10", Burst::Units(10), 10),
            ("1_000", Burst::Units(1000), 1000),
            ("10k", Burst::Units(10_000), 10_000),
            ("1M", Burst::Units(1_000_000), 1_000_000),
            ("1m", Burst::Worth(Span::from_secs(60)), 140),
            ("30s", Burst::Worth(Span::from_secs(30)), 70),
        ] {
            let read: Burst = text.parse().unwrap();
            assert_eq!(read, burst);
            assert_eq!(read.units(rate), Ok(units));
            assert_eq!(read.to_string().parse(), Ok(burst));
        }
    }

    #[test]
    fn a_burst_of_nothing_is_an_error_and_not_unlimited() {
        let rate: Rate = "1/min".parse().unwrap();
        for burst in [Burst::Units(0), Burst::Worth(Span::from_secs(59))] {
            let error = burst.units(rate).unwrap_err();
            assert_eq!(error.to_string(), "a burst of 0 would refuse every request");
        }
    }

    #[test]
    fn an_invalid_number_of_units_names_the_error() {
        for (text, message) in [
            ("-1", "`-1` is not a whole number of units"),
            ("1.5", "`1.5` is not a whole number of units"),
            ("NaN", "`NaN` is not a whole number of units"),
            ("", "`` is not a whole number of units"),
            ("k", "`k` is not a whole number of units"),
            (
                "18446744073709552k",
                "`18446744073709552k` is more than can be counted",
            ),
            (
                "18446744073709551616",
                "`18446744073709551616` is more than can be counted",
            ),
        ] {
            let error = units(text).unwrap_err();
            assert_eq!(error.to_string(), message);
            assert!(!error.hint().is_empty());
        }
        assert_eq!(units("4294967296"), Ok(4_294_967_296));
    }
}
