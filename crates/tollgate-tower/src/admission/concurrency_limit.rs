//! The concurrency limit of a queue: none, fixed, or adaptive.

use tollgate::shape::{Adaptive, AdaptiveError, AdaptiveLimit, Sample};
use tollgate::{Moment, Span};
use tollgate_policy::QueueConcurrency;

/// How many requests may be in flight, before load shedding scales it down.
#[derive(Debug)]
pub(super) enum ConcurrencyLimit {
    /// Only the rate bounds the queue.
    Unlimited,
    Fixed(u32),
    Adaptive(Box<AdaptiveState>),
}

/// A limit that follows the samples.
#[derive(Debug)]
pub(super) struct AdaptiveState {
    rule: Adaptive,
    estimator: AdaptiveLimit,
    last_tick: Moment,
}

/// Interval of [`ConcurrencyLimit::tick`] while requests are in flight: a request that does not end is a sample, too.
const TICK: Span = Span::from_millis(100);

impl ConcurrencyLimit {
    pub(super) fn new(rule: Option<QueueConcurrency>) -> Result<ConcurrencyLimit, AdaptiveError> {
        Ok(match rule {
            None => ConcurrencyLimit::Unlimited,
            Some(QueueConcurrency::Fixed(limit)) => ConcurrencyLimit::Fixed(limit),
            Some(QueueConcurrency::Adaptive(rule)) => {
                ConcurrencyLimit::Adaptive(Box::new(AdaptiveState {
                    rule,
                    estimator: AdaptiveLimit::new(&rule)?,
                    last_tick: Moment::ORIGIN,
                }))
            }
        })
    }

    /// Applies another rule. An adaptive limit with the same estimator keeps what it learned, clamped to the new range.
    pub(super) fn change(&mut self, rule: Option<QueueConcurrency>) -> Result<(), AdaptiveError> {
        if let (ConcurrencyLimit::Adaptive(old), Some(QueueConcurrency::Adaptive(rule))) =
            (&mut *self, rule)
            && old.rule.by == rule.by
        {
            // A new `initial` alone changes nothing: the limit has started already.
            let is_same = Adaptive {
                initial: old.rule.initial,
                ..rule
            } == old.rule;
            if !is_same {
                old.estimator.change(&rule)?;
                old.rule = rule;
            }
            return Ok(());
        }
        *self = ConcurrencyLimit::new(rule)?;
        Ok(())
    }

    /// The limit; `None` if there is none.
    pub(super) fn limit(&self) -> Option<u32> {
        match self {
            ConcurrencyLimit::Unlimited => None,
            ConcurrencyLimit::Fixed(limit) => Some(*limit),
            ConcurrencyLimit::Adaptive(adaptive) => {
                let Adaptive { min, max, .. } = adaptive.rule;
                // The estimators promise this too; it costs nothing to enforce it here as well.
                Some(adaptive.estimator.limit().max(min).min(max))
            }
        }
    }

    /// A request that takes longer counts as failed; `None` if the limit is not adaptive.
    pub(super) fn timeout(&self) -> Option<Span> {
        match self {
            ConcurrencyLimit::Adaptive(adaptive) => Some(adaptive.rule.timeout),
            _ => None,
        }
    }

    /// When the next tick is due.
    pub(super) fn next_tick(&self) -> Option<Moment> {
        match self {
            ConcurrencyLimit::Adaptive(adaptive) => Some(adaptive.last_tick.plus(TICK)),
            _ => None,
        }
    }

    /// Reports to the estimator that time passes; the oldest request in flight started at `oldest`.
    pub(super) fn tick(&mut self, now: Moment, oldest: Option<Moment>) {
        if let ConcurrencyLimit::Adaptive(adaptive) = self
            && now >= adaptive.last_tick.plus(TICK)
        {
            adaptive.last_tick = now;
            let age = oldest.map_or(0, |oldest| now.since(oldest).as_nanos());
            adaptive.estimator.tick(now.as_nanos(), age);
        }
    }

    /// Records the sample of a request that ended at `now`.
    pub(super) fn record(&mut self, now: Moment, mut sample: Sample) {
        if let ConcurrencyLimit::Adaptive(adaptive) = self {
            sample.dropped |= sample.rtt_ns > adaptive.rule.timeout.as_nanos();
            adaptive.estimator.sample(now.as_nanos(), sample);
        }
    }
}
