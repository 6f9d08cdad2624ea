//! A limit in the numbers that the scripts count with.
//!
//! # Theory
//!
//! The core counts in nanoseconds and in 64 bits, the scripts in units of their clock and in doubles, which
//! are exact up to 2^53. So a limit is compiled a second time, by the same rules: a core type whose
//! "nanoseconds" are units of the script's clock. A rate of `u` in `p` ns is `u * unit` in `p` such units,
//! exactly. What does not fit is rounded against the client, as in the core: a bucket's time for a unit up,
//! a window's unit of time coarser (a power of two).
//!
//! # Invariant
//!
//! No sum or product that a script forms for a limit that compiles here gets to 2^53.
//!
//! # What it does not know
//!
//! Names, calls, and what became of a charge.

use std::borrow::Cow;

use tollgate::algorithm::bucket::Bucket;
use tollgate::algorithm::concurrency::Permits;
use tollgate::algorithm::queue::Queue;
use tollgate::algorithm::sliding::{Shape, Sliding, Tail};
use tollgate::algorithm::window::Window;
use tollgate::algorithm::{LimitError, OneWord};
use tollgate::calendar::Periods;
use tollgate::rate::Rate;
use tollgate::time::Span;
use tollgate::{Algorithm, Estimate};
use tollgate_policy::Quota;
use tollgate_policy::shared::LOG_MAX;

use super::clock::Timing;

/// Whole numbers below this are exact in a script; half of what doubles can do.
pub(super) const EXACT: u64 = 1 << 52;
/// Longest window or lease in units of the clock: sums with the time of day stay exact.
const SPAN_MAX: u64 = 1 << 51;
/// Finest subdivision of a unit of time, as in the core.
const TICK_BITS: u32 = 20;

/// A step of a bucket is the time for so many units ...
const STEP_UNITS: u64 = 64;
/// ... but no less than so many seconds (many clients would be told how long to live with every charge) ...
const STEP_MIN: u64 = 2;
/// ... and no more than so many (keys would stay long after they count).
const STEP_MAX: u64 = 60;

/// A limit as the scripts count it.
#[derive(Clone, Debug)]
pub(super) enum Meter {
    /// Token bucket, GCRA, queue.
    Bucket(BucketMeter),
    /// A window of the clock.
    Window {
        core: Window,
        limit: u64,
        length: u64,
        anchor: u64,
    },
    /// A period of a calendar. The core's window is on its face, in nanoseconds.
    Calendar {
        core: Window,
        limit: u64,
        periods: Periods,
    },
    /// Parts of a window, or epochs of permits.
    Parts(PartsMeter),
    /// Every moment at which something was taken.
    Log { limit: u64, window: u64 },
}

/// A bucket as the scripts count it.
#[derive(Clone, Copy, Debug)]
pub(super) struct BucketMeter {
    /// Ticks in a unit of time.
    pub(super) n: u64,
    /// Ticks for one unit of cost.
    pub(super) p: u64,
    /// Ticks in a full bucket.
    pub(super) depth: u64,
    /// The longest wait of a queue, in units of time; none if it is no queue.
    pub(super) max_wait: Option<u64>,
    /// Ticks in a step: a key lives until the step in which its bucket is full again is over, so that it
    /// need not be told anew how long to live with every charge.
    pub(super) step: u64,
    /// Is the state text, because ticks since the beginning are too many for a number?
    pub(super) as_text: bool,
}

/// Parts as the scripts count them.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartsMeter {
    pub(super) core: PartsCore,
    pub(super) limit: u64,
    /// Length of a part in coarse units.
    pub(super) part: u64,
    /// Parts before the current one.
    pub(super) before: u32,
    /// How the oldest is counted: 0 by its span, 1 evenly, 2 whole, 3 whole and held.
    pub(super) tail: u8,
    pub(super) divisions: u64,
    pub(super) most: u64,
    /// Units of the clock in a coarse unit.
    pub(super) unit: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum PartsCore {
    Sliding(Sliding),
    Permits(Permits),
}

impl BucketMeter {
    /// `capacity` units earned at `rate`, and what it earns in `more_ns`.
    fn new(
        rate: Rate,
        capacity: u64,
        more_ns: u64,
        clock: &Timing,
    ) -> Result<BucketMeter, LimitError> {
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
            let heal = u128::from(clock.second()) * n;
            if n > 1 << TICK_BITS || depth.checked_add(heal)? > u128::from(EXACT) {
                return None;
            }
            let (n, p) = (u64::try_from(n).ok()?, u64::try_from(p).ok()?);
            // Nothing but the rate goes into it: writers that know another capacity must agree on it.
            let seconds = |seconds: u64| clock.second().saturating_mul(n).saturating_mul(seconds);
            let step = p
                .saturating_mul(STEP_UNITS)
                .clamp(seconds(STEP_MIN), seconds(STEP_MAX));
            Some(BucketMeter {
                n,
                p,
                step,
                depth: u64::try_from(depth).ok()?,
                max_wait: None,
                as_text: u128::from(n) * u128::from(clock.lasts) + depth + heal + u128::from(step)
                    > 1 << 53,
            })
        };
        fits(n, p)
            .or_else(|| {
                // The finest tick that fits; the time for a unit is rounded up, never down.
                (0..=TICK_BITS)
                    .rev()
                    .find_map(|e| fits(1 << e, p.checked_mul(1 << e)?.div_ceil(n)))
            })
            .ok_or(LimitError::TooSlow)
    }

    fn meaning(&self) -> String {
        if self.as_text {
            format!("t {} {}", self.n, self.p)
        } else {
            format!("b {} {} {}", self.n, self.p, self.step)
        }
    }

    /// The core's bucket in units of this clock.
    pub(super) fn core(&self) -> Bucket {
        Bucket::from_params(&self.params())
    }

    /// The core's queue in units of this clock.
    pub(super) fn queue(&self) -> Queue {
        Queue::from_params(&self.params())
    }

    fn params(&self) -> [u64; 4] {
        [
            self.n,
            self.p | 1 << 63,
            self.depth,
            self.max_wait.unwrap_or(u64::MAX),
        ]
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

impl PartsMeter {
    fn sliding(
        limit: u64,
        window: Span,
        estimate: Estimate,
        clock: &Timing,
    ) -> Result<PartsMeter, LimitError> {
        let mut unit = 1_u64;
        loop {
            let coarse = clock.unit.saturating_mul(unit);
            let length = Span::from_nanos(window.as_nanos().div_ceil(coarse));
            let core = Sliding::new(limit, length, estimate)?;
            let Shape { part, layout, most } = core.shape();
            let product = u128::from(most) * u128::from(layout.divisions) * u128::from(part);
            if product <= u128::from(EXACT) && coarse_fits(part, layout.parts, unit) {
                return Ok(PartsMeter {
                    core: PartsCore::Sliding(core),
                    limit,
                    part,
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

    fn permits(limit: u64, ttl: Span, clock: &Timing) -> Result<PartsMeter, LimitError> {
        let core = Permits::new(limit, in_units(ttl, clock)?)?;
        let (epoch, slots) = core.epochs();
        Ok(PartsMeter {
            core: PartsCore::Permits(core),
            limit,
            part: epoch.as_nanos(),
            before: slots.saturating_sub(1),
            tail: 3,
            divisions: 1,
            most: 65_535,
            unit: 1,
        })
    }

    /// Numbers that a part has in the state.
    pub(super) fn width(&self) -> usize {
        if self.tail == 0 { 3 } else { 1 }
    }

    /// Bytes of a count.
    pub(super) fn count_bytes(&self) -> usize {
        if self.tail == 3 { 2 } else { 3 }
    }

    /// How the state is packed, in the words of Lua's `struct`.
    pub(super) fn format(&self) -> String {
        let part = match self.tail {
            0 => "I3BB",
            3 => "I2",
            _ => "I3",
        };
        format!(">BI7{}", part.repeat(self.before as usize + 1))
    }
}

/// Does the whole window stay exact beside the time of day?
fn coarse_fits(part: u64, parts: u32, unit: u64) -> bool {
    u128::from(part) * (u128::from(parts) + 2) * u128::from(unit) <= u128::from(EXACT) * 2
}

impl Meter {
    /// The same with the number that came with a request, if one did and it is a window of the clock.
    pub(super) fn at_most(&self, most: Option<u32>) -> Cow<'_, Meter> {
        match (self, most) {
            (
                &Meter::Window {
                    core,
                    limit,
                    length,
                    anchor,
                },
                Some(most),
            ) => Cow::Owned(Meter::Window {
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
    /// One that takes longer than the scripts can count.
    pub(super) fn new(quota: &Quota, clock: &Timing) -> Result<Meter, LimitError> {
        let algorithm = *quota.limit.algorithm();
        Ok(match algorithm {
            Algorithm::TokenBucket { rate, burst } => {
                Meter::Bucket(BucketMeter::new(rate, burst, 0, clock)?)
            }
            Algorithm::Gcra { rate, tolerance } => {
                Meter::Bucket(BucketMeter::new(rate, 1, tolerance.as_nanos(), clock)?)
            }
            Algorithm::LeakyBucket {
                rate,
                queue,
                max_wait,
            } => Meter::Bucket(BucketMeter {
                max_wait: Some(max_wait.map_or(u64::MAX, |wait| wait.as_nanos() / clock.unit)),
                ..BucketMeter::new(rate, queue, 0, clock)?
            }),
            Algorithm::FixedWindow {
                limit,
                window,
                anchor,
            } => match &quota.periods {
                Some(periods) => Meter::Calendar {
                    core: Window::new(limit, periods.window(), Span::ZERO)?,
                    limit,
                    periods: periods.clone(),
                },
                None => {
                    let length = in_units(window, clock)?;
                    let anchor = anchor.as_nanos() / clock.unit % length.as_nanos().max(1);
                    Meter::Window {
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
            Algorithm::SlidingLog { limit, window } => Meter::Log {
                limit,
                window: in_units(window, clock)?.as_nanos(),
            },
            Algorithm::SlidingWindow {
                limit,
                window,
                estimate,
            } => Meter::Parts(PartsMeter::sliding(limit, window, estimate, clock)?),
            Algorithm::Concurrency { limit, ttl } => {
                Meter::Parts(PartsMeter::permits(limit, ttl, clock)?)
            }
        })
    }

    /// All that changes what a state means: never the capacity.
    pub(super) fn meaning(&self) -> String {
        match self {
            Meter::Bucket(b) => b.meaning(),
            Meter::Window { length, anchor, .. } => format!("w {length} {anchor}"),
            Meter::Calendar { periods, .. } => {
                let first = periods.bounds_at(tollgate::time::Moment::ORIGIN).from;
                format!("c {} {}", periods.name(), first.as_nanos())
            }
            Meter::Parts(p) => format!(
                "s {} {} {} {} {}",
                p.unit, p.part, p.before, p.tail, p.divisions
            ),
            Meter::Log { window, .. } => format!("l {window}"),
        }
    }

    /// The greatest cost that can ever pass.
    pub(super) fn capacity(&self) -> u64 {
        match self {
            Meter::Bucket(b) => b.core().capacity(),
            Meter::Window { limit, .. }
            | Meter::Calendar { limit, .. }
            | Meter::Log { limit, .. } => *limit,
            Meter::Parts(p) => p.limit,
        }
    }
}

/// A span in units of the clock, rounded up: a longer window never admits more.
fn in_units(span: Span, clock: &Timing) -> Result<Span, LimitError> {
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
    use tollgate::Limit;

    fn meter(algorithm: Algorithm) -> Result<Meter, LimitError> {
        let quota = Quota::plain(Limit::new(algorithm).unwrap());
        Meter::new(&quota, &Timing::SERVER)
    }

    fn bucket(rate: &str, burst: u64) -> BucketMeter {
        let rate = rate.parse().unwrap();
        match meter(Algorithm::TokenBucket { rate, burst }).unwrap() {
            Meter::Bucket(bucket) => bucket,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn rates_that_people_write_are_whole_ticks_of_microseconds() {
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
    fn what_does_not_fit_is_rounded_against_the_client() {
        // 9 999 991 in a second is no whole number of ticks: 2^20 ticks make a microsecond.
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
            let Meter::Parts(p) = meter(Algorithm::SlidingWindow {
                limit,
                window: day,
                estimate,
            })
            .unwrap() else {
                panic!()
            };
            assert_eq!(p.unit, unit, "{limit} {estimate:?}");
            let product = u128::from(p.most) * u128::from(p.divisions) * u128::from(p.part);
            assert!(product <= u128::from(EXACT));
        }
    }

    #[test]
    fn a_long_log_is_refused() {
        let log = |limit| {
            let window = Span::from_secs(60);
            meter(Algorithm::SlidingLog { limit, window })
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
    fn the_capacity_is_no_part_of_the_meaning_and_the_rate_is() {
        let rate = |rate: &str, burst| {
            let rate = rate.parse().unwrap();
            meter(Algorithm::TokenBucket { rate, burst })
                .unwrap()
                .meaning()
        };
        assert_eq!(rate("5/s", 10), rate("5/s", 99));
        assert_ne!(rate("5/s", 10), rate("6/s", 10));
    }
}
