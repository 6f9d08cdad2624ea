//! The state of a policy as bytes: every limiter, what it is known by, and the secret of the keys.
//!
//! Limits are written with their numbers, so that a restart with another policy does as a reload does: a changed
//! number keeps what was used, a changed algorithm starts fresh.

use std::collections::HashMap;
use std::sync::Arc;

use super::build::PriorState;
use super::gate::PolicyGate;
use crate::clock::Clock;
use crate::key::KeySecret;
use crate::limit::{Algorithm, Estimate, Limit};
use crate::limiter::Limiter;
use crate::rate::Rate;
use crate::saved::{Reader, RestoreError, Writer};
use crate::store::memory::Purse;
use crate::time::Span;

/// Limits in a saved state at the most.
const LIMITERS_MAX: usize = 1 << 20;

/// A limiter that was restored from bytes and has no clock yet.
#[derive(Debug)]
pub(super) struct Restored {
    limit: Limit,
    purse: Purse,
    periods: Option<Box<str>>,
}

impl<C: Clock> PolicyGate<C> {
    /// All that was counted, as bytes for [`PriorState::from_saved`]. Decisions go on meanwhile. Keep them
    /// as you would keep a password: they hold the secret that keys are hashed with.
    pub fn save(&self) -> Vec<u8> {
        let mut to = Writer::default();
        self.secret.save(&mut to);
        to.size(self.variants.len());
        for (id, limiter) in self.limiters() {
            to.bytes(id.as_bytes());
            save_limiter(limiter, &mut to);
        }
        to.into_bytes()
    }
}

impl PriorState {
    /// What was saved by [`PolicyGate::save`].
    ///
    /// # Errors
    /// Bytes that were not.
    pub fn from_saved(bytes: &[u8]) -> Result<PriorState, RestoreError> {
        let mut from = Reader::new(bytes);
        let secret = KeySecret::restored(&mut from)?;
        let mut limiters = HashMap::new();
        for _ in 0..from.size_up_to(LIMITERS_MAX)? {
            let id: Arc<str> = Arc::from(from.text()?);
            let limiter = restored_limiter(&mut from)?;
            limiters.insert(id, limiter);
        }
        from.end()?;
        Ok(PriorState {
            secret,
            limiters,
            store: None,
        })
    }
}

impl Restored {
    /// The limiter, on this clock; `periods` are those that it should run on now.
    pub(super) fn into_limiter<C: Clock>(
        self,
        periods: Option<&super::calendar::Periods>,
        clock: C,
        secret: KeySecret,
    ) -> Option<Limiter<C>> {
        let same = self.periods.as_deref() == periods.map(|p| p.name());
        let limiter = || {
            let periods = periods.cloned();
            Limiter::of(self.limit, self.purse, periods, clock, secret)
        };
        same.then(limiter)
    }
}

fn save_limiter<C: Clock>(limiter: &Limiter<C>, to: &mut Writer) {
    let limit = limiter.limit();
    save_algorithm(limit.algorithm(), to);
    to.size(limit.max_keys());
    to.bytes(limit.name().as_bytes());
    let periods = limiter.inner().periods().map_or("", |p| p.name());
    to.bytes(periods.as_bytes());
    limiter.inner().save(to);
}

fn restored_limiter(from: &mut Reader<'_>) -> Result<Restored, RestoreError> {
    let algorithm = restored_algorithm(from)?;
    let limit = Limit::new(algorithm).map_err(|_| RestoreError::Malformed)?;
    let limit = limit.with_max_keys(from.size()?).named(from.text()?);
    let periods = from.text()?;
    let purse = Purse::restored(&limit, from)?;
    Ok(Restored {
        limit,
        purse,
        periods: (!periods.is_empty()).then(|| periods.into()),
    })
}

fn save_algorithm(algorithm: &Algorithm, to: &mut Writer) {
    let rate = |rate: Rate| [rate.units(), rate.per().as_nanos()];
    // A span or number that may be missing: whether it is there, then what it is.
    let maybe = |number: Option<u64>| [u64::from(number.is_some()), number.unwrap_or(0)];
    let numbers = |kind: u8, groups: &[&[u64]], to: &mut Writer| {
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

fn restored_algorithm(from: &mut Reader<'_>) -> Result<Algorithm, RestoreError> {
    let kind = from.byte()?;
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
