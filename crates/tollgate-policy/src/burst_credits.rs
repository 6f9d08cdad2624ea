//! Burst credits: a multiple of the rate for a while, then the rate, as two token buckets.
//!
//! # Theory
//!
//! The rule's limit is the *credit* bucket: it earns at `rate` and holds `(times - 1) * rate * duration + slack`, so
//! it bounds how long a burst lasts. The *peak* bucket ([`Quota::peak`]) earns at `times * rate` and holds `slack`:
//! it bounds how fast. Both are charged together, all or none, as any two limits of one request. From full credit a
//! key runs at `times * rate` for exactly `duration`, then at `rate`. The credit is full again after
//! `(times - 1) * duration` of idleness.
//!
//! # Invariant
//!
//! Any window of length `w` admits at most the lesser of `slack + times*rate*w` and
//! `(times-1)*rate*duration + slack + rate*w`.
//!
//! # Fractions
//!
//! Where `(times - 1) * rate * duration` is a whole number, the credit bucket is a token bucket. Otherwise it is the
//! GCRA meter that holds the fraction too; its tolerance is rounded down to a nanosecond.
//!
//! # Rejected
//!
//! One bucket of `times * rate * duration` would be spent in an instant. At the peak rate it would last longer than
//! `duration`, because it is refilled meanwhile.

use super::rule::Quota;
use tollgate::LimitError;
use tollgate::Rate;
use tollgate::Span;
use tollgate::{Algorithm, Limit};

/// The numbers of burst credits, as in a policy file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BurstCredits {
    /// The rate in the long run.
    pub rate: Rate,
    /// How many times faster a burst may run.
    pub times: u32,
    /// For how long, from full credit.
    pub duration: Span,
    /// What may come at the same moment. Default: `times` times the units of the rate, at most what a burst admits in its
    /// whole duration.
    pub slack: Option<u64>,
}

impl BurstCredits {
    /// The two buckets as one quota.
    ///
    /// ```
    /// use tollgate::Span;
    /// use tollgate_policy::BurstCredits;
    /// let credits = BurstCredits { rate: "10/s".parse()?, times: 10, duration: Span::from_secs(30), slack: None };
    /// let quota = credits.quota()?;
    /// assert_eq!(quota.limit.to_string(), "token bucket 10/s burst 2800");
    /// assert_eq!(quota.peak.as_ref().map(|peak| peak.to_string()).as_deref(), Some("token bucket 100/s burst 100"));
    /// assert_eq!(BurstCredits::from_quota(&quota), Some(credits));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `times` below 2, a duration or slack of zero, or numbers that need more than 73 years to fill.
    pub fn quota(&self) -> Result<Quota, LimitError> {
        if self.times < 2 {
            return Err(LimitError::NoMultiple);
        }
        if self.duration.is_zero() {
            let what = "burst duration";
            return Err(LimitError::ZeroSpan { what });
        }
        let peak = times(self.rate, self.times)?;
        let slack = self.slack.unwrap_or(default_slack(peak, self.duration));
        let peak = Limit::token_bucket(peak, slack)?;
        let saved = self.duration.as_nanos().checked_mul(self.excess_factor());
        let saved = Span::from_nanos(saved.ok_or(LimitError::TooSlow)?);
        let whole = self.rate.earned_in(saved);
        let limit = match earns_evenly(self.rate, saved) {
            true => {
                let burst = whole.checked_add(slack).ok_or(LimitError::TooSlow)?;
                Limit::token_bucket(self.rate, burst)?
            }
            false => {
                let early = saved.as_nanos().checked_add(cells(self.rate, slack));
                let tolerance = Span::from_nanos(early.ok_or(LimitError::TooSlow)?);
                Limit::gcra(self.rate, tolerance)?
            }
        };
        Ok(Quota {
            peak: Some(peak),
            ..Quota::plain(limit)
        })
    }

    /// The numbers that [`BurstCredits::quota`] made this quota of; none if it is not made so.
    pub fn from_quota(quota: &Quota) -> Option<BurstCredits> {
        let Algorithm::TokenBucket { rate: peak, burst } = *quota.peak.as_ref()?.algorithm() else {
            return None;
        };
        let (rate, saved) = match *quota.limit.algorithm() {
            Algorithm::TokenBucket { rate, burst: most } => {
                (rate, rate.time_to_earn(most.checked_sub(burst)?).as_nanos())
            }
            Algorithm::Gcra { rate, tolerance } => {
                (rate, tolerance.as_nanos().checked_sub(cells(rate, burst))?)
            }
            _ => return None,
        };
        let times = u32::try_from(peak.units() / rate.units()).ok()?;
        let above = u64::from(times.checked_sub(1)?);
        let duration = Span::from_nanos(saved.checked_div(above)?);
        Some(BurstCredits {
            rate,
            times,
            duration,
            slack: (burst != default_slack(peak, duration)).then_some(burst),
        })
    }

    /// How much faster than the rate a burst uses up credit, in multiples of the rate.
    fn excess_factor(&self) -> u64 {
        u64::from(self.times.saturating_sub(1))
    }
}

fn times(rate: Rate, times: u32) -> Result<Rate, LimitError> {
    let units = rate.units().checked_mul(u64::from(times));
    Rate::new(units.ok_or(LimitError::TooSlow)?, rate.per()).map_err(|_| LimitError::TooSlow)
}

/// Is what `rate` earns in `span` a whole number?
fn earns_evenly(rate: Rate, span: Span) -> bool {
    u128::from(rate.units()) * u128::from(span.as_nanos()) % u128::from(rate.per().as_nanos()) == 0
}

/// How much earlier than due `slack` cells at once are, in nanoseconds, rounded down.
fn cells(rate: Rate, slack: u64) -> u64 {
    let early = u128::from(slack.saturating_sub(1)) * u128::from(rate.per().as_nanos());
    u64::try_from(early / u128::from(rate.units())).unwrap_or(u64::MAX)
}

/// The units of the peak rate, as the default burst of a token bucket has those of its rate; at most what a burst admits.
fn default_slack(peak: Rate, duration: Span) -> u64 {
    peak.units().min(peak.earned_in(duration)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credits(rate: &str, times: u32, secs: u64, slack: Option<u64>) -> BurstCredits {
        BurstCredits {
            rate: rate.parse().unwrap(),
            times,
            duration: Span::from_secs(secs),
            slack,
        }
    }

    #[test]
    fn the_numbers_of_a_quota_are_those_that_it_was_made_of() {
        for numbers in [
            credits("10/s", 10, 30, None),
            credits("10/s", 10, 30, Some(4)),
            credits("1/h", 3, 7_200, Some(2)),
            // One in an hour earns a third of a unit and more in 6000 s.
            credits("1/h", 3, 6_000, None),
            credits("7/3s", 4, 31, Some(6)),
            credits("999983/s", 12, 1, None),
        ] {
            assert_eq!(
                BurstCredits::from_quota(&numbers.quota().unwrap()),
                Some(numbers)
            );
        }
    }

    #[test]
    fn a_fraction_of_a_unit_is_held_too() {
        let quota = credits("1/h", 3, 6_000, Some(1)).quota().unwrap();
        let tolerance = Span::from_secs(12_000);
        assert_eq!(
            *quota.limit.algorithm(),
            Algorithm::Gcra {
                rate: "1/h".parse().unwrap(),
                tolerance
            }
        );
    }

    #[test]
    fn what_is_no_burst_is_refused() {
        let refused = |numbers: BurstCredits| numbers.quota().unwrap_err();
        assert_eq!(refused(credits("5/s", 1, 60, None)), LimitError::NoMultiple);
        assert_eq!(
            refused(credits("5/s", 2, 0, None)),
            LimitError::ZeroSpan {
                what: "burst duration"
            }
        );
        assert_eq!(
            refused(credits("5/s", 2, 1, Some(0))),
            LimitError::ZeroCapacity { what: "burst" }
        );
        assert_eq!(
            refused(credits("10000000000000000000/s", 9, 60, Some(1))),
            LimitError::TooSlow
        );
        assert_eq!(
            refused(credits("1/s", 2, 99_999_999_999, Some(1))),
            LimitError::TooSlow
        );
    }

    #[test]
    fn two_plain_buckets_are_no_burst_credits() {
        let quota = Quota::plain(Limit::token_bucket("5/s".parse().unwrap(), 10).unwrap());
        assert_eq!(BurstCredits::from_quota(&quota), None);
    }
}
