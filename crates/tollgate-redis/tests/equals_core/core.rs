//! The core's own algorithms, one state for each key, as the memory store would run them.

use std::cell::Cell;

use tollgate::algorithm::PackedAlgorithm;
use tollgate::algorithm::bucket::Bucket;
use tollgate::algorithm::concurrency::Permits;
use tollgate::algorithm::log::{Log, Ring};
use tollgate::algorithm::queue::Queue;
use tollgate::algorithm::sliding::Sliding;
use tollgate::algorithm::window::Window;
use tollgate::{Algorithm, Limit, Moment, QuotaStatus, Verdict};

/// A limit and the state of one key.
#[derive(Clone)]
pub(crate) enum Core {
    Bucket(EpochWord<Bucket>),
    Queue(EpochWord<Queue>),
    Window(EpochWord<Window>),
    Sliding(EpochWord<Sliding>),
    Permits(EpochWord<Permits>),
    Log(Log, Vec<Cell<u64>>),
}

/// A word and the epoch that it was written in.
#[derive(Clone)]
pub(crate) struct EpochWord<L> {
    limit: L,
    word: Option<(u64, u64)>,
}

/// The answer to a charge, and the states afterwards.
pub(crate) struct CoreDecision {
    pub(crate) verdict: Verdict,
    pub(crate) before: QuotaStatus,
    pub(crate) after: QuotaStatus,
    pub(crate) issued: Moment,
    /// If it is taken.
    pub(crate) taken: Core,
    /// If it is not: as it was, or repaired.
    pub(crate) left: Core,
}

impl<L: PackedAlgorithm> EpochWord<L> {
    fn new(limit: L) -> Self {
        EpochWord { limit, word: None }
    }

    fn at(&self, now: Moment) -> Option<u64> {
        let (word, epoch) = self.word?;
        let now_epoch = self.limit.epoch(now).number;
        if now_epoch > epoch + 1 {
            None
        } else if now_epoch + 1 < epoch {
            Some(self.limit.repair_after_clock_step(word, now))
        } else {
            Some(word)
        }
    }

    fn with(&self, word: Option<u64>, now: Moment) -> Self {
        let epoch = self.limit.epoch(now).number;
        EpochWord {
            limit: self.limit,
            word: word.map(|word| (word, epoch)),
        }
    }

    fn decide(&self, now: Moment, cost: u64, wrap: impl Fn(Self) -> Core) -> CoreDecision {
        let word = self.at(now);
        let step = self.limit.charge(word, now, cost);
        // A repair is written, by the store or by the limit itself, also when it yields the same bits: they
        // then mean another time.
        let ahead = |epoch: u64| self.limit.epoch(now).number + 1 < epoch;
        let repaired = word.filter(|_| self.word.is_some_and(|(_, epoch)| ahead(epoch)));
        let repaired = repaired.filter(|_| matches!(step.verdict, Verdict::Refuse { .. }));
        let then = match step.write.or(repaired) {
            Some(word) => self.with(Some(word), now),
            None => self.clone(),
        };
        let admitted = step.verdict.is_admitted();
        let before = self.limit.status(word, now);
        CoreDecision {
            verdict: step.verdict,
            before,
            after: if admitted {
                self.limit.status(step.write.or(word), now)
            } else {
                before
            },
            issued: now,
            taken: wrap(if admitted { then.clone() } else { self.clone() }),
            left: wrap(if admitted { self.clone() } else { then }),
        }
    }

    fn charge_saturating(&mut self, now: Moment, cost: u64) -> u64 {
        let (write, unpaid) = self.limit.charge_saturating(self.at(now), now, cost);
        if write.is_some() {
            *self = self.with(write, now);
        }
        unpaid
    }

    /// What is as if never used is forgotten.
    fn refund(&mut self, now: Moment, cost: u64, issued: Moment) {
        let refunded = |word| self.limit.refund(word, now, cost, issued);
        if let Some(word) = self.at(now).and_then(refunded) {
            *self = self.with((!self.limit.is_unused(word, now)).then_some(word), now);
        }
    }
}

impl Core {
    /// With the debt of a limit, and the backlog that it keeps of another one.
    pub(crate) fn for_limit(limit: &Limit) -> Core {
        let bucket = |bucket: Bucket| {
            let bucket = bucket.with_debt(limit.max_debt()).unwrap();
            Core::Bucket(EpochWord::new(bucket.with_backlog(limit.backlog())))
        };
        match Core::new(*limit.algorithm()) {
            Core::Bucket(word) => bucket(word.limit),
            Core::Queue(word) => {
                Core::Queue(EpochWord::new(word.limit.with_backlog(limit.backlog())))
            }
            other => other,
        }
    }

    pub(crate) fn new(algorithm: Algorithm) -> Core {
        match algorithm {
            Algorithm::TokenBucket { rate, burst } => {
                Core::Bucket(EpochWord::new(Bucket::new(rate, burst).unwrap()))
            }
            Algorithm::Gcra { rate, tolerance } => {
                Core::Bucket(EpochWord::new(Bucket::gcra(rate, tolerance).unwrap()))
            }
            Algorithm::LeakyBucket {
                rate,
                queue,
                max_wait,
            } => Core::Queue(EpochWord::new(Queue::new(rate, queue, max_wait).unwrap())),
            Algorithm::FixedWindow {
                limit,
                window,
                anchor,
            } => Core::Window(EpochWord::new(Window::new(limit, window, anchor).unwrap())),
            Algorithm::SlidingWindow {
                limit,
                window,
                estimate,
            } => Core::Sliding(EpochWord::new(
                Sliding::new(limit, window, estimate).unwrap(),
            )),
            Algorithm::Concurrency { limit, ttl } => {
                Core::Permits(EpochWord::new(Permits::new(limit, ttl).unwrap()))
            }
            Algorithm::SlidingLog { limit, window } => {
                let log = Log::new(limit, window).unwrap();
                Core::Log(log, vec![Cell::new(0); log.cells()])
            }
        }
    }

    pub(crate) fn decide(&self, now: Moment, cost: u64) -> CoreDecision {
        match self {
            Core::Bucket(w) => w.decide(now, cost, Core::Bucket),
            Core::Queue(w) => w.decide(now, cost, Core::Queue),
            Core::Window(w) => w.decide(now, cost, Core::Window),
            Core::Sliding(w) => w.decide(now, cost, Core::Sliding),
            Core::Permits(w) => w.decide(now, cost, Core::Permits),
            Core::Log(log, cells) => {
                let before = log.status(Ring::over(cells).unwrap(), now);
                let then = cells.clone();
                let ring = Ring::over(&then).unwrap();
                let (verdict, after) = log.charge(ring, now, cost, true);
                let admitted = verdict.is_admitted();
                let issued = if admitted && cost > 0 {
                    ring.newest().unwrap_or(now)
                } else {
                    now
                };
                let (taken, left) = if admitted {
                    (then, cells.clone())
                } else {
                    (cells.clone(), then)
                };
                CoreDecision {
                    verdict,
                    before,
                    after,
                    issued,
                    taken: Core::Log(*log, taken),
                    left: Core::Log(*log, left),
                }
            }
        }
    }

    pub(crate) fn charge_saturating(&mut self, now: Moment, cost: u64) -> u64 {
        match self {
            Core::Bucket(w) => w.charge_saturating(now, cost),
            Core::Queue(w) => w.charge_saturating(now, cost),
            Core::Window(w) => w.charge_saturating(now, cost),
            Core::Sliding(w) => w.charge_saturating(now, cost),
            Core::Permits(w) => w.charge_saturating(now, cost),
            Core::Log(log, cells) => log.charge_saturating(Ring::over(cells).unwrap(), now, cost),
        }
    }

    pub(crate) fn refund(&mut self, now: Moment, cost: u64, issued: Moment) {
        match self {
            Core::Bucket(w) => w.refund(now, cost, issued),
            Core::Queue(w) => w.refund(now, cost, issued),
            Core::Window(w) => w.refund(now, cost, issued),
            Core::Sliding(w) => w.refund(now, cost, issued),
            Core::Permits(w) => w.refund(now, cost, issued),
            Core::Log(log, cells) => log.refund(Ring::over(cells).unwrap(), cost, issued),
        }
    }
}
