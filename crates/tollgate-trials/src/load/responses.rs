//! The responses to a load.

use std::time::Duration;

use super::record::Record;

/// How long no answer may be degraded until the store counts as recovered.
const CALM: Duration = Duration::from_millis(200);

/// All records of a load, in the order of their times.
#[derive(Clone, Debug)]
pub struct Responses {
    records: Vec<Record>,
}

/// A token bucket as a policy has it, in units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// Units that are earned in a second.
    pub per_second: u64,
    /// Units at once.
    pub burst: u64,
}

impl Allowance {
    /// The units that may pass in this time, from a full bucket.
    pub fn in_time(&self, time: Duration) -> u64 {
        let earned = u128::from(self.per_second) * time.as_nanos() / 1_000_000_000;
        u64::try_from(earned)
            .unwrap_or(u64::MAX)
            .saturating_add(self.burst)
    }
}

impl Responses {
    pub(super) fn new(records: Vec<Record>) -> Responses {
        Responses { records }
    }

    /// All of them.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// Those scheduled at `from` or later, and before `until`.
    pub fn between(&self, from: Duration, until: Duration) -> Responses {
        let within = |record: &&Record| record.scheduled >= from && record.scheduled < until;
        Responses::new(self.records.iter().filter(within).copied().collect())
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// How many match.
    pub fn count(&self, matches: impl Fn(&Record) -> bool) -> usize {
        self.records.iter().filter(|record| matches(record)).count()
    }

    /// How many were not answered.
    pub fn unanswered(&self) -> usize {
        self.count(|record| record.answered.is_none())
    }

    /// How many were answered with neither a pass nor a refusal.
    pub fn unexpected(&self) -> usize {
        self.count(|r| r.answered.is_some() && !matches!(r.status, 200 | 429))
    }

    /// How many were decided without the store.
    pub fn degraded(&self) -> usize {
        self.count(|record| record.degraded)
    }

    /// The latency that this many of 100 000 requests do not exceed. One without an answer is slower than all others.
    pub fn latency(&self, of_100_000: usize) -> Duration {
        self.rank(of_100_000, |record| {
            record.latency().unwrap_or(Duration::MAX)
        })
    }

    /// How late the load itself was, for this many of 100 000 requests at most.
    pub fn delay(&self, of_100_000: usize) -> Duration {
        self.rank(of_100_000, Record::delay)
    }

    fn rank(&self, of_100_000: usize, of: impl Fn(&Record) -> Duration) -> Duration {
        let mut all: Vec<Duration> = self.records.iter().map(of).collect();
        all.sort_unstable();
        let rank = (all.len() * of_100_000).div_ceil(100_000).max(1) - 1;
        all.get(rank).copied().unwrap_or_default()
    }

    /// How many requests a client sent, and how many passed.
    pub fn of_client(&self, client: usize) -> (u64, u64) {
        let of_client = || self.records.iter().filter(|record| record.client == client);
        let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let passed = of_client().filter(|record| record.admitted).count();
        (count(of_client().count()), count(passed))
    }

    /// The worst excess of a client: what passed beyond its allowance, from its first
    /// request to its last answer. Each request costs 1.
    pub fn excess(&self, clients: std::ops::Range<usize>, allowance: Allowance) -> u64 {
        let mut worst = 0;
        for client in clients {
            let of_client = || self.records.iter().filter(|record| record.client == client);
            let first = of_client().map(|record| record.scheduled).min();
            let last = of_client().filter_map(|record| record.answered).max();
            if let (Some(first), Some(last)) = (first, last) {
                let (_, passed) = self.of_client(client);
                let may = allowance.in_time(last.saturating_sub(first));
                worst = worst.max(passed.saturating_sub(may));
            }
        }
        worst
    }

    /// How long after `event` answers were no longer degraded: from then on none was for a while. Nothing if that
    /// while is not over yet. `records` begin with the event.
    pub fn recovered_after(records: &[Record], event: Duration) -> Option<Duration> {
        let mut back = event;
        for record in records.iter().filter(|record| record.scheduled >= event) {
            if record.scheduled >= back + CALM {
                return Some(back.saturating_sub(event));
            }
            if record.degraded || record.answered.is_none() {
                back = record.scheduled;
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn record(at: u64, took: u64, degraded: bool) -> Record {
        Record {
            scheduled: ms(at),
            answered: Some(ms(at + took)),
            status: 200,
            admitted: true,
            degraded,
            ..Record::default()
        }
    }

    #[test]
    fn the_latency_of_all_is_that_of_the_slowest() {
        let records = (0..1000).map(|i| record(i, i, false)).collect();
        let seen = Responses::new(records);
        assert_eq!(seen.latency(50_000), ms(499));
        assert_eq!(seen.latency(99_900), ms(998));
        assert_eq!(seen.latency(100_000), ms(999));
    }

    #[test]
    fn a_request_without_an_answer_is_slower_than_all_others() {
        let lost = Record::default();
        let seen = Responses::new(vec![record(0, 5, false), lost]);
        assert_eq!(seen.latency(100_000), Duration::MAX);
        assert_eq!(seen.unanswered(), 1);
    }

    #[test]
    fn the_store_has_recovered_after_the_last_degraded_answer_if_none_follows() {
        let at = |at, degraded| record(at, 1, degraded);
        let mut records: Vec<Record> = (0..100).map(|i| at(i * 10, i < 30)).collect();
        assert_eq!(Responses::recovered_after(&records, ms(100)), Some(ms(190)));
        // And not while it may still be a pause between two outages.
        records.truncate(45);
        assert_eq!(Responses::recovered_after(&records, ms(100)), None);
    }

    #[test]
    fn what_passed_beyond_the_allowance_is_the_excess() {
        let seen = Responses::new((0..10).map(|i| record(i * 100, 0, false)).collect());
        let allowance = |burst| Allowance {
            per_second: 2,
            burst,
        };
        // In 0.9 s one unit is earned.
        assert_eq!(seen.excess(0..1, allowance(5)), 4);
        assert_eq!(seen.excess(0..1, allowance(9)), 0);
    }
}
