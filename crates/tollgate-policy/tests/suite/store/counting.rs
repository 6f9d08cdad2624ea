//! A shared store in this process, behind a lock, that can be set to fail. Tests against real servers are in
//! `tollgate-redis`.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use tollgate::{Clock, Decision, LimitError, Limiter, ManualClock, Origin, Verdict};
use tollgate_policy::Quota;
use tollgate_policy::shared::{
    Answering, FaultKind, SharedLimit, SharedLimits, SharedOutcome, SharedRequest, SharedSettle,
    SharedStore, StoreFault, StoreReport,
};

/// Counts for all nodes that share it.
#[derive(Debug)]
pub(crate) struct Counting {
    clock: ManualClock,
    limiters: Arc<Mutex<HashMap<String, Limiter<ManualClock>>>>,
    fails: Arc<Mutex<Option<FaultKind>>>,
    pub(crate) nodes: AtomicU32,
    /// The earlier quotas of each limit, as last prepared.
    pub(crate) before: Mutex<HashMap<String, Vec<Quota>>>,
    /// Charges and corrections received.
    pub(crate) asked: Arc<AtomicU64>,
}

#[derive(Debug)]
struct Prepared {
    clock: ManualClock,
    limiters: Vec<Limiter<ManualClock>>,
    /// All or none, without a concurrent charge in between.
    lock: Arc<Mutex<HashMap<String, Limiter<ManualClock>>>>,
    fails: Arc<Mutex<Option<FaultKind>>>,
    asked: Arc<AtomicU64>,
}

impl Counting {
    pub(crate) fn new(clock: &ManualClock, nodes: u32) -> Arc<Counting> {
        Arc::new(Counting {
            clock: clock.clone(),
            limiters: Arc::default(),
            fails: Arc::default(),
            nodes: AtomicU32::new(nodes),
            before: Mutex::default(),
            asked: Arc::default(),
        })
    }

    pub(crate) fn go_away(&self, away: bool) {
        self.fail(away.then_some(FaultKind::Away));
    }

    pub(crate) fn fail(&self, how: Option<FaultKind>) {
        *self.fails.lock().unwrap() = how;
    }
}

impl SharedStore for Counting {
    fn prepare(
        &self,
        limits: &[SharedLimit<'_>],
    ) -> Result<Arc<dyn SharedLimits>, (usize, LimitError)> {
        let mut before = self.before.lock().unwrap();
        for limit in limits {
            before.insert(limit.id.into(), limit.before.to_vec());
        }
        let mut known = self.limiters.lock().unwrap();
        let limiter = |limit: &SharedLimit<'_>| {
            let new =
                || Limiter::with_clock(limit.quota.limit.clone(), self.clock.clone()).unwrap();
            known.entry(limit.id.into()).or_insert_with(new).clone()
        };
        Ok(Arc::new(Prepared {
            clock: self.clock.clone(),
            limiters: limits.iter().map(limiter).collect(),
            lock: Arc::clone(&self.limiters),
            fails: Arc::clone(&self.fails),
            asked: Arc::clone(&self.asked),
        }))
    }

    fn nodes(&self) -> u32 {
        self.nodes.load(SeqCst)
    }

    fn report(&self) -> StoreReport {
        StoreReport::default()
    }
}

/// A key as one text.
fn text(key: &tollgate_policy::shared::SharedKey) -> String {
    let parts = key
        .parts()
        .map(|part| String::from_utf8_lossy(part).into_owned());
    format!("{:?}/{}", key.kind(), parts.collect::<Vec<_>>().join("/"))
}

impl Prepared {
    fn decide(&self, request: &SharedRequest) -> Result<Vec<SharedOutcome>, StoreFault> {
        if let Some(kind) = *self.fails.lock().unwrap() {
            return Err(StoreFault::new(kind, "set to fail by the test"));
        }
        let _all_or_none = self.lock.lock().unwrap();
        let limiter = |charge: &tollgate_policy::shared::SharedCharge| {
            self.limiters[charge.limit.index()].clone()
        };
        let mut unpaid = vec![0; request.charges.len()];
        let owing = request.charges.iter().zip(&mut unpaid);
        for (charge, unpaid) in owing.filter(|(c, _)| c.owed > 0) {
            let key = text(&charge.key);
            let nothing = Decision {
                verdict: Verdict::Pass,
                status: Default::default(),
                issued: self.clock.now(),
                origin: Origin::Fresh,
            };
            let settled = limiter(charge).settle(&key, &nothing, 0, charge.owed);
            *unpaid = settled.unpaid;
        }
        let passes = request.charges.iter().filter(|c| c.enforced).all(|charge| {
            let peeked = limiter(charge).peek(&text(&charge.key), charge.cost);
            peeked.is_admitted()
        });
        let outcomes = request.charges.iter().zip(unpaid).map(|(charge, unpaid)| {
            let key = text(&charge.key);
            let decision = match request.take && passes {
                true => limiter(charge).charge(&key, charge.cost),
                false => limiter(charge).peek(&key, charge.cost),
            };
            let status = match passes {
                true => decision.status,
                false => limiter(charge).peek(&key, 0).status,
            };
            SharedOutcome {
                verdict: decision.verdict,
                status,
                issued: self.clock.now(),
                unpaid,
            }
        });
        Ok(outcomes.collect())
    }
}

impl SharedLimits for Prepared {
    fn charge<'a>(&'a self, request: &'a SharedRequest) -> Answering<'a, Vec<SharedOutcome>> {
        self.asked.fetch_add(1, SeqCst);
        Box::pin(async {
            if *self.fails.lock().unwrap() == Some(FaultKind::Busy) {
                // It never answers.
                std::future::pending::<()>().await;
            }
            self.decide(request)
        })
    }

    fn settle<'a>(&'a self, settle: &'a SharedSettle) -> Answering<'a, u64> {
        self.asked.fetch_add(1, SeqCst);
        Box::pin(async {
            if let Some(kind) = *self.fails.lock().unwrap() {
                return Err(StoreFault::new(kind, "set to fail by the test"));
            }
            let decision = Decision {
                verdict: Verdict::Pass,
                status: Default::default(),
                issued: settle.issued,
                origin: Origin::Fresh,
            };
            let limiter = &self.limiters[settle.limit.index()];
            let settled = limiter.settle(&text(&settle.key), &decision, settle.taken, settle.used);
            Ok(settled.unpaid)
        })
    }
}
