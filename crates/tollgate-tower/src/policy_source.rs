//! The policy that is active, and where the layers get it from.
//!
//! # Theory
//!
//! A layer lives as long as its service, a policy until it is replaced. A layer therefore holds a [`PolicySource`], reads the
//! active policy once for each request, and decides the whole request under it. [`PolicyHandle`] is the source for a program
//! that has a policy and may replace it. A server that also counts, reloads and reports implements the trait itself.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use tokio::runtime::Handle;
use tollgate::{Clock, MonotonicClock};
use tollgate_policy::shared::SharedStore;
use tollgate_policy::{DecisionHost, HostFuture, Policy, PolicyError, PolicyGate, PriorState};

use crate::admission::{QueueError, QueueSet};

/// Where a layer gets the active policy from. Decisions are observed by its [`DecisionHost`].
pub trait PolicySource: DecisionHost {
    /// The active policy.
    fn active_policy(&self) -> Arc<Self::Policy>;

    /// The queues of a policy, in its order.
    fn queues(policy: &Self::Policy) -> &QueueSet;
}

/// Sleeps until `deadline` on tokio's timer. For a [`DecisionHost`] on tokio.
pub fn sleep_until(deadline: Instant) -> HostFuture {
    Box::pin(tokio::time::sleep_until(deadline.into()))
}

/// A policy that can be replaced while requests are served. Clones share it.
#[derive(Debug)]
#[must_use = "a handle does nothing without a layer"]
pub struct PolicyHandle<C = MonotonicClock> {
    active: Arc<RwLock<Arc<ActivePolicy<C>>>>,
}

impl<C> Clone for PolicyHandle<C> {
    fn clone(&self) -> PolicyHandle<C> {
        PolicyHandle {
            active: Arc::clone(&self.active),
        }
    }
}

/// A policy with its state: the limits and the queues.
#[derive(Debug)]
pub struct ActivePolicy<C> {
    gate: PolicyGate<C>,
    queues: QueueSet,
}

impl<C> ActivePolicy<C> {
    /// The limits.
    pub fn gate(&self) -> &PolicyGate<C> {
        &self.gate
    }

    /// The queues, in the order of the policy.
    pub fn queues(&self) -> &QueueSet {
        &self.queues
    }
}

/// A policy that cannot be activated.
#[derive(Debug)]
#[non_exhaustive]
pub enum ActivationError {
    /// A limit is unusable.
    Policy(PolicyError),
    /// A queue is unusable.
    Queue(QueueError),
}

impl fmt::Display for ActivationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy(error) => error.fmt(f),
            Self::Queue(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ActivationError {}

impl PolicyHandle {
    /// Activates a policy with fresh state, on a clock that knows the time of day.
    ///
    /// # Errors
    /// An unusable limit or queue.
    pub fn new(policy: Policy) -> Result<PolicyHandle, ActivationError> {
        PolicyHandle::with_clock(policy, MonotonicClock::with_unix_time())
    }

    /// The same with a store that several processes share. Queues stay local to the process. Run
    /// [`run_maintenance`](crate::run_maintenance) next to the service.
    ///
    /// # Errors
    /// An unusable limit or queue.
    pub fn with_store(
        policy: Policy,
        store: Arc<dyn SharedStore>,
    ) -> Result<PolicyHandle, ActivationError> {
        let prior = PriorState::new().with_store(store);
        PolicyHandle::with_prior(policy, MonotonicClock::with_unix_time(), prior)
    }
}

impl<C: Clock> PolicyHandle<C> {
    /// The same on another clock.
    ///
    /// # Errors
    /// An unusable limit or queue.
    pub fn with_clock(policy: Policy, clock: C) -> Result<PolicyHandle<C>, ActivationError> {
        PolicyHandle::with_prior(policy, clock, PriorState::new())
    }

    fn with_prior(
        policy: Policy,
        clock: C,
        prior: PriorState,
    ) -> Result<PolicyHandle<C>, ActivationError> {
        let queues = QueueSet::new(&policy.queues, None).map_err(ActivationError::Queue)?;
        let gate = PolicyGate::with_prior(policy, Vec::new(), clock, prior);
        let gate = gate.map_err(ActivationError::Policy)?;
        Ok(PolicyHandle {
            active: Arc::new(RwLock::new(Arc::new(ActivePolicy { gate, queues }))),
        })
    }

    /// The active policy.
    pub fn active(&self) -> Arc<ActivePolicy<C>> {
        let active = self.active.read();
        Arc::clone(&active.unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the policy. Usage, waiting requests and requests in flight are kept.
    ///
    /// # Errors
    /// An unusable limit or queue; the old policy then stays active.
    pub fn replace(&self, policy: Policy) -> Result<(), ActivationError> {
        let mut active = self.active.write().unwrap_or_else(PoisonError::into_inner);
        let queues =
            QueueSet::new(&policy.queues, Some(&active.queues)).map_err(ActivationError::Queue)?;
        let gate = active.gate.reload(policy, Vec::new());
        let gate = gate.map_err(ActivationError::Policy)?;
        queues.apply();
        *active = Arc::new(ActivePolicy { gate, queues });
        Ok(())
    }
}

impl<C: Clock> DecisionHost for PolicyHandle<C> {
    type Clock = C;
    type Policy = ActivePolicy<C>;

    fn gate(policy: &ActivePolicy<C>) -> &PolicyGate<C> {
        &policy.gate
    }

    fn is_observed(&self) -> bool {
        false
    }

    fn run_in_background(&self, _: &ActivePolicy<C>, work: HostFuture) {
        // Not through the policy's background queue: without `run_maintenance` nothing runs it.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(work);
        }
    }

    fn sleep_until(&self, deadline: Instant) -> HostFuture {
        sleep_until(deadline)
    }
}

impl<C: Clock> PolicySource for PolicyHandle<C> {
    fn active_policy(&self) -> Arc<ActivePolicy<C>> {
        self.active()
    }

    fn queues(policy: &ActivePolicy<C>) -> &QueueSet {
        &policy.queues
    }
}
