//! Common parts of the adaptive concurrency limits.
//!
//! # Theory
//!
//! How many requests a backend can serve at once is rarely known and never constant. By Little's law it is `rate *
//! latency`. A limit above it only grows a queue somewhere, which shows as latency and finally as failures. An
//! estimator receives a [`Sample`] of each finished request and moves its limit a little:
//!
//! | | sees | moves |
//! |---|---|---|
//! | `aimd` | failures and timeouts | +1, or times 0.9 |
//! | `gradient2` | latency against its long average | by their ratio |
//!
//! Use `gradient2` for request and response, `aimd` where only errors can be seen.
//!
//! # Invariant
//!
//! `min <= limit() <= max` at all times, for any input. The estimators drift, each in a way that its own module
//! names. `min` and `max` bound the damage, so choose them as acceptable limits.
//! [`AdaptiveLimit`](super::AdaptiveLimit) keeps them from drifting.
//!
//! # Why floats are allowed here
//!
//! The estimators adjust a limit; they decide no request. Whether a request may run is an integer comparison of
//! the number in flight with the limit, made elsewhere.
//!
//! This module does not use clocks, threads or requests. Latencies are arguments.

use std::error::Error;
use std::fmt;

use crate::time::Span;

/// One finished request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// How long it took. Zero is read as 1 ns.
    pub rtt_ns: u64,
    /// How many requests were in flight when it started, itself included.
    pub inflight: u32,
    /// Whether it failed in a way that indicates overload: refused, timed out, shed.
    pub dropped: bool,
}

/// Bounds of an adaptive concurrency limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adaptive {
    /// The estimator.
    pub by: Estimator,
    /// The lowest limit.
    pub min: u32,
    /// The highest limit.
    pub max: u32,
    /// The limit at the start.
    pub initial: u32,
    /// A request that takes longer counts as failed.
    pub timeout: Span,
}

/// How the concurrency limit is estimated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Estimator {
    /// From failures alone.
    Aimd,
    /// From latency against its long average.
    #[default]
    Gradient2,
}

/// Why an adaptive limit cannot be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AdaptiveError {
    /// A limit of zero lets no request through, and without requests the estimator gets no samples.
    ZeroMin,
    /// The range is empty.
    MinAboveMax {
        /// The least limit asked for.
        min: u32,
        /// The greatest limit asked for.
        max: u32,
    },
    /// The first limit is not in the range.
    InitialOutside {
        /// The first limit asked for.
        initial: u32,
        /// The least limit asked for.
        min: u32,
        /// The greatest limit asked for.
        max: u32,
    },
    /// A timeout of zero counts every request as timed out.
    ZeroTimeout,
}

impl AdaptiveError {
    /// What the operator can do now, in one imperative sentence.
    pub fn hint(&self) -> String {
        match *self {
            Self::ZeroMin => "set `min` to at least 1".into(),
            Self::MinAboveMax { min, max } => {
                format!("lower `min` to at most {max}, or raise `max` to at least {min}")
            }
            Self::InitialOutside { min, max, .. } => {
                format!("set `initial` between {min} and {max}, or widen `min` and `max`")
            }
            Self::ZeroTimeout => {
                "set `timeout` to the longest latency that is not a failure, as in 5s".into()
            }
        }
    }
}

impl fmt::Display for AdaptiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ZeroMin => write!(f, "`min` is 0, so the limit could close for good"),
            Self::MinAboveMax { min, max } => {
                write!(f, "`min` is {min}, above `max`, which is {max}")
            }
            Self::InitialOutside { initial, min, max } => write!(
                f,
                "`initial` is {initial}, outside the range from `min`, {min}, to `max`, {max}"
            ),
            Self::ZeroTimeout => {
                write!(f, "`timeout` is 0, so every request would count as failed")
            }
        }
    }
}

impl Error for AdaptiveError {}

/// The range that every adaptive limit keeps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    pub(super) min: u32,
    pub(super) initial: u32,
    pub(super) max: u32,
}

impl Range {
    /// `1 <= min <= initial <= max`, or what is wrong with it.
    pub(super) fn check(self) -> Result<Self, AdaptiveError> {
        let Self { min, initial, max } = self;
        if min == 0 {
            return Err(AdaptiveError::ZeroMin);
        }
        if min > max {
            return Err(AdaptiveError::MinAboveMax { min, max });
        }
        if initial < min || initial > max {
            return Err(AdaptiveError::InitialOutside { initial, min, max });
        }
        Ok(self)
    }

    /// The nearest estimate that is in the range. Not a number becomes `min`: the cautious end.
    pub(super) fn clamp(self, estimate: f64) -> f64 {
        // `f64::max` and `f64::min` return the other side when one is not a number.
        estimate.max(self.min.into()).min(self.max.into())
    }
}

#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]
pub(super) mod golden {
    //! Replays the golden timelines of one algorithm.

    /// One row that must yield `limit`.
    pub(in super::super) struct Row {
        pub(in super::super) op: String,
        arg: String,
        pub(in super::super) limit: u32,
        pub(in super::super) line: String,
    }

    impl Row {
        /// The number called `name` in the row's argument, if it is there.
        pub(in super::super) fn find(&self, name: &str) -> Option<u64> {
            self.arg
                .split(' ')
                .find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
                .map(|number| number.parse().unwrap())
        }

        pub(in super::super) fn sample(&self) -> super::Sample {
            super::Sample {
                rtt_ns: self.find("rtt_ns").unwrap(),
                inflight: self.find("inflight").unwrap().try_into().unwrap(),
                dropped: self.find("drop").unwrap() == 1,
            }
        }
    }

    /// The cases of `algorithm`: the row that starts each, and those that follow.
    pub(in super::super) fn cases(algorithm: &str) -> Vec<(Row, Vec<Row>)> {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../timelines/adaptive.public.csv"
        );
        let text = std::fs::read_to_string(path).unwrap();
        let mut cases: Vec<(Row, Vec<Row>)> = Vec::new();
        for line in text.lines().skip(1) {
            let cells: Vec<&str> = line.split(',').collect();
            let row = Row {
                op: cells[2].to_owned(),
                arg: cells[6].to_owned(),
                limit: cells[8].parse().unwrap_or(0),
                line: line.to_owned(),
            };
            if row.op == "new" {
                cases.push((row, Vec::new()));
            } else {
                cases.last_mut().unwrap().1.push(row);
            }
        }
        cases.retain(|(new, _)| new.arg.split(' ').next() == Some(algorithm));
        assert!(!cases.is_empty());
        cases
    }

    /// Samples of every kind, including absurd ones, to test the range.
    pub(in super::super) fn absurd_samples() -> impl Iterator<Item = super::Sample> {
        (0..20_000_u64).map(|i| {
            let noise = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            super::Sample {
                rtt_ns: match noise >> 61 {
                    0 => 0,
                    1 => u64::MAX,
                    2 => 1,
                    shift => noise >> (shift * 7),
                },
                inflight: if noise & 1 == 0 {
                    u32::MAX
                } else {
                    (noise >> 50) as u32
                },
                // Long calm stretches as well as long bad ones.
                dropped: (i / 500) % 3 == 2,
            }
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_range_without_its_initial_limit_is_refused_with_a_hint() {
        let check = |min, initial, max| Range { min, initial, max }.check().unwrap_err();
        assert_eq!(check(0, 0, 5), AdaptiveError::ZeroMin);
        assert_eq!(
            check(6, 6, 5),
            AdaptiveError::MinAboveMax { min: 6, max: 5 }
        );
        let error = check(10, 9, 20);
        assert_eq!(
            error.to_string(),
            "`initial` is 9, outside the range from `min`, 10, to `max`, 20"
        );
        assert_eq!(
            error.hint(),
            "set `initial` between 10 and 20, or widen `min` and `max`"
        );
    }

    #[test]
    fn an_estimate_that_is_not_a_number_becomes_the_least_limit() {
        let range = Range {
            min: 3,
            initial: 5,
            max: 9,
        };
        assert_eq!(range.clamp(f64::NAN) as u32, 3);
        assert_eq!(range.clamp(f64::INFINITY) as u32, 9);
        assert_eq!(range.clamp(f64::NEG_INFINITY) as u32, 3);
    }
}
