//! A quota multiplied by the factor of a tier.
//!
//! Rates are multiplied exactly, as ratios. What must be a whole number (a burst, a queue, the limit
//! of a window) is rounded down, against the client. A quota of nothing is an error.

use tollgate::{Algorithm, Limit, LimitError, Rate, Span};
use tollgate_policy::{BurstCredits, Quota};

/// A factor: a ratio in lowest terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Multiplier {
    numerator: u64,
    denominator: u64,
}

impl Multiplier {
    /// The factor 1.
    pub(crate) const ONE: Multiplier = Multiplier {
        numerator: 1,
        denominator: 1,
    };

    /// `units` with a decimal point before the last `decimals` digits. None for zero.
    pub(crate) fn from_decimal(units: u64, decimals: u32) -> Option<Multiplier> {
        let denominator = 10_u64.checked_pow(decimals)?;
        let common = gcd(units, denominator);
        (units > 0).then(|| Multiplier {
            numerator: units / common,
            denominator: denominator / common,
        })
    }

    fn units(self, units: u64) -> Option<u64> {
        let scaled = u128::from(units) * u128::from(self.numerator) / u128::from(self.denominator);
        u64::try_from(scaled).ok()
    }

    fn rate(self, rate: Rate) -> Option<Rate> {
        let common = gcd(rate.units(), self.denominator);
        let units = (rate.units() / common).checked_mul(self.numerator)?;
        let per = rate
            .per()
            .as_nanos()
            .checked_mul(self.denominator / common)?;
        Rate::new(units, Span::from_nanos(per)).ok()
    }
}

impl std::fmt::Display for Multiplier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.denominator {
            1 => write!(f, "{}", self.numerator),
            under => write!(f, "{}/{under}", self.numerator),
        }
    }
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a.max(1)
}

/// The quota multiplied by a factor, with its name and `max_keys`.
pub(crate) fn scaled(quota: &Quota, times: Multiplier) -> Result<Quota, LimitError> {
    const TOO_LARGE: LimitError = LimitError::TooSlow;
    let units = |units: u64| times.units(units).ok_or(TOO_LARGE);
    let faster = |rate: Rate| times.rate(rate).ok_or(TOO_LARGE);
    let limit = &quota.limit;
    let alike = |quota: Quota| {
        quota
            .with_max_keys(limit.max_keys())
            .with_name(limit.name())
    };
    if let Some(credits) = BurstCredits::from_quota(quota) {
        let scaled = BurstCredits {
            rate: faster(credits.rate)?,
            slack: credits.slack.map(units).transpose()?,
            ..credits
        };
        return scaled.quota().map(alike);
    }
    let mut algorithm = *limit.algorithm();
    match &mut algorithm {
        Algorithm::TokenBucket { rate, burst } => {
            *rate = faster(*rate)?;
            *burst = units(*burst)?;
        }
        Algorithm::Gcra { rate, .. } => *rate = faster(*rate)?,
        Algorithm::LeakyBucket { rate, queue, .. } => {
            *rate = faster(*rate)?;
            *queue = units(*queue)?;
        }
        Algorithm::FixedWindow { limit, .. }
        | Algorithm::SlidingLog { limit, .. }
        | Algorithm::SlidingWindow { limit, .. }
        | Algorithm::Concurrency { limit, .. } => *limit = units(*limit)?,
    }
    let scaled = Limit::new(algorithm).map(Quota::plain)?;
    Ok(Quota {
        periods: quota.periods.clone(),
        ..alike(scaled)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(rate: &str, burst: u64) -> Quota {
        Quota::plain(Limit::token_bucket(rate.parse().unwrap(), burst).unwrap())
    }

    #[test]
    fn burst_credits_are_scaled_as_they_were_written() {
        let credits = |rate: &str, slack| BurstCredits {
            rate: rate.parse().unwrap(),
            times: 10,
            duration: Span::from_secs(30),
            slack,
        };
        let scaled = |credits: BurstCredits, tenths| {
            let times = Multiplier::from_decimal(tenths, 1).unwrap();
            scaled(&credits.quota().unwrap().with_name("a"), times)
        };
        // What may come at once is that of the rate, unless it was said.
        let less = scaled(credits("10/s", None), 1).unwrap();
        assert_eq!(less, credits("1/s", None).quota().unwrap().with_name("a"));
        let more = scaled(credits("10/s", Some(3)), 25).unwrap();
        assert_eq!(
            more,
            credits("25/s", Some(7)).quota().unwrap().with_name("a")
        );
        assert!(scaled(credits("10/s", Some(3)), 1).is_err());
    }

    #[test]
    fn a_rate_is_scaled_exactly_and_a_burst_rounded_down() {
        let times = Multiplier::from_decimal(15, 1).unwrap();
        let limit = scaled(&bucket("5/s", 5), times).unwrap();
        assert_eq!(limit, bucket("15/2s", 7));
        let tenfold = scaled(&bucket("5/s", 10), Multiplier::from_decimal(10, 0).unwrap()).unwrap();
        assert_eq!(tenfold, bucket("50/s", 100));
    }

    #[test]
    fn nothing_left_is_no_quota() {
        let times = Multiplier::from_decimal(1, 1).unwrap();
        assert!(scaled(&bucket("5/s", 5), times).is_err());
        assert_eq!(Multiplier::from_decimal(0, 0), None);
    }

    #[test]
    fn what_does_not_fit_is_refused_and_does_not_wrap() {
        let times = Multiplier::from_decimal(1_000_000, 0).unwrap();
        assert!(scaled(&bucket("10000000000000000000/s", 5), times).is_err());
    }

    #[test]
    fn name_and_room_are_kept() {
        let limit = bucket("5/s", 5).with_name("a").with_max_keys(7);
        let limit = scaled(&limit, Multiplier::ONE).unwrap().limit;
        assert_eq!((limit.name(), limit.max_keys()), ("a", 7));
    }
}
