//! The fields that a candidate or an override inherits from its limit.

use tollgate::{Algorithm, Burst, Rate};
use tollgate_policy::{BurstCredits, Quota};

use super::kind::Kind;
use super::quota::{Allow, QuotaFields};

impl QuotaFields {
    /// Adds the fields of `base` that are not set, as far as the algorithm has them.
    pub(super) fn inherit(self, base: &QuotaFields) -> QuotaFields {
        let inherited = match self.algorithm {
            Some(kind) if kind != Kind::FixedWindow => None,
            _ => base.calendar.clone(),
        };
        let mut all = QuotaFields {
            algorithm: self.algorithm.or(base.algorithm),
            calendar: self.calendar.clone().or(inherited),
            max_keys: self.max_keys.or(base.max_keys),
            ..self
        };
        let kind = all.kind();
        let is_number = kind == Kind::Concurrency || all.calendar.is_some();
        let fits = |allow: &Allow| matches!(allow, Allow::Number(_)) == is_number;
        all.allow = all.allow.or(base.allow.filter(fits));
        if kind == base.kind() {
            all.burst = all.burst.or(base.burst);
            all.tolerance = all.tolerance.or(base.tolerance);
            all.queue = all.queue.or(base.queue);
            all.max_wait = all.max_wait.or(base.max_wait);
            all.estimate = all.estimate.or(base.estimate);
            all.times = all.times.or(base.times);
            all.duration = all.duration.or(base.duration);
            all.slack = all.slack.or(base.slack);
            all.ttl = all.ttl.or(base.ttl);
        }
        all
    }

    /// The fields that make a resolved quota. A burst of as many units as the rate has is the default, so it follows the
    /// rate.
    pub(crate) fn from_quota(quota: &Quota) -> Option<QuotaFields> {
        let mut all = QuotaFields {
            algorithm: Some(Kind::from_quota(quota)?),
            calendar: quota.periods.clone(),
            max_keys: Some(quota.limit.max_keys()),
            ..QuotaFields::default()
        };
        if let Some(credits) = BurstCredits::from_quota(quota) {
            return Some(QuotaFields {
                allow: Some(Allow::Rate(credits.rate)),
                times: Some(credits.times),
                duration: Some(credits.duration),
                slack: credits.slack,
                ..all
            });
        }
        let windowed = |limit, window| Rate::new(limit, window).ok().map(Allow::Rate);
        all.allow = match *quota.limit.algorithm() {
            Algorithm::TokenBucket { rate, burst } => {
                all.burst = (burst != rate.units()).then_some(Burst::Units(burst));
                Some(Allow::Rate(rate))
            }
            Algorithm::Gcra { rate, tolerance } => {
                all.tolerance = Some(tolerance);
                Some(Allow::Rate(rate))
            }
            Algorithm::LeakyBucket {
                rate,
                queue,
                max_wait,
            } => {
                all.queue = Some(queue);
                all.max_wait = max_wait;
                Some(Allow::Rate(rate))
            }
            Algorithm::FixedWindow { limit, .. } if quota.periods.is_some() => {
                Some(Allow::Number(limit))
            }
            Algorithm::FixedWindow { limit, window, .. }
            | Algorithm::SlidingLog { limit, window } => windowed(limit, window),
            Algorithm::SlidingWindow {
                limit,
                window,
                estimate,
            } => {
                all.estimate = Some(estimate);
                windowed(limit, window)
            }
            Algorithm::Concurrency { limit, ttl } => {
                all.ttl = Some(ttl);
                Some(Allow::Number(limit))
            }
        };
        all.allow.is_some().then_some(all)
    }
}
