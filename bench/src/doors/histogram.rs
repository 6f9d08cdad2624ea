//! Times, counted in buckets whose width grows with what they hold.
//!
//! Every power of two is cut into [`STEPS`] equal buckets, so a percentile is at most one part in
//! [`STEPS`] above the truth, from nanoseconds to hours, in 59 kB that are never reallocated.

use std::time::Duration;

const STEPS_LOG2: u32 = 7;
const STEPS: u64 = 1 << STEPS_LOG2;
const BUCKETS: usize = (u64::BITS - STEPS_LOG2 + 1) as usize * STEPS as usize;

#[derive(Debug)]
pub(crate) struct Histogram {
    counts: Vec<u64>,
    total: u64,
}

impl Histogram {
    pub(crate) fn new() -> Self {
        Self {
            counts: vec![0; BUCKETS],
            total: 0,
        }
    }

    pub(crate) fn record(&mut self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.counts[bucket(nanos)] += 1;
        self.total += 1;
    }

    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// The time that `percent` of all times do not exceed; zero if there are none.
    pub(crate) fn percentile(&self, percent: u64) -> Duration {
        let rank = (self.total * percent).div_ceil(100).max(1);
        let mut seen = 0;
        let found = self.counts.iter().position(|count| {
            seen += count;
            seen >= rank
        });
        found.map_or(Duration::ZERO, |bucket| {
            Duration::from_nanos(most_in(bucket))
        })
    }
}

/// Where `nanos` is counted. Below [`STEPS`] every number has a bucket of its own.
fn bucket(nanos: u64) -> usize {
    let shift = nanos
        .checked_ilog2()
        .unwrap_or(0)
        .saturating_sub(STEPS_LOG2);
    // The leading bit is the same for all with this shift; it moves them on by one power.
    let within = nanos >> shift;
    (u64::from(shift) * STEPS + within) as usize
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
    fn every_number_lies_in_its_bucket_and_close_to_its_end() {
        let edges = (0..64).flat_map(|power| [(1_u64 << power) - 1, 1 << power, (1 << power) + 1]);
        for nanos in edges.chain([u64::MAX, 999, 123_456_789]) {
            let bucket = bucket(nanos);
            assert!(bucket < BUCKETS, "{nanos}");
            let most = most_in(bucket);
            assert!(
                nanos <= most && most - nanos <= nanos / STEPS,
                "{nanos}: {most}"
            );
            assert!(bucket == 0 || most_in(bucket - 1) < nanos, "{nanos}");
        }
    }

    #[test]
    fn percentiles_of_a_thousand_different_times_are_their_ranks() {
        let mut histogram = Histogram::new();
        for micros in 1..=1000 {
            histogram.record(Duration::from_micros(micros));
        }
        for (percent, micros) in [(50, 500), (99, 990), (100, 1000)] {
            let truth = Duration::from_micros(micros);
            let told = histogram.percentile(percent);
            assert!(
                truth <= told && told <= truth * 129 / 128,
                "{percent}: {told:?}"
            );
        }
        assert_eq!(histogram.total(), 1000);
    }

    #[test]
    fn one_slow_answer_in_a_hundred_is_beyond_the_99th_and_two_are_not() {
        let mut histogram = Histogram::new();
        for _ in 0..99 {
            histogram.record(Duration::from_nanos(100));
        }
        histogram.record(Duration::from_secs(1));
        assert_eq!(histogram.percentile(99), Duration::from_nanos(100));
        histogram.record(Duration::from_secs(1));
        assert!(histogram.percentile(99) >= Duration::from_secs(1));
    }

    #[test]
    fn no_times_have_no_percentile() {
        assert_eq!(Histogram::new().percentile(99), Duration::ZERO);
    }
}
