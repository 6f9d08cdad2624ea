//! A histogram of times, in buckets whose width grows with the time.
//!
//! # Theory
//!
//! Every power of two is cut into 128 equal buckets, and below 128 every number has its own. A bucket is found by its
//! largest number, so a percentile is never below the truth and at most one part in 128 (0.8 %) above it, from
//! nanoseconds to centuries, in 59 kB that are allocated once.
//!
//! # What it does not know
//!
//! The order of the times. The largest one is kept beside the buckets and is exact.

const STEPS_LOG2: u32 = 7;
const STEPS: u64 = 1 << STEPS_LOG2;
/// One row of buckets for the numbers below `STEPS`, and one for each power of two from there on.
const BUCKETS: usize = (u64::BITS - STEPS_LOG2 + 1) as usize * STEPS as usize;

/// Parts in ten thousand, so that the 99.9th percentile is a whole number.
pub const WHOLE: u64 = 10_000;

/// Times in nanoseconds.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    longest: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram {
            counts: vec![0; BUCKETS],
            total: 0,
            longest: 0,
        }
    }
}

impl Histogram {
    /// Counts a time.
    pub fn record(&mut self, nanos: u64) {
        if let Some(count) = self.counts.get_mut(bucket(nanos)) {
            *count += 1;
            self.total += 1;
            self.longest = self.longest.max(nanos);
        }
    }

    /// Adds all times of another.
    pub fn add(&mut self, other: &Histogram) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.total += other.total;
        self.longest = self.longest.max(other.longest);
    }

    /// How many times were counted.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The longest time, exactly.
    pub fn max(&self) -> u64 {
        self.longest
    }

    /// The time that this share of all times, in parts of [`WHOLE`], does not exceed; zero if there are none.
    pub fn quantile(&self, share: u64) -> u64 {
        let rank = u128::from(self.total) * u128::from(share.min(WHOLE));
        let rank = rank.div_ceil(u128::from(WHOLE)).max(1);
        let mut seen = 0_u128;
        let found = self.counts.iter().position(|count| {
            seen += u128::from(*count);
            seen >= rank
        });
        // The last bucket in use may reach beyond the longest time.
        found.map_or(0, |bucket| most_in(bucket).min(self.longest))
    }
}

/// Where `nanos` is counted.
fn bucket(nanos: u64) -> usize {
    let power = nanos.checked_ilog2().unwrap_or(0);
    let shift = power.saturating_sub(STEPS_LOG2);
    // The leading bit is the same for all with this shift; it moves them on by one row.
    let within = nanos >> shift;
    usize::try_from(u64::from(shift) * STEPS + within).unwrap_or(BUCKETS)
}

/// The largest number that is counted there.
fn most_in(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    let shift = (bucket / STEPS).saturating_sub(1);
    let within = bucket - shift * STEPS;
    // Written so that the last bucket does not overflow.
    (within << shift) + ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_lies_in_its_bucket_and_within_one_part_in_128_of_its_end() {
        let edges = (0..64).flat_map(|power| [(1_u64 << power) - 1, 1 << power, (1 << power) + 1]);
        for nanos in edges.chain([u64::MAX, 999, 123_456_789]) {
            let at = bucket(nanos);
            assert!(at < BUCKETS, "{nanos}");
            let most = most_in(at);
            assert!(
                nanos <= most && most - nanos <= nanos / STEPS,
                "{nanos}: {most}"
            );
            assert!(at == 0 || most_in(at - 1) < nanos, "{nanos}");
        }
    }

    #[test]
    fn quantiles_of_ten_thousand_different_times_are_their_ranks() {
        let mut histogram = Histogram::default();
        (1..=10_000).for_each(|micros| histogram.record(micros * 1000));
        for share in [5000, 9000, 9900, 9990, 10_000] {
            let truth = share * 1000;
            let reported = histogram.quantile(share);
            assert!(
                truth <= reported && reported <= truth + truth / 128,
                "{share}: {reported}"
            );
        }
        assert_eq!(histogram.max(), 10_000_000);
    }

    #[test]
    fn one_slow_answer_in_a_hundred_is_beyond_the_99th_and_two_are_not() {
        let mut histogram = Histogram::default();
        (0..99).for_each(|_| histogram.record(100));
        histogram.record(1_000_000_000);
        assert_eq!(histogram.quantile(9900), 100);
        histogram.record(1_000_000_000);
        assert_eq!(histogram.quantile(9900), 1_000_000_000);
    }

    #[test]
    fn what_two_threads_counted_is_what_one_would_have_counted() {
        let (mut one, mut other, mut both) = <(Histogram, Histogram, Histogram)>::default();
        for nanos in 0..5000_u64 {
            let part = if nanos % 3 == 0 { &mut one } else { &mut other };
            part.record(nanos * nanos);
            both.record(nanos * nanos);
        }
        one.add(&other);
        assert_eq!(
            (one.total(), one.max(), one.counts),
            (both.total(), both.max(), both.counts)
        );
    }

    #[test]
    fn no_times_have_no_quantile() {
        assert_eq!(Histogram::default().quantile(9900), 0);
    }
}
