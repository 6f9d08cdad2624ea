//! Burst credits as a model: two words per key.

use super::told::{answer, at, rate, span};
use super::word::Kept;
use crate::model::{Change, Model, has_no};
use crate::oracle::Answer;
use tollgate::algorithm::credits::{CreditWords, Credits};
use tollgate::{Moment, Verdict};

/// One key with burst credits.
#[derive(Clone, Copy, Debug)]
pub struct CreditSteps {
    credits: Credits,
    peak: Option<Kept>,
    credit: Option<Kept>,
}

impl CreditSteps {
    /// Full credit.
    ///
    /// # Errors
    ///
    /// If the numbers make no limit.
    pub fn new(n: u64, p_ns: u64, mult: u32, dur_ns: u64, slack: u64) -> Result<Self, String> {
        let credits = Credits::new(rate(n, p_ns)?, mult, span(dur_ns), Some(slack))
            .map_err(|error| error.to_string())?;
        Ok(Self {
            credits,
            peak: None,
            credit: None,
        })
    }

    /// Are both rates kept exactly?
    pub fn is_exact(&self) -> bool {
        let (peak, credit) = self.credits.buckets();
        peak.is_exact() && credit.is_exact()
    }

    fn read(&self, now: Moment) -> CreditWords {
        let (peak, credit) = self.credits.buckets();
        CreditWords {
            peak: self.peak.and_then(|kept| kept.read(&peak, now)),
            credit: self.credit.and_then(|kept| kept.read(&credit, now)),
        }
    }

    fn write(&mut self, words: CreditWords, now: Moment) {
        let (peak, credit) = self.credits.buckets();
        self.peak = words.peak.map(|word| Kept::new(&peak, word, now));
        self.credit = words.credit.map(|word| Kept::new(&credit, word, now));
    }

    fn told(&self, verdict: Verdict, now: Moment) -> Answer {
        answer(verdict, self.credits.standing(self.read(now), now))
    }
}

impl Model for CreditSteps {
    fn check(&mut self, t: u64, cost: u64) -> Answer {
        let now = at(t);
        let (verdict, words) = self.credits.charge(self.read(now), now, cost);
        // A query and an impossible request touch nothing, not even to heal.
        if cost > 0 && verdict != Verdict::Never {
            self.write(words, now);
        }
        self.told(verdict, now)
    }

    fn change(&mut self, t: u64, change: Change) -> Result<Answer, String> {
        let Change::Refund { cost, issued } = change else {
            return Err(has_no(change));
        };
        let now = at(t);
        let words = self.credits.refund(self.read(now), now, cost, at(issued));
        self.write(words, now);
        Ok(self.told(Verdict::Pass, now))
    }
}
