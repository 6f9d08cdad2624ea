//! Keeps the parts of the queue consistent, and forgets state that is no longer needed.

use std::cmp::Reverse;
use std::hash::{BuildHasher, Hash};

use super::flow::{Flow, Item, order_of, tag_of};
use super::{Displaced, FairQueue, Ticket};

impl<F, T, S> FairQueue<F, T, S>
where
    F: Clone + Eq + Hash,
    S: BuildHasher,
{
    /// Gives a flow that has no state a slot.
    pub(super) fn add_flow(&mut self, flow: F) -> usize {
        self.last_born = self.last_born.wrapping_add(1);
        let slot = self.flows.insert(Flow::new(flow.clone(), self.last_born));
        self.names.insert(flow, slot);
        slot
    }

    pub(super) fn state_of(&self, flow: &F) -> Option<&Flow<F>> {
        self.names.get(flow).and_then(|slot| self.flows.get(*slot))
    }

    /// Takes the newest item from the flow with the largest queued cost/weight.
    pub(super) fn displace(&mut self) -> Option<Displaced<F, T>> {
        let (_, slot) = self.loads.first()?;
        let state = self.flows.get(slot)?;
        let (name, newest) = (state.name.clone(), state.last);
        let mut queued = self.take(newest)?;
        // Not `settle`: the arrival that caused this is about to be queued, so nothing is idle.
        self.retire(slot);
        Some(Displaced {
            ticket: Ticket {
                seq: queued.seq,
                slot: newest,
            },
            flow: name,
            item: queued.waiting.take()?,
            cost: queued.cost,
        })
    }

    /// Takes a waiting item out of its flow. If it was the head, the next one inherits.
    pub(super) fn take(&mut self, slot: usize) -> Option<Item<T>> {
        let flow = self.items.get(slot)?.flow;
        let state = self.flows.get_mut(flow)?;
        let was_head = state.unlink(&mut self.items, slot);
        self.queued = self.queued.saturating_sub(1);
        if was_head {
            self.tag_head(flow);
        }
        self.note_load(flow);
        self.items.remove(slot)
    }

    /// Gives the head of a flow its start tag; a flow without a head has none, nor has one at its bound.
    ///
    /// Doing so again without a change of `finish` gives the same tag: a head is never behind `V`, so
    /// if it once started at `V`, then `V` has not moved since.
    pub(super) fn tag_head(&mut self, flow: usize) {
        let Some(state) = self.flows.get(flow) else {
            return;
        };
        match self.items.get(state.first) {
            Some(head) if state.running < self.config.max_running_per_flow => self
                .heads
                .set(flow, order_of(state.finish.max(self.now), head.seq)),
            _ => self.heads.remove(flow),
        }
    }

    /// Sorts the flows by load, if that is not done yet. Only a full queue asks for it.
    pub(super) fn keep_loads(&mut self) {
        if self.are_loads_kept {
            return;
        }
        self.are_loads_kept = true;
        for (slot, state) in self.flows.iter() {
            if state.queued > 0 {
                self.loads.set(slot, Reverse((state.load, state.born)));
            }
        }
    }

    /// After the load of a flow has changed.
    pub(super) fn note_load(&mut self, flow: usize) {
        if !self.are_loads_kept {
            return;
        }
        // Half of the queue must be refilled before it is full again and the loads are sorted again, which
        // amortises the sort.
        if self.queued < self.config.max_queued_total / 2 {
            self.are_loads_kept = false;
            self.loads.clear();
            return;
        }
        match self.flows.get(flow) {
            Some(state) if state.queued > 0 => {
                self.loads.set(flow, Reverse((state.load, state.born)));
            }
            _ => self.loads.remove(flow),
        }
    }

    /// Called after an item left: restarts the queue if nothing is left, or else retires the flow.
    pub(super) fn settle(&mut self, flow: usize) {
        if self.queued > 0 || self.running > 0 {
            self.retire(flow);
            return;
        }
        self.now = 0;
        // Clearing a table costs its capacity, and a busy server falls idle often.
        if self.names.len() >= self.names.capacity() / 16 {
            self.names.clear();
        }
        self.forget(flow);
        let Self {
            ahead,
            flows,
            names,
            ..
        } = self;
        for slot in ahead.slots() {
            if let Some(state) = flows.remove(slot) {
                names.remove(&state.name);
            }
        }
        ahead.clear();
    }

    /// Drops the state of a flow that has no work and is not ahead, or sets it aside until it is not.
    pub(super) fn retire(&mut self, flow: usize) {
        let Some(state) = self.flows.get(flow) else {
            return;
        };
        if !state.is_without_work() {
            return;
        }
        if state.finish <= self.now {
            self.forget(flow);
            return;
        }
        self.ahead.set(flow, order_of(state.finish, state.born));
        self.forget_least_ahead();
    }

    /// Forgets the flows least ahead while there are more than may be kept.
    pub(super) fn forget_least_ahead(&mut self) {
        let most = self.most_ahead();
        while self.ahead.len() > most
            && let Some((_, least)) = self.ahead.first()
        {
            self.ahead.remove(least);
            self.forget(least);
        }
    }

    /// How many flows without work may be remembered.
    pub(super) fn most_ahead(&self) -> usize {
        let depth = match self.config.depth {
            usize::MAX => 0,
            depth => depth,
        };
        self.config.max_queued_total.saturating_add(depth)
    }

    /// Drops the flows without work that the virtual time has caught up with.
    pub(super) fn forget_overtaken(&mut self) {
        while let Some((order, slot)) = self.ahead.first() {
            if tag_of(order) > self.now {
                break;
            }
            self.ahead.remove(slot);
            self.forget(slot);
        }
    }

    fn forget(&mut self, flow: usize) {
        if let Some(state) = self.flows.remove(flow) {
            self.names.remove(&state.name);
        }
    }

    /// Subtracts `V` from every tag. Differences, and so the order, stay; a finish tag that was
    /// behind `V` becomes equal to it, which means the same to the next item of its flow.
    pub(super) fn rebase(&mut self) {
        let by = std::mem::replace(&mut self.now, 0);
        for state in self.flows.values_mut() {
            state.finish = state.finish.saturating_sub(by);
        }
        // Every head is at `V` or later, and so is every flow that is remembered for being ahead.
        let by = order_of(by, 0);
        let down = |order: u128| order.saturating_sub(by);
        self.heads.map_in_order(down);
        self.ahead.map_in_order(down);
    }
}
