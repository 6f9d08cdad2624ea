//! Counters, striped by thread.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tollgate::Verdict;

use crate::engine::Protocol;
use crate::names;

/// Most stripes. On more processors than this some share one.
const MAX_STRIPES: usize = 8;

/// What one limit made of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum LimitOutcome {
    Pass,
    Wait,
    Refuse,
    /// The request costs more than the limit ever holds.
    Never,
    /// An override blocks the key.
    Blocked,
    /// The request lacks a part of the key.
    MissingKey,
    /// The store failed, and the limit's `on_store_error` refuses.
    StoreError,
    /// An override exempts the key.
    Unlimited,
    /// The limit is only counted and would have refused the request.
    Shadow,
    /// The limit's candidate would have refused the request.
    Candidate,
}

impl LimitOutcome {
    /// The outcomes of enforced limits, with their verdicts and reasons as in the JSON of a decision.
    pub(crate) const DECISIONS: [(LimitOutcome, &'static str, &'static str); 8] = [
        (LimitOutcome::Pass, "pass", "limit"),
        (LimitOutcome::Wait, "wait", "limit"),
        (LimitOutcome::Refuse, "refuse", "limit"),
        (LimitOutcome::Never, "never", "limit"),
        (LimitOutcome::Blocked, "never", "blocked"),
        (LimitOutcome::MissingKey, "never", "missing-key"),
        (LimitOutcome::StoreError, "refuse", "store-error"),
        (LimitOutcome::Unlimited, "pass", "unlimited"),
    ];
    const COUNT: usize = LimitOutcome::Candidate as usize + 1;
}

/// Counts by verdict.
#[derive(Debug, Default)]
pub(crate) struct VerdictCounters(Striped<4>);

impl VerdictCounters {
    const VERDICTS: [Verdict; 4] = [
        Verdict::Pass,
        Verdict::Wait {
            delay: tollgate::Span::ZERO,
        },
        Verdict::Refuse {
            retry_after: tollgate::Span::ZERO,
        },
        Verdict::Never,
    ];

    pub(crate) fn add(&self, verdict: Verdict) {
        let at = match verdict {
            Verdict::Pass => 0,
            Verdict::Wait { .. } => 1,
            Verdict::Refuse { .. } => 2,
            Verdict::Never => 3,
        };
        self.0.add(at, 1);
    }

    /// Each verdict as a label, with its count.
    pub(crate) fn series(&self) -> impl Iterator<Item = ([(&'static str, &'static str); 1], u64)> {
        let verdicts = Self::VERDICTS.into_iter().enumerate();
        verdicts.map(|(at, v)| ([("verdict", names::verdict(v))], self.0.sum(at)))
    }
}

/// Why no limit decided a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum WithoutLimit {
    Unmatched,
    OnlyCounted,
    AllowList,
    SwitchedOff,
    /// The path cannot be normalised safely.
    Path,
    /// More limits match than can be charged together.
    TooManyLimits,
}

impl WithoutLimit {
    /// Each with its reason as in the JSON of a decision.
    pub(crate) const REASONS: [(WithoutLimit, &'static str); WithoutLimit::COUNT] = [
        (WithoutLimit::Unmatched, "unmatched"),
        (WithoutLimit::OnlyCounted, "only-counted"),
        (WithoutLimit::AllowList, "allow-list"),
        (WithoutLimit::SwitchedOff, "switched-off"),
        (WithoutLimit::Path, "path"),
        (WithoutLimit::TooManyLimits, "too-many-limits"),
    ];
    pub(crate) const COUNT: usize = WithoutLimit::TooManyLimits as usize + 1;
}

/// The number of stripes, a power of two.
fn stripes() -> usize {
    use std::sync::OnceLock;
    static STRIPES: OnceLock<usize> = OnceLock::new();
    *STRIPES.get_or_init(|| {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        processors.next_power_of_two().min(MAX_STRIPES)
    })
}

/// The stripe of this thread.
fn this_stripe() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static MINE: usize = NEXT.fetch_add(1, Relaxed);
    }
    // A thread that is ending has no locals any more; any stripe will do.
    MINE.try_with(|mine| *mine).unwrap_or(0)
}

/// Two cache lines, because processors fetch them in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct Stripe<const N: usize>([AtomicU64; N]);

/// `N` counters.
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
    pub(crate) fn add(&self, at: usize, count: u64) {
        // The number of stripes is a power of two, so the remainder is a mask.
        let stripe = this_stripe() & self.stripes.len().wrapping_sub(1);
        let counter = self.stripes.get(stripe).and_then(|s| s.0.get(at));
        if let Some(counter) = counter {
            counter.fetch_add(count, Relaxed);
        }
    }

    pub(crate) fn sum(&self, at: usize) -> u64 {
        let value = |stripe: &Stripe<N>| stripe.0.get(at).map_or(0, |c| c.load(Relaxed));
        self.stripes.iter().map(value).fold(0, u64::wrapping_add)
    }
}

/// The counters of one rule, by protocol.
#[derive(Debug)]
pub(crate) struct RuleCounters {
    pub(crate) name: Arc<str>,
    by_protocol: [Striped<{ LimitOutcome::COUNT }>; Protocol::ALL.len()],
}

impl RuleCounters {
    pub(super) fn new(name: &Arc<str>) -> RuleCounters {
        RuleCounters {
            name: Arc::clone(name),
            by_protocol: Protocol::ALL.map(|_| Striped::default()),
        }
    }

    pub(crate) fn add(&self, protocol: Protocol, outcome: LimitOutcome) {
        if let Some(counters) = self.by_protocol.get(protocol as usize) {
            counters.add(outcome as usize, 1);
        }
    }

    pub(crate) fn get(&self, protocol: Protocol, outcome: LimitOutcome) -> u64 {
        let counters = self.by_protocol.get(protocol as usize);
        counters.map_or(0, |counters| counters.sum(outcome as usize))
    }

    pub(crate) fn sum(&self, outcome: LimitOutcome) -> u64 {
        let all = Protocol::ALL.iter();
        all.map(|protocol| self.get(*protocol, outcome)).sum()
    }
}

/// Number of upper bounds of a histogram.
const BOUNDS: usize = 15;
/// The index of the sum, behind the buckets and the one above them all.
const SUM: usize = BOUNDS + 1;

/// Upper bounds of the buckets of a histogram, in nanoseconds.
pub(crate) trait Bounds: std::fmt::Debug + Default {
    const NANOS: [u64; BOUNDS];
}

/// For decisions: from a microsecond to a tenth of a second.
#[derive(Debug, Default)]
pub(crate) struct DecisionBounds;

impl Bounds for DecisionBounds {
    const NANOS: [u64; BOUNDS] = [
        1_000,
        2_500,
        5_000,
        10_000,
        25_000,
        50_000,
        100_000,
        250_000,
        500_000,
        1_000_000,
        2_500_000,
        5_000_000,
        10_000_000,
        25_000_000,
        100_000_000,
    ];
}

/// For servers: from half a millisecond to half a minute.
#[derive(Debug, Default)]
pub(crate) struct UpstreamBounds;

impl Bounds for UpstreamBounds {
    const NANOS: [u64; BOUNDS] = [
        500_000,
        1_000_000,
        2_500_000,
        5_000_000,
        10_000_000,
        25_000_000,
        50_000_000,
        100_000_000,
        250_000_000,
        500_000_000,
        1_000_000_000,
        2_500_000_000,
        5_000_000_000,
        10_000_000_000,
        30_000_000_000,
    ];
}

/// Latencies of an upstream.
pub(crate) type UpstreamLatency = Histogram<UpstreamBounds>;

/// A histogram of times.
#[derive(Debug, Default)]
pub(crate) struct Histogram<B = DecisionBounds> {
    counts: Striped<{ SUM + 1 }>,
    bounds: PhantomData<B>,
}

impl<B: Bounds> Histogram<B> {
    pub(crate) fn record(&self, took: Duration) {
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let at = B::NANOS.partition_point(|bound| *bound < ns);
        self.counts.add(at, 1);
        self.counts.add(SUM, ns);
    }

    /// The cumulative counts with the bound of each, without one for all of them, and the sum in nanoseconds.
    pub(crate) fn read(&self) -> (Vec<(Option<u64>, u64)>, u64) {
        let mut so_far = 0u64;
        let bounds = B::NANOS.iter().map(|bound| Some(*bound)).chain([None]);
        let buckets = bounds.enumerate().map(|(at, bound)| {
            so_far = so_far.wrapping_add(self.counts.sum(at));
            (bound, so_far)
        });
        (buckets.collect(), self.counts.sum(SUM))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_many_threads_add_up() {
        let counters = Striped::<2>::default();
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| (0..1000).for_each(|_| counters.add(1, 1)));
            }
        });
        assert_eq!((counters.sum(0), counters.sum(1)), (0, 16_000));
    }

    #[test]
    fn a_time_is_counted_in_every_bucket_that_holds_it() {
        let histogram = Histogram::<DecisionBounds>::default();
        for ns in [1_000, 1_001, 60_000_000_000] {
            histogram.record(Duration::from_nanos(ns));
        }
        let (buckets, sum) = histogram.read();
        let counts = [0, 1, 14, 15].map(|at: usize| buckets[at].1);
        assert_eq!((counts, sum), ([1, 2, 2, 3], 60_000_002_001));
    }

    #[test]
    fn bounds_ascend_and_outcomes_have_the_verdicts_of_decisions() {
        assert!(DecisionBounds::NANOS.is_sorted() && UpstreamBounds::NANOS.is_sorted());
        let verdicts = VerdictCounters::VERDICTS.map(names::verdict);
        for (outcome, verdict, _) in LimitOutcome::DECISIONS {
            assert!(verdicts.contains(&verdict), "{outcome:?}");
        }
    }
}
