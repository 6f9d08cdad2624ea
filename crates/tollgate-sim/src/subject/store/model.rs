//! A limiter with a single key as a model, to be compared like the pure steps.

use super::super::core::told::at;
use super::limiter::LimiterSubject;
use crate::model::{Change, Model};
use crate::oracle::Answer;
use tollgate::{Algorithm, ManualClock};

/// The one key.
const KEY: &str = "key";

/// A limiter with one key. A clone is the same limiter, not a copy of its state.
#[derive(Clone, Debug)]
pub struct StoreModel {
    subject: LimiterSubject,
}

impl StoreModel {
    /// A limiter that nobody has used.
    ///
    /// # Errors
    ///
    /// If the numbers make no limit.
    pub fn new(algorithm: Algorithm) -> Result<Self, String> {
        let subject = LimiterSubject::new(algorithm, ManualClock::new())?;
        Ok(Self { subject })
    }
}

impl Model for StoreModel {
    fn check(&mut self, t: u64, cost: u64) -> Answer {
        self.subject.time().set(at(t));
        self.subject.charge(KEY, cost)
    }

    /// Not on a clone, which would charge the original: the limiter itself can tell.
    fn peek(&self, t: u64, cost: u64) -> Answer {
        self.subject.time().set(at(t));
        self.subject.peek(KEY, cost)
    }

    fn change(&mut self, t: u64, change: Change) -> Result<Answer, String> {
        self.subject.time().set(at(t));
        self.subject.change(KEY, change)?;
        Ok(self.subject.peek(KEY, 0))
    }
}
