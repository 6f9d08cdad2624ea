//! Inputs and outputs of a fair queue.

use super::errors::FairQueueError;

/// Bounds on running and waiting items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FairQueueConfig {
    /// How many items may be dispatched and not completed: the backend's concurrency. `usize::MAX` is
    /// no bound at all.
    pub depth: usize,
    /// How many items of one flow may be dispatched and not completed. `usize::MAX` is no bound, and a value that
    /// is not below `depth` has no effect.
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

/// Identifies one enqueued item until it is completed, cancelled or displaced. Earlier arrivals compare less; the
/// first is 1.
///
/// A ticket holds the item's slot. Arrival numbers are never reused, so an old ticket matches nothing. A ticket
/// means nothing to another queue.
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
#[must_use = "a displaced item is a pending request: refuse it"]
pub struct Enqueued<F, T> {
    /// The ticket of the item.
    pub ticket: Ticket,
    /// The item that was displaced, if the queue was full.
    pub displaced: Option<Displaced<F, T>>,
}

/// A queued item that lost its place to one of a flow that had less queued.
#[derive(Debug, PartialEq, Eq)]
pub struct Displaced<F, T> {
    /// Its former ticket, which is now invalid.
    pub ticket: Ticket,
    /// The flow that had the most queued cost/weight.
    pub flow: F,
    /// What was enqueued.
    pub item: T,
    /// The cost it was enqueued with.
    pub cost: u64,
}

/// An item to run now. [`FairQueue::complete`](super::FairQueue::complete) must follow, or its place is never free
/// again.
#[derive(Debug, PartialEq, Eq)]
pub struct Dispatched<F, T> {
    /// The ticket to complete it with.
    pub ticket: Ticket,
    /// Its flow.
    pub flow: F,
    /// What was enqueued.
    pub item: T,
    /// The cost it was enqueued with.
    pub cost: u64,
}
