//! This node's share of each limit, for use while the store does not answer.
//!
//! # Theory
//!
//! The tables of this process hold this node's *share* of each limit and mirror what the store grants here. If the
//! store does not answer, they decide instead, so the switch adds no burst on this node. What they admit then is a
//! *debt*: the next operation on the key reports it first. If the answer to that is lost, the debt is reported
//! again, so it counts twice rather than not at all.
//!
//! ```text
//! Pending -> Answered  mirrored; the debts that were reported are cleared
//!         -> Failed    the share decides; its charges are debts
//! ```
//!
//! # Bound
//!
//! With `n` nodes and a limit of `C` and `r`, a node admits at most `C/n + r/n * t` without the store, less what
//! it admitted before. Together they admit at most `C + r * t`, of which up to `C * (n-1)/n` may exceed what the
//! store granted, from nodes that had no traffic until then.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use super::debts::{Debts, Reporting};
use super::memory::MemoryStore;
use super::{Apply, PreparedLimit, Store, StoreOp, StoreRequest, StoreResponse};
use crate::charge::{Charge, Role, Source, all_pass};
use crate::rule::OnStoreError;
use tollgate::Clock;
use tollgate::KeyOp;
use tollgate::Verdict;
use tollgate::{Moment, Span};

/// When to retry after a refusal that only the outage causes: the store is probed several times a second.
const TRY_AGAIN: Span = Span::from_secs(1);

/// Decides by this node's share when the store below gives no answer.
pub(crate) struct Fallback<S, C> {
    inner: S,
    shared: Arc<Shared<C>>,
}

/// The state of a request in the store below.
enum Below<F> {
    Ready(StoreResponse),
    Pending(F),
}

struct Shared<C> {
    share: Arc<MemoryStore<C>>,
    limits: Arc<[PreparedLimit]>,
    debts: Arc<Debts>,
    clock: C,
}

impl<S: Clone, C> Clone for Fallback<S, C> {
    fn clone(&self) -> Self {
        Fallback {
            inner: self.inner.clone(),
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<S: fmt::Debug, C> fmt::Debug for Fallback<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fallback")
            .field("inner", &self.inner)
            .field("debts", &self.shared.debts)
            .finish_non_exhaustive()
    }
}

impl<S: Store, C: Clock> Fallback<S, C> {
    pub(crate) fn new(
        inner: S,
        share: Arc<MemoryStore<C>>,
        limits: Arc<[PreparedLimit]>,
        debts: Arc<Debts>,
        clock: C,
    ) -> Self {
        let shared = Arc::new(Shared {
            share,
            limits,
            debts,
            clock,
        });
        Fallback { inner, shared }
    }
}

impl<C: Clock> Shared<C> {
    fn limit(&self, charge: &Charge) -> Option<&PreparedLimit> {
        self.limits.get(charge.limit.index())
    }

    /// Takes the debts of open charges out of the table, to be reported with them.
    fn report(&self, op: StoreOp, charges: &mut [Charge]) -> Reporting {
        let mut reporting = Reporting::new(&self.debts);
        let reports = matches!(
            op,
            StoreOp::Charge | StoreOp::Borrow { .. } | StoreOp::AddUsage
        );
        if !reports || self.debts.is_empty() {
            return reporting;
        }
        let now = self.clock.now();
        for charge in charges.iter_mut().filter(|charge| charge.is_open()) {
            if let Some(limit) = self.limit(charge) {
                let key = (limit.stable_id, charge.hash);
                // What the share has earned back since, the store has, too.
                let limiter = self.share.limiter(charge.limit);
                let used = || limiter.apply(charge.hash, &KeyOp::Usage).units;
                charge.debt = reporting.add(key, now.plus(limit.horizon), used);
            }
        }
        reporting
    }

    /// Records that a charge passed without the store. Permits return to the layer that granted them, and are no
    /// debt.
    fn record_debt(&self, charge: &Charge, units: u64) {
        if let Some(limit) = self.limit(charge).filter(|limit| !limit.is_permit) {
            let until = self.clock.now().plus(limit.horizon);
            self.debts
                .record((limit.stable_id, charge.hash), units, until);
        }
    }

    /// Takes from the share what the store has taken, or refunds it.
    fn mirror(&self, op: StoreOp, charges: &mut [Charge]) {
        let passes = all_pass(charges);
        let granted = charges
            .iter_mut()
            .filter(|charge| charge.outcome.source == Source::Store);
        for charge in granted {
            let admitted = charge.outcome.verdict.is_admitted();
            let units = match op {
                StoreOp::Charge if passes && admitted => charge.cost,
                StoreOp::Borrow { .. } if admitted => {
                    charge.cost.saturating_add(charge.outcome.extra)
                }
                StoreOp::ChargeRemaining => charge.cost,
                StoreOp::Refund => {
                    let back = charge.cost.saturating_sub(charge.kept);
                    let taken = charge.outcome.mirrored;
                    self.share.refund(charge, taken, taken.saturating_sub(back));
                    continue;
                }
                _ => continue,
            };
            if units > 0 {
                charge.outcome.mirrored = self.share.mirror(charge, units);
            }
        }
    }

    /// Refunds what the share took by itself. The store refunds what the store took.
    fn refund_share(&self, charge: &mut Charge) {
        charge.outcome.source = match charge.outcome.source {
            Source::Share | Source::Memory => {
                self.share.refund(charge, charge.cost, charge.kept);
                if let Some(limit) = self.limit(charge) {
                    let back = charge.cost.saturating_sub(charge.kept);
                    self.debts.reduce((limit.stable_id, charge.hash), back);
                }
                Source::Nothing
            }
            Source::Store => Source::Open,
            source => source,
        };
    }

    /// Decides open charges without the store, as each limit configures. False if that is not possible.
    fn decide(&self, op: StoreOp, charges: &mut [Charge]) -> bool {
        match op {
            StoreOp::Charge | StoreOp::Peek => self.decide_open(op, charges),
            StoreOp::ChargeRemaining => {
                for charge in charges.iter_mut().filter(|charge| charge.is_open()) {
                    self.share.charge_remaining(charge, Source::Share);
                    self.record_debt(charge, charge.cost);
                }
            }
            StoreOp::Refund => {
                // The store earns again what it does not refund; the share knows what was not used.
                for charge in charges.iter_mut().filter(|charge| charge.is_open()) {
                    charge.outcome.source = Source::Store;
                }
                self.mirror(op, charges);
            }
            StoreOp::AddUsage | StoreOp::Borrow { .. } => return false,
        }
        true
    }

    fn on_error(&self, charge: &Charge) -> OnStoreError {
        self.limit(charge)
            .map_or(OnStoreError::Local, |limit| limit.on_store_error)
    }

    fn decide_open(&self, op: StoreOp, charges: &mut [Charge]) {
        let enforced = |charge: &&Charge| charge.is_open() && charge.is_enforced();
        let mut open = charges.iter().filter(enforced);
        if open.any(|charge| self.on_error(charge) == OnStoreError::Deny) {
            return self.deny(charges);
        }
        for charge in charges.iter_mut().filter(|charge| enforced(&&**charge)) {
            if self.on_error(charge) == OnStoreError::Allow {
                charge.outcome.source = Source::Allowed;
                charge.role = Role::Unlimited;
            }
        }
        let decided = self.share.decide(charges, op, Source::Share);
        let by_share = |charge: &&mut Charge| charge.outcome.source == Source::Share;
        let passes = all_pass(charges);
        let is_taken = op == StoreOp::Charge && passes;
        self.share
            .fill_in(charges, Source::Share, &decided, is_taken);
        for charge in charges.iter_mut().filter(by_share) {
            let capacity = match (charge.most, self.limit(charge)) {
                (Some(max), _) => u64::from(max),
                (None, limit) => limit.map_or(0, |limit| limit.capacity),
            };
            if charge.outcome.verdict == Verdict::Never && charge.cost <= capacity {
                // Too much for this node's share, but not for the limit.
                let retry_after = TRY_AGAIN;
                charge.outcome.verdict = Verdict::Refuse { retry_after };
            }
            if is_taken && charge.is_enforced() {
                self.record_debt(charge, charge.cost);
            }
        }
    }

    fn deny(&self, charges: &mut [Charge]) {
        let retry_after = TRY_AGAIN;
        for charge in charges.iter_mut().filter(|charge| charge.is_open()) {
            let denies = self.on_error(charge) == OnStoreError::Deny;
            charge.outcome.verdict = Verdict::Refuse { retry_after };
            charge.verdict = charge.outcome.verdict;
            charge.outcome.source = match charge.is_enforced() && denies {
                true => Source::Denied,
                false => Source::Nothing,
            };
        }
    }
}

impl<S: Store, C: Clock> Store for Fallback<S, C> {
    fn apply(
        &self,
        mut request: StoreRequest,
    ) -> Apply<impl Future<Output = StoreResponse> + Send + 'static + use<S, C>> {
        let shared = &self.shared;
        let op = request.op;
        if op == StoreOp::Refund {
            request
                .charges
                .iter_mut()
                .for_each(|charge| shared.refund_share(charge));
        }
        if request.is_decided() {
            return Apply::Ready(request.answered());
        }
        if request.is_local && shared.decide(op, &mut request.charges) {
            return Apply::Ready(request.answered());
        }
        let reporting = shared.report(op, &mut request.charges);
        let (below, planned) = match self.inner.apply(request) {
            Apply::Ready(answered) => (Below::Ready(answered), Vec::new()),
            Apply::Pending(below, planned) => (Below::Pending(below), planned),
        };
        let shared = Arc::clone(shared);
        let deciding = async move {
            let mut answered = match below {
                Below::Ready(answered) => answered,
                Below::Pending(below) => below.await,
            };
            match &answered.fault {
                None => {
                    reporting.finish();
                    shared.mirror(op, &mut answered.charges);
                }
                Some(_) => {
                    // Recorded again before all else.
                    drop(reporting);
                    if shared.decide(op, &mut answered.charges) {
                        answered.fault = None;
                    }
                }
            }
            answered
        };
        Apply::Pending(deciding, planned)
    }

    fn maintain(&self, now: Moment) {
        self.shared.debts.sweep(now);
        self.inner.maintain(now);
    }

    fn close(&self, now: Moment) {
        self.inner.close(now);
    }
}
