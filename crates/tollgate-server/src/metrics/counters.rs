//! Numbers that only grow, each thread adding to a stripe of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use crate::engine::Door;

/// Stripes at the most: beyond this many processors some share.
const STRIPES_MAX: usize = 8;

/// What can become of a request, as far as one limit is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Counted {
    /// The limit let it pass.
    Admitted,
    /// The limit let it pass after a delay.
    Delayed,
    /// The limit refused it.
    Refused,
    /// It costs more than the limit ever holds.
    Never,
    /// An override blocks its key.
    Blocked,
    /// It lacks a part of the key.
    MissingKey,
    /// An override frees its key from the limit.
    Unlimited,
    /// The limit would have refused it, but is only counted.
    Shadow,
    /// The limit's candidate would have refused it.
    Candidate,
}

impl Counted {
    /// Those that are verdicts of a limit in force, and what they are called.
    pub(crate) const VERDICTS: [(Counted, &'static str); 7] = [
        (Counted::Admitted, "admitted"),
        (Counted::Delayed, "delayed"),
        (Counted::Refused, "refused"),
        (Counted::Never, "never"),
        (Counted::Blocked, "blocked"),
        (Counted::MissingKey, "missing-key"),
        (Counted::Unlimited, "unlimited"),
    ];
    const COUNT: usize = Counted::Candidate as usize + 1;
}

/// Why no limit had a part in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Undecided {
    /// No limit matches it.
    Unmatched,
    /// It is on the list of those who are never limited.
    AllowList,
    /// Limiting is switched off.
    SwitchedOff,
    /// Its path is not believed.
    BadPath,
    /// More limits match it than can be charged together.
    TooManyLimits,
}

impl Undecided {
    /// All but `Unmatched`, which has a name of its own, and what they are called.
    pub(crate) const BASES: [(Undecided, &'static str); 4] = [
        (Undecided::AllowList, "allow-list"),
        (Undecided::SwitchedOff, "switched-off"),
        (Undecided::BadPath, "bad-path"),
        (Undecided::TooManyLimits, "too-many-limits"),
    ];
    pub(crate) const COUNT: usize = Undecided::TooManyLimits as usize + 1;
}

/// How many stripes there are here, and which of them is this thread's.
fn stripes() -> usize {
    use std::sync::OnceLock;
    static STRIPES: OnceLock<usize> = OnceLock::new();
    *STRIPES.get_or_init(|| {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        processors.next_power_of_two().min(STRIPES_MAX)
    })
}

fn this_stripe() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static MINE: usize = NEXT.fetch_add(1, Relaxed);
    }
    // A thread that is ending has no locals any more; any stripe will do.
    MINE.try_with(|mine| *mine).unwrap_or(0)
}

/// Two lines, because processors fetch them in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct Stripe<const N: usize>([AtomicU64; N]);

/// `N` numbers that belong together.
#[derive(Debug)]
pub(crate) struct Striped<const N: usize> {
    stripes: Box<[Stripe<N>]>,
}

impl<const N: usize> Default for Striped<N> {
    fn default() -> Striped<N> {
        let zeros = || Stripe([(); N].map(|()| AtomicU64::new(0)));
        Striped {
            stripes: (0..stripes()).map(|_| zeros()).collect(),
        }
    }
}

impl<const N: usize> Striped<N> {
    pub(crate) fn add(&self, at: usize, more: u64) {
        // The number of stripes is a power of two, so the remainder is a mask.
        let stripe = this_stripe() & self.stripes.len().wrapping_sub(1);
        let counter = self.stripes.get(stripe).and_then(|s| s.0.get(at));
        if let Some(counter) = counter {
            counter.fetch_add(more, Relaxed);
        }
    }

    pub(crate) fn sum(&self, at: usize) -> u64 {
        let of = |stripe: &Stripe<N>| stripe.0.get(at).map_or(0, |c| c.load(Relaxed));
        self.stripes.iter().map(of).fold(0, u64::wrapping_add)
    }
}

/// What is counted of one rule.
#[derive(Debug)]
pub(crate) struct RuleCounters {
    pub(crate) name: Arc<str>,
    doors: [Striped<{ Counted::COUNT }>; Door::ALL.len()],
}

impl RuleCounters {
    pub(super) fn named(name: &Arc<str>) -> RuleCounters {
        RuleCounters {
            name: Arc::clone(name),
            doors: Door::ALL.map(|_| Striped::default()),
        }
    }

    pub(crate) fn add(&self, door: Door, what: Counted) {
        if let Some(counters) = self.doors.get(door as usize) {
            counters.add(what as usize, 1);
        }
    }

    pub(crate) fn of(&self, door: Door, what: Counted) -> u64 {
        let counters = self.doors.get(door as usize);
        counters.map_or(0, |counters| counters.sum(what as usize))
    }

    pub(crate) fn through_all_doors(&self, what: Counted) -> u64 {
        Door::ALL.iter().map(|door| self.of(*door, what)).sum()
    }
}

/// Upper ends of the ranges that times are counted in, in nanoseconds, and as text in seconds.
pub(crate) const BOUNDS: [(u64, &str); 15] = [
    (1_000, "0.000001"),
    (2_500, "0.0000025"),
    (5_000, "0.000005"),
    (10_000, "0.00001"),
    (25_000, "0.000025"),
    (50_000, "0.00005"),
    (100_000, "0.0001"),
    (250_000, "0.00025"),
    (500_000, "0.0005"),
    (1_000_000, "0.001"),
    (2_500_000, "0.0025"),
    (5_000_000, "0.005"),
    (10_000_000, "0.01"),
    (25_000_000, "0.025"),
    (100_000_000, "0.1"),
];
/// Where the sum stands, behind the ranges and what is beyond them all.
const SUM: usize = BOUNDS.len() + 1;

/// Times, counted by range.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    counts: Striped<{ SUM + 1 }>,
}

impl Histogram {
    pub(crate) fn record(&self, took: Duration) {
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let at = BOUNDS.partition_point(|(bound, _)| *bound < ns);
        self.counts.add(at, 1);
        self.counts.add(SUM, ns);
    }

    /// How many took at most each bound, how many there were, and how many nanoseconds in all.
    pub(crate) fn read(&self) -> ([u64; BOUNDS.len()], u64, u64) {
        let mut so_far = 0u64;
        let mut at_most = [0; BOUNDS.len()];
        for (at, count) in at_most.iter_mut().enumerate() {
            so_far += self.counts.sum(at);
            *count = so_far;
        }
        let all = so_far + self.counts.sum(BOUNDS.len());
        (at_most, all, self.counts.sum(SUM))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_many_threads_count_adds_up() {
        let counters = Striped::<2>::default();
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| (0..1000).for_each(|_| counters.add(1, 1)));
            }
        });
        assert_eq!((counters.sum(0), counters.sum(1)), (0, 16_000));
    }

    #[test]
    fn a_time_is_counted_in_every_range_that_holds_it() {
        let histogram = Histogram::default();
        for ns in [1_000, 1_001, 60_000_000_000] {
            histogram.record(Duration::from_nanos(ns));
        }
        let (at_most, all, sum) = histogram.read();
        assert_eq!((at_most[0], at_most[1], at_most[14]), (1, 2, 2));
        assert_eq!((all, sum), (3, 60_000_002_001));
    }

    #[test]
    fn the_texts_of_the_bounds_are_the_bounds() {
        for (ns, text) in BOUNDS {
            let seconds: f64 = text.parse().unwrap();
            assert_eq!((seconds * 1e9).round() as u64, ns);
        }
        assert!(BOUNDS.is_sorted());
    }
}
