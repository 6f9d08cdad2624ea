//! Decides requests for one front end.
//!
//! Front ends call [`EngineSource::decide`] and get a decision, or the wait for one. The engine counts, logs and
//! samples it under the protocol of the front end. Dropping a pending decision finishes it in the background and
//! refunds what it took; see [`tollgate_policy::decide()`].

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use tollgate::MonotonicClock;
use tollgate_policy::{
    self, BatchPart, DecisionHost, DecisionRequest, Facts, HostFuture, Observed, Op, decide,
    decide_batch,
};
use tollgate_tower::PolicySource;
use tollgate_tower::admission::QueueSet;

use super::{ActivePolicy, Engine, EngineGate, Protocol};

/// A decision of the engine, or the wait for one.
pub type Decide = tollgate_policy::Decide<EngineSource>;

/// An engine behind one front end. Clones are the same one.
#[derive(Clone, Debug)]
pub struct EngineSource(Arc<Source>);

#[derive(Debug)]
struct Source {
    engine: Arc<Engine>,
    protocol: Protocol,
}

impl EngineSource {
    /// The engine as the front end of `protocol` asks it.
    pub fn new(engine: Arc<Engine>, protocol: Protocol) -> EngineSource {
        EngineSource(Arc::new(Source { engine, protocol }))
    }

    /// Decides a request under `policy`.
    pub fn decide(&self, policy: &Arc<ActivePolicy>, request: &DecisionRequest<'_>) -> Decide {
        decide(self, policy, request)
    }

    /// Decides several requests as one, and returns what belongs to which of them.
    pub fn decide_batch(
        &self,
        policy: &Arc<ActivePolicy>,
        requests: &[Facts<'_>],
        op: Op,
        deadline: Option<Instant>,
    ) -> (Decide, Vec<BatchPart>) {
        decide_batch(self, policy, requests, op, deadline)
    }
}

impl Deref for EngineSource {
    type Target = Arc<Engine>;

    fn deref(&self) -> &Arc<Engine> {
        &self.0.engine
    }
}

impl DecisionHost for EngineSource {
    type Clock = MonotonicClock;
    type Policy = ActivePolicy;

    fn gate(policy: &ActivePolicy) -> &EngineGate {
        &policy.gate
    }

    fn estimates_releases(&self) -> bool {
        true
    }

    fn describes_requests(&self) -> bool {
        self.0.engine.logs_requests.load(Relaxed)
    }

    fn observe(&self, policy: &ActivePolicy, observed: &Observed<'_>) {
        self.0.engine.observe(policy, self.0.protocol, observed);
    }

    fn sleep_until(&self, deadline: Instant) -> HostFuture {
        tollgate_tower::sleep_until(deadline)
    }
}

impl PolicySource for EngineSource {
    fn active_policy(&self) -> Arc<ActivePolicy> {
        self.0.engine.active_owned()
    }

    fn queues(policy: &ActivePolicy) -> &QueueSet {
        &policy.queues
    }
}
