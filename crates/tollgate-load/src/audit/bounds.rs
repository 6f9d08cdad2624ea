//! The most that a correct limiter admits in a window of a given length, for each algorithm.
//!
//! These are the invariants of the modules under [`tollgate::algorithm`] as numbers. Each is the least bound that holds for
//! every start of the window, rounded up, so that a correct limiter is never accused.

use tollgate::{Algorithm, Estimate, Span};

/// The most units that are admitted from some moment to `window` later, both included.
pub(crate) fn max_admitted(algorithm: &Algorithm, window: Span) -> u64 {
    match *algorithm {
        Algorithm::TokenBucket { rate, burst } => burst.saturating_add(rate.earned_in(window)),
        Algorithm::Gcra { rate, tolerance } => {
            let early = Span::from_nanos(tolerance.as_nanos().saturating_add(window.as_nanos()));
            rate.earned_in(early).saturating_add(1)
        }
        Algorithm::LeakyBucket { rate, queue, .. } => queue.saturating_add(rate.earned_in(window)),
        // A window may touch one clock window more than fit into it.
        Algorithm::FixedWindow {
            limit,
            window: length,
            ..
        } => {
            let touched = window.as_nanos().div_ceil(length.as_nanos().max(1));
            limit.saturating_mul(touched.saturating_add(1))
        }
        Algorithm::SlidingLog {
            limit,
            window: length,
        } => limit.saturating_mul(half_open(window, length)),
        Algorithm::SlidingWindow {
            limit,
            window: length,
            estimate,
        } => {
            let each = match estimate {
                Estimate::Strict => limit,
                Estimate::Span => limit.saturating_mul(2).saturating_sub(1),
            };
            each.saturating_mul(half_open(window, length))
        }
        // The number of admissions says nothing about how many were in flight.
        _ => u64::MAX,
    }
}

/// Half-open windows of `length` that cover `window` with both its ends.
fn half_open(window: Span, length: Span) -> u64 {
    (window.as_nanos() / length.as_nanos().max(1)).saturating_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate::{Limit, ManualClock, Moment, Rate, UnkeyedLimiter, Verdict};

    fn limits() -> Vec<Limit> {
        let rate = |text: &str| text.parse::<Rate>().unwrap();
        let sliding = |estimate| {
            Limit::new(Algorithm::SlidingWindow {
                limit: 7,
                window: Span::from_millis(100),
                estimate,
            })
        };
        [
            Limit::token_bucket(rate("70/s"), 5),
            Limit::gcra(rate("70/s"), Span::from_millis(33)),
            Limit::leaky_bucket(rate("70/s"), 5),
            Limit::fixed_window(rate("7/100ms")),
            Limit::sliding_log(rate("7/100ms")),
            sliding(Estimate::Span),
            sliding(Estimate::Strict),
        ]
        .map(Result::unwrap)
        .into()
    }

    /// Moments at which the limit let one pass, when checked as often as possible at random times.
    fn admitted(limit: &Limit, seed: u64) -> Vec<u64> {
        let limiter = UnkeyedLimiter::with_clock(limit.clone(), ManualClock::new()).unwrap();
        let clock = limiter.limiter().clock();
        clock.set(Moment::from_nanos(1_000_000_000 + seed * 7_654_321));
        let mut random = seed;
        let mut moments = Vec::new();
        let mut now = 0;
        for _ in 0..600 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let pause = (random >> 33) % 8 * 1_000_000 * u64::from(random >> 62 == 0);
            clock.advance(Span::from_nanos(pause));
            now += pause;
            if matches!(limiter.check(), Verdict::Pass | Verdict::Wait { .. }) {
                moments.push(now);
            }
        }
        moments
    }

    #[test]
    fn no_window_of_the_real_algorithms_admits_more_and_some_window_nearly_as_much() {
        for limit in limits() {
            let mut closest = u64::MAX;
            for seed in 1..40 {
                let moments = admitted(&limit, seed);
                for (at, from) in moments.iter().enumerate() {
                    for (count, to) in moments.iter().skip(at).enumerate() {
                        let bound = max_admitted(limit.algorithm(), Span::from_nanos(to - from));
                        let count = count as u64 + 1;
                        assert!(count <= bound, "{limit}: {count} of {bound}");
                        closest = closest.min(bound - count);
                    }
                }
            }
            assert!(closest <= 6, "{limit}: never closer than {closest}");
        }
    }

    #[test]
    fn bounds_are_exact_to_the_unit() {
        let rate: Rate = "10/s".parse().unwrap();
        let bucket = Algorithm::TokenBucket { rate, burst: 5 };
        let bound_of =
            |algorithm: &Algorithm, millis| max_admitted(algorithm, Span::from_millis(millis));
        assert_eq!(
            [0, 99, 100, 1000].map(|ms| bound_of(&bucket, ms)),
            [5, 5, 6, 15]
        );
        let fixed = *Limit::fixed_window(rate).unwrap().algorithm();
        assert_eq!(
            [0, 1, 1000, 1001].map(|ms| bound_of(&fixed, ms)),
            [10, 20, 20, 30]
        );
        let log = *Limit::sliding_log(rate).unwrap().algorithm();
        assert_eq!(
            [0, 999, 1000, 1999].map(|ms| bound_of(&log, ms)),
            [10, 10, 20, 20]
        );
    }
}
