//! How many nodes share the store, as far as this one believes.
//!
//! # Theory
//!
//! While the store is away every node lets pass its share of a limit, so who believes in too few nodes lets too much pass. A
//! count that is too low is easily had: a store that was emptied counts 1, 2, 3 while the nodes tell it again that they are
//! there. So more is believed at once, and less only after it was said for as long as a node lives on without a word
//! ([`BEAT_LASTS`]): until then the others may not have spoken. What is believed is the most that was counted in that time.
//!
//! So a node that died is believed in for about twenty seconds: the store counts it for ten after its last word, and the
//! others believe the store ten later. One that signs off is not counted at once, and believed in for ten. Both are two
//! seconds more or less, because nodes ask every two. To be late is the safe side.
//!
//! # What it does not know
//!
//! Who the nodes are.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// A node that was not heard of for so long is gone.
pub(crate) const BEAT_LASTS: Duration = Duration::from_secs(10);

/// A belief.
#[derive(Debug)]
pub(crate) struct Nodes {
    believed: AtomicU32,
    /// Since when the store counts fewer, and how many at the most since then: later ones are fewer still. One is added
    /// for each count and is gone when it is old, so there are never more than were counted in [`BEAT_LASTS`].
    fewer: Mutex<VecDeque<(Instant, u32)>>,
}

impl Nodes {
    /// This one alone.
    pub(crate) fn alone() -> Nodes {
        Nodes {
            believed: AtomicU32::new(1),
            fewer: Mutex::default(),
        }
    }

    /// At least one. Relaxed: nothing else hangs on it.
    pub(crate) fn believed(&self) -> u32 {
        self.believed.load(Ordering::Relaxed).max(1)
    }

    /// What was believed before this process began. It holds as if the store had said it.
    pub(crate) fn remember(&self, nodes: u32) {
        self.believed.fetch_max(nodes, Ordering::Relaxed);
    }

    /// The store counts so many.
    pub(crate) fn counted(&self, nodes: u32) {
        let mut fewer = self.fewer();
        if nodes >= self.believed() {
            fewer.clear();
            self.remember(nodes);
            return;
        }
        let now = Instant::now();
        let mut since = now;
        // Since the first that said no more than this, it was at most this.
        while let Some(&(earlier, most)) = fewer.back()
            && most <= nodes
        {
            since = earlier;
            fewer.pop_back();
        }
        fewer.push_back((since, nodes));
        while let Some(&(since, most)) = fewer.front()
            && now.duration_since(since) >= BEAT_LASTS
        {
            self.believed.store(most, Ordering::Relaxed);
            fewer.pop_front();
        }
    }

    /// The store does not answer: whoever was not heard of may only have been cut off, as this one is.
    pub(crate) fn not_counted(&self) {
        self.fewer().clear();
    }

    fn fewer(&self) -> MutexGuard<'_, VecDeque<(Instant, u32)>> {
        self.fewer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn pass(seconds: u64) {
        tokio::time::advance(Duration::from_secs(seconds)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn more_is_believed_at_once_and_less_after_a_while() {
        let nodes = Nodes::alone();
        nodes.counted(3);
        assert_eq!(nodes.believed(), 3);
        for count in [1, 2, 1, 1, 1] {
            nodes.counted(count);
            assert_eq!(nodes.believed(), 3, "the store was emptied, say");
            pass(2).await;
        }
        nodes.counted(1);
        assert_eq!(nodes.believed(), 2, "at most two spoke in all that time");
        nodes.counted(4);
        assert_eq!(nodes.believed(), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn nodes_that_go_one_after_the_other_are_each_believed_in_for_as_long() {
        let nodes = Nodes::alone();
        let mut believed = Vec::new();
        for count in [5, 4, 3, 3, 4, 2, 2, 2, 2, 2, 2, 2] {
            nodes.counted(count);
            believed.push(nodes.believed());
            pass(2).await;
        }
        assert_eq!(believed, [5, 5, 5, 5, 5, 5, 4, 4, 4, 4, 2, 2]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_is_away_makes_nobody_forget_the_others() {
        let nodes = Nodes::alone();
        nodes.counted(3);
        nodes.counted(2);
        pass(9).await;
        nodes.not_counted();
        pass(9).await;
        nodes.counted(2);
        assert_eq!(nodes.believed(), 3);
        pass(10).await;
        nodes.counted(2);
        assert_eq!(nodes.believed(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_known_before_holds_until_the_store_says_more_or_long_less() {
        let nodes = Nodes::alone();
        nodes.remember(0);
        assert_eq!(nodes.believed(), 1);
        nodes.remember(5);
        nodes.counted(1);
        assert_eq!(nodes.believed(), 5);
        nodes.counted(6);
        nodes.remember(5);
        assert_eq!(nodes.believed(), 6);
    }
}
