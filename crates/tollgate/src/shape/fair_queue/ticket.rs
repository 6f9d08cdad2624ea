//! What goes into a queue and what comes out of it.

use super::errors::FairQueueError;

/// How many may run and how many may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FairQueueConfig {
    /// How many items may be dispatched and not completed: the backend's concurrency. `usize::MAX` is
    /// no bound at all.
    pub depth: usize,
    /// How many items of one flow may be dispatched and not completed. `usize::MAX` is no bound at all,
    /// and one that is not below `depth` never shows.
    pub max_running_per_flow: usize,
    /// How many items of one flow may wait.
    pub max_queued_per_flow: usize,
    /// How many items may wait in all.
    pub max_queued_total: usize,
}

impl FairQueueConfig {
    pub(super) fn check(&self) -> Result<(), FairQueueError> {
        if self.depth == 0 {
            return Err(FairQueueError::ZeroDepth);
        }
        if self.max_running_per_flow == 0 {
            return Err(FairQueueError::ZeroRunningPerFlow);
        }
        if self.max_queued_per_flow == 0 {
            return Err(FairQueueError::ZeroQueuedPerFlow);
        }
        if self.max_queued_total == 0 {
            return Err(FairQueueError::ZeroQueuedTotal);
        }
        Ok(())
    }
}

/// Names one enqueued item until it is completed, cancelled or displaced. Earlier arrivals compare
/// less; the first is 1.
///
/// It knows where the item lies, and its arrival number is never given again, so an old ticket only
/// misses. A ticket means nothing to another queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket {
    pub(super) seq: u64,
    pub(super) slot: usize,
}

impl Ticket {
    /// The arrival number.
    pub fn seq(self) -> u64 {
        self.seq
    }
}

/// An item that was taken into the queue.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a displaced item is somebody's request: refuse it"]
pub struct Enqueued<F, T> {
    /// The item's name from now on.
    pub ticket: Ticket,
    /// The item that had to leave to make room, if the queue was full.
    pub displaced: Option<Displaced<F, T>>,
}

/// A queued item that lost its place to one of a flow that had less queued.
#[derive(Debug, PartialEq, Eq)]
pub struct Displaced<F, T> {
    /// Its name until now; it means nothing to the queue any more.
    pub ticket: Ticket,
    /// The flow that had the most queued cost/weight.
    pub flow: F,
    /// What was enqueued.
    pub item: T,
    /// The cost it was enqueued with.
    pub cost: u64,
}

/// An item whose turn has come. [`FairQueue::complete`](super::FairQueue::complete) must follow, or
/// its place is never free again.
#[derive(Debug, PartialEq, Eq)]
pub struct Dispatched<F, T> {
    /// What to complete it by.
    pub ticket: Ticket,
    /// Whose it is.
    pub flow: F,
    /// What was enqueued.
    pub item: T,
    /// The cost it was enqueued with.
    pub cost: u64,
}
