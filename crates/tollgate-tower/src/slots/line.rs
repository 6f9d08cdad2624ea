//! Those who wait here for slots of one leaky bucket and key, in order.
//!
//! # Theory
//!
//! The word in the store says when everything promised is done. If that is the end of the last slot in this
//! line, everybody behind any slot of the line is in the line, too: slots are promised one after the
//! other without a gap while somebody waits. Then a slot in the middle can be given back, and all
//! behind it move up.
//!
//! If somebody is behind who is not here (it was charged and does not wait here, or does not yet), the slot
//! stays in the line as an *empty* one: it still takes its time, and it is tried again when somebody else
//! comes or leaves. What is not given back until its time has come stays idle: at most `cost * T` of the
//! output for each who left.
//!
//! # What it does not know
//!
//! Clocks and wakers. Whom to wake, it tells.

use std::collections::VecDeque;

use tollgate::algorithm::queue::Behind;
use tollgate::{Clock, HeldSlot, Moment};

/// A line.
#[derive(Debug)]
pub(super) struct Line<C, W> {
    waiting: VecDeque<Waiting<C, W>>,
    /// How many of these have left.
    empty: usize,
    /// How many slots were looked at to close up.
    #[cfg(test)]
    pub(super) looked_at: usize,
}

#[derive(Debug)]
struct Waiting<C, W> {
    id: u64,
    slot: HeldSlot<C>,
    /// How to tell whoever waits; none if it has left.
    told: Option<W>,
}

impl<C: Clock, W> Line<C, W> {
    pub(super) fn new() -> Line<C, W> {
        Line {
            waiting: VecDeque::new(),
            empty: 0,
            #[cfg(test)]
            looked_at: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// When the first slot begins.
    pub(super) fn next_at(&self) -> Option<Moment> {
        self.waiting.front().map(|first| first.slot.starts())
    }

    /// All slots in the line, those that are empty too.
    #[cfg(test)]
    pub(super) fn slots(&self) -> impl Iterator<Item = (u64, &HeldSlot<C>)> {
        self.waiting
            .iter()
            .map(|waiting| (waiting.id, &waiting.slot))
    }

    /// Somebody comes. Mostly to the end; but whoever was charged first may come here second.
    pub(super) fn join(&mut self, id: u64, slot: HeldSlot<C>, told: W) {
        let before = self.waiting.iter().rev();
        let behind = before.take_while(|other| other.slot.is_behind(&slot));
        let at = self.waiting.len() - behind.count();
        let told = Some(told);
        self.waiting.insert(at, Waiting { id, slot, told });
        self.close_up();
    }

    /// Somebody leaves before its slot.
    pub(super) fn leave(&mut self, id: u64) {
        if let Some(gone) = self.waiting.iter_mut().find(|waiting| waiting.id == id) {
            if gone.told.take().is_some() {
                self.empty += 1;
            }
            self.close_up();
        }
    }

    /// The next whose slot has begun at `now`.
    pub(super) fn due(&mut self, now: Moment) -> Option<W> {
        while self.next_at()? <= now {
            // An empty slot whose time has come stays idle.
            if let Some(told) = self.waiting.pop_front()?.told {
                return Some(told);
            }
            self.empty -= 1;
        }
        None
    }

    /// Gives empty slots back as far as that can be done, from the last one on.
    fn close_up(&mut self) {
        let mut behind = Behind::default();
        let mut at = self.waiting.len();
        // Most lines have no empty slot, and then nobody is looked at.
        while at > 0 && self.empty > 0 {
            at -= 1;
            #[cfg(test)]
            {
                self.looked_at += 1;
            }
            let Some(waiting) = self.waiting.get(at) else {
                return;
            };
            if waiting.told.is_some() {
                behind = waiting.slot.added_to(behind);
                continue;
            }
            let Some(freed) = waiting.slot.leave_before(behind) else {
                // Somebody is behind this one who is not here; and so behind all before it.
                return;
            };
            self.waiting.remove(at);
            self.empty -= 1;
            let moved = self.waiting.range_mut(at..);
            moved.for_each(|waiting| waiting.slot.move_up(freed));
        }
    }
}
