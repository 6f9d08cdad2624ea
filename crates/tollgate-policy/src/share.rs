//! A node's share of a limit, for use while the shared store does not answer.
//!
//! # Theory
//!
//! Each of `n` nodes takes the `n`-th part of the rate and of the burst. Together they then admit at most what the
//! whole limit admits, in any period, whichever nodes get the traffic. Parts are rounded down, but a node can
//! always take one unit: with fewer units than nodes, together they can take one each.

use super::rule::Quota;
use tollgate::Rate;
use tollgate::Span;
use tollgate::{Algorithm, Limit};

impl Quota {
    /// The quota that one of `nodes` may admit on its own.
    #[must_use]
    pub(super) fn share(&self, nodes: u32) -> Quota {
        if nodes <= 1 {
            return self.clone();
        }
        Quota {
            limit: limit_share(&self.limit, nodes),
            peak: self.peak.as_ref().map(|peak| limit_share(peak, nodes)),
            periods: self.periods.clone(),
        }
    }
}

fn limit_share(whole: &Limit, nodes: u32) -> Limit {
    let algorithm = share_of(whole.algorithm(), u64::from(nodes));
    // A share that makes no limit (a rate too slow to be counted) is not used.
    let share = Limit::new(algorithm).unwrap_or_else(|_| whole.clone());
    share
        .with_name(whole.name())
        .with_max_keys(whole.max_keys())
}

fn share_of(algorithm: &Algorithm, nodes: u64) -> Algorithm {
    let units = |whole: u64| (whole / nodes).max(1);
    let slower = |rate: Rate| {
        let per = rate.per().as_nanos().checked_mul(nodes);
        let slower = per.and_then(|per| Rate::new(rate.units(), Span::from_nanos(per)).ok());
        slower.unwrap_or(rate)
    };
    match *algorithm {
        Algorithm::TokenBucket { rate, burst } => Algorithm::TokenBucket {
            rate: slower(rate),
            burst: units(burst),
        },
        Algorithm::Gcra { rate, tolerance } => {
            let rate_here = slower(rate);
            // It holds 1 + tolerance * rate; the share is the n-th part of that, but at least one.
            let whole = rate.earned_in(tolerance).saturating_add(1);
            Algorithm::Gcra {
                rate: rate_here,
                tolerance: rate_here.time_to_earn(units(whole) - 1),
            }
        }
        Algorithm::LeakyBucket {
            rate,
            queue,
            max_wait,
        } => Algorithm::LeakyBucket {
            rate: slower(rate),
            queue: units(queue),
            max_wait,
        },
        Algorithm::FixedWindow {
            limit,
            window,
            anchor,
        } => Algorithm::FixedWindow {
            limit: units(limit),
            window,
            anchor,
        },
        Algorithm::SlidingLog { limit, window } => Algorithm::SlidingLog {
            limit: units(limit),
            window,
        },
        Algorithm::SlidingWindow {
            limit,
            window,
            estimate,
        } => Algorithm::SlidingWindow {
            limit: units(limit),
            window,
            estimate,
        },
        Algorithm::Concurrency { limit, ttl } => Algorithm::Concurrency {
            limit: units(limit),
            ttl,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::super::burst_credits::BurstCredits;
    use super::*;

    #[test]
    fn shares_together_are_at_most_the_whole_and_at_least_one_each() {
        let rate: Rate = "10/s".parse().unwrap();
        let limits = [
            Limit::token_bucket(rate, 10).unwrap(),
            Limit::gcra(rate, Span::from_millis(950)).unwrap(),
            Limit::leaky_bucket(rate, 10).unwrap(),
            Limit::fixed_window(rate).unwrap(),
            Limit::sliding_log(rate).unwrap(),
            Limit::sliding_window(rate).unwrap(),
            Limit::concurrency(10, Span::from_secs(1)).unwrap(),
        ];
        for limit in limits {
            for nodes in [1, 2, 3, 4, 7, 10, 11] {
                let share = Quota::plain(limit.clone()).share(nodes);
                let whole = Quota::plain(limit.clone()).advertised().0;
                let each = share.advertised().0;
                assert!(each >= 1, "{limit} of {nodes}");
                assert!(
                    each * u64::from(nodes) <= whole.max(u64::from(nodes)),
                    "{limit} of {nodes}: {each}"
                );
            }
        }
    }

    #[test]
    fn a_share_of_burst_credits_bursts_for_as_long() {
        let credits = BurstCredits {
            rate: "10/s".parse().unwrap(),
            times: 10,
            duration: Span::from_secs(30),
            slack: None,
        };
        let share = credits.quota().unwrap().share(2);
        let half = BurstCredits {
            rate: Rate::new(10, Span::from_secs(2)).unwrap(),
            slack: Some(50),
            ..credits
        };
        assert_eq!(share, half.quota().unwrap());
    }
}
