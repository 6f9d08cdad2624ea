//! Tests of each layer by itself, above a store that only counts.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may"
)]

use std::collections::HashMap;
use std::future::{Future, pending};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use super::background::Background;
use super::debts::Debts;
use super::fallback::Fallback;
use super::flight::{self, Flight};
use super::lease::Leased;
use super::lease::terms::LeaseTerms;
use super::memory::MemoryStore;
use super::sync::Synced;
use super::sync::counter::SyncTerms;
use super::{Apply, PreparedLimit, Store, StoreOp, StoreRequest, StoreResponse};
use crate::charge::{Charge, Outcome, Role, Source};
use crate::rule::{OnStoreError, Quota};
use crate::shared::{FaultKind, SharedLimit, SharedLimits, SharedStore, StoreFault, StoreReport};
use tollgate::Limit;
use tollgate::LimitError;
use tollgate::Span;
use tollgate::{Clock, ManualClock};
use tollgate::{Gate, LimitId};
use tollgate::{QuotaStatus, Verdict};

const CAPACITY: u64 = 1_000;

/// A store that only knows the number of nodes.
#[derive(Debug)]
struct Nodes(u32);

impl SharedStore for Nodes {
    fn prepare(&self, _: &[SharedLimit<'_>]) -> Result<Arc<dyn SharedLimits>, (usize, LimitError)> {
        panic!("nothing is prepared here")
    }

    fn nodes(&self) -> u32 {
        self.0
    }

    fn report(&self) -> StoreReport {
        StoreReport::default()
    }
}

/// Counts units by key, up to [`CAPACITY`], and records its calls.
#[derive(Clone, Debug, Default)]
struct CountingStore(Arc<Mutex<Counted>>);

#[derive(Debug, Default)]
struct Counted {
    used: HashMap<u64, u64>,
    is_down: bool,
    hangs: bool,
    asked: Vec<(StoreOp, u64, u64, bool)>,
}

impl CountingStore {
    fn used(&self, hash: u64) -> u64 {
        let counted = self.0.lock().unwrap();
        counted.used.get(&hash).copied().unwrap_or(0)
    }

    fn take_asked(&self) -> Vec<(StoreOp, u64, u64, bool)> {
        std::mem::take(&mut self.0.lock().unwrap().asked)
    }

    fn set_down(&self, is_down: bool) {
        self.0.lock().unwrap().is_down = is_down;
    }
}

impl Counted {
    fn decide(&mut self, request: StoreRequest) -> StoreResponse {
        let StoreRequest {
            op,
            mut charges,
            is_local,
            ..
        } = request;
        for charge in charges.iter_mut().filter(|charge| charge.is_open()) {
            self.asked.push((op, charge.cost, charge.debt, is_local));
            if self.is_down {
                continue;
            }
            let used = self.used.entry(charge.hash).or_default();
            let debt = charge.debt.min(CAPACITY - *used);
            *used += debt;
            charge.outcome.unpaid = charge.debt - debt;
            let room = CAPACITY - *used;
            let taken = match op {
                StoreOp::Charge if charge.cost <= room => charge.cost,
                StoreOp::Borrow { extra } if charge.cost <= room => {
                    charge.outcome.extra = extra.min(room - charge.cost);
                    charge.cost + charge.outcome.extra
                }
                StoreOp::Charge | StoreOp::Borrow { .. } => {
                    charge.outcome.verdict = Verdict::Refuse {
                        retry_after: Span::from_millis(10),
                    };
                    0
                }
                StoreOp::ChargeRemaining | StoreOp::AddUsage => {
                    let taken = charge.cost.min(room);
                    charge.outcome.unpaid += charge.cost - taken;
                    taken
                }
                StoreOp::Refund => {
                    *used -= charge.cost - charge.kept;
                    0
                }
                StoreOp::Peek => 0,
            };
            *used += taken;
            charge.outcome.status = QuotaStatus {
                remaining: CAPACITY - *used,
                full_after: Span::from_secs(1),
                next_after: Span::ZERO,
            };
            charge.outcome.source = Source::Store;
        }
        let fault = self
            .is_down
            .then(|| StoreFault::new(FaultKind::Away, "down"));
        StoreResponse { charges, fault }
    }
}

impl Store for CountingStore {
    fn apply(
        &self,
        request: StoreRequest,
    ) -> Apply<impl Future<Output = StoreResponse> + Send + 'static + use<>> {
        let planned = request.charges.clone();
        let this = Arc::clone(&self.0);
        let deciding = async move {
            if this.lock().unwrap().hangs {
                pending::<()>().await;
            }
            let mut counted = this.lock().unwrap();
            counted.decide(request)
        };
        Apply::Pending(deciding, planned)
    }
}

struct World {
    clock: ManualClock,
    store: CountingStore,
    memory: Arc<MemoryStore<ManualClock>>,
    limits: Arc<[PreparedLimit]>,
    nodes: Arc<dyn SharedStore>,
    background: Arc<Background>,
    debts: Arc<Debts>,
}

/// The share's usage of the key that every test uses.
fn share_usage(world: &World) -> u64 {
    let limiter = world.memory.limiter(LimitId::new(0));
    limiter.apply(1, &tollgate::KeyOp::Usage).units
}

fn quota() -> Quota {
    Quota::plain(Limit::fixed_window("1000/1000s".parse().unwrap()).unwrap())
}

fn world(prepare: impl FnOnce(&mut PreparedLimit)) -> World {
    let clock = ManualClock::new();
    clock.advance(Span::from_secs(1));
    let mut gate = Gate::with_clock(clock.clone());
    gate.add(quota().limit).unwrap();
    let nodes: Arc<dyn SharedStore> = Arc::new(Nodes(2));
    let mut limit = PreparedLimit {
        stable_id: 7,
        on_store_error: OnStoreError::Local,
        lease: None,
        sync: None,
        is_permit: false,
        capacity: CAPACITY,
        takes_remaining: false,
        horizon: Span::from_secs(1_000),
    };
    prepare(&mut limit);
    World {
        memory: Arc::new(MemoryStore::new(
            gate,
            clock.clone(),
            Some(Arc::clone(&nodes)),
        )),
        clock,
        store: CountingStore::default(),
        limits: Arc::from([limit]),
        nodes,
        background: Arc::default(),
        debts: Arc::default(),
    }
}

impl World {
    fn fallback(&self) -> Fallback<CountingStore, ManualClock> {
        Fallback::new(
            self.store.clone(),
            Arc::clone(&self.memory),
            Arc::clone(&self.limits),
            Arc::clone(&self.debts),
            self.clock.clone(),
        )
    }

    fn leased(&self) -> Leased<CountingStore, ManualClock> {
        Leased::new(
            self.store.clone(),
            Arc::clone(&self.limits),
            Arc::clone(&self.nodes),
            Arc::clone(&self.background),
            self.clock.clone(),
            None,
        )
    }

    fn synced(&self) -> Synced<CountingStore, ManualClock> {
        Synced::new(
            self.store.clone(),
            Arc::clone(&self.limits),
            Arc::clone(&self.memory),
            Arc::clone(&self.nodes),
            Arc::clone(&self.background),
            self.clock.clone(),
            None,
        )
    }

    fn charge(&self, hash: u64, cost: u64) -> Charge {
        Charge {
            rule: 0,
            role: Role::Enforced,
            cost,
            tier: None,
            verdict: Verdict::Pass,
            is_peak: false,
            limit: LimitId::new(0),
            most: None,
            hash,
            key: None,
            debt: 0,
            kept: 0,
            outcome: Outcome::open(self.clock.now()),
        }
    }

    fn request(&self, op: StoreOp, charges: &[(u64, u64)]) -> StoreRequest {
        let charges = charges.iter();
        let charges = charges.map(|(hash, cost)| self.charge(*hash, *cost));
        StoreRequest::new(op, charges.collect(), self.clock.now())
    }

    /// Charges one key. Returns whether it passes, and its source.
    fn ask(&self, store: &impl Store, hash: u64, cost: u64) -> (bool, Source) {
        let request = self.request(StoreOp::Charge, &[(hash, cost)]);
        let answered = now(store.apply(request).resolve());
        let outcome = &answered.charges[0].outcome;
        assert!(answered.fault.is_none());
        (outcome.verdict.is_admitted(), outcome.source)
    }
}

fn poll<T>(future: &mut std::pin::Pin<&mut impl Future<Output = T>>) -> Poll<T> {
    future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
}

/// Resolves a future that must not wait.
fn now<T>(future: impl Future<Output = T>) -> T {
    match poll(&mut pin!(future)) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("it waits"),
    }
}

#[test]
fn fallback_decides_by_the_share_and_reports_its_debt_with_the_next_charge() {
    let world = world(|_| {});
    let store = world.fallback();
    world.store.set_down(true);
    assert_eq!(world.ask(&store, 1, 300), (true, Source::Share));
    // The debt was not received, and is reported again.
    assert_eq!(world.ask(&store, 1, 100), (true, Source::Share));
    world.store.set_down(false);
    world.store.take_asked();
    assert_eq!(world.ask(&store, 1, 50), (true, Source::Store));
    assert_eq!(
        world.store.take_asked(),
        [(StoreOp::Charge, 50, 400, false)]
    );
    assert_eq!(world.store.used(1), 450);
    assert_eq!(world.ask(&store, 1, 50), (true, Source::Store));
    assert_eq!(world.store.take_asked(), [(StoreOp::Charge, 50, 0, false)]);
}

#[test]
fn fallback_mirrors_what_the_store_grants() {
    let world = world(|_| {});
    let store = world.fallback();
    assert_eq!(world.ask(&store, 1, 900), (true, Source::Store));
    world.store.set_down(true);
    assert!(!world.ask(&store, 1, 101).0);
    assert_eq!(world.ask(&store, 1, 100), (true, Source::Share));
}

#[test]
fn fallback_refunds_the_layer_that_paid() {
    let world = world(|_| {});
    let store = world.fallback();
    world.store.set_down(true);
    let request = world.request(StoreOp::Charge, &[(1, 300)]);
    let paid = now(store.apply(request).resolve()).charges;
    world.store.take_asked();
    let refund = StoreRequest::new(StoreOp::Refund, paid, world.clock.now());
    assert!(matches!(store.apply(refund), Apply::Ready(_)));
    assert!(world.store.take_asked().is_empty(), "the share paid");
    assert!(world.debts.is_empty());
    world.store.set_down(false);
    let request = world.request(StoreOp::Charge, &[(1, 300)]);
    let paid = now(store.apply(request).resolve()).charges;
    assert_eq!(share_usage(&world), 300);
    let refund = StoreRequest::new(StoreOp::Refund, paid, world.clock.now());
    now(store.apply(refund).resolve());
    assert_eq!(world.store.used(1), 0);
    assert_eq!(share_usage(&world), 0);
}

#[test]
fn fallback_allows_or_denies_where_the_limit_says_so() {
    for (on_store_error, expected) in [
        (OnStoreError::Allow, (true, Source::Allowed)),
        (OnStoreError::Deny, (false, Source::Denied)),
    ] {
        let world = world(|limit| limit.on_store_error = on_store_error);
        world.store.set_down(true);
        assert_eq!(world.ask(&world.fallback(), 1, 1), expected);
        assert!(world.debts.is_empty());
    }
}

#[test]
fn fallback_does_not_decide_a_push_that_its_layer_repeats() {
    let world = world(|_| {});
    world.store.set_down(true);
    for op in [StoreOp::AddUsage, StoreOp::Borrow { extra: 5 }] {
        let answered = now(world
            .fallback()
            .apply(world.request(op, &[(1, 5)]))
            .resolve());
        assert!(answered.fault.is_some());
        assert_eq!(share_usage(&world), 0);
    }
}

#[test]
fn fallback_that_is_dropped_reports_its_debt_again() {
    let world = world(|_| {});
    let store = world.fallback();
    world.store.set_down(true);
    world.ask(&store, 1, 300);
    world.store.set_down(false);
    world.store.0.lock().unwrap().hangs = true;
    {
        let mut asked = pin!(
            store
                .apply(world.request(StoreOp::Charge, &[(1, 1)]))
                .resolve()
        );
        assert!(poll(&mut asked).is_pending());
    }
    world.store.0.lock().unwrap().hangs = false;
    world.ask(&store, 1, 0);
    assert_eq!(world.store.used(1), 300);
}

fn leased_world() -> World {
    world(|limit| limit.lease = LeaseTerms::from_quota(&quota()))
}

/// Makes the key of this hash borrow.
fn make_busy(world: &World, store: &impl Store, hash: u64) {
    for _ in 0..20 {
        assert!(world.ask(store, hash, 1).0);
    }
}

#[test]
fn leased_pays_a_busy_key_and_borrows_no_more_than_its_part() {
    let world = world(|limit| {
        let quota = Quota::plain(Limit::fixed_window("1000/1s".parse().unwrap()).unwrap());
        limit.lease = LeaseTerms::from_quota(&quota);
    });
    let store = world.leased();
    make_busy(&world, &store, 1);
    let asked = world.store.take_asked();
    assert!(asked.len() < 10, "{asked:?}");
    assert_eq!(world.ask(&store, 2, 1).1, Source::Store, "a quiet one");
    let lease = store.report();
    assert!(lease.units_borrowed > 0);
    // Unspent units are returned.
    store.close(world.clock.now());
    now(world.background.drain());
    assert_eq!(world.store.used(1), 20);
}

#[test]
fn leased_refunds_a_request_that_does_not_pass() {
    let world = world(|limit| {
        let quota = Quota::plain(Limit::fixed_window("1000/1s".parse().unwrap()).unwrap());
        limit.lease = LeaseTerms::from_quota(&quota);
    });
    let store = world.leased();
    make_busy(&world, &store, 1);
    // The other key is decided by the store, and refused.
    let refused = world.request(StoreOp::Charge, &[(1, 1), (2, CAPACITY + 1)]);
    let answered = now(store.apply(refused).resolve());
    assert!(!answered.charges[1].outcome.verdict.is_admitted());
    // The same if the caller leaves.
    world.store.0.lock().unwrap().hangs = true;
    {
        let request = world.request(StoreOp::Charge, &[(1, 1), (3, 1)]);
        let mut asked = pin!(store.apply(request).resolve());
        assert!(poll(&mut asked).is_pending());
    }
    world.store.0.lock().unwrap().hangs = false;
    store.close(world.clock.now());
    now(world.background.drain());
    assert_eq!(world.store.used(1), 20);
}

#[test]
fn leased_asks_for_each_charge_after_a_lost_answer() {
    let world = leased_world();
    let store = world.leased();
    world.ask(&store, 1, 1);
    world.store.set_down(true);
    let request = world.request(StoreOp::Charge, &[(1, 1)]);
    now(store.apply(request).resolve());
    world.store.set_down(false);
    world.store.take_asked();
    assert_eq!(world.ask(&store, 1, 1), (true, Source::Store));
    assert_eq!(world.store.take_asked(), [(StoreOp::Charge, 1, 0, false)]);
}

fn synced_world() -> World {
    world(|limit| limit.sync = SyncTerms::from_quota(&quota()))
}

#[test]
fn synced_decides_after_one_push_and_reports_what_passed() {
    let world = synced_world();
    let store = world.synced();
    for _ in 0..20 {
        assert_eq!(world.ask(&store, 1, 1), (true, Source::Synced));
    }
    assert_eq!(world.store.take_asked(), [(StoreOp::AddUsage, 0, 0, false)]);
    store.maintain(world.clock.now());
    now(world.background.drain());
    assert_eq!(world.store.used(1), 20);
}

#[test]
fn synced_lets_the_share_decide_if_the_store_does_not_know_the_usage() {
    let world = synced_world();
    let store = world.synced();
    world.store.set_down(true);
    let request = world.request(StoreOp::Charge, &[(1, 1)]);
    now(store.apply(request).resolve());
    let asked = world.store.take_asked();
    assert_eq!(
        asked,
        [
            (StoreOp::AddUsage, 0, 0, false),
            (StoreOp::Charge, 1, 0, true)
        ]
    );
}

#[test]
fn synced_forwards_a_cost_that_is_too_large_to_pass_unsynced() {
    let mut world = synced_world();
    world.nodes = Arc::new(Nodes(8));
    let store = world.synced();
    assert_eq!(world.ask(&store, 1, 100), (true, Source::Synced));
    world.store.take_asked();
    assert_eq!(world.ask(&store, 1, 300), (true, Source::Store));
    let asked = world.store.take_asked();
    assert_eq!(
        asked,
        [
            (StoreOp::AddUsage, 100, 0, false),
            (StoreOp::Charge, 300, 0, false)
        ]
    );
}

#[test]
fn synced_removes_the_usage_of_a_request_that_does_not_pass() {
    let mut world = synced_world();
    world.limits = Arc::from([
        world.limits[0].clone(),
        PreparedLimit {
            sync: None,
            ..world.limits[0].clone()
        },
    ]);
    let store = world.synced();
    world.ask(&store, 1, 1);
    let mut request = world.request(StoreOp::Charge, &[(1, 1), (2, CAPACITY + 1)]);
    request.charges[1].limit = LimitId::new(1);
    let answered = now(store.apply(request).resolve());
    assert_eq!(answered.charges[1].outcome.source, Source::Store);
    store.maintain(world.clock.now());
    now(world.background.drain());
    assert_eq!(world.store.used(1), 1);
}

#[test]
fn a_flight_survives_each_of_its_waiters_and_ends_once() {
    let (ends, runs) = (Arc::new(Mutex::new(false)), Arc::new(Mutex::new(0)));
    let (its_end, its_runs) = (Arc::clone(&ends), Arc::clone(&runs));
    let flight = Flight::new(async move {
        std::future::poll_fn(|_| match *its_end.lock().unwrap() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
        *its_runs.lock().unwrap() += 1;
    });
    let (mut one, mut other) = (
        pin!(flight.clone()),
        pin!(flight::all(vec![flight.clone()])),
    );
    assert!(poll(&mut one).is_pending());
    assert!(poll(&mut other).is_pending());
    drop(flight);
    *ends.lock().unwrap() = true;
    assert!(poll(&mut other).is_ready());
    assert!(poll(&mut one).is_ready());
    assert_eq!(*runs.lock().unwrap(), 1);
}

#[test]
fn a_stopped_runner_leaves_its_tasks_to_the_next() {
    let background = Background::default();
    let done = Arc::new(Mutex::new(0));
    let is_open = Arc::new(Mutex::new(false));
    for _ in 0..100 {
        let (done, is_open) = (Arc::clone(&done), Arc::clone(&is_open));
        background.push(async move {
            std::future::poll_fn(|_| match *is_open.lock().unwrap() {
                true => Poll::Ready(()),
                false => Poll::Pending,
            })
            .await;
            *done.lock().unwrap() += 1;
        });
    }
    assert!(!background.is_run());
    {
        let mut running = pin!(background.run(pending()));
        assert!(poll(&mut running).is_pending());
        assert!(background.is_run());
    }
    assert!(!background.is_run());
    *is_open.lock().unwrap() = true;
    now(background.drain());
    assert_eq!(*done.lock().unwrap(), 100);
}
