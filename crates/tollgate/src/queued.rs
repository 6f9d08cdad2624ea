//! A slot in a leaky bucket that somebody waits for, and that can be given back.
//!
//! # Theory
//!
//! A charge on a leaky bucket is a promise of a slot. Whoever goes away before it can give it back, but
//! then everybody behind has to move up, and only those who wait can do that. So whoever keeps a list of
//! those who wait says how much is behind ([`HeldSlot::leave`]); the word in the store says whether that
//! is everybody. If it is, the time of the slot is taken off the word in one swap, and the others on the
//! list move up by exactly that ([`HeldSlot::move_up`]).
//!
//! # Invariant
//!
//! Slots that are held never overlap, whoever comes, leaves and races, and none is ever moved back.
//!
//! # What it does not know
//!
//! Who else waits, and how to wait. A slot that is dropped stays taken.

use crate::algorithm::queue::{Behind, Freed, Slot};
use crate::clock::{Clock, MonotonicClock};
use crate::limiter::Limiter;
use crate::time::Moment;

/// A slot in a leaky bucket: from [`Limiter::queue_up`], or from
/// [`PolicyGate::queue_slots`](crate::policy::PolicyGate::queue_slots).
///
/// ```
/// use tollgate::{Limit, Limiter, ManualClock, Moment};
/// let limiter = Limiter::with_clock(Limit::leaky_bucket("10/s".parse()?, 10)?, ManualClock::new())?;
/// let mut waiting: Vec<_> = (0..3).filter_map(|_| limiter.queue_up("a", 1).1).collect();
/// assert_eq!(waiting[2].starts(), Moment::from_nanos(200_000_000));
///
/// // The second leaves; the third is behind it, and nobody else has come.
/// let freed = waiting[1].leave([&waiting[2]]).expect("everybody is known");
/// waiting[2].move_up(freed);
/// assert_eq!(waiting[2].starts(), Moment::from_nanos(100_000_000));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct HeldSlot<C = MonotonicClock> {
    limiter: Limiter<C>,
    hash: u64,
    slot: Slot,
}

impl<C: Clock> HeldSlot<C> {
    pub(crate) fn new(limiter: Limiter<C>, hash: u64, slot: Slot) -> HeldSlot<C> {
        HeldSlot {
            limiter,
            hash,
            slot,
        }
    }

    /// When it begins, on the limiter's clock; now if that is past.
    pub fn starts(&self) -> Moment {
        self.slot.starts(self.clock().now())
    }

    /// What it takes, in units.
    pub fn cost(&self) -> u64 {
        self.slot.cost()
    }

    /// The limiter's clock.
    pub fn clock(&self) -> &C {
        self.limiter.clock()
    }

    /// Which queue it is in: slots with the same number here, both held, are of the same limiter and key.
    pub fn queue(&self) -> (usize, u64) {
        (self.limiter.address(), self.hash)
    }

    /// Does it come after the other one in the same queue?
    pub fn is_behind(&self, other: &HeldSlot<C>) -> bool {
        self.slot.is_behind(&other.slot)
    }

    /// Gives it back, if these are behind it and nobody else is: then all of them have to
    /// [move up](HeldSlot::move_up). None if somebody else is behind it, if it is over, or if the limit was
    /// changed; then it stays taken and nobody moves. To be done once.
    pub fn leave<'a>(&self, behind: impl IntoIterator<Item = &'a HeldSlot<C>>) -> Option<Freed> {
        let add = |sum: Behind, held: &HeldSlot<C>| sum.and(&held.slot);
        self.leave_before(behind.into_iter().fold(Behind::default(), add))
    }

    /// The same, with those behind it added up already.
    pub fn leave_before(&self, behind: Behind) -> Option<Freed> {
        self.limiter.leave_hash(self.hash, &self.slot, behind)
    }

    /// These slots and this one.
    #[must_use]
    pub fn added_to(&self, behind: Behind) -> Behind {
        behind.and(&self.slot)
    }

    /// Begins earlier by what became free before it.
    pub fn move_up(&mut self, by: Freed) {
        self.slot.move_up(by);
    }
}
