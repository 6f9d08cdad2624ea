//! Start-time fair queuing, SFQ(D): orders waiting items when only `D` may run at once.
//!
//! # Theory
//!
//! Each flow `f` has a weight `w` and one number, the *finish tag* `F` of its last dispatched item. The queue has
//! one virtual time `V`. All start at 0. Of the waiting items of a flow only the oldest, its *head*, has a *start
//! tag* `S`:
//!
//! ```text
//! an item becomes head:   S = max(V, F)
//! dispatch:               if running < D, take the head with the least (S, seq)
//!                         V = S;  F = S + cost/w
//! complete with actual:   F = F + (actual - cost)/w, and the head of f is tagged anew
//! nothing queued, nothing running:   V = 0, every F = 0
//! ```
//!
//! With a bound on the running items of one flow, a flow that has reached it is skipped until one of its items is
//! completed. Its head is tagged anew then. The module `bound` has the theory.
//!
//! Tagging only heads gives the same order as tagging on arrival (within a backlogged flow
//! `V <= F`, so each next `S` is the previous `F`), and lets a cost that is known only afterwards
//! count against the very next item of its flow.
//!
//! Tags are integers, `ceil(cost * 2^32 / weight)` per item. The rounding makes a flow seem at most
//! `2^-32` more expensive per item; it never makes one cheaper.
//!
//! # Invariant
//!
//! Every head has `V <= S <= V + c/w`, with `c` the largest cost of its flow. A flow that stays
//! backlogged moves its `S` by exactly `cost/w` per dispatch, so over **any** stretch of time in which
//! flows `f` and `g` both stay backlogged their dispatched work differs by at most
//!
//! ```text
//! | work_f/w_f - work_g/w_g |  <=  c_f/w_f + c_g/w_g
//! ```
//!
//! for any behaviour of the other flows and any speed of the backend. (Costs corrected by [`complete`] shift it by
//! the corrections, which is their purpose. A flow at its bound does not count as backlogged.) A flow that used
//! idle capacity has no debt for it: `V` is where the backlogged flows are, and a flow starts there, neither
//! behind nor ahead.
//!
//! # Bounds
//!
//! - At most `max_queued_total` items wait, at most `max_queued_per_flow` of one flow; at most `depth`
//!   run, at most `max_running_per_flow` of one flow. All can be changed at any time, see [`set_depth`],
//!   [`set_running_per_flow`] and [`set_bounds`]; nothing is allocated for a bound before it is used.
//! - A flow has state while it has something queued or running, and after that while `F > V`, because forgetting
//!   it earlier would let it return for free. Untrusted clients could grow this last kind without end (each new
//!   flow starts at `V` and so does not move it). So at most `max_queued_total + depth` are kept, and the one
//!   least ahead is forgotten first. Hence at most `2 * (max_queued_total + depth)` flows have state. Forgetting
//!   never touches a flow with work in the queue, so the invariant above stands; a client with that many flow
//!   names starts at `V` with each of them anyway. With a `depth` of `usize::MAX`, which is no bound, the caller
//!   bounds what runs, and `max_queued_total` flows are remembered beside those that have work.
//! - Every operation is `O(log flows)`, except a change of the bound on running items of one flow, which visits
//!   every flow. Three more operations are `O(flows)`, but rare enough not to matter on average. Tags are kept
//!   below `2^63` by subtracting `V` from all of them once per `2^30` units of cost/weight of virtual time.
//!   Falling idle forgets the flows that were ahead, each of which came with an arrival. A queue that becomes full
//!   sorts its flows by load, and keeps them sorted until it is half empty.
//! - A correction never puts a flow more than `2^30` units of cost/weight ahead of `V`.
//!
//! # Data structures
//!
//! Flows and items lie in slots that are reused. The waiting items of a flow are a list through the slots, and a
//! [`Ticket`] knows its slot. Heads are in a heap that knows the position of each flow. So a queue that has grown
//! to its usual size allocates nothing more, and between arrival and completion of an item only the look-up of its
//! flow hashes anything.
//!
//! The hasher is a type parameter. The default is safe for names that untrusted clients choose. For flows that are
//! keyed hashes already, [`NumberHasher`] is faster.
//!
//! # Why not deficit round robin or a wall clock
//!
//! Deficit round robin is `O(1)`, but it dispatches a flow in bursts of a whole quantum, and a quantum must be at
//! least the largest cost. WF²Q+ bounds delay better but needs the backend's rate, which is unknown for an API.
//! Tagging with wall time instead of `V` is fair only if the backend happens to serve one unit of cost/weight per
//! second: if it is faster, used idle capacity becomes a debt; if it is slower, weights stop mattering.
//!
//! This module does not use clocks, threads, wakers or connections. A caller that has to wait keeps its waker in
//! the item.
//!
//! [`complete`]: FairQueue::complete
//! [`cancel`]: FairQueue::cancel
//! [`set_depth`]: FairQueue::set_depth
//! [`set_bounds`]: FairQueue::set_bounds
//! [`set_running_per_flow`]: FairQueue::set_running_per_flow

#![deny(clippy::float_arithmetic)]

mod bookkeeping;
mod bound;
mod errors;
mod flow;
mod hash;
mod heap;
mod slab;
mod ticket;

use std::cmp::Reverse;
use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hash};

pub use errors::{FairQueueError, RejectReason, Rejected};
pub use flow::MAX_COST_PER_WEIGHT;
use flow::{Flow, Item, MAX_LEAD, MAX_STEP, REBASE_AT, order_of, step_of, tag_of};
pub use hash::{Folded, NumberHasher};
use heap::Heap;
use slab::{NONE, Slab};
pub use ticket::{Dispatched, Displaced, Enqueued, FairQueueConfig, Ticket};

/// A queue of items `T` that is fair between flows `F`. See the [module](self) for the rules.
///
/// ```
/// use tollgate::shape::{FairQueue, FairQueueConfig};
///
/// let mut queue = FairQueue::new(FairQueueConfig {
///     depth: 1,
///     max_running_per_flow: 1,
///     max_queued_per_flow: 10,
///     max_queued_total: 100,
/// })?;
/// for (flow, item) in [("a", "a1"), ("a", "a2"), ("b", "b1")] {
///     let _ = queue.enqueue(flow, 1, 1, item).unwrap();
/// }
/// let first = queue.dispatch().unwrap();
/// assert_eq!(first.item, "a1");
/// queue.complete(first.ticket, 1);
/// assert_eq!(queue.dispatch().unwrap().item, "b1"); // before a2, which came earlier
/// # Ok::<(), tollgate::shape::FairQueueError>(())
/// ```
#[derive(Debug)]
pub struct FairQueue<F, T, S = RandomState> {
    config: FairQueueConfig,
    /// The virtual time: the start tag of the last item dispatched.
    now: u64,
    last_seq: u64,
    last_born: u64,
    queued: usize,
    running: usize,
    /// The number of flows at their bound.
    at_bound: usize,
    /// The slot of each flow that has state.
    names: HashMap<F, usize, S>,
    flows: Slab<Flow<F>>,
    /// Waiting and running.
    items: Slab<Item<T>>,
    /// Flows with something queued that are below their bound, by the start tag and the arrival of their
    /// oldest item.
    heads: Heap<u128>,
    /// Flows with something queued, the largest queued cost/weight first. Empty unless the order is needed.
    loads: Heap<Reverse<(u128, u64)>>,
    are_loads_kept: bool,
    /// Flows with nothing queued or running that are still ahead of `now`, the least ahead first.
    ahead: Heap<u128>,
}

impl<F, T> FairQueue<F, T>
where
    F: Clone + Eq + Hash,
{
    /// An empty queue.
    ///
    /// # Errors
    ///
    /// When one of the numbers is 0: such a queue would never dispatch anything.
    pub fn new(config: FairQueueConfig) -> Result<Self, FairQueueError> {
        Self::with_hasher(config, RandomState::new())
    }
}

impl<F, T, S> FairQueue<F, T, S>
where
    F: Clone + Eq + Hash,
    S: BuildHasher,
{
    /// An empty queue with this hasher for its flows.
    ///
    /// # Errors
    ///
    /// As [`FairQueue::new`].
    pub fn with_hasher(config: FairQueueConfig, hasher: S) -> Result<Self, FairQueueError> {
        config.check()?;
        Ok(Self {
            config,
            now: 0,
            last_seq: 0,
            last_born: 0,
            queued: 0,
            running: 0,
            at_bound: 0,
            names: HashMap::with_hasher(hasher),
            flows: Slab::new(),
            items: Slab::new(),
            heads: Heap::new(),
            loads: Heap::new(),
            are_loads_kept: false,
            ahead: Heap::new(),
        })
    }

    /// Puts an item at the end of its flow's queue.
    ///
    /// When the queue is full in total, the flow with the largest queued cost/weight loses. If that is this flow,
    /// counting the arrival (or it is a tie), the arrival is refused. Otherwise the newest item of the largest
    /// flow leaves and is returned as [`Enqueued::displaced`].
    ///
    /// `weight` holds for this item; a flow whose weight changes keeps the old one for what it
    /// already queued.
    ///
    /// # Errors
    ///
    /// [`Rejected`] gives the item back, and nothing has changed. Cost 0 is refused because it moves
    /// no tag: a flow of such items would go first forever.
    pub fn enqueue(
        &mut self,
        flow: F,
        weight: u64,
        cost: u64,
        item: T,
    ) -> Result<Enqueued<F, T>, Rejected<T>> {
        let mut known = self.names.get(&flow).copied();
        let step = match self.admit(known, weight, cost) {
            Ok(step) => step,
            Err(reason) => return Err(Rejected { item, reason }),
        };
        let mut displaced = None;
        if self.queued >= self.config.max_queued_total {
            displaced = self.displace();
            // The flow that lost its item may have been set aside, and this one forgotten for it.
            known = self.names.get(&flow).copied();
        }

        let (at, ticket) = self.add_item(known, flow, (weight, cost, step), Some(item));
        self.queued += 1;
        if let Some(state) = self.flows.get_mut(at)
            && state.append(&mut self.items, ticket.slot)
            && state.running < self.config.max_running_per_flow
        {
            let tag = state.finish.max(self.now);
            self.heads.set(at, order_of(tag, ticket.seq));
        }
        self.note_load(at);
        Ok(Enqueued { ticket, displaced })
    }

    /// Adds an item of a flow, which may be new. Returns its slot and its flow's. It is not in the flow's list
    /// yet.
    fn add_item(
        &mut self,
        known: Option<usize>,
        flow: F,
        (weight, cost, step): (u64, u64, u64),
        waiting: Option<T>,
    ) -> (usize, Ticket) {
        let at = match known {
            Some(at) => {
                self.ahead.remove(at);
                at
            }
            None => self.add_flow(flow),
        };
        self.last_seq = self.last_seq.wrapping_add(1);
        let seq = self.last_seq;
        let slot = self.items.insert(Item {
            seq,
            cost,
            weight,
            step,
            flow: at,
            before: NONE,
            after: NONE,
            waiting,
        });
        (at, Ticket { seq, slot })
    }

    /// Dispatches the next item, if a place is free and an item of a flow below its bound waits.
    pub fn dispatch(&mut self) -> Option<Dispatched<F, T>> {
        if self.running >= self.config.depth {
            return None;
        }
        let (order, at) = self.heads.first()?;
        let tag = tag_of(order);
        let state = self.flows.get_mut(at)?;
        let slot = state.first;
        state.unlink(&mut self.items, slot);
        let queued = self.items.get_mut(slot)?;
        let item = queued.waiting.take()?;
        self.queued = self.queued.saturating_sub(1);
        self.running += 1;
        state.running += 1;
        self.at_bound += usize::from(state.running == self.config.max_running_per_flow);
        self.now = tag;
        state.finish = tag.saturating_add(queued.step);
        let dispatched = Dispatched {
            ticket: Ticket {
                seq: queued.seq,
                slot,
            },
            flow: state.name.clone(),
            item,
            cost: queued.cost,
        };
        self.tag_head(at);
        self.note_load(at);
        self.forget_overtaken();
        if self.now >= REBASE_AT {
            self.rebase();
        }
        Some(dispatched)
    }

    /// The cost of the item that [`FairQueue::dispatch`] would return now, for a caller that has to charge it
    /// elsewhere first.
    pub fn next_cost(&self) -> Option<u64> {
        if self.running >= self.config.depth {
            return None;
        }
        let (_, flow) = self.heads.first()?;
        let head = self.items.get(self.flows.get(flow)?.first)?;
        Some(head.cost)
    }

    /// Frees the place of a dispatched item and corrects its flow's tag to the actual cost.
    ///
    /// `false` if no such item is running; then nothing changes, so completing twice is harmless. An
    /// `actual_cost` of 0 gives the whole cost back.
    pub fn complete(&mut self, ticket: Ticket, actual_cost: u64) -> bool {
        let Some(done) = self.items.get(ticket.slot) else {
            return false;
        };
        if done.seq != ticket.seq || done.waiting.is_some() {
            return false;
        }
        let Some(done) = self.items.remove(ticket.slot) else {
            return false;
        };
        self.running = self.running.saturating_sub(1);
        if let Some(state) = self.flows.get_mut(done.flow) {
            // Of all running counts, only this one brings the flow below its bound.
            let was_at_bound = state.running == self.config.max_running_per_flow;
            state.running = state.running.saturating_sub(1);
            let is_corrected = actual_cost != done.cost;
            if is_corrected {
                let actual = step_of(actual_cost, done.weight).min(MAX_LEAD);
                state.finish = if actual >= done.step {
                    let latest = self.now.saturating_add(MAX_LEAD);
                    state.finish.saturating_add(actual - done.step).min(latest)
                } else {
                    state.finish.saturating_sub(done.step - actual)
                };
            }
            if was_at_bound {
                self.at_bound = self.at_bound.saturating_sub(1);
            }
            if was_at_bound || is_corrected {
                self.tag_head(done.flow);
            }
        }
        self.settle(done.flow);
        true
    }

    /// Removes a queued item, for example after its client disconnected. The rest of its flow moves up.
    ///
    /// `None` if no such item is queued: it was dispatched, displaced or cancelled before.
    pub fn cancel(&mut self, ticket: Ticket) -> Option<T> {
        let item = self.items.get(ticket.slot)?;
        if item.seq != ticket.seq || item.waiting.is_none() {
            return None;
        }
        let queued = self.take(ticket.slot)?;
        self.settle(queued.flow);
        queued.waiting
    }

    /// Sets how many items may run at once. If more are running already, none of them is stopped, and nothing is
    /// dispatched until enough are completed.
    ///
    /// # Errors
    ///
    /// When `depth` is 0; nothing has changed then.
    pub fn set_depth(&mut self, depth: usize) -> Result<(), FairQueueError> {
        let config = FairQueueConfig {
            depth,
            ..self.config
        };
        self.reconfigure(config)
    }

    /// Sets how many items may wait. If more wait already, none of them is removed: a flow above its bound may not
    /// add to them, and while the whole queue is above its bound, an arrival either displaces an item or is
    /// refused.
    ///
    /// # Errors
    ///
    /// When one of the two is 0; nothing has changed then.
    pub fn set_bounds(&mut self, per_flow: usize, total: usize) -> Result<(), FairQueueError> {
        let config = FairQueueConfig {
            max_queued_per_flow: per_flow,
            max_queued_total: total,
            ..self.config
        };
        self.reconfigure(config)
    }

    fn reconfigure(&mut self, config: FairQueueConfig) -> Result<(), FairQueueError> {
        config.check()?;
        self.config = config;
        self.forget_least_ahead();
        Ok(())
    }

    /// The current bounds.
    pub fn config(&self) -> FairQueueConfig {
        self.config
    }

    /// The number of waiting items.
    pub fn queued(&self) -> usize {
        self.queued
    }

    /// The number of items that are dispatched and not completed.
    pub fn running(&self) -> usize {
        self.running
    }

    /// The number of waiting items of this flow.
    pub fn queued_of(&self, flow: &F) -> usize {
        self.state_of(flow).map_or(0, |state| state.queued)
    }

    /// The number of flows with state: at most `2 * (max_queued_total + depth)`.
    pub fn flows(&self) -> usize {
        self.flows.len()
    }

    /// The virtual time `V`, in units of `2^-32` cost/weight.
    ///
    /// It grows while the queue is busy. It returns to 0 when the queue falls idle, and shrinks when all tags are
    /// shifted down together. Use it only for inspection.
    pub fn virtual_time(&self) -> u64 {
        self.now
    }

    /// Decides whether an arrival may enter, and how far it will move its flow's tag.
    fn admit(&mut self, flow: Option<usize>, weight: u64, cost: u64) -> Result<u64, RejectReason> {
        if weight == 0 {
            return Err(RejectReason::ZeroWeight);
        }
        if cost == 0 {
            return Err(RejectReason::ZeroCost);
        }
        let step = step_of(cost, weight);
        if step > MAX_STEP {
            return Err(RejectReason::CostAboveMax {
                cost,
                max: weight.saturating_mul(MAX_COST_PER_WEIGHT),
            });
        }
        let state = flow.and_then(|slot| self.flows.get(slot));
        let max = self.config.max_queued_per_flow;
        if state.is_some_and(|state| state.queued >= max) {
            return Err(RejectReason::FlowFull { max });
        }
        let max = self.config.max_queued_total;
        if self.queued >= max {
            let load = state.map_or(0, |state| state.load) + u128::from(step);
            self.keep_loads();
            let spares_another = self
                .loads
                .first()
                .is_some_and(|(Reverse((most, _)), owner)| flow != Some(owner) && most > load);
            if !spares_another {
                return Err(RejectReason::TotalFull { max });
            }
        }
        Ok(step)
    }
}

#[cfg(test)]
mod bound_tests;
#[cfg(test)]
mod live_tests;
#[cfg(test)]
mod tests;
