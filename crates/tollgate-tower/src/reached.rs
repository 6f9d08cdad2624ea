//! How far a request has come behind the limits, so that what is never served costs nothing.
//!
//! # Theory
//!
//! Limits are decided first, and what passes may still have to wait in a queue further in. Who is turned
//! away there, or leaves before its turn, was not served: what it took is given back. Only the queue knows
//! that, and only the limits know what was taken. So the limits leave a [`Reached`] in the request's
//! extensions, the queue takes it and writes into it, and the limits read it when the request is over.
//!
//! # Invariant
//!
//! What was once served is paid for, also if the same request is sent a second time and then has to wait.
//! A request that no queue has taken note of counts as served.
//!
//! # What it does not know
//!
//! Queues that are not ours, and layers in between that make a new request without the extensions: for
//! these, the call of the service is the beginning.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use http::Extensions;
use tollgate::Clock;
use tollgate_policy::{PolicyDecision, PolicyGate};

use crate::held::{Permit, Reserved};

const UNKNOWN: u8 = 0;
const WAITS: u8 = 1;
const SERVED: u8 = 2;

/// How far a request has come. Clones are the same one.
// Relaxed: whoever polls or drops the request's future does so in order, and nothing else hangs on it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reached(Arc<AtomicU8>);

impl Reached {
    /// It waits for its turn, or is turned away.
    pub(crate) fn waits(&self) {
        let _ = self.0.compare_exchange(UNKNOWN, WAITS, Relaxed, Relaxed);
    }

    /// It is given to the service behind the queue.
    pub(crate) fn served(&self) {
        self.0.store(SERVED, Relaxed);
    }

    fn is_waiting(&self) -> bool {
        self.0.load(Relaxed) == WAITS
    }
}

/// What a request holds that was given to the service behind the limits. Dropping it gives back the places,
/// and the units too if the request was never served.
pub(crate) enum Holds<C: Clock> {
    /// No queue is further in: it is served.
    Places(Option<Permit>),
    /// Boxed, so that those who need not wait have a small future.
    Unsure(Box<Unsure<C>>),
}

impl<C: Clock> fmt::Debug for Holds<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Holds").finish_non_exhaustive()
    }
}

impl<C: Clock> Holds<C> {
    /// What an answer took, by a request with these extensions that now goes on.
    pub(crate) fn of(
        gate: &PolicyGate<C>,
        answer: &PolicyDecision,
        extensions: &mut Extensions,
    ) -> Holds<C> {
        if gate.policy().queues.is_empty() || answer.charges.is_empty() {
            return Holds::Places(Permit::of(gate, answer));
        }
        Holds::begun(Some(Reserved::of(gate, answer)), true, extensions)
    }

    /// What was taken before, by a request with these extensions that now goes on.
    pub(crate) fn begun(
        reserved: Option<Reserved<C>>,
        may_queue: bool,
        extensions: &mut Extensions,
    ) -> Holds<C> {
        match reserved {
            Some(reserved) if may_queue => Holds::Unsure(Box::new(Unsure {
                reserved: Some(reserved),
                // Limits around limits share one: all of them are told.
                reached: extensions.get_or_insert_default::<Reached>().clone(),
            })),
            reserved => Holds::Places(reserved.and_then(Reserved::begin)),
        }
    }

    /// The response has come: what is still held until its end.
    pub(crate) fn answered(self) -> Option<Permit> {
        match self {
            Holds::Places(permit) => permit,
            Holds::Unsure(mut unsure) => unsure.settle(),
        }
    }
}

pub(crate) struct Unsure<C: Clock> {
    reserved: Option<Reserved<C>>,
    reached: Reached,
}

impl<C: Clock> Unsure<C> {
    /// Gives everything back if it was never served; otherwise the places that it holds.
    fn settle(&mut self) -> Option<Permit> {
        let reserved = self.reserved.take()?;
        if self.reached.is_waiting() {
            return None;
        }
        reserved.begin()
    }
}

impl<C: Clock> Drop for Unsure<C> {
    fn drop(&mut self) {
        drop(self.settle());
    }
}
