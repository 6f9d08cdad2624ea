//! A limit in the numbers of the scripts.
//!
//! # Theory
//!
//! The core counts in nanoseconds and in 64 bits, the scripts in units of their clock and in doubles, which are exact up to
//! 2^53. So a limit is compiled a second time, by the same rules: to a core type whose "nanoseconds" are units of the script's
//! clock. A rate of `u` in `p` ns is `u * unit` in `p` such units, exactly. Numbers that do not fit are rounded against the
//! client, as in the core: a bucket's time for a unit up, a window's unit of time to a coarser power of two.
//!
//! # Invariant
//!
//! For a limit that compiles here, no sum or product in a script reaches 2^53.
//!
//! # What it does not know
//!
//! Names, calls and decisions.

use std::borrow::Cow;

use tollgate::Limit;
use tollgate::Periods;
use tollgate::Rate;
use tollgate::Span;
use tollgate::algorithm::bucket::Bucket;
use tollgate::algorithm::concurrency::Permits;
use tollgate::algorithm::queue::Queue;
use tollgate::algorithm::sliding::{Shape, Sliding, Tail};
use tollgate::algorithm::window::Window;
use tollgate::{Algorithm, Estimate};
use tollgate::{LimitError, algorithm::PackedAlgorithm};
use tollgate_policy::Quota;
use tollgate_policy::shared::LOG_MAX;

use super::clock::ScriptClock;

/// Whole numbers below this are exact in a script; half of what doubles can do.
pub(super) const EXACT: u64 = 1 << 52;
/// Longest window or lease in units of the clock: sums with the time of day stay exact.
const SPAN_MAX: u64 = 1 << 51;
/// Finest subdivision of a unit of time, as in the core.
const TICK_BITS: u32 = 20;

/// A step of a bucket is the time for this many units ...
const STEP_UNITS: u64 = 64;
/// ... but at least this many seconds (nearly every charge would renew an expiry) ...
const STEP_MIN: u64 = 2;
/// ... and at most this many (keys would stay long after they count).
const STEP_MAX: u64 = 60;

/// A limit in the numbers of the scripts.
#[derive(Clone, Debug)]
pub(super) enum ScriptLimit {
    /// Token bucket, GCRA, queue.
    Bucket(ScriptBucket),
    /// A window of the clock.
    Window {
        core: Window,
        limit: u64,
        length: u64,
        anchor: u64,
    },
    /// A period of a calendar. The core's window is in window time, in nanoseconds.
    Calendar {
        core: Window,
        limit: u64,
        periods: Periods,
    },
    /// Cells of a sliding window, or epochs of permits.
    Cells(ScriptCells),
    /// The moment of every charge.
    Log { limit: u64, window: u64 },
}

/// A bucket in the numbers of the scripts.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScriptBucket {
    /// Ticks in a unit of time.
    pub(super) n: u64,
    /// Ticks for one unit of cost.
    pub(super) p: u64,
    /// Ticks in a full bucket.
    pub(super) depth: u64,
    /// The same as the core's, with the debt and what former limits may have left.
    core: Bucket,
    /// The longest wait of a queue, in units of time; `None` if it is not a queue.
    pub(super) max_wait: Option<u64>,
    /// Ticks in a step. A key expires after the step in which its bucket is full again, so that not every charge has to renew
    /// the expiry.
    pub(super) step: u64,
    /// Whether the state is text, because the ticks since the start do not fit a number.
    pub(super) as_text: bool,
}

/// Cells in the numbers of the scripts.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScriptCells {
    pub(super) core: CellsCore,
    pub(super) limit: u64,
    /// Length of a cell in coarse units.
    pub(super) length: u64,
    /// Cells before the current one.
    pub(super) before: u32,
    /// How the oldest counts: 0 by its span, 1 evenly, 2 whole, 3 whole and held.
    pub(super) tail: u8,
    pub(super) divisions: u64,
    pub(super) most: u64,
    /// Units of the clock in a coarse unit.
    pub(super) unit: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum CellsCore {
    Sliding(Sliding),
    Permits(Permits),
}

impl ScriptBucket {
    /// `capacity` units earned at `rate`, and what it earns in `more_ns`, with the debt of `limit`.
    fn new(
        limit: &Limit,
        rate: Rate,
        capacity: u64,
        more_ns: u64,
        clock: &ScriptClock,
    ) -> Result<ScriptBucket, LimitError> {
        let unit = u128::from(clock.unit);
        let (units, per) = (
            u128::from(rate.units()) * unit,
            u128::from(rate.per().as_nanos()),
        );
        let common = gcd(units, per);
        let (n, p) = (units / common, per / common);
        let fits = |n: u128, p: u128| {
            let depth = p
                .checked_mul(u128::from(capacity))?
                .checked_add(u128::from(more_ns).checked_mul(n)? / unit)?;
            let repair = u128::from(clock.second()) * n;
            let debt = p.checked_mul(u128::from(limit.max_debt()))?;
            let deepest = depth.checked_add(debt)?;
            if n > 1 << TICK_BITS || deepest.checked_add(repair)? > u128::from(EXACT) {
                return None;
            }
            let (n, p) = (u64::try_from(n).ok()?, u64::try_from(p).ok()?);
            let depth = u64::try_from(depth).ok()?;
            // It depends on the rate only: writers with another capacity must agree on it.
            let seconds = |seconds: u64| clock.second().saturating_mul(n).saturating_mul(seconds);
            let step = p
                .saturating_mul(STEP_UNITS)
                .clamp(seconds(STEP_MIN), seconds(STEP_MAX));
            Some(ScriptBucket {
                n,
                p,
                step,
                depth,
                core: Bucket::from_ticks(n, p, depth),
                max_wait: None,
                as_text: u128::from(n) * u128::from(clock.lasts)
                    + deepest
                    + repair
                    + u128::from(step)
                    > 1 << 53,
            })
        };
        let bucket = fits(n, p)
            .or_else(|| {
                // The finest tick that fits; the time for a unit is rounded up, never down.
                (0..=TICK_BITS)
                    .rev()
                    .find_map(|e| fits(1 << e, p.checked_mul(1 << e)?.div_ceil(n)))
            })
            .ok_or(LimitError::TooSlow)?;
        let core = bucket.core.with_debt(limit.max_debt())?;
        Ok(ScriptBucket {
            core: core.with_backlog(limit.backlog()),
            ..bucket
        })
    }

    /// Ticks that are missing at the most after a charge that cannot be refused.
    pub(super) fn deepest(&self) -> u64 {
        self.core.deepest()
    }

    /// Ticks that are missing at the most, unless the server's clock was set back.
    pub(super) fn farthest(&self) -> u64 {
        // A sum with a second stays exact.
        self.core.farthest().min(EXACT)
    }

    fn layout(&self) -> String {
        if self.as_text {
            format!("t {} {}", self.n, self.p)
        } else {
            format!("b {} {} {}", self.n, self.p, self.step)
        }
    }

    /// The core's bucket in units of this clock.
    pub(super) fn core(&self) -> Bucket {
        self.core
    }

    /// The core's queue in units of this clock.
    pub(super) fn queue(&self) -> Queue {
        let max_wait = self.max_wait.map_or(Span::MAX, Span::from_nanos);
        Queue::from_bucket(self.core, max_wait)
    }

    /// The ticks that `cost` is worth, unless the bucket never holds as many.
    pub(super) fn worth(&self, cost: u64) -> Option<u64> {
        cost.checked_mul(self.p).filter(|need| *need <= self.depth)
    }

    /// What may be missing at the most so that `need` ticks still pass.
    pub(super) fn most_missing(&self, need: u64) -> u64 {
        let room = self.depth.saturating_sub(need);
        match self.max_wait {
            Some(wait) if need > 0 => room.min(wait.saturating_mul(self.n)),
            _ => room,
        }
    }
}

impl ScriptCells {
    fn sliding(
        limit: u64,
        window: Span,
        estimate: Estimate,
        clock: &ScriptClock,
    ) -> Result<ScriptCells, LimitError> {
        let mut unit = 1_u64;
        loop {
            let coarse = clock.unit.saturating_mul(unit);
            let length = Span::from_nanos(window.as_nanos().div_ceil(coarse));
            let core = Sliding::new(limit, length, estimate)?;
            let Shape { part, layout, most } = core.shape();
            let product = u128::from(most) * u128::from(layout.divisions) * u128::from(part);
            if product <= u128::from(EXACT) && coarse_fits(part, layout.parts, unit) {
                return Ok(ScriptCells {
                    core: CellsCore::Sliding(core),
                    limit,
                    length: part,
                    before: layout.parts,
                    tail: match layout.tail {
                        Tail::Span => 0,
                        Tail::Even => 1,
                        Tail::Whole => 2,
                    },
                    divisions: u64::from(layout.divisions),
                    most,
                    unit,
                });
            }
            unit = unit
                .checked_mul(2)
                .filter(|unit| *unit <= 1 << 40)
                .ok_or(LimitError::TooSlow)?;
        }
    }

    fn permits(limit: u64, ttl: Span, clock: &ScriptClock) -> Result<ScriptCells, LimitError> {
        let core = Permits::new(limit, in_units(ttl, clock)?)?;
        let (epoch, slots) = core.intervals();
        Ok(ScriptCells {
            core: CellsCore::Permits(core),
            limit,
            length: epoch.as_nanos(),
            before: slots.saturating_sub(1),
            tail: 3,
            divisions: 1,
            most: 65_535,
            unit: 1,
        })
    }

    /// Numbers of a cell in the state.
    pub(super) fn width(&self) -> usize {
        if self.tail == 0 { 3 } else { 1 }
    }

    /// Bytes of a count.
    pub(super) fn count_bytes(&self) -> usize {
        if self.tail == 3 { 2 } else { 3 }
    }

    /// The format of the state for Lua's `struct`.
    pub(super) fn format(&self) -> String {
        let part = match self.tail {
            0 => "I3BB",
            3 => "I2",
            _ => "I3",
        };
        format!(">BI7{}", part.repeat(self.before as usize + 1))
    }
}

/// Whether sums of the whole window and the time of day stay exact.
fn coarse_fits(part: u64, parts: u32, unit: u64) -> bool {
    u128::from(part) * (u128::from(parts) + 2) * u128::from(unit) <= u128::from(EXACT) * 2
}

impl ScriptLimit {
    /// The same with the override of a request, if there is one and the limit is a window of the clock.
    pub(super) fn at_most(&self, most: Option<u32>) -> Cow<'_, ScriptLimit> {
        match (self, most) {
            (
                &ScriptLimit::Window {
                    core,
                    limit,
                    length,
                    anchor,
                },
                Some(most),
            ) => Cow::Owned(ScriptLimit::Window {
                core: core.with_max(most),
                limit: limit.min(u64::from(most)),
                length,
                anchor,
            }),
            _ => Cow::Borrowed(self),
        }
    }

    /// A limit on this clock.
    ///
    /// # Errors
    /// A limit that takes longer than the scripts can count.
    pub(super) fn new(quota: &Quota, clock: &ScriptClock) -> Result<ScriptLimit, LimitError> {
        let algorithm = *quota.limit.algorithm();
        Ok(match algorithm {
            Algorithm::TokenBucket { rate, burst } => {
                ScriptLimit::Bucket(ScriptBucket::new(&quota.limit, rate, burst, 0, clock)?)
            }
            Algorithm::Gcra { rate, tolerance } => ScriptLimit::Bucket(ScriptBucket::new(
                &quota.limit,
                rate,
                1,
                tolerance.as_nanos(),
                clock,
            )?),
            Algorithm::LeakyBucket {
                rate,
                queue,
                max_wait,
            } => ScriptLimit::Bucket(ScriptBucket {
                max_wait: Some(max_wait.map_or(u64::MAX, |wait| wait.as_nanos() / clock.unit)),
                ..ScriptBucket::new(&quota.limit, rate, queue, 0, clock)?
            }),
            Algorithm::FixedWindow {
                limit,
                window,
                anchor,
            } => match &quota.periods {
                Some(periods) => ScriptLimit::Calendar {
                    core: Window::new(limit, periods.window(), Span::ZERO)?,
                    limit,
                    periods: periods.clone(),
                },
                None => {
                    let length = in_units(window, clock)?;
                    let anchor = anchor.as_nanos() / clock.unit % length.as_nanos().max(1);
                    ScriptLimit::Window {
                        core: Window::new(limit, length, Span::from_nanos(anchor))?,
                        limit,
                        length: length.as_nanos(),
                        anchor,
                    }
                }
            },
            Algorithm::SlidingLog { limit, .. } if limit > LOG_MAX => {
                return Err(LimitError::TooLarge {
                    what: "limit of a sliding log in a shared store",
                    most: LOG_MAX,
                });
            }
            Algorithm::SlidingLog { limit, window } => ScriptLimit::Log {
                limit,
                window: in_units(window, clock)?.as_nanos(),
            },
            Algorithm::SlidingWindow {
                limit,
                window,
                estimate,
            } => ScriptLimit::Cells(ScriptCells::sliding(limit, window, estimate, clock)?),
            Algorithm::Concurrency { limit, ttl } => {
                ScriptLimit::Cells(ScriptCells::permits(limit, ttl, clock)?)
            }
        })
    }

    /// All numbers that change the meaning of a state: never the capacity.
    pub(super) fn layout(&self) -> String {
        match self {
            ScriptLimit::Bucket(b) => b.layout(),
            ScriptLimit::Window { length, anchor, .. } => format!("w {length} {anchor}"),
            ScriptLimit::Calendar { periods, .. } => {
                let first = periods.bounds_at(tollgate::Moment::ORIGIN).from;
                format!("c {} {}", periods.name(), first.as_nanos())
            }
            ScriptLimit::Cells(p) => format!(
                "s {} {} {} {} {}",
                p.unit, p.length, p.before, p.tail, p.divisions
            ),
            ScriptLimit::Log { window, .. } => format!("l {window}"),
        }
    }

    /// The greatest cost that can ever pass.
    pub(super) fn capacity(&self) -> u64 {
        match self {
            ScriptLimit::Bucket(b) => b.core().capacity(),
            ScriptLimit::Window { limit, .. }
            | ScriptLimit::Calendar { limit, .. }
            | ScriptLimit::Log { limit, .. } => *limit,
            ScriptLimit::Cells(p) => p.limit,
        }
    }
}

/// A span in units of the clock, rounded up: a longer window never admits more.
fn in_units(span: Span, clock: &ScriptClock) -> Result<Span, LimitError> {
    let units = span.as_nanos().div_ceil(clock.unit);
    if units > SPAN_MAX {
        return Err(LimitError::TooSlow);
    }
    Ok(Span::from_nanos(units))
}

fn gcd(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script_limit(algorithm: Algorithm) -> Result<ScriptLimit, LimitError> {
        let quota = Quota::plain(Limit::new(algorithm).unwrap());
        ScriptLimit::new(&quota, &ScriptClock::SERVER)
    }

    fn bucket(rate: &str, burst: u64) -> ScriptBucket {
        let rate = rate.parse().unwrap();
        match script_limit(Algorithm::TokenBucket { rate, burst }).unwrap() {
            ScriptLimit::Bucket(bucket) => bucket,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn usual_rates_are_whole_ticks_of_microseconds() {
        for (rate, n, p, as_text) in [
            ("5/s", 1, 200_000, false),
            ("1000/s", 1, 1000, false),
            ("7/3s", 7, 3_000_000, false),
            ("11/s", 11, 1_000_000, true),
            ("1/day", 1, 86_400_000_000, false),
            ("3000000/s", 3, 1, false),
        ] {
            let b = bucket(rate, 1);
            assert_eq!((b.n, b.p, b.as_text), (n, p, as_text), "{rate}");
        }
    }

    #[test]
    fn a_rate_that_does_not_fit_is_rounded_against_the_client() {
        // 9 999 991 in a second is not a whole number of ticks: 2^20 ticks make a microsecond.
        let b = bucket("9999991/s", 1);
        assert_eq!(b.n, 1 << 20);
        assert!(u128::from(b.p) * 9_999_991 >= (1 << 20) * 1_000_000);
        assert!(b.depth + 1_000_000 * b.n <= EXACT);
    }

    #[test]
    fn the_deepest_bucket_of_the_core_can_be_counted() {
        let b = bucket("1/day", 26_687);
        assert!(b.depth + 1_000_000 * b.n <= EXACT);
        let awkward = bucket("9999991/day", 250_000_000_000);
        assert!(awkward.depth + 1_000_000 * awkward.n <= EXACT);
    }

    #[test]
    fn a_long_window_is_counted_in_coarser_units() {
        let day = Span::from_secs(86_400);
        for (limit, estimate, unit) in [
            (50_000, Estimate::Span, 128),
            (100, Estimate::Span, 1),
            (1 << 23, Estimate::Span, 256 * 2),
            (1 << 23, Estimate::Strict, 256 * 2),
        ] {
            let ScriptLimit::Cells(p) = script_limit(Algorithm::SlidingWindow {
                limit,
                window: day,
                estimate,
            })
            .unwrap() else {
                panic!()
            };
            assert_eq!(p.unit, unit, "{limit} {estimate:?}");
            let product = u128::from(p.most) * u128::from(p.divisions) * u128::from(p.length);
            assert!(product <= u128::from(EXACT));
        }
    }

    #[test]
    fn a_long_log_is_refused() {
        let log = |limit| {
            let window = Span::from_secs(60);
            script_limit(Algorithm::SlidingLog { limit, window })
        };
        assert!(log(LOG_MAX).is_ok());
        let error = log(LOG_MAX + 1).unwrap_err();
        assert!(matches!(error, LimitError::TooLarge { most: LOG_MAX, .. }));
    }

    #[test]
    fn a_step_is_the_time_for_some_units_but_neither_short_nor_long() {
        for (rate, seconds) in [("1000/s", 2), ("8/s", 8), ("1/day", 60)] {
            let b = bucket(rate, 10);
            assert_eq!(b.step, b.n * seconds * 1_000_000, "{rate}");
            assert_eq!(b.step, bucket(rate, 99).step, "{rate}");
        }
    }

    #[test]
    fn the_layout_contains_the_rate_and_not_the_capacity() {
        let rate = |rate: &str, burst| {
            let rate = rate.parse().unwrap();
            script_limit(Algorithm::TokenBucket { rate, burst })
                .unwrap()
                .layout()
        };
        assert_eq!(rate("5/s", 10), rate("5/s", 99));
        assert_ne!(rate("5/s", 10), rate("6/s", 10));
    }
}
