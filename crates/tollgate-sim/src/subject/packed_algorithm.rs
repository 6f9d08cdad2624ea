//! Limiters whose state is one word, and the stored form of such a word.

use super::convert::{answer, at, rate, span};
use super::limiter::layout_of;
use crate::model::{KeyModel, ModelChange};
use crate::oracle::OracleDecision;
use crate::parameters::Parameters;
use std::fmt::Debug;
use tollgate::Moment;
use tollgate::algorithm::PackedAlgorithm;
use tollgate::algorithm::bucket::Bucket;
use tollgate::algorithm::queue::Queue;
use tollgate::algorithm::sliding::Sliding;
use tollgate::algorithm::window::Window;

/// A limit whose state is one word, made from the numbers of a timeline.
pub trait FromParameters: PackedAlgorithm + Debug {
    /// The limit of these numbers.
    ///
    /// # Errors
    ///
    /// If they make no limit, or are of another algorithm.
    fn from_parameters(numbers: &Parameters) -> Result<Self, String>;
}

fn other(numbers: &Parameters) -> String {
    format!("{numbers:?} is of another algorithm")
}

impl FromParameters for Bucket {
    fn from_parameters(numbers: &Parameters) -> Result<Self, String> {
        match *numbers {
            Parameters::TokenBucket { cap, n, p_ns } => Bucket::new(rate(n, p_ns)?, cap),
            Parameters::TokenDebt { cap, n, p_ns, debt } => {
                Bucket::new(rate(n, p_ns)?, cap).and_then(|bucket| bucket.with_debt(debt))
            }
            Parameters::Gcra { n, p_ns, tau_ns } => Bucket::gcra(rate(n, p_ns)?, span(tau_ns)),
            _ => return Err(other(numbers)),
        }
        .map_err(|error| error.to_string())
    }
}

impl FromParameters for Queue {
    fn from_parameters(numbers: &Parameters) -> Result<Self, String> {
        let Parameters::LeakyQueue {
            queue,
            n,
            p_ns,
            max_wait_ns,
        } = *numbers
        else {
            return Err(other(numbers));
        };
        Queue::new(rate(n, p_ns)?, queue, max_wait_ns.map(span)).map_err(|error| error.to_string())
    }
}

impl FromParameters for Window {
    fn from_parameters(numbers: &Parameters) -> Result<Self, String> {
        let Parameters::FixedWindow {
            limit,
            window_ns,
            anchor_ns,
        } = *numbers
        else {
            return Err(other(numbers));
        };
        Window::new(limit, span(window_ns), span(anchor_ns)).map_err(|error| error.to_string())
    }
}

impl FromParameters for Sliding {
    fn from_parameters(numbers: &Parameters) -> Result<Self, String> {
        let (Parameters::SlidingCounter {
            limit, window_ns, ..
        }
        | Parameters::SpanCounter {
            limit, window_ns, ..
        }) = *numbers
        else {
            return Err(other(numbers));
        };
        let layout = layout_of(numbers).ok_or_else(|| other(numbers))?;
        Sliding::with_layout(limit, span(window_ns), layout).map_err(|error| error.to_string())
    }
}

/// A word and the epoch of its write. Words wrap, so a word has a meaning only with its epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochWord {
    word: u64,
    epoch: u64,
}

impl EpochWord {
    /// `word`, written at `now`.
    pub fn new<L: PackedAlgorithm>(limit: &L, word: u64, now: Moment) -> Self {
        let epoch = limit.epoch(now).number;
        Self { word, epoch }
    }

    /// The word as it is to be read at `now`; none if that is a key never used.
    pub fn read<L: PackedAlgorithm>(self, limit: &L, now: Moment) -> Option<u64> {
        let epoch = limit.epoch(now).number;
        if epoch > self.epoch.saturating_add(1) {
            None
        } else if self.epoch > epoch.saturating_add(1) {
            Some(limit.repair_after_clock_step(self.word, now))
        } else {
            Some(self.word)
        }
    }
}

/// One key of a limiter that needs one word.
#[derive(Clone, Debug)]
pub struct PackedModel<L> {
    numbers: Parameters,
    pub(super) limit: L,
    stored: Option<EpochWord>,
}

impl<L: FromParameters> PackedModel<L> {
    /// A key never used.
    ///
    /// # Errors
    ///
    /// If the numbers make no limit.
    pub fn new(numbers: Parameters) -> Result<Self, String> {
        Ok(Self {
            numbers,
            limit: L::from_parameters(&numbers)?,
            stored: None,
        })
    }

    fn read(&self, now: Moment) -> Option<u64> {
        self.stored.and_then(|stored| stored.read(&self.limit, now))
    }

    fn write(&mut self, word: Option<u64>, now: Moment) {
        self.stored = word.map(|word| EpochWord::new(&self.limit, word, now));
    }

    fn report(&self, verdict: tollgate::Verdict, now: Moment) -> OracleDecision {
        answer(verdict, self.limit.status(self.read(now), now))
    }
}

impl<L: FromParameters> KeyModel for PackedModel<L> {
    fn check(&mut self, t: u64, cost: u64) -> OracleDecision {
        let now = at(t);
        let word = self.read(now);
        let step = self.limit.charge(word, now, cost);
        // A state from more than one epoch ahead is repaired when it is read. Like every repair, it is
        // written even if the request is refused.
        let repaired = self.stored.is_some_and(|stored| Some(stored.word) != word);
        let refused = matches!(step.verdict, tollgate::Verdict::Refuse { .. });
        if let Some(word) = step.write.or(word.filter(|_| repaired && refused)) {
            self.write(Some(word), now);
        }
        self.report(step.verdict, now)
    }

    /// A new limit converts the state.
    fn change(&mut self, t: u64, change: ModelChange) -> Result<OracleDecision, String> {
        let now = at(t);
        let word = self.read(now);
        match change {
            ModelChange::Refund { .. } if self.numbers.is_queue() => {
                return Err(change.unsupported());
            }
            ModelChange::Refund { cost, issued } => {
                let back = |word| self.limit.refund(word, now, cost, at(issued));
                if let Some(word) = word.and_then(back) {
                    self.write(Some(word), now);
                }
            }
            ModelChange::Late { cost } => {
                if let (Some(word), _) = self.limit.charge_saturating(word, now, cost) {
                    self.write(Some(word), now);
                }
            }
            _ => {
                let numbers = self.numbers.with(change)?;
                let limit = L::from_parameters(&numbers)?.keeping_layout_of(&self.limit);
                let word = word.and_then(|word| limit.convert(&self.limit, word, now));
                (self.numbers, self.limit) = (numbers, limit);
                self.write(word, now);
            }
        }
        Ok(self.report(tollgate::Verdict::Pass, now))
    }
}
