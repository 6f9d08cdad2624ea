//! Units of a request ([`Cost`]) and of a limit ([`Burst`]). Both count units. They are different types because a
//! request asks for one and a limit holds the other.
//!
//! Calls such as [`crate::Limiter::charge`] take a plain `u64`, as in `charge("a", 7)`. These types are what texts
//! parse into.

use std::fmt;
use std::num::IntErrorKind;
use std::str::FromStr;

use crate::algorithm::LimitError;
use crate::rate::Rate;
use crate::time::{Span, SpanError};

/// Units that one request takes. Zero asks without taking; more than a limit holds never passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cost(u64);

impl Cost {
    /// The default cost of a request.
    pub const ONE: Cost = Cost(1);

    /// `units` units.
    pub const fn new(units: u64) -> Cost {
        Cost(units)
    }

    /// How many units.
    pub const fn units(self) -> u64 {
        self.0
    }
}

impl Default for Cost {
    fn default() -> Cost {
        Cost::ONE
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Cost {
    type Err = UnitsError;

    /// Reads a whole number, `_` between digits allowed: `10`, `1_000`.
    fn from_str(text: &str) -> Result<Cost, UnitsError> {
        units(text).map(Cost)
    }
}

/// What a limit can accumulate: a number of units, or what its rate earns in a span.
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
    /// None: a limit that holds nothing refuses every request.
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

    /// Reads a whole number of units, `10`, or a span of credit, `30s`.
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

fn units(text: &str) -> Result<u64, UnitsError> {
    let parsed = text.trim().replace('_', "").parse::<u64>();
    parsed.map_err(|error| match error.kind() {
        IntErrorKind::PosOverflow => UnitsError::TooMany { text: text.into() },
        _ => UnitsError::NotANumber { text: text.into() },
    })
}

/// Why a text is not a number of units.
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
    fn a_wrong_number_of_units_says_what_is_wrong() {
        for (text, message) in [
            ("-1", "`-1` is not a whole number of units"),
            ("1.5", "`1.5` is not a whole number of units"),
            ("NaN", "`NaN` is not a whole number of units"),
            ("", "`` is not a whole number of units"),
            (
                "18446744073709551616",
                "`18446744073709551616` is more than can be counted",
            ),
        ] {
            let error = text.parse::<Cost>().unwrap_err();
            assert_eq!(error.to_string(), message);
            assert!(!error.hint().is_empty());
        }
        assert_eq!("4294967296".parse(), Ok(Cost::new(4_294_967_296)));
        assert_eq!(Cost::default(), Cost::ONE);
    }
}
