//! The simulated store: the core's steps on words, one after the other, on its own clock.
//!
//! # Theory
//!
//! A script of a real store is one step here. Every change of a word is recorded with the previous word, so that
//! a failover can forget the last moments, as a lagging replica does. Sliding logs are no words and have a replica of
//! their own (`replicated_log`).
//!
//! It also keeps the totals that the checks use: what it granted, and what nodes returned. A failover does not forget
//! these.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use tollgate::algorithm::PackedAlgorithm;
use tollgate::algorithm::bucket::Bucket;
use tollgate::algorithm::concurrency::Permits;
use tollgate::algorithm::log::Log;
use tollgate::algorithm::sliding::Sliding;
use tollgate::algorithm::window::Window;
use tollgate::{Algorithm, Clock, LimitError, Moment, QuotaStatus, Verdict};
use tollgate_policy::Quota;
use tollgate_policy::shared::{
    SharedCharge, SharedKey, SharedOutcome, SharedRequest, SharedSettle,
};

use super::executor::{Executor, NodeClock};
use super::replicated_log::ReplicatedLog;

/// A limit of the simulated store.
#[derive(Clone, Copy, Debug)]
pub(super) enum FakeLimit {
    Bucket(Bucket),
    Window(Window),
    Sliding(Sliding),
    Permits(Permits),
    Log(Log),
}

/// One expression for limits whose state is one word, another for logs.
macro_rules! of_any {
    ($limit:expr, $core:ident => $step:expr, $log:ident => $otherwise:expr) => {
        match $limit {
            FakeLimit::Bucket($core) => $step,
            FakeLimit::Window($core) => $step,
            FakeLimit::Sliding($core) => $step,
            FakeLimit::Permits($core) => $step,
            FakeLimit::Log($log) => $otherwise,
        }
    };
}

impl FakeLimit {
    pub(super) fn from_quota(quota: &Quota) -> Result<FakeLimit, LimitError> {
        Ok(match *quota.limit.algorithm() {
            Algorithm::TokenBucket { rate, burst } => FakeLimit::Bucket(Bucket::new(rate, burst)?),
            Algorithm::Gcra { rate, tolerance } => {
                FakeLimit::Bucket(Bucket::gcra(rate, tolerance)?)
            }
            Algorithm::FixedWindow {
                limit,
                window,
                anchor,
            } => FakeLimit::Window(Window::new(limit, window, anchor)?),
            Algorithm::SlidingWindow {
                limit,
                window,
                estimate,
            } => FakeLimit::Sliding(Sliding::new(limit, window, estimate)?),
            Algorithm::Concurrency { limit, ttl } => FakeLimit::Permits(Permits::new(limit, ttl)?),
            Algorithm::SlidingLog { limit, window } => FakeLimit::Log(Log::new(limit, window)?),
            _ => return Err(LimitError::DifferentAlgorithm),
        })
    }
}

/// The limit and key of a word.
pub(super) type StoreKey = (Arc<str>, SharedKey);

/// What was granted for a key since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyTotals {
    /// Units that were charged by requests, blocks included.
    pub charged: u64,
    /// Units that a node returned.
    pub given_back: u64,
    /// Units that a node reported as used before, by its fallback or a copy.
    pub owed: u64,
}

/// The result of a charge, before it is written.
#[derive(Clone, Copy, Debug)]
struct TentativeCharge {
    verdict: Verdict,
    before: QuotaStatus,
    after: QuotaStatus,
}

/// A change, to be undone by a failover.
#[derive(Debug)]
struct WordChange {
    at: u64,
    place: StoreKey,
    before: Option<u64>,
}

/// The store.
#[derive(Debug)]
pub struct FakeStore {
    simulation: Executor,
    clock: NodeClock,
    words: HashMap<StoreKey, u64>,
    changes: VecDeque<WordChange>,
    logs: HashMap<StoreKey, ReplicatedLog>,
    totals: BTreeMap<String, KeyTotals>,
    /// Charges and corrections that it answered.
    pub(super) answered: u64,
}

/// The longest time that a failover may forget.
pub(super) const FORGETS_MAX: u64 = 1_000_000_000;

/// A key as one text.
pub(super) fn text(key: &SharedKey) -> String {
    let parts = key
        .parts()
        .map(|part| String::from_utf8_lossy(part).into_owned());
    parts.collect::<Vec<_>>().join("/")
}

impl FakeStore {
    /// A store on this clock.
    pub(super) fn new(simulation: &Executor, clock: NodeClock) -> Arc<Mutex<FakeStore>> {
        Arc::new(Mutex::new(FakeStore {
            simulation: simulation.clone(),
            clock,
            words: HashMap::new(),
            changes: VecDeque::new(),
            logs: HashMap::new(),
            totals: BTreeMap::new(),
            answered: 0,
        }))
    }

    /// The totals of a key.
    pub(super) fn totals(&self, key: &str) -> KeyTotals {
        self.totals.get(key).copied().unwrap_or_default()
    }

    fn now(&self) -> Moment {
        self.clock.now()
    }

    fn write(&mut self, place: &StoreKey, word: Option<u64>) {
        let before = match word {
            Some(word) => self.words.insert(place.clone(), word),
            None => self.words.remove(place),
        };
        let at = self.simulation.now();
        self.changes.push_back(WordChange {
            at,
            place: place.clone(),
            before,
        });
        while self
            .changes
            .front()
            .is_some_and(|c| c.at + FORGETS_MAX < at)
        {
            self.changes.pop_front();
        }
    }

    /// A replica takes over that lacks the last `span`.
    pub(super) fn fail_over(&mut self, span: u64) {
        let since = self.simulation.now().saturating_sub(span);
        while self.changes.back().is_some_and(|change| change.at >= since) {
            let Some(change) = self.changes.pop_back() else {
                return;
            };
            match change.before {
                Some(word) => self.words.insert(change.place, word),
                None => self.words.remove(&change.place),
            };
        }
        for log in self.logs.values_mut() {
            log.fail_over(since);
        }
    }

    fn log(&mut self, place: &StoreKey, log: Log) -> &mut ReplicatedLog {
        let log = || ReplicatedLog::new(log);
        self.logs.entry(place.clone()).or_insert_with(log)
    }

    /// The verdict on a charge, and the status of the key with it and without it.
    fn peek(
        &mut self,
        place: &StoreKey,
        limit: &FakeLimit,
        now: Moment,
        cost: u64,
    ) -> TentativeCharge {
        let word = self.words.get(place).copied();
        of_any!(
            limit,
            core => {
                let step = core.charge(word, now, cost);
                let before = core.status(word, now);
                let after = step.write.map_or(before, |after| core.status(Some(after), now));
                TentativeCharge { verdict: step.verdict, before, after }
            },
            log => {
                let log = self.log(place, *log);
                let (verdict, after) = log.peek(now, cost);
                TentativeCharge { verdict, before: log.status(now), after }
            }
        )
    }

    /// Writes a charge.
    fn take(&mut self, place: &StoreKey, limit: &FakeLimit, now: Moment, cost: u64) {
        let (simulation, word) = (self.simulation.now(), self.words.get(place).copied());
        let written = of_any!(
            limit,
            core => core.charge(word, now, cost).write,
            log => {
                self.log(place, *log).charge(simulation, now, cost);
                None
            }
        );
        if written.is_some() {
            self.write(place, written);
        }
    }

    /// Adds usage that already happened, and returns what did not fit.
    fn add_usage(&mut self, place: &StoreKey, limit: &FakeLimit, now: Moment, cost: u64) -> u64 {
        let (simulation, word) = (self.simulation.now(), self.words.get(place).copied());
        let (written, unpaid) = of_any!(
            limit,
            core => core.charge_saturating(word, now, cost),
            log => (None, self.log(place, *log).add_usage(simulation, now, cost))
        );
        if written.is_some() {
            self.write(place, written);
        }
        unpaid
    }

    /// Gives back what was charged at `issued`.
    fn refund(
        &mut self,
        place: &StoreKey,
        limit: &FakeLimit,
        now: Moment,
        (cost, issued): (u64, Moment),
    ) {
        let (simulation, word) = (self.simulation.now(), self.words.get(place).copied());
        let written = of_any!(
            limit,
            core => word.and_then(|word| core.refund(word, now, cost, issued)),
            log => {
                self.log(place, *log).refund(simulation, issued, cost);
                None
            }
        );
        if written.is_some() {
            self.write(place, written);
        }
    }

    /// Decides all charges of a request.
    pub(super) fn charge(
        &mut self,
        limits: &[(Arc<str>, FakeLimit)],
        request: &SharedRequest,
    ) -> Option<Vec<SharedOutcome>> {
        self.answered += 1;
        let now = self.now();
        let mut found = Vec::new();
        for charge in &request.charges {
            let (id, limit) = limits.get(charge.limit.index())?;
            let place = (Arc::clone(id), charge.key.clone());
            let mut unpaid = 0;
            if charge.owed > 0 && request.take {
                unpaid = self.add_usage(&place, limit, now, charge.owed);
                let totals = self.totals.entry(text(&charge.key)).or_default();
                totals.owed += charge.owed - unpaid.min(charge.owed);
            }
            let step = self.peek(&place, limit, now, charge.cost);
            found.push((charge, place, *limit, step, unpaid));
        }
        let passes = found
            .iter()
            .all(|(charge, .., step, _)| !charge.enforced || step.verdict.is_admitted());
        // The joint verdict of limits that are counted together.
        let mut verdicts: Vec<Verdict> = found.iter().map(|(.., step, _)| step.verdict).collect();
        for (at, (charge, ..)) in found.iter().enumerate() {
            if let (true, Some([one, other])) = (charge.with_next, verdicts.get_mut(at..at + 2)) {
                *one = one.stricter(*other);
                *other = *one;
            }
        }
        let mut outcomes = Vec::new();
        for ((charge, place, limit, step, unpaid), verdict) in found.into_iter().zip(verdicts) {
            let takes = passes && verdict.is_admitted();
            let is_refused = !step.verdict.is_admitted();
            // A refusal writes, too, if the clock was set back.
            if request.take && (takes || is_refused) {
                self.take(&place, &limit, now, charge.cost);
            }
            if request.take && takes {
                self.note(charge);
            }
            let status = if takes { step.after } else { step.before };
            outcomes.push(SharedOutcome {
                verdict,
                status,
                issued: now,
                unpaid,
            });
        }
        Some(outcomes)
    }

    fn note(&mut self, charge: &SharedCharge) {
        let totals = self.totals.entry(text(&charge.key)).or_default();
        totals.charged = totals.charged.saturating_add(charge.cost);
    }

    /// Corrects a charge. Not `strictly` is the mutant that refunds twice.
    pub(super) fn settle(
        &mut self,
        limits: &[(Arc<str>, FakeLimit)],
        settle: &SharedSettle,
        strictly: bool,
    ) -> Option<u64> {
        self.answered += 1;
        let now = self.now();
        let (id, limit) = limits.get(settle.limit.index())?;
        let place = (Arc::clone(id), settle.key.clone());
        match settle.used.checked_sub(settle.taken) {
            Some(0) => Some(0),
            Some(more) => {
                let unpaid = self.add_usage(&place, limit, now, more);
                let totals = self.totals.entry(text(&settle.key)).or_default();
                totals.charged += more.saturating_sub(unpaid);
                Some(unpaid)
            }
            None => {
                let back = settle.taken - settle.used;
                let totals = self.totals.entry(text(&settle.key)).or_default();
                totals.given_back += back;
                let issued = if strictly { settle.issued } else { now };
                let times = if strictly { 1 } else { 2 };
                for _ in 0..times {
                    self.refund(&place, limit, now, (back, issued));
                }
                Some(0)
            }
        }
    }
}
