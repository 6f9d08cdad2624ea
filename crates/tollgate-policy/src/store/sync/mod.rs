//! Synced counters: this node decides by the last reply of the store, and pushes usage ten times a second.
//!
//! # Theory
//!
//! A charge on a counter without current information joins the push in flight and then is decided here. If that
//! push has no answer, this node's share decides, because a store that does not know the usage must not. A cost
//! that is too large to pass unsynced is decided by the store, after a push.
//!
//! # Invariant
//!
//! There is one push at a time for each key. Counters continue under the next policy, by the stable id of their
//! limit: usage that was not pushed is never dropped while the limit exists.
//!
//! # Bounds
//!
//! At most [`KEYS_MAX`] keys. Further keys are decided by the store.

pub(crate) mod counter;

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use self::counter::{Counter, CounterDecision, Pushed, SyncTerms};
use super::background::Background;
use super::flight::Flight;
use super::layer::{self, Attempt, Hold, Layer};
use super::memory::MemoryStore;
use super::prehashed::PrehashedState;
use super::{Apply, PreparedLimit, Store, StoreOp, StoreRequest, StoreResponse};
use crate::charge::{Charge, Outcome, Role, Source};
use crate::shared::SharedStore;
use tollgate::Clock;
use tollgate::LimitId;
use tollgate::Moment;
use tollgate::{QuotaStatus, Verdict};

/// Most keys with a counter.
const KEYS_MAX: usize = 1 << 16;
const SHARDS: usize = 64;

/// A limit by its stable id, and a key by its hash.
type CounterKey = (u64, u64);
type Shard = HashMap<CounterKey, Entry, PrehashedState>;

#[derive(Debug)]
struct Entry {
    counter: Counter,
    push: Option<Flight>,
    /// A charge of this key, used to push.
    charge: Charge,
}

/// The counters of all keys, over all policies.
#[derive(Debug)]
struct Counters {
    shards: Vec<Mutex<Shard>>,
    /// Units that passed here and did not fit in the store.
    unpaid: AtomicU64,
}

impl Counters {
    fn shard(&self, key: CounterKey) -> Option<MutexGuard<'_, Shard>> {
        let shard = self.shards.get((key.1 >> 40) as usize % SHARDS)?;
        Some(shard.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn with<T>(&self, key: CounterKey, change: impl FnOnce(&mut Counter) -> T) -> Option<T> {
        let mut shard = self.shard(key)?;
        Some(change(&mut shard.get_mut(&key)?.counter))
    }
}

/// Decides by counters, and forwards the rest.
pub(crate) struct Synced<S, C> {
    inner: S,
    shared: Arc<Shared<C>>,
}

struct Shared<C> {
    counters: Arc<Counters>,
    limits: Arc<[PreparedLimit]>,
    /// Limits by their stable id.
    by_id: HashMap<u64, LimitId>,
    /// Usage is mirrored in this node's share when it passes: a push may come too late.
    share: Arc<MemoryStore<C>>,
    store: Arc<dyn SharedStore>,
    background: Arc<Background>,
    clock: C,
}

impl<S: Clone, C> Clone for Synced<S, C> {
    fn clone(&self) -> Self {
        Synced {
            inner: self.inner.clone(),
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<S: fmt::Debug, C> fmt::Debug for Synced<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Synced")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

/// Units that counters admitted for a request that is not decided yet. Dropping it removes them.
pub(crate) struct SyncHold<S: Store, C: Clock> {
    synced: Synced<S, C>,
    passed: Vec<Charge>,
}

impl<S: Store, C: Clock> Drop for SyncHold<S, C> {
    fn drop(&mut self) {
        for charge in self.passed.drain(..) {
            if !self.synced.put_back(&charge, charge.cost) {
                self.synced.refund(charge);
            }
        }
    }
}

impl<S: Store, C: Clock> Hold for SyncHold<S, C> {
    fn commit(mut self) {
        self.passed.clear();
    }
}

impl<C: Clock> Shared<C> {
    /// How a charge is synced; `None` if it is not. A limit that came with the request is not.
    fn terms(&self, charge: &Charge) -> Option<(CounterKey, &SyncTerms)> {
        let limit = self.limits.get(charge.limit.index())?;
        let terms = limit.sync.as_ref().filter(|_| charge.most.is_none())?;
        Some(((limit.stable_id, charge.hash), terms))
    }

    fn terms_of(&self, stable_id: u64) -> Option<&SyncTerms> {
        let limit = self.limits.get(self.by_id.get(&stable_id)?.index())?;
        limit.sync.as_ref()
    }

    fn nodes(&self) -> u32 {
        self.store.nodes().max(1)
    }
}

impl<S: Store, C: Clock> Synced<S, C> {
    /// The counters continue from the previous policy.
    pub(crate) fn new(
        inner: S,
        limits: Arc<[PreparedLimit]>,
        share: Arc<MemoryStore<C>>,
        store: Arc<dyn SharedStore>,
        background: Arc<Background>,
        clock: C,
        before: Option<&Self>,
    ) -> Self {
        let counters = || Counters {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            unpaid: AtomicU64::new(0),
        };
        let ids = limits.iter().enumerate();
        let by_id = ids.map(|(at, limit)| (limit.stable_id, LimitId::new(at)));
        let shared = Shared {
            counters: before.map_or_else(
                || Arc::new(counters()),
                |before| Arc::clone(&before.shared.counters),
            ),
            by_id: by_id.collect(),
            limits,
            share,
            store,
            background,
            clock,
        };
        Synced {
            inner,
            shared: Arc::new(shared),
        }
    }

    /// Decides by the counter of a key. `None` if there is no room for another one.
    fn decide(
        &self,
        key: CounterKey,
        terms: &SyncTerms,
        charge: &Charge,
        now: Moment,
    ) -> Option<(CounterDecision, Option<Flight>)> {
        let shared = &*self.shared;
        let mut shard = shared.counters.shard(key)?;
        if shard.len() >= KEYS_MAX / SHARDS && !shard.contains_key(&key) {
            shard.retain(|key, entry| {
                let terms = shared.terms_of(key.0);
                entry.push.is_some() || !entry.counter.is_unused(terms, now)
            });
            if shard.len() >= KEYS_MAX / SHARDS {
                return None;
            }
        }
        let entry = shard.entry(key).or_insert_with(|| Entry {
            counter: Counter::default(),
            push: None,
            charge: Charge {
                role: Role::Enforced,
                ..charge.reopened(now)
            },
        });
        let answer = entry
            .counter
            .decide(terms, shared.nodes(), charge.cost, now);
        let waits = matches!(
            answer,
            CounterDecision::Unknown | CounterDecision::Large { has_unsynced: true }
        );
        let (push, is_new) = match waits {
            true => self.push(key, entry),
            false => return Some((answer, None)),
        };
        drop(shard);
        if is_new && shared.background.is_run() {
            shared.background.push(push.clone());
        }
        Some((answer, Some(push)))
    }

    /// The push in flight of a key, or a new one.
    fn push(&self, key: CounterKey, entry: &mut Entry) -> (Flight, bool) {
        if let Some(push) = &entry.push {
            return (push.clone(), false);
        }
        let mut charge = entry.charge.clone();
        if let Some(limit) = self.shared.by_id.get(&key.0) {
            charge.limit = *limit;
        }
        let push = Flight::new(self.clone().run_push(key, charge));
        entry.push = Some(push.clone());
        (push, true)
    }

    /// Pushes the usage of one key. Nothing is sent before the first poll.
    async fn run_push(self, key: CounterKey, charge: Charge) {
        let shared = &*self.shared;
        let sent = shared.clock.now();
        let push = shared.counters.with(key, Counter::start_push);
        let pushed = match push {
            Some(push) if push.is_indebted => self.push_what_fits(push.units, &charge, sent).await,
            Some(push) => self.add_usage(push.units, &charge, sent).await,
            None => None,
        };
        let Some(mut shard) = shared.counters.shard(key) else {
            return;
        };
        let Some(entry) = shard.get_mut(&key) else {
            return;
        };
        let unpaid = entry.counter.finish_push(shared.nodes(), sent, pushed);
        // Dropped after the lock: it may be the last handle of this operation.
        let _push = entry.push.take();
        drop(shard);
        shared.counters.unpaid.fetch_add(unpaid, Relaxed);
    }

    async fn add_usage(&self, units: u64, charge: &Charge, sent: Moment) -> Option<Pushed> {
        let outcome = self.ask(StoreOp::AddUsage, units, charge, sent).await?;
        Some(Pushed {
            units,
            unpaid: outcome.unpaid.min(units),
            status: outcome.status,
            issued: outcome.issued,
            answered: outcome.local,
        })
    }

    /// Asks first how much there is room for.
    async fn push_what_fits(&self, units: u64, charge: &Charge, sent: Moment) -> Option<Pushed> {
        let outcome = self.ask(StoreOp::Peek, 0, charge, sent).await?;
        let fits = units.min(outcome.status.remaining);
        let pushed = match fits {
            0 => Pushed {
                units: 0,
                unpaid: 0,
                status: outcome.status,
                issued: outcome.issued,
                answered: outcome.local,
            },
            // Both within the deadline of one call.
            fits => self.add_usage(fits, charge, sent).await?,
        };
        Some(Pushed {
            units,
            unpaid: units - fits + pushed.unpaid,
            ..pushed
        })
    }

    /// The store's outcome; `None` without an answer.
    async fn ask(&self, op: StoreOp, cost: u64, charge: &Charge, began: Moment) -> Option<Outcome> {
        let asked = Charge {
            cost,
            ..charge.reopened(began)
        };
        let request = StoreRequest::new(op, vec![asked], began);
        let answered = self.inner.apply(request).resolve().await;
        let outcome = answered.charges.first()?.outcome;
        (answered.fault.is_none() && outcome.source == Source::Store).then_some(outcome)
    }

    /// Removes units that were not pushed yet. False: they belong to the store.
    fn put_back(&self, charge: &Charge, units: u64) -> bool {
        let Some((key, _)) = self.shared.terms(charge) else {
            return false;
        };
        let issued = charge.outcome.issued;
        let put_back = |counter: &mut Counter| counter.put_back(issued, units);
        let is_put_back = self.shared.counters.with(key, put_back).unwrap_or(false);
        if is_put_back {
            let mirrored = charge.outcome.mirrored;
            let kept = mirrored.saturating_sub(units);
            self.shared.share.refund(charge, mirrored, kept);
        }
        is_put_back
    }

    fn refund(&self, mut charge: Charge) {
        charge.kept = 0;
        charge.outcome.source = Source::Open;
        let this = self.clone();
        self.shared.background.push(async move {
            let now = this.shared.clock.now();
            let request = StoreRequest::new(StoreOp::Refund, vec![charge], now);
            let _ = this.inner.apply(request).resolve().await;
        });
    }

    fn attempt_charge(
        &self,
        request: &mut StoreRequest,
        is_first: bool,
    ) -> Attempt<SyncHold<S, C>> {
        let shared = &*self.shared;
        let now = match is_first {
            true => request.began,
            false => shared.clock.now(),
        };
        let mut waits = Vec::new();
        let mut is_unknown = false;
        for enforced in [true, false] {
            for at in 0..request.charges.len() {
                let Some(charge) = request.charges.get(at) else {
                    continue;
                };
                if charge.is_enforced() != enforced || !charge.is_open() {
                    continue;
                }
                let Some((key, terms)) = shared.terms(charge) else {
                    continue;
                };
                let outcome = match self.decide(key, terms, charge, now) {
                    Some((CounterDecision::Pass { issued, status }, _)) => Outcome {
                        status,
                        source: Source::Synced,
                        issued,
                        mirrored: shared.share.mirror(charge, charge.cost),
                        ..Outcome::open(now)
                    },
                    Some((CounterDecision::Refuse { retry_after }, _)) => Outcome {
                        verdict: Verdict::Refuse { retry_after },
                        status: QuotaStatus {
                            remaining: 0,
                            next_after: retry_after,
                            full_after: retry_after,
                        },
                        source: Source::Synced,
                        ..Outcome::open(now)
                    },
                    Some((
                        CounterDecision::Unknown | CounterDecision::Large { .. },
                        Some(push),
                    )) if is_first => {
                        waits.push(push);
                        continue;
                    }
                    Some((CounterDecision::Unknown, _)) => {
                        is_unknown |= enforced;
                        continue;
                    }
                    Some((CounterDecision::Large { .. }, _)) | None => continue,
                };
                let is_over = enforced && !outcome.verdict.is_admitted();
                if let Some(charge) = request.charges.get_mut(at) {
                    charge.outcome = outcome;
                    charge.verdict = outcome.verdict;
                }
                if is_over {
                    drop(self.hold(request));
                    return Attempt::Done;
                }
            }
        }
        if !waits.is_empty() {
            drop(self.hold(request));
            for charge in request.charges.iter_mut() {
                if charge.outcome.source == Source::Synced {
                    charge.outcome = Outcome::open(now);
                }
            }
            return Attempt::Wait(waits);
        }
        // A store that does not know the usage must not decide.
        request.is_local |= is_unknown;
        match request.is_decided() {
            true => Attempt::Done,
            false => Attempt::Forward(self.hold(request)),
        }
    }

    /// The units that counters admitted for a request.
    fn hold(&self, request: &StoreRequest) -> SyncHold<S, C> {
        let passed = |charge: &&Charge| {
            charge.outcome.source == Source::Synced && charge.outcome.verdict.is_admitted()
        };
        SyncHold {
            synced: self.clone(),
            passed: request.charges.iter().filter(passed).cloned().collect(),
        }
    }

    /// Keys that have a counter.
    pub(crate) fn keys(&self) -> u64 {
        let shards = self.shared.counters.shards.iter();
        let keys = shards.map(|s| s.lock().unwrap_or_else(PoisonError::into_inner).len() as u64);
        keys.sum()
    }

    /// Units that passed here and did not fit in the store.
    pub(crate) fn unpaid(&self) -> u64 {
        self.shared.counters.unpaid.load(Relaxed)
    }
}

impl<S: Store, C: Clock> Layer for Synced<S, C> {
    type Inner = S;
    type Hold = SyncHold<S, C>;

    fn inner(&self) -> &S {
        &self.inner
    }

    fn now(&self) -> Moment {
        self.shared.clock.now()
    }

    fn attempt(&self, request: &mut StoreRequest, is_first: bool) -> Attempt<SyncHold<S, C>> {
        match request.op {
            StoreOp::Charge => return self.attempt_charge(request, is_first),
            StoreOp::Refund => {
                for charge in request.charges.iter_mut() {
                    if charge.outcome.source == Source::Synced {
                        let units = charge.cost.saturating_sub(charge.kept);
                        charge.outcome.source = match self.put_back(charge, units) {
                            true => Source::Nothing,
                            false => Source::Open,
                        };
                    }
                }
            }
            StoreOp::ChargeRemaining => {
                for charge in request.charges.iter_mut().filter(|charge| charge.is_open()) {
                    let Some((key, _)) = self.shared.terms(charge) else {
                        continue;
                    };
                    let cost = charge.cost;
                    if self
                        .shared
                        .counters
                        .with(key, |counter| counter.add(cost))
                        .is_some()
                    {
                        charge.outcome.source = Source::Synced;
                        self.shared.share.mirror(charge, cost);
                    }
                }
            }
            StoreOp::Peek | StoreOp::AddUsage | StoreOp::Borrow { .. } => {}
        }
        match request.op != StoreOp::Refund && request.is_decided() {
            true => Attempt::Done,
            false => Attempt::Forward(self.hold_nothing()),
        }
    }
}

impl<S: Store, C: Clock> Synced<S, C> {
    fn hold_nothing(&self) -> SyncHold<S, C> {
        SyncHold {
            synced: self.clone(),
            passed: Vec::new(),
        }
    }
}

impl<S: Store, C: Clock> Store for Synced<S, C> {
    fn apply(
        &self,
        request: StoreRequest,
    ) -> Apply<impl Future<Output = StoreResponse> + Send + 'static + use<S, C>> {
        layer::apply(self, request)
    }

    fn maintain(&self, now: Moment) {
        let shared = &*self.shared;
        for shard in &shared.counters.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let mut due = Vec::new();
            shard.retain(|key, entry| {
                let terms = shared.terms_of(key.0);
                entry.push.is_some()
                    || shared.by_id.contains_key(&key.0) && !entry.counter.is_unused(terms, now)
            });
            for (key, entry) in shard.iter_mut() {
                if entry.push.is_some() || entry.counter.is_due(shared.terms_of(key.0), now) {
                    due.push(self.push(*key, entry).0);
                }
            }
            drop(shard);
            due.into_iter()
                .for_each(|push| shared.background.push(push));
        }
        self.inner.maintain(now);
    }

    fn close(&self, now: Moment) {
        self.inner.close(now);
    }
}
