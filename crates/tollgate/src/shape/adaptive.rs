//! What the adaptive concurrency limits have in common.
//!
//! # Theory
//!
//! How many requests a backend can serve at once is rarely known and never constant. By Little's law
//! it is `rate * latency`; a limit above it only grows a queue somewhere, which shows as latency, and
//! in the end as failures. An [`AdaptiveLimit`] is told of each finished request, a [`Sample`], and
//! moves its limit a little:
//!
//! | | sees | moves |
//! |---|---|---|
//! | [`Aimd`](super::aimd::Aimd) | failures and timeouts | +1, or times `backoff` |
//! | [`Vegas`](super::vegas::Vegas) | latency against the least seen | by the estimated queue |
//! | [`Gradient2`](super::gradient2::Gradient2) | latency against its long average | by their ratio |
//!
//! Use `Gradient2` for request and response, `Aimd` where only errors can be seen.
//!
//! One slow request says little, and a limit that moves at every one of them trembles. [`Windowed`]
//! gathers samples and passes on one per window: the mean latency, the most in flight, and whether
//! any was dropped.
//!
//! # Invariant
//!
//! `min <= limit() <= max`, from the first moment and whatever is fed in. The estimators drift, each
//! in a way its own module names; `min` and `max` are what bounds the damage, so choose them as
//! limits you could live with.
//!
//! # Why floats are allowed here
//!
//! These adjust a limit; they decide no request. Whether a request may run is an integer comparison
//! of what is in flight with [`AdaptiveLimit::limit`], made elsewhere.
//!
//! This module knows nothing of clocks, threads or requests. Latencies and, for [`Windowed`], the
//! time are arguments.

use std::error::Error;
use std::fmt;

/// A window is closed by the first sample this long after its first one.
pub const WINDOW_NS: u64 = 1_000_000_000;

/// A window with fewer samples than this stays open.
pub const WINDOW_SAMPLES: u64 = 10;

/// Samples faster than this are not looked at.
///
/// Nothing that reached a backend is so fast; a cached answer or a refused connection is, and it
/// holds no concurrency worth speaking of, so it has nothing to say about a limit on it.
pub const WINDOW_RTT_MIN_NS: u64 = 100_000;

/// One finished request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// How long it took. Zero is read as 1 ns.
    pub rtt_ns: u64,
    /// How many were in flight when it started, itself included.
    pub inflight: u32,
    /// Whether it failed in a way that speaks of overload: refused, timed out, shed.
    pub dropped: bool,
}

/// A concurrency limit that learns from finished requests.
pub trait AdaptiveLimit {
    /// How many requests may be in flight now.
    fn limit(&self) -> u32;

    /// Learns from one finished request, and returns the new limit.
    fn sample(&mut self, sample: Sample) -> u32;
}

/// Feeds an inner limit one averaged sample per window instead of every single one.
///
/// A window closes at the first sample that is at least [`WINDOW_NS`] after its first and at least
/// the [`WINDOW_SAMPLES`]th of it. Until both hold it stays open: throwing short windows away
/// instead would blind the limit just when a slow backend finishes only a few requests per second.
///
/// If `now_ns` steps back, the open window starts again there with the samples it has, so a clock
/// that was corrected cannot keep one window open for long.
#[derive(Clone, Debug)]
pub struct Windowed<L> {
    inner: L,
    open: Option<Window>,
}

#[derive(Clone, Copy, Debug)]
struct Window {
    opened_ns: u64,
    /// Wide enough for any number of the longest latencies.
    rtt_sum_ns: u128,
    samples: u64,
    inflight_max: u32,
    dropped: bool,
}

impl<L: AdaptiveLimit> Windowed<L> {
    /// Puts windows in front of `inner`.
    pub fn new(inner: L) -> Self {
        Self { inner, open: None }
    }

    /// How many requests may be in flight now.
    pub fn limit(&self) -> u32 {
        self.inner.limit()
    }

    /// Gathers one sample that finished at `now_ns`, and returns the limit, which moves only when
    /// this sample closes a window.
    pub fn sample(&mut self, now_ns: u64, sample: Sample) -> u32 {
        if sample.rtt_ns < WINDOW_RTT_MIN_NS {
            return self.inner.limit();
        }
        let window = self.open.get_or_insert(Window {
            opened_ns: now_ns,
            rtt_sum_ns: 0,
            samples: 0,
            inflight_max: 0,
            dropped: false,
        });
        window.opened_ns = window.opened_ns.min(now_ns);
        window.rtt_sum_ns = window.rtt_sum_ns.saturating_add(sample.rtt_ns.into());
        window.samples = window.samples.saturating_add(1);
        window.inflight_max = window.inflight_max.max(sample.inflight);
        window.dropped |= sample.dropped;

        let age_ns = now_ns.saturating_sub(window.opened_ns);
        if age_ns < WINDOW_NS || window.samples < WINDOW_SAMPLES {
            return self.inner.limit();
        }
        let mean_ns = window.rtt_sum_ns / u128::from(window.samples.max(1));
        let whole = Sample {
            rtt_ns: u64::try_from(mean_ns).unwrap_or(u64::MAX),
            inflight: window.inflight_max,
            dropped: window.dropped,
        };
        self.open = None;
        self.inner.sample(whole)
    }

    /// The limit behind the windows.
    pub fn inner(&self) -> &L {
        &self.inner
    }

    /// The limit behind the windows, to probe or replace it.
    pub fn inner_mut(&mut self) -> &mut L {
        &mut self.inner
    }

    /// Gives up the windows, and the samples of the open one.
    pub fn into_inner(self) -> L {
        self.inner
    }
}

/// Why an adaptive limit cannot be built.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum AdaptiveError {
    /// A limit of nothing lets no request through, and without requests nothing is ever learned.
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
    /// The factor after a failure is not in `[0.5, 1)`.
    Backoff {
        /// The factor asked for.
        backoff: f64,
    },
    /// Every request would count as timed out.
    ZeroTimeout,
    /// The share of a new estimate is not in `(0, 1]`.
    Smoothing {
        /// The share asked for.
        smoothing: f64,
    },
    /// The tolerated latency ratio is below 1 or not a number.
    Tolerance {
        /// The ratio asked for.
        tolerance: f64,
    },
    /// Without room to queue the limit could only fall.
    ZeroQueue,
    /// An average over no samples.
    ZeroLongWindow,
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
            Self::Backoff { .. } => "set `backoff` to at least 0.5 and below 1, as in 0.9".into(),
            Self::ZeroTimeout => {
                "set `timeout_ns` to the longest latency that is not a failure, as in 5000000000"
                    .into()
            }
            Self::Smoothing { .. } => {
                "set `smoothing` above 0 and at most 1, as in 0.2; 1 means none".into()
            }
            Self::Tolerance { .. } => "set `tolerance` to at least 1, as in 1.5".into(),
            Self::ZeroQueue => "set `queue` to at least 1, as in 4".into(),
            Self::ZeroLongWindow => "set `long_window` to at least 1, as in 600".into(),
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
            Self::Backoff { backoff } => {
                write!(
                    f,
                    "`backoff` is {backoff}, but must be at least 0.5 and below 1"
                )
            }
            Self::ZeroTimeout => {
                write!(
                    f,
                    "`timeout_ns` is 0, so every request would count as failed"
                )
            }
            Self::Smoothing { smoothing } => {
                write!(
                    f,
                    "`smoothing` is {smoothing}, but must be above 0 and at most 1"
                )
            }
            Self::Tolerance { tolerance } => {
                write!(
                    f,
                    "`tolerance` is {tolerance}, but must be a number of at least 1"
                )
            }
            Self::ZeroQueue => write!(f, "`queue` is 0, so the limit could only fall"),
            Self::ZeroLongWindow => write!(f, "`long_window` is 0, so there would be no average"),
        }
    }
}

impl Error for AdaptiveError {}

/// The range every adaptive limit keeps.
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

/// `smoothing` in `(0, 1]`. Written so that what is not a number fails.
pub(super) fn check_smoothing(smoothing: f64) -> Result<f64, AdaptiveError> {
    if smoothing > 0.0 && smoothing <= 1.0 {
        Ok(smoothing)
    } else {
        Err(AdaptiveError::Smoothing { smoothing })
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

    /// Samples of every kind, the absurd included, to feed anything that must keep its range.
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

    /// Remembers what it was fed.
    #[derive(Debug, Default)]
    struct Witness(Vec<Sample>);

    impl AdaptiveLimit for Witness {
        fn limit(&self) -> u32 {
            self.0.len() as u32
        }

        fn sample(&mut self, sample: Sample) -> u32 {
            self.0.push(sample);
            self.limit()
        }
    }

    const MS: u64 = 1_000_000;

    fn ok(rtt_ns: u64, inflight: u32) -> Sample {
        Sample {
            rtt_ns,
            inflight,
            dropped: false,
        }
    }

    #[test]
    fn a_window_passes_on_the_mean_latency_the_most_in_flight_and_any_drop() {
        let mut windowed = Windowed::new(Witness::default());
        for i in 0..10 {
            let mut sample = ok((i + 1) * MS, 20 - i as u32);
            sample.dropped = i == 4;
            assert_eq!(windowed.sample(i * 100 * MS, sample), 0);
        }
        assert_eq!(windowed.sample(1000 * MS, ok(11 * MS, 1)), 1);
        let expected = Sample {
            rtt_ns: 6 * MS,
            inflight: 20,
            dropped: true,
        };
        assert_eq!(windowed.inner().0, [expected]);
    }

    #[test]
    fn a_window_with_too_few_samples_stays_open_until_it_has_enough() {
        let mut windowed = Windowed::new(Witness::default());
        for i in 0..9 {
            assert_eq!(windowed.sample(i * 2000 * MS, ok(MS, 1)), 0);
        }
        assert_eq!(windowed.sample(18_000 * MS, ok(MS, 1)), 1);
        assert_eq!(windowed.sample(18_001 * MS, ok(MS, 1)), 1, "a new window");
    }

    #[test]
    fn a_window_shorter_than_a_second_stays_open_however_many_samples_it_has() {
        let mut windowed = Windowed::new(Witness::default());
        for i in 0..999 {
            assert_eq!(windowed.sample(i * MS, ok(MS, 1)), 0);
        }
        assert_eq!(windowed.sample(1000 * MS - 1, ok(MS, 1)), 0);
        assert_eq!(windowed.sample(1000 * MS, ok(MS, 1)), 1);
    }

    #[test]
    fn what_never_reached_the_backend_is_not_looked_at() {
        let mut windowed = Windowed::new(Witness::default());
        for i in 0..100 {
            windowed.sample(i * 1000 * MS, ok(WINDOW_RTT_MIN_NS - 1, 1));
        }
        assert!(windowed.inner().0.is_empty());
        for i in 0..11 {
            windowed.sample(i * 100 * MS, ok(WINDOW_RTT_MIN_NS, 1));
        }
        assert_eq!(windowed.inner().0, [ok(WINDOW_RTT_MIN_NS, 1)]);
    }

    #[test]
    fn a_clock_that_steps_back_does_not_hold_the_window_open() {
        let mut windowed = Windowed::new(Witness::default());
        windowed.sample(3_600_000 * MS, ok(MS, 1));
        for i in 0..=10 {
            windowed.sample(i * 100 * MS, ok(MS, 1));
        }
        assert_eq!(windowed.limit(), 1);
    }

    #[test]
    fn the_longest_latencies_do_not_overflow_the_mean() {
        let mut windowed = Windowed::new(Witness::default());
        for i in 0..11 {
            windowed.sample(i * 100 * MS, ok(u64::MAX, u32::MAX));
        }
        assert_eq!(windowed.inner().0, [ok(u64::MAX, u32::MAX)]);
    }

    #[test]
    fn a_range_that_does_not_hold_its_start_is_refused_with_a_way_out() {
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
        assert!(check_smoothing(f64::NAN).is_err());
        assert!(check_smoothing(0.0).is_err());
        assert!(check_smoothing(1.0).is_ok());
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
