//! The network between nodes and the store: delays, losses, duplicates, reordering and partitions.
//!
//! # Theory
//!
//! A request and its answer each have a random latency, so two messages may overtake each other. Either may be lost. A node waits for its deadline and not longer; the store still runs a
//! request that arrives later.
//!
//! Some messages that charge are duplicated, the second copy later: a charge, and a correction that takes more.
//! Nodes themselves repeat a report that may be lost, so the store must tolerate it: the error is on the strict side, by
//! the cost of the message.
//!
//! A refund is never duplicated. It names no grant that the store could check, so the second copy would return units that
//! were never taken, and the limit would not hold ([`Mutant::RefundsTwice`]). So a node sends it once; if the answer is
//! lost, it stays lost.
//!
//! # Mutants
//!
//! [`Mutant`] is a seeded defect, so that a test can show that the checks find it.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use tollgate::{LimitError, Span};
use tollgate_policy::shared::{
    Answering, FaultKind, SharedLimit, SharedLimits, SharedOutcome, SharedRequest, SharedSettle,
    SharedStore, StoreFault, StoreReport,
};

use super::executor::{Executor, lock};
use super::fake_store::{FakeLimit, FakeStore};
use crate::rng::Rng;

/// A seeded defect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mutant {
    /// None.
    #[default]
    None,
    /// The store grants a block and charges the request alone.
    GrantsWithoutCharging,
    /// The store gives back twice what is given back to it.
    RefundsTwice,
    /// Every node counts one node in the fleet.
    SharesNothing,
}

/// Latency and faults of the network.
#[derive(Clone, Copy, Debug)]
pub struct NetworkFaults {
    /// The least latency of a message ...
    pub latency_min_ns: u64,
    /// ... and the greatest.
    pub latency_max_ns: u64,
    /// One message in this many is lost; none if 0.
    pub lost_one_in: u64,
    /// One charging message in this many is duplicated; none if 0.
    pub duplicated_one_in: u64,
    /// How long a node waits.
    pub deadline_ns: u64,
}

/// What all nodes share.
#[derive(Debug)]
pub struct Network {
    pub(super) simulation: Executor,
    pub(super) store: Arc<Mutex<FakeStore>>,
    pub(super) network: NetworkFaults,
    pub(super) rng: Mutex<Rng>,
    /// Nodes that are alive.
    pub(super) alive: AtomicU32,
    /// The store is partitioned from all nodes.
    pub(super) is_cut: AtomicBool,
    /// No more faults, and least latency.
    pub(super) is_healthy: AtomicBool,
    pub(super) mutant: Mutant,
    /// Answers that were lost or late, and duplicated messages: each may cost a block.
    pub(super) message_faults: AtomicU64,
}

impl Network {
    fn one_in(&self, times: u64) -> bool {
        times > 0 && !self.is_healthy.load(Relaxed) && lock(&self.rng).one_in(times)
    }

    fn latency(&self) -> u64 {
        if self.is_healthy.load(Relaxed) {
            return self.network.latency_min_ns;
        }
        lock(&self.rng).between(self.network.latency_min_ns, self.network.latency_max_ns)
    }

    /// Sends a message and waits for the answer of the store.
    async fn send<T: Send + 'static>(
        self: &Arc<Self>,
        question: impl Fn(&mut FakeStore) -> Option<T> + Send + 'static,
        may_come_twice: bool,
        waited: Span,
    ) -> Result<T, StoreFault> {
        let left = self.network.deadline_ns.saturating_sub(waited.as_nanos());
        if self.is_cut.load(Relaxed) {
            self.message_faults.fetch_add(1, Relaxed);
            self.simulation
                .sleep(self.network.latency_min_ns.min(left))
                .await;
            return Err(StoreFault::new(FaultKind::Away, "cut off"));
        }
        let deadline = self.simulation.now() + left;
        let (there, back) = (self.latency(), self.latency());
        let arrives = !self.one_in(self.network.lost_one_in);
        let returns = !self.one_in(self.network.lost_one_in);
        let twice = may_come_twice && self.one_in(self.network.duplicated_one_in);
        let later = twice.then(|| self.latency());
        let answer = Arc::new(Mutex::new(None));
        if arrives {
            let (network, answer) = (Arc::clone(self), Arc::clone(&answer));
            self.simulation.spawn(async move {
                network.simulation.sleep(there).await;
                if !network.is_cut.load(Relaxed) {
                    *lock(&answer) = question(&mut lock(&network.store));
                }
                if let Some(later) = later {
                    network.simulation.sleep(later).await;
                    if !network.is_cut.load(Relaxed) {
                        question(&mut lock(&network.store));
                    }
                }
            });
        }
        let comes = self.simulation.now() + there + back;
        let in_time = arrives && returns && comes <= deadline;
        let message_faults = u64::from(!in_time) + u64::from(twice);
        self.message_faults.fetch_add(message_faults, Relaxed);
        self.simulation.until(comes.min(deadline)).await;
        let answer = lock(&answer).take();
        match answer {
            Some(answer) if in_time => Ok(answer),
            _ => {
                if in_time {
                    self.message_faults.fetch_add(1, Relaxed);
                }
                self.simulation.until(deadline).await;
                Err(StoreFault::new(FaultKind::Late, "no answer"))
            }
        }
    }
}

/// The store as a node sees it.
#[derive(Clone, Debug)]
pub(super) struct NodeLink(pub(super) Arc<Network>);

impl SharedStore for NodeLink {
    fn prepare(
        &self,
        limits: &[SharedLimit<'_>],
    ) -> Result<Arc<dyn SharedLimits>, (usize, LimitError)> {
        let limits = limits.iter().enumerate().map(|(place, limit)| {
            let fake = FakeLimit::from_quota(limit.quota).map_err(|error| (place, error))?;
            Ok((Arc::from(limit.id), fake))
        });
        Ok(Arc::new(FakeLimits {
            network: Arc::clone(&self.0),
            limits: Arc::new(limits.collect::<Result<_, _>>()?),
        }))
    }

    fn nodes(&self) -> u32 {
        match self.0.mutant {
            Mutant::SharesNothing => 1,
            _ => self.0.alive.load(Relaxed).max(1),
        }
    }

    fn report(&self) -> StoreReport {
        StoreReport::default()
    }
}

#[derive(Debug)]
struct FakeLimits {
    network: Arc<Network>,
    limits: Arc<Vec<(Arc<str>, FakeLimit)>>,
}

impl SharedLimits for FakeLimits {
    fn charge<'a>(&'a self, request: &'a SharedRequest) -> Answering<'a, Vec<SharedOutcome>> {
        let (limits, mut asked) = (Arc::clone(&self.limits), request.clone());
        let waited = request.waited;
        if self.network.mutant == Mutant::GrantsWithoutCharging {
            for charge in &mut asked.charges {
                charge.cost = charge.cost.min(1);
            }
        }
        Box::pin(
            self.network
                .send(move |store| store.charge(&limits, &asked), true, waited),
        )
    }

    fn settle<'a>(&'a self, settle: &'a SharedSettle) -> Answering<'a, u64> {
        let (limits, settle) = (Arc::clone(&self.limits), settle.clone());
        let strictly = self.network.mutant != Mutant::RefundsTwice;
        let charges = settle.used > settle.taken;
        Box::pin(self.network.send(
            move |store| store.settle(&limits, &settle, strictly),
            charges,
            Span::ZERO,
        ))
    }
}
