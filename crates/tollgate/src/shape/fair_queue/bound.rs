//! The bound on running items of one flow, and arrivals that start at once.
//!
//! # Theory
//!
//! Start tags share what is *dispatched*. They do not see what is *held*: a flow whose items never end is
//! dispatched no more than its share, one by one, and in the end holds every place. So a flow may run at most `K`
//! at once. A flow that runs `K` is *at its bound*:
//!
//! ```text
//! its K-th item is dispatched:    its head loses its start tag and is passed over
//! one of its items is completed:  its head is tagged anew, S = max(V, F)
//! ```
//!
//! `F` does not change; only dispatches and corrections move it. The rest follows from `V`, which behaves as
//! always: it is the start tag of the last dispatched item, now the least among the flows below their bound.
//!
//! - *`V` is not held back.* If `V` waited at the skipped flow, a new flow would start there, before the others,
//!   and get every dispatch until it had caught up with them.
//! - *`V` does not jump.* A head that has a tag got it as `max(V, F)`, and `F` was at most one item ahead of the
//!   `V` of its own dispatch. So `V <= S <= V + c/w` for all of them, whichever flows are skipped, and a dispatch
//!   moves `V` by no more than one item of the dispatched flow.
//! - *No credit.* With its old tag, the head would move `V` backwards, and the flow would be given all that it
//!   could not use while it held its maximum. It is treated as a flow that had nothing queued, which is what it
//!   was for the other flows.
//! - *No debt.* What the other flows were given meanwhile is in `V` and not in `F`. If `V` has passed `F`, the
//!   flow is tagged `V`, and among flows with that tag only earlier arrivals go first.
//!
//! # Invariant
//!
//! A flow is among the heads if and only if it has something queued and is below its bound. It never runs more
//! than `K`. If the bound was lowered below what it runs, it gets nothing until it runs fewer.
//!
//! Over any period in which flow `g` has something queued and is below its bound, for any behaviour of flow `f`,
//!
//! ```text
//! work_f/w_f - work_g/w_g  <=  c_f/w_f + c_g/w_g
//! ```
//!
//! So a flow that is sometimes at its bound gets less, never more. Between flows that stay below their bound the
//! difference is bounded both ways, as without a bound. No flow starves: a flow that returns is at most one item
//! ahead of `V`, and every dispatch before its own moves some other flow towards its tag.
//!
//! A place stays free only if every flow with waiting items is at its bound.
//!
//! # What it costs
//!
//! A flow leaves the heap when it reaches its bound and returns when it falls below it, `O(log flows)` each. No
//! operation scans the skipped flows. Only a change of `K` visits every flow.
//!
//! # Limits
//!
//! `K` counts items, whatever they cost. A client with many flow names has one `K` for each.

use std::hash::{BuildHasher, Hash};

use super::flow::{MAX_STEP, REBASE_AT, step_of};
use super::{FairQueue, FairQueueConfig, FairQueueError, Ticket};

impl<F, T, S> FairQueue<F, T, S>
where
    F: Clone + Eq + Hash,
    S: BuildHasher,
{
    /// Sets how many items of one flow may run at once; `usize::MAX` is no bound. If a flow runs more already,
    /// none of them is stopped, and it gets nothing until enough are completed.
    ///
    /// # Errors
    ///
    /// When it is 0. Nothing has changed then.
    pub fn set_running_per_flow(&mut self, most: usize) -> Result<(), FairQueueError> {
        let config = FairQueueConfig {
            max_running_per_flow: most,
            ..self.config
        };
        config.check()?;
        if config == self.config {
            return Ok(());
        }
        self.config = config;
        let is_at_bound = |running: usize| running >= most;
        let flows = self.flows.iter();
        self.at_bound = flows.filter(|(_, flow)| is_at_bound(flow.running)).count();
        for slot in 0..self.flows.end() {
            self.tag_head(slot);
        }
        Ok(())
    }

    /// The number of flows that are at their bound. 0 if there is no bound.
    pub fn flows_at_bound(&self) -> usize {
        self.at_bound
    }

    /// Whether this flow is at its bound.
    pub fn is_at_bound(&self, flow: &F) -> bool {
        // Without a bound no look-up is needed.
        self.at_bound > 0
            && self
                .state_of(flow)
                .is_some_and(|state| state.running >= self.config.max_running_per_flow)
    }

    /// Whether an arrival of this flow would start at once: a place is free, its flow is below its bound, and no
    /// waiting item could take the place.
    pub fn is_open_to(&self, flow: &F) -> bool {
        self.running < self.config.depth && self.heads.is_empty() && !self.is_at_bound(flow)
    }

    /// Dispatches an arrival that need not wait. This equals enqueueing and dispatching it, but takes no place in
    /// the queue, so it works even if the queue is full. `None`, without any change, if the queue [is not open to
    /// it](FairQueue::is_open_to), or if [enqueue](FairQueue::enqueue) would refuse it for its weight or cost.
    pub fn dispatch_arrival(&mut self, flow: F, weight: u64, cost: u64) -> Option<Ticket> {
        if weight == 0 || cost == 0 || !self.is_open_to(&flow) {
            return None;
        }
        let step = step_of(cost, weight);
        if step > MAX_STEP {
            return None;
        }
        let known = self.names.get(&flow).copied();
        let (at, ticket) = self.add_item(known, flow, (weight, cost, step), None);
        let state = self.flows.get_mut(at)?;
        self.running += 1;
        state.running += 1;
        self.at_bound += usize::from(state.running == self.config.max_running_per_flow);
        self.now = state.finish.max(self.now);
        state.finish = self.now.saturating_add(step);
        self.forget_overtaken();
        if self.now >= REBASE_AT {
            self.rebase();
        }
        Some(ticket)
    }
}
