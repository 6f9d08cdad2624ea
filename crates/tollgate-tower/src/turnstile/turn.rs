//! A turn that was given: the place under way, and what is told of how it was used.

use std::time::Duration;

use super::Turnstile;
use super::state::Given;

/// Permission to go ahead. The next may go when it is finished or dropped.
#[derive(Debug)]
#[must_use = "dropped at once, the turn is over before it was used"]
pub struct Turn {
    turnstile: Turnstile,
    given: Given,
    is_over: bool,
}

/// How what went ahead ended, as far as it tells what the backend bears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was answered.
    Answered,
    /// It failed in a way that speaks of overload: no answer in time, no connection, 503.
    Failed,
    /// Nobody knows, for example because the client went away. Nothing is learned from it.
    Unknown,
}

impl Turn {
    pub(super) fn new(turnstile: Turnstile, given: Given) -> Turn {
        Turn {
            turnstile,
            given,
            is_over: false,
        }
    }

    /// How long it was waited for.
    pub fn waited(&self) -> Duration {
        self.given.waited.into()
    }

    /// Tells what became of this one, and keeps its place: for an answer whose head has come and whose
    /// body still takes up the backend. What is told afterwards is not listened to.
    pub fn answered(&mut self, outcome: Outcome) {
        let given = &mut self.given;
        if !given.is_watched() {
            return;
        }
        self.turnstile
            .act(|state, now| state.learn(now, given, outcome));
    }

    /// Lets the next one go, and tells what became of this one.
    pub fn finish(mut self, outcome: Outcome) {
        self.end(outcome);
    }

    fn end(&mut self, outcome: Outcome) {
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        let given = &mut self.given;
        self.turnstile.act(|state, now| {
            state.learn(now, given, outcome);
            state.end(given);
        });
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.end(Outcome::Unknown);
    }
}
