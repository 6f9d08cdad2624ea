//! The number of nodes that share the store, as far as this one knows.
//!
//! # Theory
//!
//! While the store is unavailable every node admits its share of a limit, so a node that assumes too few nodes admits too much. A
//! count that is too low is easily seen: a store that was emptied counts 1, 2, 3 while the nodes send their heartbeats again. So
//! a greater count holds at once, and a smaller one only after it was observed for as long as a node lives without a heartbeat
//! ([`HEARTBEAT_TTL`]): until then the other heartbeats may be due. The result is the maximum that was counted in that time.
//!
//! | event | the other nodes count it for |
//! |---|---|
//! | a node dies | about 20 s: 10 s until its heartbeat expires, 10 s more until the smaller count holds |
//! | a node signs off | 10 s |
//!
//! Both are two seconds more or less, because nodes send a heartbeat every two seconds. To be late is the safe side.
//!
//! # What it does not know
//!
//! Which nodes there are.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Time after which a node without a heartbeat no longer counts.
pub(crate) const HEARTBEAT_TTL: Duration = Duration::from_secs(10);

/// The number of nodes.
#[derive(Debug)]
pub(crate) struct NodeCount {
    current: AtomicU32,
    /// Smaller counts: since when each is the maximum of all later ones; they decrease. One is added for each count and removed
    /// when it is old, so there are never more than counts in [`HEARTBEAT_TTL`].
    decreasing: Mutex<VecDeque<(Instant, u32)>>,
}

impl NodeCount {
    /// This node alone.
    pub(crate) fn new() -> NodeCount {
        NodeCount {
            current: AtomicU32::new(1),
            decreasing: Mutex::default(),
        }
    }

    /// At least one. Relaxed: it orders no other memory.
    pub(crate) fn get(&self) -> u32 {
        self.current.load(Ordering::Relaxed).max(1)
    }

    /// Raises the number to at least this, as if the store had counted it.
    pub(crate) fn raise_to(&self, nodes: u32) {
        self.current.fetch_max(nodes, Ordering::Relaxed);
    }

    /// Records a count of the store.
    pub(crate) fn observe(&self, nodes: u32) {
        let mut decreasing = self.decreasing();
        if nodes >= self.get() {
            decreasing.clear();
            self.raise_to(nodes);
            return;
        }
        let now = Instant::now();
        let mut since = now;
        // The maximum is at most `nodes` since the first count that was no greater.
        while let Some(&(earlier, most)) = decreasing.back()
            && most <= nodes
        {
            since = earlier;
            decreasing.pop_back();
        }
        decreasing.push_back((since, nodes));
        while let Some(&(since, most)) = decreasing.front()
            && now.duration_since(since) >= HEARTBEAT_TTL
        {
            self.current.store(most, Ordering::Relaxed);
            decreasing.pop_front();
        }
    }

    /// Drops smaller counts, because the store does not answer: missing nodes may only be cut off, as this one is.
    pub(crate) fn forget_decrease(&self) {
        self.decreasing().clear();
    }

    fn decreasing(&self) -> MutexGuard<'_, VecDeque<(Instant, u32)>> {
        let decreasing = self.decreasing.lock();
        decreasing.unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn pass(seconds: u64) {
        tokio::time::advance(Duration::from_secs(seconds)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_greater_count_holds_at_once_and_a_smaller_one_after_a_while() {
        let nodes = NodeCount::new();
        nodes.observe(3);
        assert_eq!(nodes.get(), 3);
        for count in [1, 2, 1, 1, 1] {
            nodes.observe(count);
            assert_eq!(nodes.get(), 3, "the store may have been emptied");
            pass(2).await;
        }
        nodes.observe(1);
        assert_eq!(
            nodes.get(),
            2,
            "at most two sent heartbeats in all that time"
        );
        nodes.observe(4);
        assert_eq!(nodes.get(), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn nodes_that_sign_off_one_after_the_other_are_each_counted_for_as_long() {
        let nodes = NodeCount::new();
        let mut counts = Vec::new();
        for count in [5, 4, 3, 3, 4, 2, 2, 2, 2, 2, 2, 2] {
            nodes.observe(count);
            counts.push(nodes.get());
            pass(2).await;
        }
        assert_eq!(counts, [5, 5, 5, 5, 5, 5, 4, 4, 4, 4, 2, 2]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_unavailable_store_does_not_reduce_the_count() {
        let nodes = NodeCount::new();
        nodes.observe(3);
        nodes.observe(2);
        pass(9).await;
        nodes.forget_decrease();
        pass(9).await;
        nodes.observe(2);
        assert_eq!(nodes.get(), 3);
        pass(10).await;
        nodes.observe(2);
        assert_eq!(nodes.get(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_remembered_count_holds_until_the_store_counts_more_or_for_long_less() {
        let nodes = NodeCount::new();
        nodes.raise_to(0);
        assert_eq!(nodes.get(), 1);
        nodes.raise_to(5);
        nodes.observe(1);
        assert_eq!(nodes.get(), 5);
        nodes.observe(6);
        nodes.raise_to(5);
        assert_eq!(nodes.get(), 6);
    }
}
