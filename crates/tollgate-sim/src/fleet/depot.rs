//! The store of the simulated fleet: the core's steps on words, one after the other, by its own clock.
//!
//! # Theory
//!
//! What a real store does in a script is one step here. Every change of a word is noted with what was there before, so that
//! a failover can forget the last moments, as a replica does that had not heard of them. Sliding logs are no words, and
//! see to that themselves (`logbook`).
//!
//! It also keeps the books that the checks go by: what it granted, whatever became of it, and what it was
//! told was given back. These are not forgotten.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use tollgate::algorithm::OneWord;
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

use super::clockwork::{Clockwork, Watch};
use super::logbook::Logbook;

/// A limit as the store counts it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Meter {
    Bucket(Bucket),
    Window(Window),
    Sliding(Sliding),
    Permits(Permits),
    Log(Log),
}

/// Does something with a limit whose state is one word; something else with a log.
macro_rules! of_any {
    ($meter:expr, $core:ident => $step:expr, $log:ident => $otherwise:expr) => {
        match $meter {
            Meter::Bucket($core) => $step,
            Meter::Window($core) => $step,
            Meter::Sliding($core) => $step,
            Meter::Permits($core) => $step,
            Meter::Log($log) => $otherwise,
        }
    };
}

impl Meter {
    pub(super) fn of(quota: &Quota) -> Result<Meter, LimitError> {
        Ok(match *quota.limit.algorithm() {
            Algorithm::TokenBucket { rate, burst } => Meter::Bucket(Bucket::new(rate, burst)?),
            Algorithm::Gcra { rate, tolerance } => Meter::Bucket(Bucket::gcra(rate, tolerance)?),
            Algorithm::FixedWindow {
                limit,
                window,
                anchor,
            } => Meter::Window(Window::new(limit, window, anchor)?),
            Algorithm::SlidingWindow {
                limit,
                window,
                estimate,
            } => Meter::Sliding(Sliding::new(limit, window, estimate)?),
            Algorithm::Concurrency { limit, ttl } => Meter::Permits(Permits::new(limit, ttl)?),
            Algorithm::SlidingLog { limit, window } => Meter::Log(Log::new(limit, window)?),
            _ => return Err(LimitError::OtherKind),
        })
    }
}

/// Whose words.
pub(super) type Place = (Arc<str>, SharedKey);

/// What was granted for a key over all time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Book {
    /// Units that were charged by requests, blocks included.
    pub charged: u64,
    /// Units that a node said it did not use.
    pub given_back: u64,
    /// Units that a node said it let pass before, by itself or by a copy.
    pub owed: u64,
}

/// What a charge would come to.
#[derive(Clone, Copy, Debug)]
struct Found {
    verdict: Verdict,
    before: QuotaStatus,
    after: QuotaStatus,
}

/// A change, to be undone by a failover.
#[derive(Debug)]
struct Change {
    at: u64,
    place: Place,
    before: Option<u64>,
}

/// The store.
#[derive(Debug)]
pub struct Depot {
    world: Clockwork,
    clock: Watch,
    words: HashMap<Place, u64>,
    changes: VecDeque<Change>,
    logs: HashMap<Place, Logbook>,
    books: BTreeMap<String, Book>,
    /// Questions and corrections that it answered.
    pub(super) answered: u64,
}

/// How long back a failover may forget.
pub(super) const FORGETS_MAX: u64 = 1_000_000_000;

/// A key as one text.
pub(super) fn text(key: &SharedKey) -> String {
    let parts = key
        .parts()
        .map(|part| String::from_utf8_lossy(part).into_owned());
    parts.collect::<Vec<_>>().join("/")
}

impl Depot {
    /// A store on this clock.
    pub(super) fn new(world: &Clockwork, clock: Watch) -> Arc<Mutex<Depot>> {
        Arc::new(Mutex::new(Depot {
            world: world.clone(),
            clock,
            words: HashMap::new(),
            changes: VecDeque::new(),
            logs: HashMap::new(),
            books: BTreeMap::new(),
            answered: 0,
        }))
    }

    /// The books of a key.
    pub(super) fn book(&self, key: &str) -> Book {
        self.books.get(key).copied().unwrap_or_default()
    }

    fn now(&self) -> Moment {
        self.clock.now()
    }

    fn write(&mut self, place: &Place, word: Option<u64>) {
        let before = match word {
            Some(word) => self.words.insert(place.clone(), word),
            None => self.words.remove(place),
        };
        let at = self.world.now();
        self.changes.push_back(Change {
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

    /// Another server takes over, which had not heard of the last `span`.
    pub(super) fn fail_over(&mut self, span: u64) {
        let since = self.world.now().saturating_sub(span);
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

    fn log(&mut self, place: &Place, log: Log) -> &mut Logbook {
        let log = || Logbook::new(log);
        self.logs.entry(place.clone()).or_insert_with(log)
    }

    /// What a charge would come to, and how the key stands with it and without it.
    fn peek(&mut self, place: &Place, meter: &Meter, now: Moment, cost: u64) -> Found {
        let word = self.words.get(place).copied();
        of_any!(
            meter,
            core => {
                let step = core.charge(word, now, cost);
                let before = core.status(word, now);
                let after = step.write.map_or(before, |after| core.status(Some(after), now));
                Found { verdict: step.verdict, before, after }
            },
            log => {
                let log = self.log(place, *log);
                let (verdict, after) = log.peek(now, cost);
                Found { verdict, before: log.status(now), after }
            }
        )
    }

    /// Writes what a charge comes to.
    fn take(&mut self, place: &Place, meter: &Meter, now: Moment, cost: u64) {
        let (world, word) = (self.world.now(), self.words.get(place).copied());
        let written = of_any!(
            meter,
            core => core.charge(word, now, cost).write,
            log => {
                self.log(place, *log).charge(world, now, cost);
                None
            }
        );
        if written.is_some() {
            self.write(place, written);
        }
    }

    /// Takes what was used already, and says what there was no room for.
    fn force(&mut self, place: &Place, meter: &Meter, now: Moment, cost: u64) -> u64 {
        let (world, word) = (self.world.now(), self.words.get(place).copied());
        let (written, unpaid) = of_any!(
            meter,
            core => core.force(word, now, cost),
            log => (None, self.log(place, *log).force(world, now, cost))
        );
        if written.is_some() {
            self.write(place, written);
        }
        unpaid
    }

    /// Gives back what was charged at `issued`.
    fn refund(&mut self, place: &Place, meter: &Meter, now: Moment, (cost, issued): (u64, Moment)) {
        let (world, word) = (self.world.now(), self.words.get(place).copied());
        let written = of_any!(
            meter,
            core => word.and_then(|word| core.refund(word, now, cost, issued)),
            log => {
                self.log(place, *log).refund(world, issued, cost);
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
        meters: &[(Arc<str>, Meter)],
        request: &SharedRequest,
    ) -> Option<Vec<SharedOutcome>> {
        self.answered += 1;
        let now = self.now();
        let mut found = Vec::new();
        for charge in &request.charges {
            let (id, meter) = meters.get(charge.limit.index())?;
            let place = (Arc::clone(id), charge.key.clone());
            let mut unpaid = 0;
            if charge.owed > 0 && request.take {
                unpaid = self.force(&place, meter, now, charge.owed);
                let book = self.books.entry(text(&charge.key)).or_default();
                book.owed += charge.owed - unpaid.min(charge.owed);
            }
            let step = self.peek(&place, meter, now, charge.cost);
            found.push((charge, place, *meter, step, unpaid));
        }
        let passes = found
            .iter()
            .all(|(charge, .., step, _)| !charge.enforced || step.verdict.is_admitted());
        // What they say together, where they are counted together.
        let mut verdicts: Vec<Verdict> = found.iter().map(|(.., step, _)| step.verdict).collect();
        for (at, (charge, ..)) in found.iter().enumerate() {
            if let (true, Some([one, other])) = (charge.with_next, verdicts.get_mut(at..at + 2)) {
                *one = one.stricter(*other);
                *other = *one;
            }
        }
        let mut outcomes = Vec::new();
        for ((charge, place, meter, step, unpaid), verdict) in found.into_iter().zip(verdicts) {
            let takes = passes && verdict.is_admitted();
            let is_refused = !step.verdict.is_admitted();
            // A refusal writes, too, if the clock was set back.
            if request.take && (takes || is_refused) {
                self.take(&place, &meter, now, charge.cost);
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
        let book = self.books.entry(text(&charge.key)).or_default();
        book.charged = book.charged.saturating_add(charge.cost);
    }

    /// Corrects a charge. `strictly` is how it should be done.
    pub(super) fn settle(
        &mut self,
        meters: &[(Arc<str>, Meter)],
        settle: &SharedSettle,
        strictly: bool,
    ) -> Option<u64> {
        self.answered += 1;
        let now = self.now();
        let (id, meter) = meters.get(settle.limit.index())?;
        let place = (Arc::clone(id), settle.key.clone());
        match settle.used.checked_sub(settle.taken) {
            Some(0) => Some(0),
            Some(more) => {
                let unpaid = self.force(&place, meter, now, more);
                let book = self.books.entry(text(&settle.key)).or_default();
                book.charged += more.saturating_sub(unpaid);
                Some(unpaid)
            }
            None => {
                let back = settle.taken - settle.used;
                let book = self.books.entry(text(&settle.key)).or_default();
                book.given_back += back;
                let issued = if strictly { settle.issued } else { now };
                let times = if strictly { 1 } else { 2 };
                for _ in 0..times {
                    self.refund(&place, meter, now, (back, issued));
                }
                Some(0)
            }
        }
    }
}
