//! How many items of one flow may run at once, and arrivals that need not wait.
//!
//! # Theory
//!
//! Start tags share what is *given*. What is *held* they do not see: a flow whose items never end is given
//! no more than its share, one by one, and in the end it holds every place. So a flow may run at most `K`
//! at once. One that runs `K` is *at its bound*:
//!
//! ```text
//! its K-th item is dispatched:    its head loses its start tag and is passed over
//! one of its items is completed:  its head is tagged anew, S = max(V, F)
//! ```
//!
//! `F` is as it was, moved only by what was dispatched and corrected. The rest follows from what `V` does
//! meanwhile, and `V` does what it always does: it is the start tag of what was last dispatched, now the
//! least among the flows that are below their bound.
//!
//! - *`V` is not held back.* If it waited where the flow was passed over, a new flow would start there,
//!   before those who went on, and be given every turn until it had come to where they are.
//! - *`V` does not jump.* A head that has a tag got it as `max(V, F)`, and `F` was at most one item ahead of
//!   the `V` of its own dispatch. So `V <= S <= V + c/w` for all of them, whoever is passed over, and a
//!   dispatch moves `V` by no more than one item of the flow that goes.
//! - *No credit.* Had the head kept its old tag, `V` would go backwards to it, and the flow would be given
//!   all that it could not use while it held as much as it may. It is treated as one that had nothing
//!   queued, which for the others it was.
//! - *No debt.* What the others were given meanwhile is in `V` and not in `F`. If `V` has come past `F`, the
//!   flow is tagged `V`, and of those tagged so only what came before it goes first.
//!
//! # Invariant
//!
//! A flow is among the heads exactly if it has something queued and is below its bound. It never comes to
//! run more than `K`; if the bound was lowered below what it runs, it gets nothing until it runs fewer.
//!
//! Over any stretch of time in which flow `g` has something queued and is below its bound, and whatever
//! flow `f` does,
//!
//! ```text
//! work_f/w_f - work_g/w_g  <=  c_f/w_f + c_g/w_g
//! ```
//!
//! so who is at the bound now and then gets less, never more, and between flows that stay below it the
//! difference is bounded both ways, as without a bound. Nobody starves: a flow that comes back is at most
//! one item ahead of `V`, and every dispatch before its own takes some other flow towards its tag.
//!
//! A place stays free only if all who wait are at their bound.
//!
//! # What it costs
//!
//! A flow leaves the heap when it reaches its bound and comes back when it falls below it, `O(log flows)`
//! each. Nobody looks through those that are passed over. Only a change of `K` looks at every flow.
//!
//! # What it does not know
//!
//! How large items are: `K` counts them, whatever they cost. And who has many names: each has its own `K`.

use std::hash::{BuildHasher, Hash};

use super::flow::{MAX_STEP, REBASE_AT, step_of};
use super::{FairQueue, FairQueueConfig, FairQueueError, Ticket};

impl<F, T, S> FairQueue<F, T, S>
where
    F: Clone + Eq + Hash,
    S: BuildHasher,
{
    /// Lets so many of one flow run at once from now on; `usize::MAX` is no bound. If a flow runs more
    /// already, none of them is stopped, and it gets nothing until enough are completed.
    ///
    /// # Errors
    ///
    /// When it is 0; nothing has changed then.
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

    /// How many flows run as much as one flow may. 0 if there is no bound.
    pub fn flows_at_bound(&self) -> usize {
        self.at_bound
    }

    /// Does this flow run as much as one flow may?
    pub fn is_at_bound(&self, flow: &F) -> bool {
        // Without a bound nobody needs to be looked up.
        self.at_bound > 0
            && self
                .state_of(flow)
                .is_some_and(|state| state.running >= self.config.max_running_per_flow)
    }

    /// Would an arrival of this flow go at once? So it is if a place is free, its flow is below its bound,
    /// and nobody waits who could take the place.
    pub fn is_open_to(&self, flow: &F) -> bool {
        self.running < self.config.depth && self.heads.is_empty() && !self.is_at_bound(flow)
    }

    /// Dispatches an arrival that need not wait: the same as to enqueue and dispatch it, but it takes no
    /// place among those who wait, so that it can go even if they are too many. None, and nothing has
    /// changed, if the queue [is not open to it](FairQueue::is_open_to), or if to
    /// [enqueue](FairQueue::enqueue) it would be refused for its weight or cost.
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
