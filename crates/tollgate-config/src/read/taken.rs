//! What a candidate or an override takes from its limit.

use tollgate::{Algorithm, Burst, Rate};
use tollgate_policy::{BurstCredits, Quota};

use super::kind::Kind;
use super::quota::{Allow, At, Written};
use crate::problem::Place;

impl Written {
    /// These fields, and where none is written those of `base`, as far as the algorithm has them.
    pub(super) fn over(self, base: &Written) -> Written {
        let algorithm = self.algorithm.or(base.algorithm);
        let calendar = self.calendar.clone().or_else(|| match self.algorithm {
            Some((kind, _)) if kind != Kind::FixedWindow => None,
            _ => base.calendar.clone(),
        });
        let kind = Written {
            algorithm,
            calendar: calendar.clone(),
            ..Written::default()
        }
        .kind();
        let same = kind == base.kind();
        fn pick<T: Copy>(mine: Option<T>, theirs: Option<T>, same: bool) -> Option<T> {
            mine.or(theirs.filter(|_| same))
        }
        let plain = kind == Kind::Concurrency || calendar.is_some();
        let fits = |allow: &At<Allow>| matches!(allow.0, Allow::Number(_)) == plain;
        Written {
            algorithm,
            calendar,
            allow: self.allow.or(base.allow.filter(fits)),
            burst: pick(self.burst, base.burst, same),
            tolerance: pick(self.tolerance, base.tolerance, same),
            queue: pick(self.queue, base.queue, same),
            max_wait: pick(self.max_wait, base.max_wait, same),
            estimate: pick(self.estimate, base.estimate, same),
            times: pick(self.times, base.times, same),
            duration: pick(self.duration, base.duration, same),
            slack: pick(self.slack, base.slack, same),
            ttl: pick(self.ttl, base.ttl, same),
            max_keys: self.max_keys.or(base.max_keys),
        }
    }

    /// What a resolved quota would be written as. A burst of as many as the rate has units goes with the
    /// rate, as one does that was not written.
    pub(crate) fn of(quota: &Quota) -> Option<Written> {
        fn some<T>(value: T) -> Option<At<T>> {
            Some((value, Place::FILE))
        }
        let mut written = Written {
            algorithm: some(Kind::of(quota)?),
            calendar: quota.periods.clone().map(|p| (p, Place::FILE)),
            max_keys: some(quota.limit.max_keys()),
            ..Written::default()
        };
        if let Some(credits) = BurstCredits::of(quota) {
            return Some(Written {
                allow: some(Allow::Rate(credits.rate)),
                times: some(credits.times),
                duration: some(credits.duration),
                slack: credits.slack.and_then(some),
                ..written
            });
        }
        let windowed = |limit, window| Rate::new(limit, window).ok().map(Allow::Rate);
        let allow = match *quota.limit.algorithm() {
            Algorithm::TokenBucket { rate, burst } => {
                written.burst = some(Burst::Units(burst)).filter(|_| burst != rate.units());
                Some(Allow::Rate(rate))
            }
            Algorithm::Gcra { rate, tolerance } => {
                written.tolerance = some(tolerance);
                Some(Allow::Rate(rate))
            }
            Algorithm::LeakyBucket {
                rate,
                queue,
                max_wait,
            } => {
                written.queue = some(queue);
                written.max_wait = max_wait.and_then(some);
                Some(Allow::Rate(rate))
            }
            Algorithm::FixedWindow { limit, window, .. } => match quota.periods {
                Some(_) => Some(Allow::Number(limit)),
                None => windowed(limit, window),
            },
            Algorithm::SlidingLog { limit, window } => windowed(limit, window),
            Algorithm::SlidingWindow {
                limit,
                window,
                estimate,
            } => {
                written.estimate = some(estimate);
                windowed(limit, window)
            }
            Algorithm::Concurrency { limit, ttl } => {
                written.ttl = some(ttl);
                Some(Allow::Number(limit))
            }
        };
        written.allow = Some((allow?, Place::FILE));
        Some(written)
    }
}
