//! A turn that was given: the place under way, and what is told of how it was used.

use std::time::Duration;

use super::Turnstile;
use super::state::{Given, Watch};

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

    /// How to tell that the time is not the backend's. None if it is not timed, because nothing is learned
    /// from it.
    pub fn sent_whole(&self) -> Option<SentWhole> {
        Some(SentWhole {
            watch: self.given.watch()?,
            turnstile: self.turnstile.clone(),
            is_stopped: false,
        })
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

/// Tells a queue which part of a turn's time is the backend's: none of it while a client still sends.
///
/// A [`crate::QueueLayer`] leaves it in the extensions of requests whose answers are timed. To hold it does
/// not hold the turn, and what is told after the turn's end is not listened to.
#[derive(Clone, Debug)]
pub struct SentWhole {
    turnstile: Turnstile,
    watch: Watch,
    is_stopped: bool,
}

impl SentWhole {
    /// The client has yet to send: until [`SentWhole::now`] no time counts, and an answer before that tells
    /// only whether it [failed](Outcome::Failed).
    pub fn later(&mut self) {
        if !std::mem::replace(&mut self.is_stopped, true) {
            let watch = self.watch;
            self.turnstile.act(|state, _| state.stop_clock(watch));
        }
    }

    /// Was it told that the client has yet to send?
    pub fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// The backend has all of it: its time counts from now on.
    pub fn now(self) {
        let watch = self.watch;
        self.turnstile
            .act(|state, now| state.start_clock(now, watch));
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.end(Outcome::Unknown);
    }
}
