//! What is told of a queue, and how it is counted.

use std::time::Duration;

use tollgate::Span;

use super::Why;

/// What is told of a queue. Counts are since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueReport {
    /// How many wait.
    pub waiting: usize,
    /// How many are under way.
    pub under_way: usize,
    /// How many may be, under the pressure there is.
    pub at_once: Option<u32>,
    /// How many flows have as many under way as one flow may. None: there is no such bound.
    pub flows_at_bound: Option<usize>,
    /// How long those waited who were given a turn.
    pub waits: Waits,
    /// What was served of each class, by its place in the rule's `weights`.
    pub served: Vec<Served>,
    /// What was served that belongs to no class.
    pub served_of_none: Served,
    /// Who was not.
    pub unserved: Unserved,
}

/// How much was served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// How many were given a turn.
    pub turns: u64,
    /// What they cost together.
    pub cost: u64,
}

/// How many were not served, by the reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unserved {
    /// [`Why::FlowFull`].
    pub flow_full: u64,
    /// [`Why::Full`].
    pub full: u64,
    /// [`Why::Displaced`].
    pub displaced: u64,
    /// [`Why::TooLong`].
    pub too_long: u64,
    /// The client went away while it waited.
    pub gone: u64,
}

impl Unserved {
    /// Each reason by the name it has in metrics, with its count.
    pub fn by_name(&self) -> [(&'static str, u64); 5] {
        [
            ("flow_full", self.flow_full),
            ("full", self.full),
            ("displaced", self.displaced),
            ("too_long", self.too_long),
            ("gone", self.gone),
        ]
    }

    pub(super) fn count(&mut self, why: Why) {
        let count = match why {
            Why::FlowFull => &mut self.flow_full,
            Why::Full => &mut self.full,
            Why::Displaced => &mut self.displaced,
            Why::TooLong => &mut self.too_long,
        };
        *count = count.saturating_add(1);
    }
}

/// A histogram of waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// How many waited at most as long as the bound of the same place in [`Waits::BOUNDS`], and longer
    /// than the one before. The last counts all that waited longer than every bound.
    pub counts: [u64; 13],
    /// All waits together.
    pub sum: Duration,
}

impl Waits {
    /// The upper bounds. Above the last there is one more count.
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

    /// As Prometheus has it: each bound with how many waited at most that long. The last bound, none,
    /// is infinity.
    pub fn cumulative(&self) -> impl Iterator<Item = (Option<Span>, u64)> {
        let bounds = Self::BOUNDS.into_iter().map(Some).chain([None]);
        let mut sum = 0_u64;
        bounds.zip(self.counts).map(move |(bound, count)| {
            sum = sum.saturating_add(count);
            (bound, sum)
        })
    }

    pub(super) fn count(&mut self, wait: Span) {
        let at = Self::BOUNDS.partition_point(|bound| *bound < wait);
        if let Some(count) = self.counts.get_mut(at) {
            *count = count.saturating_add(1);
        }
        self.sum = self.sum.saturating_add(wait.into());
    }
}

impl Served {
    pub(super) fn count(&mut self, cost: u64) {
        self.turns = self.turns.saturating_add(1);
        self.cost = self.cost.saturating_add(cost);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_on_a_bound_counts_below_it_and_the_longest_beyond_all() {
        let mut waits = Waits::default();
        let ms = |ms: u64| Span::from_millis(ms);
        for wait in [ms(0), ms(1), ms(2), ms(10_000), ms(10_001)] {
            waits.count(wait);
        }
        assert_eq!(waits.counts, [2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1]);
        assert_eq!(waits.sum, Duration::from_millis(20_004));
        let cumulative: Vec<_> = waits.cumulative().collect();
        assert_eq!(cumulative.first(), Some(&(Some(ms(1)), 2)));
        assert_eq!(cumulative.last(), Some(&(None, 5)));
    }
}
