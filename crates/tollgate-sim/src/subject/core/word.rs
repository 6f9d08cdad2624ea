//! Limiters whose state is one word, and how such a word is kept.

use super::spec::Spec;
use super::told::{answer, at};
use crate::model::{Change, Model};
use crate::oracle::{Answer, Verdict};
use tollgate::Moment;
use tollgate::algorithm::OneWord;

/// A word and the era it was written in: words wrap, and only together do they mean something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    word: u64,
    era: u64,
}

impl Kept {
    /// `word`, written at `now`.
    pub fn new<L: OneWord>(limit: &L, word: u64, now: Moment) -> Self {
        let era = limit.era(now).number;
        Self { word, era }
    }

    /// The word as it is to be read at `now`; none if that is a key never used.
    pub fn read<L: OneWord>(self, limit: &L, now: Moment) -> Option<u64> {
        let era = limit.era(now).number;
        if era > self.era.saturating_add(1) {
            None
        } else if self.era > era.saturating_add(1) {
            Some(limit.heal(self.word, now))
        } else {
            Some(self.word)
        }
    }
}

/// One key of a limiter that needs one word.
#[derive(Clone, Debug)]
pub struct WordSteps<S: Spec> {
    spec: S,
    limit: S::Limit,
    kept: Option<Kept>,
}

impl<S: Spec> WordSteps<S> {
    /// A key never used.
    ///
    /// # Errors
    ///
    /// If the numbers make no limit.
    pub fn new(spec: S) -> Result<Self, String> {
        let limit = spec.compile()?;
        Ok(Self {
            spec,
            limit,
            kept: None,
        })
    }

    /// The greatest cost that can ever pass.
    pub fn capacity(&self) -> u64 {
        self.limit.capacity()
    }

    /// What the numbers say.
    pub fn spec(&self) -> &S {
        &self.spec
    }

    fn read(&self, now: Moment) -> Option<u64> {
        self.kept.and_then(|kept| kept.read(&self.limit, now))
    }

    fn write(&mut self, word: Option<u64>, now: Moment) {
        self.kept = word.map(|word| Kept::new(&self.limit, word, now));
    }

    fn told(&self, verdict: tollgate::Verdict, now: Moment) -> Answer {
        answer(verdict, self.limit.status(self.read(now), now))
    }

    /// Another limit; the state is carried over.
    fn convert(&mut self, now: Moment, spec: S) -> Result<(), String> {
        let limit = spec.compile()?.succeeding(&self.limit);
        let word = self
            .read(now)
            .and_then(|word| limit.convert(&self.limit, word, now));
        (self.spec, self.limit) = (spec, limit);
        self.write(word, now);
        Ok(())
    }
}

impl<S: Spec> Model for WordSteps<S> {
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
        self.told(step.verdict, now)
    }

    fn change(&mut self, t: u64, change: Change) -> Result<Answer, String> {
        let now = at(t);
        match change {
            Change::Refund { cost, issued } => {
                self.spec.allow_refund()?;
                let word = self.read(now);
                let back = |word| self.limit.refund(word, now, cost, at(issued));
                if let Some(word) = word.and_then(back) {
                    self.write(Some(word), now);
                }
            }
            _ => {
                let spec = self.spec.changed(change)?;
                self.convert(now, spec)?;
            }
        }
        Ok(self.told(tollgate::Verdict::Pass, now))
    }

    fn reason(&self, t: u64, cost: u64) -> Option<&'static str> {
        let told = self.peek(t, cost);
        let refused = matches!(told.verdict, Verdict::Refuse { .. });
        // There is room and still it is refused: then for the wait, and only queues have one.
        (self.spec.has_max_wait() && refused && told.remaining >= cost).then_some("max_wait")
    }
}
