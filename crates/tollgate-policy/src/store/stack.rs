//! The layers of a fleet's node, for one policy.

use std::sync::Arc;

use super::background::Background;
use super::debts::Debts;
use super::fallback::Fallback;
use super::lease::Leased;
use super::lease::report::LeaseReport;
use super::memory::MemoryStore;
use super::remote::RemoteStore;
use super::sync::Synced;
use super::{Apply, PreparedLimit, Store, StoreOp, StoreRequest, StoreResponse, flight};
use crate::charge::{Charge, Role, all_pass};
use crate::shared::SharedLimits;
use tollgate::Clock;
use tollgate::Moment;

type Layers<C> = Leased<Synced<Fallback<RemoteStore<C>, C>, C>, C>;

/// The store of a node of a fleet.
#[derive(Debug)]
pub(crate) struct FleetStore<C> {
    layers: Layers<C>,
    synced: Synced<Fallback<RemoteStore<C>, C>, C>,
    background: Arc<Background>,
    debts: Arc<Debts>,
    limits: Arc<[PreparedLimit]>,
    remote: Arc<dyn SharedLimits>,
    clock: C,
}

impl<C: Clock> Clone for FleetStore<C> {
    fn clone(&self) -> Self {
        FleetStore {
            layers: self.layers.clone(),
            synced: self.synced.clone(),
            background: Arc::clone(&self.background),
            debts: Arc::clone(&self.debts),
            limits: Arc::clone(&self.limits),
            remote: Arc::clone(&self.remote),
            clock: self.clock.clone(),
        }
    }
}

impl<C: Clock> FleetStore<C> {
    /// The layers for the limits of one policy. Debts, synced counters and background tasks continue from the
    /// previous policy; leases do not.
    pub(crate) fn new(
        limits: Arc<[PreparedLimit]>,
        remote: Arc<dyn SharedLimits>,
        moving: Option<(Moment, Arc<dyn SharedLimits>)>,
        memory: &Arc<MemoryStore<C>>,
        clock: C,
        before: Option<&Self>,
    ) -> Option<Self> {
        let store = Arc::clone(memory.store()?);
        let debts = before.map_or_else(Arc::default, |before| Arc::clone(&before.debts));
        let background = before.map_or_else(Arc::default, |before| Arc::clone(&before.background));
        let asked = RemoteStore::new(clock.clone(), Arc::clone(&remote), moving);
        let fallback = Fallback::new(
            asked,
            Arc::clone(memory),
            Arc::clone(&limits),
            Arc::clone(&debts),
            clock.clone(),
        );
        let synced = Synced::new(
            fallback,
            Arc::clone(&limits),
            Arc::clone(memory),
            Arc::clone(&store),
            Arc::clone(&background),
            clock.clone(),
            before.map(|before| &before.synced),
        );
        let layers = Leased::new(
            synced.clone(),
            Arc::clone(&limits),
            store,
            Arc::clone(&background),
            clock.clone(),
            before.map(|before| &before.layers),
        );
        Some(FleetStore {
            layers,
            synced,
            background,
            debts,
            limits,
            remote,
            clock,
        })
    }

    pub(crate) fn now(&self) -> Moment {
        self.clock.now()
    }

    /// The limits in the store, without the layers.
    pub(crate) fn remote(&self) -> &Arc<dyn SharedLimits> {
        &self.remote
    }

    pub(crate) fn apply(
        &self,
        request: StoreRequest,
    ) -> Apply<impl Future<Output = StoreResponse> + Send + 'static + use<C>> {
        self.layers.apply(request)
    }

    /// Applies a request and waits for the result.
    pub(crate) async fn resolve(&self, request: StoreRequest) -> Vec<Charge> {
        self.apply(request).resolve().await.charges
    }

    /// Applies a request without the store.
    pub(crate) fn decide_locally(&self, request: StoreRequest) -> Vec<Charge> {
        let op = request.op;
        let charges = match self.apply(request) {
            Apply::Ready(answered) => answered.charges,
            Apply::Pending(_, charges) => charges,
        };
        let remaining = self.remaining(&charges, op);
        if !remaining.is_empty() {
            let request = StoreRequest::new(StoreOp::ChargeRemaining, remaining, self.now());
            let is_local = true;
            // It is ready: no layer below waits for a local decision.
            drop(self.apply(StoreRequest {
                is_local,
                ..request
            }));
        }
        charges
    }

    /// Settles what can be settled at once, and the rest in the background. Returns units that did not fit.
    pub(crate) fn settle(&self, op: StoreOp, charges: Vec<Charge>) -> u64 {
        if charges.is_empty() {
            return 0;
        }
        match self.apply(StoreRequest::new(op, charges, self.now())) {
            Apply::Ready(answered) => {
                let unpaid = answered.charges.iter().map(|charge| charge.outcome.unpaid);
                unpaid.max().unwrap_or(0)
            }
            Apply::Pending(settling, _) => {
                self.background.push(async move {
                    settling.await;
                });
                0
            }
        }
    }

    /// Charges that were not taken and are charged as far as there is room.
    pub(crate) fn remaining(&self, charges: &[Charge], op: StoreOp) -> Vec<Charge> {
        let passes = all_pass(charges);
        let is_left = |charge: &&Charge| {
            let limit = self.limits.get(charge.limit.index());
            let is_taken = passes && charge.outcome.verdict.is_admitted();
            op == StoreOp::Charge
                && !is_taken
                && charge.role != Role::Unlimited
                && limit.is_some_and(|limit| limit.takes_remaining)
        };
        let left = charges.iter().filter(is_left);
        left.map(|charge| charge.reopened(charge.outcome.issued))
            .collect()
    }

    pub(crate) fn background(&self) -> &Arc<Background> {
        &self.background
    }

    /// Starts what is due, and runs the background tasks.
    pub(crate) async fn maintain(&self, now: Moment) {
        self.layers.maintain(now);
        self.background.drain().await;
    }

    /// Drops debts that no longer count.
    pub(crate) fn sweep_debts(&self, now: Moment) {
        self.debts.sweep(now);
    }

    /// Stops leasing, because another policy is active or the node stops.
    pub(crate) fn close(&self, now: Moment) {
        self.layers.close(now);
    }

    /// Waits for the borrows in flight.
    pub(crate) async fn land(&self) {
        flight::all(self.layers.flights()).await;
    }

    /// The counts of leases.
    pub(crate) fn report(&self) -> LeaseReport {
        let report = self.layers.report();
        LeaseReport {
            keys: report.keys + self.synced.keys(),
            units_unpaid: self.synced.unpaid(),
            ..report
        }
    }
}
