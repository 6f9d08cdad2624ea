//! Limiters whose state is one word, and how such a word is kept.

use super::convert::{answer, at, rate, span};
use super::limiter::layout_of;
use crate::model::{Change, KeyModel};
use crate::oracle::Answer;
use crate::parameters::Parameters;
use std::fmt::Debug;
use tollgate::Moment;
use tollgate::algorithm::PackedAlgorithm;
use tollgate::algorithm::bucket::Bucket;
use tollgate::algorithm::queue::Queue;
use tollgate::algorithm::sliding::Sliding;
use tollgate::algorithm::window::Window;

/// A limit whose state is one word, made from the numbers of a timeline.
pub trait Compile: PackedAlgorithm + Debug {
    /// The limit of these numbers.
    ///
    /// # Errors
    ///
    /// If they make no limit, or are of another algorithm.
    fn compile(numbers: &Parameters) -> Result<Self, String>;
}

fn other(numbers: &Parameters) -> String {
    format!("{numbers:?} is of another algorithm")
}

impl Compile for Bucket {
    fn compile(numbers: &Parameters) -> Result<Self, String> {
        match *numbers {
            Parameters::TokenBucket { cap, n, p_ns } => Bucket::new(rate(n, p_ns)?, cap),
            Parameters::Gcra { n, p_ns, tau_ns } => Bucket::gcra(rate(n, p_ns)?, span(tau_ns)),
            _ => return Err(other(numbers)),
        }
        .map_err(|error| error.to_string())
    }
}

impl Compile for Queue {
    fn compile(numbers: &Parameters) -> Result<Self, String> {
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

impl Compile for Window {
    fn compile(numbers: &Parameters) -> Result<Self, String> {
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

impl Compile for Sliding {
    fn compile(numbers: &Parameters) -> Result<Self, String> {
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

/// A word and the era it was written in: words wrap, so a word has a meaning only with its era.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    word: u64,
    era: u64,
}

impl Kept {
    /// `word`, written at `now`.
    pub fn new<L: PackedAlgorithm>(limit: &L, word: u64, now: Moment) -> Self {
        let era = limit.epoch(now).number;
        Self { word, era }
    }

    /// The word as it is to be read at `now`; none if that is a key never used.
    pub fn read<L: PackedAlgorithm>(self, limit: &L, now: Moment) -> Option<u64> {
        let era = limit.epoch(now).number;
        if era > self.era.saturating_add(1) {
            None
        } else if self.era > era.saturating_add(1) {
            Some(limit.repair_after_clock_step(self.word, now))
        } else {
            Some(self.word)
        }
    }
}

/// One key of a limiter that needs one word.
#[derive(Clone, Debug)]
pub struct WordSteps<L> {
    numbers: Parameters,
    pub(super) limit: L,
    kept: Option<Kept>,
}

impl<L: Compile> WordSteps<L> {
    /// A key never used.
    ///
    /// # Errors
    ///
    /// If the numbers make no limit.
    pub fn new(numbers: Parameters) -> Result<Self, String> {
        Ok(Self {
            numbers,
            limit: L::compile(&numbers)?,
            kept: None,
        })
    }

    fn read(&self, now: Moment) -> Option<u64> {
        self.kept.and_then(|kept| kept.read(&self.limit, now))
    }

    fn write(&mut self, word: Option<u64>, now: Moment) {
        self.kept = word.map(|word| Kept::new(&self.limit, word, now));
    }

    fn report(&self, verdict: tollgate::Verdict, now: Moment) -> Answer {
        answer(verdict, self.limit.status(self.read(now), now))
    }
}

impl<L: Compile> KeyModel for WordSteps<L> {
    fn check(&mut self, t: u64, cost: u64) -> Answer {
        let now = at(t);
        let word = self.read(now);
        let step = self.limit.charge(word, now, cost);
        // A state from more than an era ahead was healed by reading it; like every heal, that is
        // written even if the request is refused.
        let healed = self.kept.is_some_and(|kept| Some(kept.word) != word);
        let refused = matches!(step.verdict, tollgate::Verdict::Refuse { .. });
        if let Some(word) = step.write.or(word.filter(|_| healed && refused)) {
            self.write(Some(word), now);
        }
        self.report(step.verdict, now)
    }

    /// A new limit converts the state.
    fn change(&mut self, t: u64, change: Change) -> Result<Answer, String> {
        let now = at(t);
        let word = self.read(now);
        match change {
            Change::Refund { .. } if self.numbers.is_queue() => return Err(change.unsupported()),
            Change::Refund { cost, issued } => {
                let back = |word| self.limit.refund(word, now, cost, at(issued));
                if let Some(word) = word.and_then(back) {
                    self.write(Some(word), now);
                }
            }
            _ => {
                let numbers = self.numbers.with(change)?;
                let limit = L::compile(&numbers)?.keeping_layout_of(&self.limit);
                let word = word.and_then(|word| limit.convert(&self.limit, word, now));
                (self.numbers, self.limit) = (numbers, limit);
                self.write(word, now);
            }
        }
        Ok(self.report(tollgate::Verdict::Pass, now))
    }
}
