//! Statistics of moments and times, in integers.

use std::time::Duration;

/// Longer than any trial.
const AN_HOUR: Duration = Duration::from_secs(3600);

/// The time that `per_mille` of all times do not exceed; zero if there are none.
pub(super) fn quantile(times: &mut [Duration], per_mille: usize) -> Duration {
    times.sort_unstable();
    let rank = (times.len() * per_mille).div_ceil(1000).max(1);
    times.get(rank - 1).copied().unwrap_or_default()
}

/// The most moments in any window of this length. The moments are in their order.
pub(super) fn most_in_a_window(moments: &[Duration], window: Duration) -> usize {
    let mut most = 0;
    let mut first = 0;
    for (at, &moment) in moments.iter().enumerate() {
        while moments
            .get(first)
            .is_some_and(|&earliest| moment.saturating_sub(earliest) >= window)
        {
            first += 1;
        }
        most = most.max(at + 1 - first);
    }
    most
}

/// How late each of these moments is, if one is due after each `1 / rate` seconds. The least late one counts as
/// punctual, which gives the first due time.
pub(super) fn lateness(moments: &[Duration], rate: usize) -> Vec<Duration> {
    let rate = u128::try_from(rate.max(1)).unwrap_or(1);
    let due = |nth: u128| {
        let nanos = u64::try_from(nth * 1_000_000_000 / rate).unwrap_or(u64::MAX);
        Duration::from_nanos(nanos)
    };
    // Counted from an hour earlier, so that no difference is below zero.
    let late = (0_u128..).zip(moments);
    let late = late.map(|(nth, &at)| (at + AN_HOUR).saturating_sub(due(nth)));
    let late: Vec<Duration> = late.collect();
    let least = late.iter().min().copied().unwrap_or_default();
    late.into_iter()
        .map(|late| late.saturating_sub(least))
        .collect()
}

/// The times between one moment and the next.
pub(super) fn spacings(moments: &[Duration]) -> Vec<Duration> {
    let pairs = moments.iter().zip(moments.iter().skip(1));
    pairs.map(|(&a, &b)| b.saturating_sub(a)).collect()
}

/// Jain's index of fairness in parts of a thousand: 1000 if all have the same, 1000 / n if one has everything.
pub(super) fn jain(shares: &[u64]) -> u64 {
    let sum: u128 = shares.iter().map(|&share| u128::from(share)).sum();
    let squares: u128 = shares.iter().map(|&s| u128::from(s) * u128::from(s)).sum();
    let count = u128::try_from(shares.len()).unwrap_or(u128::MAX);
    let index = (sum * sum * 1000).checked_div(squares.saturating_mul(count));
    u64::try_from(index.unwrap_or(1000)).unwrap_or(u64::MAX)
}

/// Max-min fair shares of a capacity.
pub(super) fn fair_shares(demand: &[u64], capacity: u64) -> Vec<u64> {
    let mut order: Vec<usize> = (0..demand.len()).collect();
    order.sort_by_key(|&index| demand.get(index).copied());
    let mut shares = vec![0; demand.len()];
    let (mut left, mut others) = (capacity, u64::try_from(demand.len()).unwrap_or(u64::MAX));
    for index in order {
        let demanded = demand.get(index).copied().unwrap_or_default();
        let share = demanded.min(left.checked_div(others).unwrap_or_default());
        if let Some(place) = shares.get_mut(index) {
            *place = share;
        }
        left -= share;
        others = others.saturating_sub(1);
    }
    shares
}

/// A part of a whole in parts of a thousand.
pub(super) fn per_mille(part: u64, whole: u64) -> u64 {
    let parts = (u128::from(part) * 1000).checked_div(u128::from(whole));
    parts.map_or(1000, |parts| u64::try_from(parts).unwrap_or(u64::MAX))
}

/// Parts of a thousand as text.
pub(super) fn percent(per_mille: u64) -> String {
    format!("{}.{} %", per_mille / 10, per_mille % 10)
}

/// A ratio of two times, such as `1.24`.
pub(super) fn ratio(of: Duration, over: Duration) -> String {
    match (of.as_micros() * 100).checked_div(over.as_micros()) {
        Some(hundredths) => format!("{}.{:02}", hundredths / 100, hundredths % 100),
        None => "-".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(all: &[u64]) -> Vec<Duration> {
        all.iter().copied().map(Duration::from_millis).collect()
    }

    #[test]
    fn a_window_is_open_at_its_end() {
        let moments = ms(&[0, 10, 20, 30, 31, 32]);
        assert_eq!(most_in_a_window(&moments, Duration::from_millis(10)), 3);
        assert_eq!(most_in_a_window(&moments, Duration::from_millis(13)), 4);
        assert_eq!(most_in_a_window(&[], Duration::from_millis(13)), 0);
    }

    #[test]
    fn lateness_is_counted_from_the_most_punctual() {
        // Due at 0, 10, 20 and 30 ms after the first, which was 2 ms late itself.
        let late = lateness(&ms(&[102, 110, 125, 131]), 100);
        assert_eq!(late, ms(&[2, 0, 5, 1]));
        assert!(lateness(&[], 0).is_empty());
    }

    #[test]
    fn quantiles_are_ranks() {
        let mut times = ms(&(1..=1000).rev().collect::<Vec<u64>>());
        assert_eq!(quantile(&mut times, 500), Duration::from_millis(500));
        assert_eq!(quantile(&mut times, 990), Duration::from_millis(990));
        assert_eq!(quantile(&mut [], 990), Duration::ZERO);
    }

    #[test]
    fn jain_is_one_for_equal_shares_and_low_for_one_large_share() {
        assert_eq!(jain(&[7, 7, 7]), 1000);
        assert_eq!(jain(&[9, 0, 0]), 333);
        assert_eq!(jain(&[]), 1000);
    }

    #[test]
    fn no_share_exceeds_its_demand_and_the_largest_gets_the_rest() {
        assert_eq!(fair_shares(&[100, 8, 8], 50), [34, 8, 8]);
        assert_eq!(fair_shares(&[100, 100], 50), [25, 25]);
    }
}
