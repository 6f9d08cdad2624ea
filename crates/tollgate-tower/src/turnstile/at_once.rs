//! How many may be under way: a fixed number, one that is learned, or no bound.

use tollgate::shape::Adaptive;
use tollgate::shape::{AdaptiveError, AdaptiveLimit, Sample};
use tollgate::{Moment, Span};
use tollgate_policy::QueueConcurrency;

/// How many may be under way, before pressure makes it fewer.
#[derive(Debug)]
pub(super) enum Width {
    /// As many as the rate lets go.
    Unbounded,
    Fixed(u32),
    Learned(Box<Learning>),
}

/// A number that follows what is seen.
#[derive(Debug)]
pub(super) struct Learning {
    rule: Adaptive,
    by: AdaptiveLimit,
    /// When it was last told that time passes.
    ticked: Moment,
}

/// How often it is told that time passes, while something is under way: what does not end tells, too.
const TICK: Span = Span::from_millis(100);

impl Width {
    pub(super) fn new(rule: Option<QueueConcurrency>) -> Result<Width, AdaptiveError> {
        Ok(match rule {
            None => Width::Unbounded,
            Some(QueueConcurrency::Fixed(width)) => Width::Fixed(width),
            Some(QueueConcurrency::Adaptive(rule)) => Width::Learned(Box::new(Learning {
                rule,
                by: AdaptiveLimit::new(&rule)?,
                ticked: Moment::ORIGIN,
            })),
        })
    }

    /// Follows another rule. What was learned stays if it is learned in the same way, as far as the
    /// new range allows.
    pub(super) fn change(&mut self, rule: Option<QueueConcurrency>) -> Result<(), AdaptiveError> {
        if let (Width::Learned(old), Some(QueueConcurrency::Adaptive(rule))) = (&mut *self, rule)
            && old.rule.by == rule.by
        {
            // A new `initial` alone is of no account any more.
            let is_same = Adaptive {
                initial: old.rule.initial,
                ..rule
            } == old.rule;
            if !is_same {
                old.by.change(&rule)?;
                old.rule = rule;
            }
            return Ok(());
        }
        *self = Width::new(rule)?;
        Ok(())
    }

    /// How many; none is no bound.
    pub(super) fn limit(&self) -> Option<u32> {
        match self {
            Width::Unbounded => None,
            Width::Fixed(width) => Some(*width),
            Width::Learned(learned) => {
                let Adaptive { min, max, .. } = learned.rule;
                // The estimators promise this too; it costs nothing to hold it here as well.
                Some(learned.by.limit().max(min).min(max))
            }
        }
    }

    /// What takes longer counts as failed; nothing if nothing is learned.
    pub(super) fn timeout(&self) -> Option<Span> {
        match self {
            Width::Learned(learned) => Some(learned.rule.timeout),
            _ => None,
        }
    }

    /// When it is to be told again that time passes.
    pub(super) fn next_tick(&self) -> Option<Moment> {
        match self {
            Width::Learned(learned) => Some(learned.ticked.plus(TICK)),
            _ => None,
        }
    }

    /// Time has passed; the oldest that is under way began at `oldest`.
    pub(super) fn tick(&mut self, now: Moment, oldest: Option<Moment>) {
        if let Width::Learned(learned) = self
            && now >= learned.ticked.plus(TICK)
        {
            learned.ticked = now;
            let age = oldest.map_or(0, |oldest| now.since(oldest).as_nanos());
            learned.by.tick(now.as_nanos(), age);
        }
    }

    /// Learns from one that ended at `now`.
    pub(super) fn learn(&mut self, now: Moment, mut sample: Sample) {
        if let Width::Learned(learned) = self {
            sample.dropped |= sample.rtt_ns > learned.rule.timeout.as_nanos();
            learned.by.sample(now.as_nanos(), sample);
        }
    }
}
