//! The store of the simulated fleet: the core's steps on words, one after the other, by its own clock.
//!
//! # Theory
//!
//! What a real store does in a script is one step here. Every change is noted with what was there before, so that a
//! failover can forget the last moments, as a replica does that had not heard of them.
//!
//! It also keeps the books that the checks go by: what it granted, whatever became of it, and what it was
//! told was given back. These are not forgotten.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use tollgate::algorithm::OneWord;
use tollgate::algorithm::bucket::Bucket;
use tollgate::algorithm::concurrency::Permits;
use tollgate::algorithm::sliding::Sliding;
use tollgate::algorithm::window::Window;
use tollgate::policy::Quota;
use tollgate::store::shared::{
    SharedCharge, SharedKey, SharedOutcome, SharedRequest, SharedSettle,
};
use tollgate::{Algorithm, Clock, LimitError, Moment, Standing, Verdict};

use super::clockwork::{Clockwork, Watch};

/// A limit as the store counts it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Meter {
    Bucket(Bucket),
    Window(Window),
    Sliding(Sliding),
    Permits(Permits),
}

macro_rules! of_any {
    ($meter:expr, $core:ident => $step:expr) => {
        match $meter {
            Meter::Bucket($core) => $step,
            Meter::Window($core) => $step,
            Meter::Sliding($core) => $step,
            Meter::Permits($core) => $step,
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
    books: BTreeMap<String, Book>,
    /// Questions and corrections that it answered.
    pub(super) answered: u64,
}

/// How long back a failover may forget.
const FORGETS_MAX: u64 = 1_000_000_000;

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
            if charge.owed > 0 && request.take {
                let word = self.words.get(&place).copied();
                let (written, _) = of_any!(meter, core => core.force(word, now, charge.owed));
                if let Some(word) = written {
                    self.write(&place, Some(word));
                }
            }
            let word = self.words.get(&place).copied();
            let step = of_any!(meter, core => core.charge(word, now, charge.cost));
            found.push((charge, place, *meter, word, step));
        }
        let passes = found
            .iter()
            .all(|(charge, .., step)| !charge.enforced || step.verdict.is_admitted());
        let mut outcomes = Vec::new();
        for (charge, place, meter, word, step) in found {
            let takes = passes && step.verdict.is_admitted();
            let standing = match step.write.filter(|_| takes) {
                Some(after) => of_any!(meter, core => core.standing(Some(after), now)),
                None => of_any!(meter, core => core.standing(word, now)),
            };
            if takes && request.take {
                if let Some(after) = step.write {
                    self.write(&place, Some(after));
                }
                self.note(charge);
            }
            outcomes.push(outcome(step.verdict, standing, now));
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
        let word = self.words.get(&place).copied();
        let book = self.books.entry(text(&settle.key)).or_default();
        match settle.used.checked_sub(settle.taken) {
            Some(0) => Some(0),
            Some(more) => {
                let (written, unpaid) = of_any!(meter, core => core.force(word, now, more));
                book.charged += more.saturating_sub(unpaid);
                if let Some(word) = written {
                    self.write(&place, Some(word));
                }
                Some(unpaid)
            }
            None => {
                let back = settle.taken - settle.used;
                book.given_back += back;
                let issued = if strictly { settle.issued } else { now };
                let times = if strictly { 1 } else { 2 };
                for _ in 0..times {
                    let word = self.words.get(&place).copied();
                    let refund =
                        |word| of_any!(meter, core => core.refund(word, now, back, issued));
                    if let Some(word) = word.and_then(refund) {
                        self.write(&place, Some(word));
                    }
                }
                Some(0)
            }
        }
    }
}

fn outcome(verdict: Verdict, standing: Standing, issued: Moment) -> SharedOutcome {
    SharedOutcome {
        verdict,
        standing,
        issued,
    }
}
