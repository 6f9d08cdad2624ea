//! Leases: blocks of units that the store has charged and that this node spends.
//!
//! # Theory
//!
//! A borrow is an operation of its own, for one key, shared by all requests that wait for it, so it survives each
//! of them. A request that finds its lease empty waits for the borrow and then pays like any other. It needs a
//! second round trip only if it also has charges that the store must decide.
//!
//! While the limit is far, the next block is borrowed when a quarter of the current one is left: a *prefetch*,
//! which runs in the background. Without a runner nothing is prefetched.
//!
//! The leases of all keys are in a map under sixty-four locks. A charge that is paid from a lease holds one of them for some
//! twenty nanoseconds.
//!
//! # Invariant
//!
//! Every unit of a block is spent once, returned once, or lost with the node: a block leaves the map only under
//! the lock under which it is spent. A closed table leases nothing.
//!
//! # Bounds
//!
//! At most [`KEYS_MAX`] keys. Further keys are decided by the store.

pub(crate) mod report;
mod state;
pub(crate) mod terms;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use self::report::{LeaseCounts, LeaseReport};
use self::state::{Block, BorrowRequest, Lease, Next, Payment};
use self::terms::LeaseTerms;
use super::background::Background;
use super::flight::Flight;
use super::layer::{self, Attempt, Hold, Layer};
use super::prehashed::PrehashedState;
use super::{Apply, PreparedLimit, Store, StoreOp, StoreRequest, StoreResponse};
use crate::charge::{Charge, Outcome, Role, Source};
use crate::shared::SharedStore;
use tollgate::Clock;
use tollgate::LimitId;
use tollgate::Moment;
use tollgate::{QuotaStatus, Verdict};

/// Most keys with a lease.
const KEYS_MAX: usize = 1 << 16;
const SHARDS: usize = 64;

/// A limit and a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LeaseKey {
    limit: LimitId,
    /// The hash of the key by this node's secret, which is well distributed.
    hash: u64,
}

impl LeaseKey {
    fn new(charge: &Charge) -> LeaseKey {
        LeaseKey {
            limit: charge.limit,
            hash: charge.hash,
        }
    }
}

impl Hash for LeaseKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let limit = (self.limit.index() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        state.write_u64(self.hash ^ limit);
    }
}

type Shard = HashMap<LeaseKey, Entry, PrehashedState>;

#[derive(Debug)]
struct Entry {
    lease: Lease<Flight>,
    /// A charge of this key, used to borrow and to return.
    charge: Charge,
}

/// Pays from blocks, and forwards the rest.
pub(crate) struct Leased<S, C> {
    inner: S,
    table: Arc<Table<C>>,
}

struct Table<C> {
    shards: Vec<Mutex<Shard>>,
    limits: Arc<[PreparedLimit]>,
    store: Arc<dyn SharedStore>,
    background: Arc<Background>,
    counts: Arc<LeaseCounts>,
    clock: C,
    /// Another policy is active: nothing is leased.
    is_closed: AtomicBool,
}

impl<S: Clone, C> Clone for Leased<S, C> {
    fn clone(&self) -> Self {
        Leased {
            inner: self.inner.clone(),
            table: Arc::clone(&self.table),
        }
    }
}

impl<S: fmt::Debug, C> fmt::Debug for Leased<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leased")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

/// Units that leases paid for a request that is not decided yet. Dropping it puts them back.
pub(crate) struct LeaseHold<S: Store, C: Clock> {
    leased: Leased<S, C>,
    paid: Vec<Charge>,
}

impl<S: Store, C: Clock> Drop for LeaseHold<S, C> {
    fn drop(&mut self) {
        let now = self.leased.table.clock.now();
        for charge in self.paid.drain(..) {
            self.leased.undo(charge, now);
        }
    }
}

impl<S: Store, C: Clock> Hold for LeaseHold<S, C> {
    fn commit(mut self) {
        self.paid.clear();
    }
}

impl<C: Clock> Table<C> {
    fn shard(&self, key: &LeaseKey) -> Option<MutexGuard<'_, Shard>> {
        // The map uses the lowest and the highest bits.
        let shard = self.shards.get((key.hash >> 40) as usize % SHARDS)?;
        Some(shard.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// How a charge is leased; `None` if it is not. A limit that came with the request is not.
    fn terms(&self, charge: &Charge) -> Option<&LeaseTerms> {
        self.terms_of(charge.limit)
            .filter(|_| charge.most.is_none())
    }

    fn terms_of(&self, limit: LimitId) -> Option<&LeaseTerms> {
        self.limits.get(limit.index())?.lease.as_ref()
    }

    fn is_closed(&self) -> bool {
        self.is_closed.load(Relaxed)
    }

    /// Changes a lease, if it exists.
    fn with<T>(
        &self,
        key: &LeaseKey,
        change: impl FnOnce(&mut Lease<Flight>, &LeaseTerms) -> T,
    ) -> Option<T> {
        let terms = self.terms_of(key.limit)?;
        let mut shard = self.shard(key)?;
        Some(change(&mut shard.get_mut(key)?.lease, terms))
    }
}

impl<S: Store, C: Clock> Leased<S, C> {
    /// A table without leases. Its counts continue from the previous policy.
    pub(crate) fn new(
        inner: S,
        limits: Arc<[PreparedLimit]>,
        store: Arc<dyn SharedStore>,
        background: Arc<Background>,
        clock: C,
        before: Option<&Self>,
    ) -> Self {
        let table = Table {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            limits,
            store,
            background,
            counts: before.map_or_else(Arc::default, |before| Arc::clone(&before.table.counts)),
            clock,
            is_closed: AtomicBool::new(false),
        };
        Leased {
            inner,
            table: Arc::new(table),
        }
    }

    /// Pays from the lease of a key, or starts the operation to wait for.
    fn pay(&self, charge: &Charge, now: Moment, is_first: bool) -> Payment<Flight> {
        let key = LeaseKey::new(charge);
        let table = &*self.table;
        let (Some(terms), Some(mut shard)) = (table.terms(charge), table.shard(&key)) else {
            return Payment::Forward;
        };
        if table.is_closed() {
            return Payment::Forward;
        }
        if shard.len() >= KEYS_MAX / SHARDS && !shard.contains_key(&key) {
            shard.retain(|key, entry| {
                let terms = table.terms_of(key.limit);
                terms.is_some_and(|terms| !entry.lease.is_unused(terms, now))
            });
            if shard.len() >= KEYS_MAX / SHARDS {
                return Payment::Forward;
            }
        }
        let entry = shard.entry(key).or_insert_with(|| Entry {
            lease: Lease::default(),
            charge: Charge {
                role: Role::Enforced,
                ..charge.reopened(now)
            },
        });
        if is_first {
            entry.lease.record(terms, charge.cost, now);
        }
        let expired = entry.lease.take_expired(false, now);
        let nodes = table.store.nodes().max(1);
        let payment = entry.lease.pay(terms, nodes, charge.cost, now);
        let wanted = match payment {
            Payment::Borrow(wanted) if is_first => Some(wanted),
            Payment::Paid(..) if table.background.is_run() => entry.lease.prefetch(terms, now),
            _ => None,
        };
        if expired.is_none() && wanted.is_none() {
            return payment;
        }
        let returned = expired.map(|block| (entry.charge.clone(), block));
        let started = wanted.map(|wanted| {
            let flight = Flight::new(self.clone().borrow(key, entry.charge.clone(), wanted));
            entry.lease.start_borrow(wanted, flight.clone());
            (wanted, flight)
        });
        drop(shard);
        if let Some((charge, block)) = returned {
            self.return_block(&charge, block);
        }
        match started {
            Some((BorrowRequest { cost: 0, .. }, flight)) => {
                table.background.push(flight);
                payment
            }
            // The requests that wait for it drive it, and so does a runner.
            Some((_, flight)) => {
                if table.background.is_run() {
                    table.background.push(flight.clone());
                }
                Payment::Wait(flight)
            }
            None => payment,
        }
    }

    /// Borrows for one key. Nothing is sent before the first poll.
    async fn borrow(self, key: LeaseKey, charge: Charge, wanted: BorrowRequest) {
        let table = &*self.table;
        let sent = table.clock.now();
        let BorrowRequest {
            cost,
            extra,
            is_short,
        } = wanted;
        let asked = Charge {
            cost,
            ..charge.reopened(sent)
        };
        let request = StoreRequest::new(StoreOp::Borrow { extra }, vec![asked], sent);
        let StoreResponse { charges, fault } = self.inner.apply(request).resolve().await;
        let outcome = match fault {
            None => charges.first().map(|charge| charge.outcome),
            Some(_) => None,
        };
        let is_taken = outcome.is_some_and(|outcome| outcome.verdict.is_admitted());
        let block = outcome
            .filter(|_| is_taken)
            .and_then(|outcome| self.block(key, cost, sent, &outcome));
        if let Some(block) = &block {
            table.counts.granted(block.credit, cost == 0);
        }
        let finished = table.with(&key, |lease, terms| {
            let next = match &outcome {
                None => Next::Exact {
                    until: sent.plus(terms.term),
                },
                // A refused prefetch says nothing about requests.
                Some(_) if cost == 0 => Next::Borrow,
                Some(outcome) if is_taken => match is_short || outcome.extra < extra {
                    true => Next::Refuse {
                        cost,
                        until: sent.plus(terms.horizon),
                    },
                    false => Next::Borrow,
                },
                Some(outcome) => match outcome.verdict {
                    Verdict::Refuse { retry_after } => Next::Refuse {
                        cost,
                        until: lease.refused_until(terms, cost, sent, retry_after),
                    },
                    _ => Next::Borrow,
                },
            };
            if let Some(outcome) = &outcome {
                lease.record_status(outcome, cost, sent);
            }
            // Under the lock: `close` marks the table before it empties the shard, so it finds the block or is seen here.
            match table.is_closed() {
                true => (block, lease.finish_borrow(None, Next::Borrow).1),
                false => lease.finish_borrow(block, next),
            }
        });
        // The handle is dropped after the lock: it may be the last one of this operation.
        let (unused, _handle) = finished.unwrap_or((block, None));
        if let Some(block) = unused {
            self.return_block(&charge, block);
        }
    }

    /// The block that an outcome grants.
    fn block(&self, key: LeaseKey, cost: u64, sent: Moment, outcome: &Outcome) -> Option<Block> {
        let terms = self.table.terms_of(key.limit)?;
        let credit = cost.saturating_add(outcome.extra);
        let term = match terms.ends_with_window {
            // The store was asked after `sent`, so its window ends later than this.
            true => terms.term.min(outcome.status.full_after),
            false => terms.term,
        };
        (credit > 0).then_some(Block {
            credit,
            issued: outcome.issued,
            local: outcome.local,
            is_mirrored: outcome.mirrored >= credit,
            expires: sent.plus(term),
        })
    }

    /// Returns a block to the store in the background.
    fn return_block(&self, charge: &Charge, block: Block) {
        if block.credit == 0 {
            return;
        }
        self.table.counts.returned(block.credit);
        let mut back = Charge {
            cost: block.credit,
            ..charge.reopened(block.local)
        };
        back.outcome.issued = block.issued;
        back.outcome.mirrored = if block.is_mirrored { block.credit } else { 0 };
        self.refund(back);
    }

    /// Sent once: the store earns unconfirmed units again.
    fn refund(&self, charge: Charge) {
        let this = self.clone();
        self.table.background.push(async move {
            let now = this.table.clock.now();
            let request = StoreRequest::new(StoreOp::Refund, vec![charge], now);
            let _ = this.inner.apply(request).resolve().await;
        });
    }

    /// Undoes a payment: the units return to their block, or to the store if the block was returned.
    fn undo(&self, mut charge: Charge, now: Moment) {
        if !self.put_back(&charge, charge.cost, now, false) {
            charge.kept = 0;
            charge.outcome.source = Source::Open;
            self.table.counts.returned(charge.cost);
            self.refund(charge);
        }
    }

    /// Puts units back that paid a charge. False if their block was returned: then they belong to the store.
    fn put_back(&self, charge: &Charge, units: u64, now: Moment, is_refund: bool) -> bool {
        let issued = charge.outcome.issued;
        let put_back = self.table.with(&LeaseKey::new(charge), |lease, _| {
            if is_refund {
                lease.forget_refusal();
            }
            // Nothing empties a closed table again. Under the lock, as in `borrow`.
            !self.table.is_closed() && lease.put_back(units, issued, now)
        });
        put_back.unwrap_or(false)
    }

    fn attempt_charge(
        &self,
        request: &mut StoreRequest,
        is_first: bool,
    ) -> Attempt<LeaseHold<S, C>> {
        let now = match is_first {
            true => request.began,
            false => self.table.clock.now(),
        };
        let mut waits = Vec::new();
        // Enforced charges come first: counted ones are taken only if the request passes.
        for enforced in [true, false] {
            for at in 0..request.charges.len() {
                let Some(charge) = request.charges.get(at) else {
                    continue;
                };
                if charge.is_enforced() != enforced
                    || !charge.is_open()
                    || self.table.terms(charge).is_none()
                {
                    continue;
                }
                let outcome = match self.pay(charge, now, is_first) {
                    Payment::Paid(block, status) => Outcome {
                        status,
                        source: Source::Lease,
                        issued: block.issued,
                        mirrored: if block.is_mirrored { charge.cost } else { 0 },
                        ..Outcome::open(block.local)
                    },
                    Payment::Refused(retry_after) => Outcome {
                        verdict: Verdict::Refuse { retry_after },
                        status: QuotaStatus {
                            remaining: 0,
                            next_after: retry_after,
                            full_after: retry_after,
                        },
                        source: Source::Lease,
                        ..Outcome::open(now)
                    },
                    Payment::Wait(flight) => {
                        if is_first && !request.is_local {
                            waits.push(flight);
                        }
                        continue;
                    }
                    Payment::Forward | Payment::Borrow(_) => continue,
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
                if charge.outcome.source == Source::Lease {
                    charge.outcome = Outcome::open(now);
                }
            }
            return Attempt::Wait(waits);
        }
        match request.is_decided() {
            true => Attempt::Done,
            false => Attempt::Forward(self.hold(request)),
        }
    }

    /// The payments of leases for a request.
    fn hold(&self, request: &StoreRequest) -> LeaseHold<S, C> {
        let paid = |charge: &&Charge| {
            charge.outcome.source == Source::Lease && charge.outcome.verdict.is_admitted()
        };
        LeaseHold {
            leased: self.clone(),
            paid: request.charges.iter().filter(paid).cloned().collect(),
        }
    }

    /// Removes expired blocks, and drops unused entries.
    fn sweep(&self, all: bool, now: Moment) {
        let table = &*self.table;
        for shard in &table.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let mut returned = Vec::new();
            shard.retain(|key, entry| {
                let Some(terms) = table.terms_of(key.limit) else {
                    return false;
                };
                let all = all || entry.lease.borrow().is_none() && entry.lease.is_quiet(terms, now);
                while let Some(block) = entry.lease.take_expired(all, now) {
                    returned.push((entry.charge.clone(), block));
                }
                !entry.lease.is_unused(terms, now)
            });
            drop(shard);
            for (charge, block) in returned {
                self.return_block(&charge, block);
            }
        }
    }

    /// Borrows in flight.
    pub(super) fn flights(&self) -> Vec<Flight> {
        let mut flights = Vec::new();
        for shard in &self.table.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            flights.extend(
                shard
                    .values()
                    .filter_map(|entry| entry.lease.borrow().cloned()),
            );
        }
        flights
    }

    /// The counts of leases.
    pub(crate) fn report(&self) -> LeaseReport {
        let shards = self.table.shards.iter();
        let keys = shards.map(|s| s.lock().unwrap_or_else(PoisonError::into_inner).len() as u64);
        self.table.counts.report(keys.sum())
    }
}

impl<S: Store, C: Clock> Layer for Leased<S, C> {
    type Inner = S;
    type Hold = LeaseHold<S, C>;

    fn inner(&self) -> &S {
        &self.inner
    }

    fn now(&self) -> Moment {
        self.table.clock.now()
    }

    fn attempt(&self, request: &mut StoreRequest, is_first: bool) -> Attempt<LeaseHold<S, C>> {
        match request.op {
            StoreOp::Charge => return self.attempt_charge(request, is_first),
            StoreOp::Refund => {
                let now = self.table.clock.now();
                for charge in request.charges.iter_mut() {
                    let units = charge.cost.saturating_sub(charge.kept);
                    if self.table.terms(charge).is_none() || !charge.outcome.is_shared() {
                        continue;
                    }
                    let is_put_back = match charge.outcome.source {
                        Source::Lease => self.put_back(charge, units, now, true),
                        _ => {
                            let key = LeaseKey::new(charge);
                            self.table.with(&key, |lease, _| lease.forget_refusal());
                            continue;
                        }
                    };
                    charge.outcome.source = match is_put_back {
                        true => Source::Nothing,
                        false => Source::Open,
                    };
                }
            }
            StoreOp::ChargeRemaining => {
                let now = self.table.clock.now();
                for charge in request.charges.iter_mut().filter(|charge| charge.is_open()) {
                    let (key, cost) = (LeaseKey::new(charge), charge.cost);
                    let taken = self
                        .table
                        .with(&key, |lease, _| lease.take_up_to(cost, now));
                    charge.cost -= taken.unwrap_or(0).min(cost);
                    if charge.cost == 0 && cost > 0 {
                        charge.outcome.source = Source::Lease;
                    }
                }
            }
            StoreOp::Peek | StoreOp::AddUsage | StoreOp::Borrow { .. } => {}
        }
        match request.op != StoreOp::Refund && request.is_decided() {
            true => Attempt::Done,
            false => Attempt::Forward(LeaseHold {
                leased: self.clone(),
                paid: Vec::new(),
            }),
        }
    }

    fn learn(&self, charges: &mut [Charge], sent: Moment) {
        let by_store = charges
            .iter_mut()
            .filter(|charge| charge.outcome.source == Source::Store);
        for charge in by_store.filter(|charge| self.table.terms(charge).is_some()) {
            let (outcome, cost) = (charge.outcome, charge.cost);
            let until = self.table.with(&LeaseKey::new(charge), |lease, terms| {
                lease.record_status(&outcome, cost, sent);
                let Verdict::Refuse { retry_after } = outcome.verdict else {
                    return None;
                };
                let until = lease.refused_until(terms, cost, sent, retry_after);
                lease.refused(cost, until);
                Some(until)
            });
            if let (Verdict::Refuse { retry_after }, Some(until)) =
                (&mut charge.outcome.verdict, until.flatten())
            {
                *retry_after = until.since(outcome.local).max(*retry_after);
                charge.verdict = charge.outcome.verdict;
            }
        }
    }
}

impl<S: Store, C: Clock> Store for Leased<S, C> {
    fn apply(
        &self,
        request: StoreRequest,
    ) -> Apply<impl Future<Output = StoreResponse> + Send + 'static + use<S, C>> {
        layer::apply(self, request)
    }

    fn maintain(&self, now: Moment) {
        self.sweep(false, now);
        self.inner.maintain(now);
    }

    fn close(&self, now: Moment) {
        self.table.is_closed.store(true, Relaxed);
        self.sweep(true, now);
        self.inner.close(now);
    }
}
