//! The responses of four loads by key, compared with a bucket.
//!
//! # Theory
//!
//! A request was decided at some moment between when it was sent and when its answer was there. So whatever was sent
//! after `a` and answered before `b` was decided in the stretch from `a` to `b`, and of that no more may pass than a full
//! bucket holds and earns in `b - a`. Every stretch that begins with a request and ends with an answer is checked. A
//! request that is only partly in a stretch is not counted in it: delays hide an excess, they never make one.
//!
//! # What it does not know
//!
//! Which node decided, and why.

use std::time::Duration;

use crate::load::{Allowance, Record, Responses};

/// When an admitted request was sent and answered, since the first load began.
type Passed = (Duration, Duration);

/// The responses of all loads for each key.
#[derive(Debug)]
pub(super) struct FleetResponses {
    /// By key: what passed, in the order in which it was sent.
    passed: Vec<Vec<Passed>>,
    /// By key: how many were sent.
    sent_all: Vec<u64>,
    /// From the first request to the last answer.
    time: Duration,
}

impl FleetResponses {
    /// Combines the responses of loads with their starts after the first. `key_of` maps a client to its key.
    pub(super) fn new(
        loads: &[(Duration, &Responses)],
        keys: usize,
        key_of: impl Fn(usize) -> usize,
    ) -> FleetResponses {
        let mut passed = vec![Vec::new(); keys];
        let mut sent_all = vec![0; keys];
        let (mut first, mut last) = (Duration::MAX, Duration::ZERO);
        for (began, seen) in loads {
            for record in seen.records() {
                let key = key_of(record.client);
                if let Some(count) = sent_all.get_mut(key) {
                    *count += 1;
                }
                let Some((sent, answered)) = times(record) else {
                    continue;
                };
                let (sent, answered) = (*began + sent, *began + answered);
                (first, last) = (first.min(sent), last.max(answered));
                if let Some(of_key) = passed.get_mut(key).filter(|_| record.admitted) {
                    of_key.push((sent, answered));
                }
            }
        }
        for of_key in &mut passed {
            of_key.sort_unstable();
        }
        FleetResponses {
            passed,
            sent_all,
            time: last.saturating_sub(first),
        }
    }

    /// From the first request to the last answer.
    pub(super) fn time(&self) -> Duration {
        self.time
    }

    /// How many passed.
    pub(super) fn admitted(&self) -> u64 {
        self.passed.iter().map(|of_key| count(of_key.len())).sum()
    }

    /// How many were sent.
    pub(super) fn sent_all(&self) -> u64 {
        self.sent_all.iter().sum()
    }

    /// The requests of the key with the fewest.
    pub(super) fn sent_least(&self) -> u64 {
        self.sent_all.iter().copied().min().unwrap_or_default()
    }

    /// The worst excess of a key over its allowance in the whole run.
    pub(super) fn excess(&self, allowance: Allowance) -> u64 {
        let may = allowance.in_time(self.time);
        let over = |of_key: &Vec<Passed>| count(of_key.len()).saturating_sub(may);
        self.passed.iter().map(over).max().unwrap_or_default()
    }

    /// The same in the worst stretch of time.
    pub(super) fn excess_in_a_stretch(&self, allowance: Allowance) -> u64 {
        let worst = |of_key: &Vec<Passed>| worst_stretch(of_key, allowance);
        self.passed.iter().map(worst).max().unwrap_or_default()
    }

    /// How many passed that were answered in this stretch.
    pub(super) fn admitted_between(&self, from: Duration, until: Duration) -> u64 {
        let within = |passed: &&Passed| passed.1 >= from && passed.1 < until;
        let all = self.passed.iter().flatten().filter(within);
        count(all.count())
    }
}

fn times(record: &Record) -> Option<Passed> {
    Some((record.sent, record.answered?))
}

fn count(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}

/// By how much the allowance is exceeded in the worst stretch. `passed` is in the order of sending.
fn worst_stretch(passed: &[Passed], allowance: Allowance) -> u64 {
    // In billionths of a unit, so that nothing is divided in the loop.
    const UNIT: i128 = 1_000_000_000;
    let nanos = |time: Duration| i128::try_from(time.as_nanos()).unwrap_or(i128::MAX);
    let mut by_answer: Vec<(i128, i128)> = passed
        .iter()
        .map(|&(sent, answered)| (nanos(sent), nanos(answered)))
        .collect();
    by_answer.sort_unstable_by_key(|&(_, answered)| answered);
    let (rate, burst) = (
        i128::from(allowance.per_second),
        i128::from(allowance.burst),
    );
    let mut worst = 0;
    for &(begin, _) in passed {
        let begin = nanos(begin);
        let mut over = -burst * UNIT;
        for &(sent, answered) in &by_answer {
            if sent >= begin {
                over += UNIT;
                worst = worst.max(over - rate * (answered - begin));
            }
        }
    }
    // A part of a unit too much is a unit too much.
    u64::try_from((worst + UNIT - 1) / UNIT).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIVE: Allowance = Allowance {
        per_second: 10,
        burst: 5,
    };

    fn at(ms: u64) -> Passed {
        (Duration::from_millis(ms), Duration::from_millis(ms))
    }

    #[test]
    fn a_late_burst_shows_in_its_stretch() {
        let calm = [at(0), at(5000)];
        let burst = [at(10_000); 8];
        let passed: Vec<Passed> = calm.into_iter().chain(burst).collect();
        assert_eq!(worst_stretch(&passed, FIVE), 3);
    }

    #[test]
    fn what_the_bucket_earns_meanwhile_may_pass() {
        let passed: Vec<Passed> = [at(0); 5].into_iter().chain([at(100), at(200)]).collect();
        assert_eq!(worst_stretch(&passed, FIVE), 0);
    }

    #[test]
    fn a_slow_answer_makes_no_excess() {
        let slow = |ms| (Duration::ZERO, Duration::from_millis(ms));
        let passed = [
            slow(100),
            slow(1000),
            slow(1000),
            slow(1000),
            slow(1000),
            slow(1000),
        ];
        assert_eq!(worst_stretch(&passed, FIVE), 0);
    }
}
