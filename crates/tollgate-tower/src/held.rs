//! What a request holds while it is under way: places of concurrency limits, a turn in a queue.
//!
//! # Theory
//!
//! A place is taken when a request is admitted and given back when its response has ended. The response
//! ends with its body, so whatever is held travels in the body ([`crate::body`]). There is one exception: a
//! response that opens a tunnel (101, or 2xx to `CONNECT`) has no body, and goes on after it. For these,
//! what is held is left in the response's extensions as [`Held`], for whoever runs the tunnel to take.
//!
//! # Invariant
//!
//! Everything that is held is given back exactly once, when it is dropped, wherever that is.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use http::{Extensions, Method, StatusCode};
use tokio::runtime::Handle;
use tollgate::{Algorithm, Clock};
use tollgate_policy::{PolicyDecision, PolicyGate, Quota, Reservation, Settlement};

/// Places in concurrency limits. Dropping it frees them.
pub struct Permit {
    give_back: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").finish_non_exhaustive()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(give_back) = self.give_back.take() {
            give_back();
        }
    }
}

impl Permit {
    /// The places that an answer took; none if it took none.
    pub(crate) fn of<C: Clock>(gate: &PolicyGate<C>, answer: &PolicyDecision) -> Option<Permit> {
        has_place(gate, answer).then(|| Permit::from(gate.reserve(answer)))
    }
}

impl<C: Clock> From<Reservation<C>> for Permit {
    fn from(reservation: Reservation<C>) -> Permit {
        Permit {
            give_back: Some(Box::new(|| settle(reservation, Settlement::Done))),
        }
    }
}

/// Did the answer take a place that has to be given back?
pub(crate) fn has_place<C: Clock>(gate: &PolicyGate<C>, answer: &PolicyDecision) -> bool {
    let is_place = |quota: &Quota| matches!(quota.limit.algorithm(), Algorithm::Concurrency { .. });
    let mut quotas = answer.charges.iter().filter_map(|c| gate.quota(c.limit));
    quotas.any(is_place)
}

/// What a request took that was not begun yet. Dropping it gives everything back.
#[derive(Debug)]
pub(crate) struct Reserved<C: Clock> {
    reservation: Option<Reservation<C>>,
    has_place: bool,
}

impl<C: Clock> Reserved<C> {
    pub(crate) fn of(gate: &PolicyGate<C>, answer: &PolicyDecision) -> Reserved<C> {
        Reserved::new(gate.reserve(answer), has_place(gate, answer))
    }

    pub(crate) fn new(reservation: Reservation<C>, has_place: bool) -> Reserved<C> {
        Reserved {
            reservation: Some(reservation),
            has_place,
        }
    }

    /// The request begins: what it took stays taken, and places are held until it ends.
    pub(crate) fn begin(mut self) -> Option<Permit> {
        let reservation = self.reservation.take()?;
        self.has_place.then(|| Permit::from(reservation))
    }
}

impl<C: Clock> Drop for Reserved<C> {
    fn drop(&mut self) {
        if let Some(reservation) = self.reservation.take() {
            settle(reservation, Settlement::Cancelled);
        }
    }
}

/// Settles in this process at once, and in the store that a fleet shares as soon as it answers.
pub(crate) fn settle<C: Clock>(reservation: Reservation<C>, how: Settlement) {
    match Handle::try_current() {
        Ok(runtime) if reservation.is_shared() => {
            runtime.spawn(async move { reservation.settle_everywhere(how).await });
        }
        // Without a runtime nobody can ask the store; what was taken there ends by its time.
        _ => {
            reservation.settle(how);
        }
    }
}

/// What is held for a response that opens a tunnel: in its extensions. Whoever runs the tunnel takes it
/// and drops it at the tunnel's end; if nobody does, it is given back with the response's head.
#[derive(Clone, Default)]
pub struct Held {
    all: Arc<Mutex<Vec<Box<dyn Any + Send>>>>,
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held").finish_non_exhaustive()
    }
}

/// What was taken out of [`Held`]. Dropping it gives everything back.
pub struct Kept {
    all: Vec<Box<dyn Any + Send>>,
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Kept").field(&self.all.len()).finish()
    }
}

impl Held {
    /// Takes everything that is held, of all layers.
    pub fn take(&self) -> Kept {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        Kept {
            all: std::mem::take(&mut all),
        }
    }

    pub(crate) fn leave(extensions: &mut Extensions, what: impl Any + Send) {
        let held = extensions.get_or_insert_default::<Held>();
        let mut all = held.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(Box::new(what));
    }
}

/// Does such a response to such a request open a tunnel?
pub(crate) fn opens_tunnel(is_connect: bool, status: StatusCode) -> bool {
    status == StatusCode::SWITCHING_PROTOCOLS || (is_connect && status.is_success())
}

pub(crate) fn is_connect(method: &Method) -> bool {
    method == Method::CONNECT
}
