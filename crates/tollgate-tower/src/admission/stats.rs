//! Counters of a queue.

use std::sync::Arc;
use std::time::Duration;

use tollgate::Span;
use tollgate_policy::QueueRule;

use super::RejectReason;

/// A snapshot of a queue. Counters start at 0 with the queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueStats {
    /// Requests that wait.
    pub waiting: usize,
    /// Requests in flight.
    pub in_flight: usize,
    /// How many may be in flight, after load shedding. `None`: no limit.
    pub concurrency_limit: Option<u32>,
    /// Flows that have as many requests in flight as one flow may. `None`: no limit per flow.
    pub saturated_flows: Option<usize>,
    /// How long admitted requests waited.
    pub waits: WaitHistogram,
    /// Admitted requests by tier, in the order of the rule's `weights`.
    pub served: Vec<ServedCounts>,
    /// Admitted requests without a tier.
    pub served_without_tier: ServedCounts,
    /// Requests that were not admitted.
    pub unserved: UnservedCounts,
}

/// Admitted requests and their cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServedCounts {
    /// Requests.
    pub requests: u64,
    /// The sum of their costs.
    pub cost: u64,
}

/// Requests that were not admitted, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnservedCounts {
    /// [`RejectReason::FlowFull`].
    pub flow_full: u64,
    /// [`RejectReason::QueueFull`].
    pub queue_full: u64,
    /// [`RejectReason::Displaced`].
    pub displaced: u64,
    /// [`RejectReason::MaxWait`].
    pub max_wait: u64,
    /// The client disconnected while the request waited.
    pub cancelled: u64,
}

impl UnservedCounts {
    /// Each reason by its name in metrics, with its count.
    pub fn by_reason(&self) -> [(&'static str, u64); 5] {
        [
            ("flow_full", self.flow_full),
            ("queue_full", self.queue_full),
            ("displaced", self.displaced),
            ("max_wait", self.max_wait),
            ("cancelled", self.cancelled),
        ]
    }

    pub(super) fn count(&mut self, reason: RejectReason) {
        let count = match reason {
            RejectReason::FlowFull => &mut self.flow_full,
            RejectReason::QueueFull => &mut self.queue_full,
            RejectReason::Displaced => &mut self.displaced,
            RejectReason::MaxWait => &mut self.max_wait,
        };
        *count = count.saturating_add(1);
    }
}

/// A histogram of waiting times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitHistogram {
    /// Counts by bucket: waits up to the bound of the same index in [`WaitHistogram::BOUNDS`] and above the bound
    /// before it. The last bucket counts waits above all bounds.
    pub counts: [u64; 13],
    /// The sum of all waits.
    pub sum: Duration,
}

impl WaitHistogram {
    /// The upper bounds of all buckets but the last.
    pub const BOUNDS: [Span; 12] = [
        Span::from_millis(1),
        Span::from_millis(5),
        Span::from_millis(10),
        Span::from_millis(25),
        Span::from_millis(50),
        Span::from_millis(100),
        Span::from_millis(250),
        Span::from_millis(500),
        Span::from_secs(1),
        Span::from_millis(2500),
        Span::from_secs(5),
        Span::from_secs(10),
    ];

    /// Cumulative counts as Prometheus wants them: each bound with the number of waits up to it. `None` is infinity.
    pub fn cumulative(&self) -> impl Iterator<Item = (Option<Span>, u64)> {
        let bounds = Self::BOUNDS.into_iter().map(Some).chain([None]);
        let mut sum = 0_u64;
        bounds.zip(self.counts).map(move |(bound, count)| {
            sum = sum.saturating_add(count);
            (bound, sum)
        })
    }

    pub(super) fn record(&mut self, wait: Span) {
        let bucket = Self::BOUNDS.partition_point(|bound| *bound < wait);
        if let Some(count) = self.counts.get_mut(bucket) {
            *count = count.saturating_add(1);
        }
        self.sum = self.sum.saturating_add(wait.into());
    }
}

/// Served requests by tier, across all rules that a queue has had.
///
/// A rule may list the tiers in another order than the rule before it. Each tier name therefore has a counter of its
/// own, and a request keeps the index of its counter from arrival on. A removed tier keeps its counter and continues it
/// when it returns. The number of counters is bounded by the tier names that policies have used; clients add none.
#[derive(Debug, Default)]
pub(super) struct TierCounters {
    counters: Vec<(Arc<str>, ServedCounts)>,
    /// The counter of each tier of the current rule, in its order.
    order: Vec<usize>,
    pub(super) without_tier: ServedCounts,
}

impl TierCounters {
    /// Applies the tiers of another rule.
    pub(super) fn change(&mut self, rule: &QueueRule) {
        let tiers = rule.weights.iter().flat_map(|weights| &weights.tiers);
        self.order.clear();
        for (name, _) in tiers {
            let known = self.counters.iter().position(|(known, _)| known == name);
            self.order.push(known.unwrap_or(self.counters.len()));
            if known.is_none() {
                self.counters
                    .push((Arc::clone(name), ServedCounts::default()));
            }
        }
    }

    /// The counter of a tier, by its index in the current rule; `None` without a tier.
    pub(super) fn index_of(&self, tier: Option<usize>) -> Option<usize> {
        self.order.get(tier?).copied()
    }

    pub(super) fn count(&mut self, counter: Option<usize>, cost: u64) {
        let counter = counter.and_then(|index| self.counters.get_mut(index));
        let served = counter.map_or(&mut self.without_tier, |(_, served)| served);
        served.requests = served.requests.saturating_add(1);
        served.cost = served.cost.saturating_add(cost);
    }

    /// The counters of the current rule, in its order.
    pub(super) fn served(&self) -> Vec<ServedCounts> {
        let counters = self.order.iter().filter_map(|at| self.counters.get(*at));
        counters.map(|(_, served)| *served).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_equal_to_a_bound_counts_below_it_and_the_longest_above_all() {
        let mut waits = WaitHistogram::default();
        let ms = |ms: u64| Span::from_millis(ms);
        for wait in [ms(0), ms(1), ms(2), ms(10_000), ms(10_001)] {
            waits.record(wait);
        }
        assert_eq!(waits.counts, [2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1]);
        assert_eq!(waits.sum, Duration::from_millis(20_004));
        let cumulative: Vec<_> = waits.cumulative().collect();
        assert_eq!(cumulative.first(), Some(&(Some(ms(1)), 2)));
        assert_eq!(cumulative.last(), Some(&(None, 5)));
    }
}
