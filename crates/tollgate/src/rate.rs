//! Rates: each is the exact ratio that the operator wrote, `units` per `per`.
//!
//! Nothing is divided here. `7/3s` stays seven in three seconds until an algorithm compiles it to a
//! grid on which one unit is a whole number of ticks; a rate kept as a quotient (nanoseconds per
//! unit, or a float) has already lost what it cannot represent.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

use crate::cost;
use crate::time::{Span, SpanError, unit_nanos};

/// `units` in every `per`, exactly as written.
///
/// ```
/// use std::time::Duration;
/// use tollgate::Rate;
///
/// let rate: Rate = "7/3s".parse()?;
/// assert_eq!(rate, Rate::new(7, Duration::from_secs(3))?);
/// assert_eq!(rate, "7 per 3 seconds".parse()?);
/// # Ok::<(), tollgate::RateError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    units: NonZeroU64,
    per_ns: NonZeroU64,
}

impl Rate {
    /// `units` in every `per`.
    ///
    /// # Errors
    /// Zero units would refuse every request for ever, and a zero period is no rate.
    pub fn new(units: u64, per: impl Into<Span>) -> Result<Rate, RateError> {
        let units = NonZeroU64::new(units).ok_or(RateError::ZeroUnits)?;
        let per_ns = NonZeroU64::new(per.into().as_nanos()).ok_or(RateError::ZeroPeriod)?;
        Ok(Rate { units, per_ns })
    }

    /// `units` per second.
    pub const fn per_second(units: NonZeroU64) -> Rate {
        const SECOND: NonZeroU64 = NonZeroU64::new(1_000_000_000).unwrap();
        Rate {
            units,
            per_ns: SECOND,
        }
    }

    /// How many units.
    pub const fn units(self) -> u64 {
        self.units.get()
    }

    /// In how long.
    pub const fn per(self) -> Span {
        Span::from_nanos(self.per_ns.get())
    }

    /// The ratio in lowest terms: units, nanoseconds.
    pub(crate) fn reduced(self) -> (u64, u64) {
        let g = gcd(self.units.get(), self.per_ns.get());
        (self.units.get() / g, self.per_ns.get() / g)
    }

    /// How many whole units this rate earns in `span`, rounded down: what a burst written as a span
    /// of credit holds.
    pub fn earned_in(self, span: Span) -> u64 {
        let product = u128::from(self.units.get()) * u128::from(span.as_nanos());
        u64::try_from(product / u128::from(self.per_ns.get())).unwrap_or(u64::MAX)
    }

    /// How long this rate takes to earn `units`, rounded up.
    pub fn time_to_earn(self, units: u64) -> Span {
        let product = u128::from(units) * u128::from(self.per_ns.get());
        let ns = product.div_ceil(u128::from(self.units.get()));
        Span::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    }
}

const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

impl fmt::Display for Rate {
    /// In the spelling that [`Rate::from_str`] reads: `5/s`, `100/min`, `7/3s`, `1000/d`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let per = self.per().to_string();
        // `1s` reads better as `s`, and `1m` as `min`; `1h30m` keeps its one.
        let unit = match per.strip_prefix('1').filter(|u| unit_nanos(u).is_some()) {
            Some("m") => Some("min"),
            unit => unit,
        };
        write!(f, "{}/{}", self.units, unit.unwrap_or(&per))
    }
}

/// Why something is not a rate.
///
/// ```
/// use tollgate::Rate;
///
/// let error = "5".parse::<Rate>().unwrap_err();
/// assert_eq!(error.to_string(), "`5` is not a rate: it has no `/`");
/// assert_eq!(error.hint(), "write `5/s` or `5/min`");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RateError {
    /// Zero units.
    ZeroUnits,
    /// A period of no time.
    ZeroPeriod,
    /// No `/` in the text.
    NoSlash {
        /// The text as written.
        text: String,
    },
    /// The text before the `/` is not a whole number.
    BadUnits {
        /// The text before the `/`.
        text: String,
    },
    /// The text after the `/` is not a span of time.
    BadPeriod {
        /// What is wrong with it.
        cause: SpanError,
    },
}

impl fmt::Display for RateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ZeroUnits => f.write_str("a rate of 0 would refuse every request for ever"),
            Self::ZeroPeriod => f.write_str("a rate needs a period longer than 0"),
            Self::NoSlash { text } => write!(f, "`{text}` is not a rate: it has no `/`"),
            Self::BadUnits { text } => write!(f, "`{text}` is not a whole number of units"),
            Self::BadPeriod { cause } => write!(f, "the period is wrong: {cause}"),
        }
    }
}

impl RateError {
    /// What the writer can do now.
    pub fn hint(&self) -> String {
        match self {
            Self::ZeroUnits => {
                "write at least `1`, over a longer period if it must be slow: `1/day`".into()
            }
            Self::ZeroPeriod => "write a period such as `s`, `min`, `3s` or `250ms`".into(),
            Self::NoSlash { text } if text.trim().parse::<u64>().is_ok() => {
                format!("write `{}/s` or `{}/min`", text.trim(), text.trim())
            }
            Self::NoSlash { .. } | Self::BadUnits { .. } => {
                "write a whole number, a slash and a period, such as `5/s` or `7/3s`".into()
            }
            Self::BadPeriod { cause } => cause.hint(),
        }
    }
}

impl std::error::Error for RateError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::BadPeriod { cause } => Some(cause),
            _ => None,
        }
    }
}

impl FromStr for Rate {
    type Err = RateError;

    /// Reads `5/s`, `100/min`, `7/3s`, `1000/day`, `1_000_000/h`, `1M/h`, `1/1h30m`, `5 per second`.
    fn from_str(text: &str) -> Result<Rate, RateError> {
        let (units, period) = text
            .split_once('/')
            .or_else(|| text.split_once(" per "))
            .ok_or_else(|| RateError::NoSlash { text: text.into() })?;
        let units = units.trim();
        let number = cost::units(units).map_err(|_| RateError::BadUnits { text: units.into() })?;
        let period = period.trim();
        let per = match unit_nanos(period) {
            Some(ns) => Span::from_nanos(ns),
            None => period
                .parse()
                .map_err(|cause| RateError::BadPeriod { cause })?,
        };
        Rate::new(number, per)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_parsed_in_all_notations() {
        for (text, units, per_ns) in [
            ("5/s", 5, 1_000_000_000),
            ("100/min", 100, 60_000_000_000),
            ("7/3s", 7, 3_000_000_000),
            ("1000/day", 1000, 86_400_000_000_000),
            ("1_000 / h", 1000, 3_600_000_000_000),
            ("1/250ms", 1, 250_000_000),
            ("2/1h30m", 2, 5_400_000_000_000),
            ("5 per second", 5, 1_000_000_000),
            ("5 per 3 seconds", 5, 3_000_000_000),
            ("100k/min", 100_000, 60_000_000_000),
            ("1M/h", 1_000_000, 3_600_000_000_000),
        ] {
            let rate: Rate = text.parse().unwrap();
            assert_eq!(
                (rate.units(), rate.per().as_nanos()),
                (units, per_ns),
                "{text}"
            );
        }
    }

    #[test]
    fn rates_print_in_the_form_they_are_read() {
        for text in [
            "5/s", "100/min", "7/3s", "1000/d", "1/250ms", "2/1h30m", "3/1m1s",
        ] {
            let rate: Rate = text.parse().unwrap();
            assert_eq!(rate.to_string(), text);
            assert_eq!(rate.to_string().parse::<Rate>(), Ok(rate));
        }
    }

    #[test]
    fn an_invalid_rate_names_the_error_and_the_fix() {
        for (text, message) in [
            ("0/s", "a rate of 0 would refuse every request for ever"),
            ("5/0s", "a rate needs a period longer than 0"),
            ("5", "`5` is not a rate: it has no `/`"),
            ("-5/s", "`-5` is not a whole number of units"),
            ("1.5/s", "`1.5` is not a whole number of units"),
            ("NaN/s", "`NaN` is not a whole number of units"),
            (
                "99999999999999999999/s",
                "`99999999999999999999` is not a whole number of units",
            ),
            (
                "5/fortnight",
                "the period is wrong: a number was expected at `fortnight`",
            ),
        ] {
            let error = text.parse::<Rate>().unwrap_err();
            assert_eq!(error.to_string(), message);
            assert!(!error.hint().is_empty());
        }
    }

    #[test]
    fn a_burst_written_as_a_span_is_what_the_rate_earns_in_it() {
        let rate: Rate = "7/3s".parse().unwrap();
        assert_eq!(rate.earned_in(Span::from_secs(30)), 70);
        assert_eq!(rate.earned_in(Span::from_secs(1)), 2);
        assert_eq!(rate.earned_in(Span::MAX), 43_042_402_838);
    }
}
