//! A limiter as bytes: its limit, the name of its calendar periods and all keys.

use super::{RestoreError, SnapshotReader, SnapshotWriter};
use crate::calendar::Periods;
use crate::clock::Clock;
use crate::key::KeySecret;
use crate::limit::{Algorithm, Estimate, Limit};
use crate::limiter::Limiter;
use crate::rate::Rate;
use crate::table::KeyTable;
use crate::time::Span;

/// Stands before an algorithm whose limit takes units beyond empty; how many follow.
const BEYOND: u8 = 9;

/// A limiter that was restored from bytes and has no clock yet.
///
/// ```
/// use tollgate::snapshot::{RestoredLimiter, SnapshotReader, SnapshotWriter};
/// use tollgate::{KeySecret, Limiter, ManualClock};
///
/// let (clock, secret) = (ManualClock::new(), KeySecret::random());
/// let limiter = Limiter::with_secret("5/s".parse()?, clock.clone(), secret.clone())?;
/// assert_eq!(limiter.charge("a", 3).remaining(), 2);
///
/// let mut snapshot = SnapshotWriter::default();
/// limiter.save(&mut snapshot);
/// let bytes = snapshot.into_bytes();
/// let restored = RestoredLimiter::read(&mut SnapshotReader::new(&bytes))?;
/// let limiter = restored.into_limiter(None, clock, secret).unwrap();
/// assert_eq!(limiter.peek("a", 0).remaining(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct RestoredLimiter {
    limit: Limit,
    table: KeyTable,
    periods: Option<Box<str>>,
}

impl RestoredLimiter {
    /// Reads what [`Limiter::save`] wrote.
    ///
    /// # Errors
    /// Bytes that it never writes, or too little memory.
    pub fn read(from: &mut SnapshotReader<'_>) -> Result<RestoredLimiter, RestoreError> {
        let mut kind = from.byte()?;
        let (mut max_debt, mut backlog) = (0, 0);
        if kind == BEYOND {
            (max_debt, backlog) = (from.number()?, from.number()?);
            kind = from.byte()?;
        }
        let algorithm = restored_algorithm(kind, from)?;
        let limit = Limit::new(algorithm)
            .and_then(|limit| limit.restored_with(max_debt, backlog))
            .map_err(|_| RestoreError::Malformed)?;
        let limit = limit.with_max_keys(from.size()?).with_name(from.text()?);
        let periods = from.text()?;
        let table = KeyTable::restored(&limit, from)?;
        Ok(RestoredLimiter {
            limit,
            table,
            periods: (!periods.is_empty()).then(|| periods.into()),
        })
    }

    /// The limiter on this clock; none if it ran on other periods than these.
    pub fn into_limiter<C: Clock>(
        self,
        periods: Option<&Periods>,
        clock: C,
        secret: KeySecret,
    ) -> Option<Limiter<C>> {
        let same = self.periods.as_deref() == periods.map(Periods::name);
        let table = self.table.with_periods(periods.cloned()).ok()?;
        same.then(|| Limiter::with_table(self.limit, table, clock, secret))
    }
}

impl<C: Clock> Limiter<C> {
    /// Writes this limiter for [`RestoredLimiter::read`]. Decisions continue meanwhile.
    pub fn save(&self, to: &mut SnapshotWriter) {
        let limit = self.limit();
        if (limit.max_debt(), limit.backlog()) != (0, 0) {
            to.byte(BEYOND);
            to.number(limit.max_debt());
            to.number(limit.backlog());
        }
        save_algorithm(limit.algorithm(), to);
        to.size(limit.max_keys());
        to.bytes(limit.name().as_bytes());
        to.bytes(self.periods().map_or("", |p| p.name()).as_bytes());
        self.save_keys(to);
    }
}

fn save_algorithm(algorithm: &Algorithm, to: &mut SnapshotWriter) {
    let rate = |rate: Rate| [rate.units(), rate.per().as_nanos()];
    // A span or number that may be missing: whether it is there, then what it is.
    let maybe = |number: Option<u64>| [u64::from(number.is_some()), number.unwrap_or(0)];
    let numbers = |kind: u8, groups: &[&[u64]], to: &mut SnapshotWriter| {
        to.byte(kind);
        groups.concat().iter().for_each(|number| to.number(*number));
    };
    match *algorithm {
        Algorithm::TokenBucket { rate: r, burst } => numbers(0, &[&rate(r), &[burst]], to),
        Algorithm::Gcra { rate: r, tolerance } => {
            numbers(1, &[&rate(r), &[tolerance.as_nanos()]], to);
        }
        Algorithm::LeakyBucket {
            rate: r,
            queue,
            max_wait,
        } => {
            let wait = maybe(max_wait.map(Span::as_nanos));
            numbers(2, &[&rate(r), &[queue], &wait], to);
        }
        Algorithm::FixedWindow {
            limit,
            window,
            anchor,
        } => numbers(3, &[&[limit, window.as_nanos(), anchor.as_nanos()]], to),
        Algorithm::SlidingLog { limit, window } => numbers(4, &[&[limit, window.as_nanos()]], to),
        Algorithm::SlidingWindow {
            limit,
            window,
            estimate,
        } => {
            let strict = u64::from(estimate == Estimate::Strict);
            numbers(8, &[&[limit, window.as_nanos(), strict]], to);
        }
        Algorithm::Concurrency { limit, ttl } => numbers(7, &[&[limit, ttl.as_nanos()]], to),
    }
}

fn restored_algorithm(kind: u8, from: &mut SnapshotReader<'_>) -> Result<Algorithm, RestoreError> {
    let mut number = || from.number();
    let span = |number: u64| Span::from_nanos(number);
    let rate =
        |units: u64, per: u64| Rate::new(units, span(per)).map_err(|_| RestoreError::Malformed);
    let maybe = |is_there: u64, number: u64| (is_there != 0).then_some(number);
    Ok(match kind {
        0 => Algorithm::TokenBucket {
            rate: rate(number()?, number()?)?,
            burst: number()?,
        },
        1 => Algorithm::Gcra {
            rate: rate(number()?, number()?)?,
            tolerance: span(number()?),
        },
        2 => Algorithm::LeakyBucket {
            rate: rate(number()?, number()?)?,
            queue: number()?,
            max_wait: maybe(number()?, number()?).map(span),
        },
        3 => Algorithm::FixedWindow {
            limit: number()?,
            window: span(number()?),
            anchor: span(number()?),
        },
        4 => Algorithm::SlidingLog {
            limit: number()?,
            window: span(number()?),
        },
        // 5 had a number of parts, which not every limit has any more.
        8 => Algorithm::SlidingWindow {
            limit: number()?,
            window: span(number()?),
            estimate: match number()? {
                0 => Estimate::Span,
                1 => Estimate::Strict,
                _ => return Err(RestoreError::Malformed),
            },
        },
        7 => Algorithm::Concurrency {
            limit: number()?,
            ttl: span(number()?),
        },
        _ => return Err(RestoreError::Malformed),
    })
}
