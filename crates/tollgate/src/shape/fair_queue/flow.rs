//! State of a flow and of an item, and the arithmetic of tags.

use super::slab::{NONE, Slab};

/// One unit of cost at weight 1, in tags.
pub(super) const TAG_SHIFT: u32 = 32;

/// The most units of cost per unit of weight that one item may ask for.
///
/// It bounds one item's step of the tags to `2^60`, so that a tag always fits in 64 bits.
pub const MAX_COST_PER_WEIGHT: u64 = 1 << 28;

/// The largest step one item may make.
pub(super) const MAX_STEP: u64 = MAX_COST_PER_WEIGHT << TAG_SHIFT;

/// How far ahead of `V` a finish tag may be: four of the largest items.
pub(super) const MAX_LEAD: u64 = 1 << 62;

/// Tags are shifted down when `V` reaches this. `V + MAX_LEAD` then always fits.
pub(super) const REBASE_AT: u64 = 1 << 62;

/// One flow, in its slot.
#[derive(Debug)]
pub(super) struct Flow<F> {
    pub(super) name: F,
    /// Sequence number of flows. Of two flows that are otherwise equal the younger has the larger load and is
    /// further ahead.
    pub(super) born: u64,
    /// Finish tag of what was last dispatched. The waiting items are not in it.
    pub(super) finish: u64,
    /// The slots of the oldest and the newest waiting item, or [`NONE`]. Between them the items form
    /// a list in order of `seq`.
    pub(super) first: usize,
    pub(super) last: usize,
    pub(super) queued: usize,
    /// The sum of the steps of the waiting items: the queued cost/weight.
    pub(super) load: u128,
    pub(super) running: usize,
}

/// One item, in its slot from arrival to completion.
#[derive(Debug)]
pub(super) struct Item<T> {
    pub(super) seq: u64,
    pub(super) cost: u64,
    pub(super) weight: u64,
    /// What dispatching this adds to the flow's finish tag.
    pub(super) step: u64,
    /// The slot of its flow.
    pub(super) flow: usize,
    /// The items of the same flow before and after it while it waits, or [`NONE`].
    pub(super) before: usize,
    pub(super) after: usize,
    /// What was enqueued, until it is dispatched.
    pub(super) waiting: Option<T>,
}

impl<F> Flow<F> {
    pub(super) fn new(name: F, born: u64) -> Self {
        Self {
            name,
            born,
            finish: 0,
            first: NONE,
            last: NONE,
            queued: 0,
            load: 0,
            running: 0,
        }
    }

    /// Puts the item in `slot` behind the others. Returns whether it is the head.
    pub(super) fn append<T>(&mut self, items: &mut Slab<Item<T>>, slot: usize) -> bool {
        let before = std::mem::replace(&mut self.last, slot);
        if let Some(item) = items.get_mut(slot) {
            item.before = before;
            item.after = NONE;
            self.load += u128::from(item.step);
        }
        self.queued += 1;
        match items.get_mut(before) {
            Some(item) => item.after = slot,
            None => self.first = slot,
        }
        before == NONE
    }

    /// Takes the item in `slot` out of the list. Returns whether it was the head.
    pub(super) fn unlink<T>(&mut self, items: &mut Slab<Item<T>>, slot: usize) -> bool {
        let Some(item) = items.get(slot) else {
            return false;
        };
        let (before, after) = (item.before, item.after);
        self.load = self.load.saturating_sub(item.step.into());
        self.queued = self.queued.saturating_sub(1);
        match items.get_mut(before) {
            Some(item) => item.after = after,
            None => self.first = after,
        }
        match items.get_mut(after) {
            Some(item) => item.before = before,
            None => self.last = before,
        }
        before == NONE
    }

    /// Whether it has neither waiting nor running items.
    pub(super) fn is_without_work(&self) -> bool {
        self.queued == 0 && self.running == 0
    }
}

/// `ceil(cost * 2^32 / weight)`, or the largest number if that does not fit.
///
/// Rounded up: rounded down, a heavy enough flow would pay nothing and go first forever.
pub(super) fn step_of(cost: u64, weight: u64) -> u64 {
    // Weight 0 was refused on arrival.
    let weight = weight.max(1);
    if cost >> TAG_SHIFT == 0 {
        // The usual case, several times as fast.
        return (cost << TAG_SHIFT).div_ceil(weight);
    }
    // 64 bits shifted by 32 fit in 96, so nothing is lost.
    let step = (u128::from(cost) << TAG_SHIFT).div_ceil(u128::from(weight));
    u64::try_from(step).unwrap_or(u64::MAX)
}

/// A tag and its tie-breaker as one number in the same order, compared without a branch.
pub(super) fn order_of(tag: u64, tie: u64) -> u128 {
    u128::from(tag) << 64 | u128::from(tie)
}

/// The tag of [`order_of`].
pub(super) fn tag_of(order: u128) -> u64 {
    (order >> 64) as u64
}
