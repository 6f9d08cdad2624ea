//! Which policy is in force, and who is told what was decided.
//!
//! # Theory
//!
//! A layer lives as long as the service it is in, a policy until it is replaced. So a layer holds an
//! [`Authority`], asks it for the [`Epoch`] in force once for each request, and ends the request with that
//! one. Decisions are observed by the [`DecisionHost`] that every authority is. [`InForce`] is the authority for programs that have a policy and perhaps replace it; a server that
//! also counts, reloads and tells operators brings its own.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use tokio::runtime::Handle;
use tollgate::{Clock, MonotonicClock};
use tollgate_policy::shared::SharedStore;
use tollgate_policy::{DecisionHost, HostFuture, Policy, PolicyError, PolicyGate, PriorState};

use crate::turnstile::{QueueError, QueueSet};

/// One policy with its state: the limits and the queues.
pub trait Epoch: Send + Sync + 'static {
    /// The clock of the limits.
    type Clock: Clock;

    /// The limits.
    fn gate(&self) -> &PolicyGate<Self::Clock>;

    /// The queues, in the order of the policy.
    fn queues(&self) -> &QueueSet;
}

/// Says which policy is in force.
pub trait Authority: DecisionHost<Policy: Epoch<Clock = Self::Clock>> {
    /// The policy in force now.
    fn epoch(&self) -> Arc<Self::Policy>;
}

/// Ends at `deadline`, by the timer of tokio.
pub fn sleep_until(deadline: Instant) -> HostFuture {
    Box::pin(tokio::time::sleep_until(deadline.into()))
}

/// A policy in force in this program.
#[derive(Debug)]
pub struct InForce<C = MonotonicClock> {
    now: Arc<RwLock<Arc<Standing<C>>>>,
}

impl<C> Clone for InForce<C> {
    fn clone(&self) -> InForce<C> {
        InForce {
            now: Arc::clone(&self.now),
        }
    }
}

/// A policy and its state, as [`InForce`] holds it.
#[derive(Debug)]
pub struct Standing<C> {
    gate: PolicyGate<C>,
    queues: QueueSet,
}

impl<C: Clock> Epoch for Standing<C> {
    type Clock = C;

    fn gate(&self) -> &PolicyGate<C> {
        &self.gate
    }

    fn queues(&self) -> &QueueSet {
        &self.queues
    }
}

/// Why a policy cannot be put in force.
#[derive(Debug)]
#[non_exhaustive]
pub enum InForceError {
    /// Because of a limit.
    Policy(PolicyError),
    /// Because of a queue.
    Queue(QueueError),
}

impl fmt::Display for InForceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy(error) => error.fmt(f),
            Self::Queue(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for InForceError {}

impl InForce {
    /// Puts a policy in force, with nothing used yet, on a clock that knows the time of day.
    ///
    /// # Errors
    /// A limit or a queue that cannot be.
    pub fn new(policy: Policy) -> Result<InForce, InForceError> {
        InForce::with_clock(policy, MonotonicClock::since_1970())
    }

    /// The same, with what is used counted in a store that several processes share. Queues stay those of
    /// this process. [`look_after`](crate::look_after) is to run beside the service.
    ///
    /// # Errors
    /// A limit or a queue that cannot be.
    pub fn shared(policy: Policy, store: Arc<dyn SharedStore>) -> Result<InForce, InForceError> {
        let prior = PriorState::new().with_store(store);
        InForce::with_prior(policy, MonotonicClock::since_1970(), prior)
    }
}

impl<C: Clock> InForce<C> {
    /// The same on another clock.
    ///
    /// # Errors
    /// A limit or a queue that cannot be.
    pub fn with_clock(policy: Policy, clock: C) -> Result<InForce<C>, InForceError> {
        InForce::with_prior(policy, clock, PriorState::new())
    }

    fn with_prior(policy: Policy, clock: C, prior: PriorState) -> Result<InForce<C>, InForceError> {
        let queues = QueueSet::new(&policy.queues, None).map_err(InForceError::Queue)?;
        let gate = PolicyGate::with_prior(policy, Vec::new(), clock, prior);
        let gate = gate.map_err(InForceError::Policy)?;
        Ok(InForce {
            now: Arc::new(RwLock::new(Arc::new(Standing { gate, queues }))),
        })
    }

    /// Puts another policy in force. What was used, who waits and what is under way stay as they are.
    ///
    /// # Errors
    /// A limit or a queue that cannot be; nothing has changed then.
    pub fn replace(&self, policy: Policy) -> Result<(), InForceError> {
        let mut now = self.now.write().unwrap_or_else(PoisonError::into_inner);
        let queues =
            QueueSet::new(&policy.queues, Some(&now.queues)).map_err(InForceError::Queue)?;
        let gate = now.gate.reload(policy, Vec::new());
        let gate = gate.map_err(InForceError::Policy)?;
        queues.put_in_force();
        *now = Arc::new(Standing { gate, queues });
        Ok(())
    }
}

impl<C: Clock> DecisionHost for InForce<C> {
    type Clock = C;
    type Policy = Standing<C>;

    fn gate(policy: &Standing<C>) -> &PolicyGate<C> {
        &policy.gate
    }

    fn is_observed(&self) -> bool {
        false
    }

    fn run_in_background(&self, _: &Standing<C>, work: HostFuture) {
        // Also where nothing runs the background of the policy.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(work);
        }
    }

    fn sleep_until(&self, deadline: Instant) -> HostFuture {
        sleep_until(deadline)
    }
}

impl<C: Clock> Authority for InForce<C> {
    fn epoch(&self) -> Arc<Standing<C>> {
        let now = self.now.read();
        Arc::clone(&now.unwrap_or_else(PoisonError::into_inner))
    }
}
