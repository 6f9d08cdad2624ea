//! Waiting for a slot of a leaky bucket, and holding what the request took beside it.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tollgate::Clock;
use tollgate::policy::{Answer, PolicyGate, Reservation};

use crate::held::{Reserved, has_place};
use crate::slots::{self, Slots};

/// Resolves at the slot, to what the request took. Dropped before, everything is given back.
#[derive(Debug)]
pub(super) struct SlotWait<C: Clock> {
    /// Answers for everything until it is over.
    wait: slots::SlotWait<C>,
    /// Not settled by being dropped.
    reservation: Option<Reservation<C>>,
    has_place: bool,
}

impl<C: Clock> SlotWait<C> {
    /// Waits for the slot that an admitted request was given.
    pub(super) fn new(slots: &Slots<C>, gate: &PolicyGate<C>, answer: &Answer) -> SlotWait<C> {
        SlotWait {
            wait: slots.wait(gate, answer),
            reservation: Some(gate.reserve(answer)),
            has_place: has_place(gate, answer),
        }
    }
}

impl<C: Clock> Future for SlotWait<C> {
    type Output = Option<Reserved<C>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Reserved<C>>> {
        ready!(Pin::new(&mut self.wait).poll(context));
        let has_place = self.has_place;
        let reservation = self.reservation.take();
        Poll::Ready(reservation.map(|taken| Reserved::new(taken, has_place)))
    }
}

// Nothing in it is pinned.
impl<C: Clock> Unpin for SlotWait<C> {}
