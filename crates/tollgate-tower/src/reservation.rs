//! The units and permits that a request has taken from its limits, and their return.
//!
//! # Theory
//!
//! A request is charged when it is admitted. If it is never served, all of it is refunded. If it is served, the units stay
//! taken and the permits of concurrency limits are released when the response has ended.
//!
//! Only a queue further in knows whether a request is served. The limit layer puts a [`ServeState`] into the request's
//! extensions, the queue layer removes it and records the state, and [`PendingReservation`] reads it when it drops.
//!
//! A response ends with its body, so [`crate::body::GuardedBody`] holds the permits. A response that opens a tunnel (101,
//! or 2xx to `CONNECT`) has no body and outlives it. Its permits are in its extensions, as [`TunnelGuard`].
//!
//! # Invariant
//!
//! - Everything taken is returned at most once, on drop, wherever that happens.
//! - A request that was served once stays charged, also if it is retried and then has to wait. A request that no queue has
//!   seen counts as served.
//!
//! # Limits
//!
//! Other queues, and layers that build a new request without the extensions: for these, the call of the service counts as
//! served.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use http::{Extensions, Method, StatusCode};
use tokio::runtime::Handle;
use tollgate::{Algorithm, Clock};
use tollgate_policy::{PolicyDecision, PolicyGate, Quota, Reservation, Settlement};

use crate::body::Guard;

const UNKNOWN: u8 = 0;
const WAITING: u8 = 1;
const SERVED: u8 = 2;

/// Whether a queue has passed a request on to its service. Clones share the state.
// Relaxed: the tasks that poll and drop a request's future are ordered already, and no other memory depends on this.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServeState(Arc<AtomicU8>);

impl ServeState {
    /// The request waits, or is rejected.
    pub(crate) fn set_waiting(&self) {
        let _ = self.0.compare_exchange(UNKNOWN, WAITING, Relaxed, Relaxed);
    }

    /// The service behind the queue is called.
    pub(crate) fn set_served(&self) {
        self.0.store(SERVED, Relaxed);
    }

    fn is_waiting(&self) -> bool {
        self.0.load(Relaxed) == WAITING
    }
}

/// What one request has taken. Dropping it refunds everything if the request was not served, and releases the permits if it
/// was.
pub(crate) struct PendingReservation<C: Clock> {
    reservation: Option<Reservation<C>>,
    has_permit: bool,
    progress: Progress,
}

/// How far a request has come.
#[derive(Debug)]
enum Progress {
    /// The inner service has not been called.
    NotStarted,
    /// The inner service was called, and contains a queue.
    MayQueue(ServeState),
    Served,
}

impl<C: Clock> fmt::Debug for PendingReservation<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingReservation").finish_non_exhaustive()
    }
}

impl<C: Clock> PendingReservation<C> {
    /// What `answer` has taken, for a request whose service is not called yet. Boxed: futures stay small.
    pub(crate) fn new(gate: &PolicyGate<C>, answer: &PolicyDecision) -> Box<PendingReservation<C>> {
        Box::new(PendingReservation {
            reservation: Some(gate.reserve(answer)),
            has_permit: has_permit(gate, answer),
            progress: Progress::NotStarted,
        })
    }

    /// The same for a request whose service is called now; `None` if nothing will have to be returned.
    pub(crate) fn started(
        gate: &PolicyGate<C>,
        answer: &PolicyDecision,
        extensions: &mut Extensions,
    ) -> Option<Box<PendingReservation<C>>> {
        let may_queue = !gate.policy().queues.is_empty() && !answer.charges.is_empty();
        (may_queue || has_permit(gate, answer))
            .then(|| PendingReservation::new(gate, answer).start(may_queue, extensions))
    }

    /// The service is called, with a request of these extensions.
    pub(crate) fn start(
        mut self: Box<Self>,
        may_queue: bool,
        extensions: &mut Extensions,
    ) -> Box<Self> {
        self.progress = match may_queue {
            // Nested limit layers share one state.
            true => Progress::MayQueue(extensions.get_or_insert_default::<ServeState>().clone()),
            false => Progress::Served,
        };
        self
    }

    /// The response has arrived: what it holds until its end.
    pub(crate) fn into_guard(mut self: Box<Self>) -> Option<Guard> {
        if self.is_unserved() || !self.has_permit {
            return None;
        }
        self.progress = Progress::Served;
        Some(self)
    }

    fn is_unserved(&self) -> bool {
        match &self.progress {
            Progress::NotStarted => true,
            Progress::MayQueue(state) => state.is_waiting(),
            Progress::Served => false,
        }
    }
}

impl<C: Clock> Drop for PendingReservation<C> {
    fn drop(&mut self) {
        let settlement = match (self.is_unserved(), self.has_permit) {
            (true, _) => Settlement::Cancelled,
            (false, true) => Settlement::Done,
            (false, false) => return,
        };
        if let Some(reservation) = self.reservation.take() {
            settle(reservation, settlement);
        }
    }
}

/// Whether the answer took a permit of a concurrency limit, which has to be released.
fn has_permit<C: Clock>(gate: &PolicyGate<C>, answer: &PolicyDecision) -> bool {
    let is_permit =
        |quota: &Quota| matches!(quota.limit.algorithm(), Algorithm::Concurrency { .. });
    let mut quotas = answer.charges.iter().filter_map(|c| gate.quota(c.limit));
    quotas.any(is_permit)
}

/// Settles in this process at once, and in a shared store in the background.
fn settle<C: Clock>(reservation: Reservation<C>, how: Settlement) {
    match Handle::try_current() {
        Ok(runtime) if reservation.is_shared() => {
            runtime.spawn(async move { reservation.settle_everywhere(how).await });
        }
        // Without a runtime the store cannot be reached; what was taken there ends by its ttl.
        _ => {
            reservation.settle(how);
        }
    }
}

/// The permits of a response that opens a tunnel, in its extensions. The server removes it and keeps it until the tunnel
/// ends. Dropping the last clone releases the permits; if no server removes it, that is when the response's head is dropped.
#[derive(Clone, Default)]
#[must_use = "dropping it releases the permits of the tunnel"]
pub struct TunnelGuard {
    guards: Vec<Arc<dyn std::any::Any + Send + Sync>>,
}

impl fmt::Debug for TunnelGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TunnelGuard")
            .field("guards", &self.guards.len())
            .finish()
    }
}

impl TunnelGuard {
    pub(crate) fn add(extensions: &mut Extensions, guard: Guard) {
        let tunnel = extensions.get_or_insert_default::<TunnelGuard>();
        tunnel.guards.push(guard.into());
    }
}

/// Whether a response opens a tunnel.
pub(crate) fn opens_tunnel(is_connect: bool, status: StatusCode) -> bool {
    status == StatusCode::SWITCHING_PROTOCOLS || (is_connect && status.is_success())
}

pub(crate) fn is_connect(method: &Method) -> bool {
    method == Method::CONNECT
}
