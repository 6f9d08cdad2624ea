//! Real threads on the same keys at once: nothing is admitted twice, and nothing is lost.
//!
//! # Theory
//!
//! Random histories run on one thread, and a model checker exhausts a handful of steps of
//! two threads. In between lie events that happen once in millions: a swap that fails on its second try, a
//! slot that moves while it is charged, a thread that is put to sleep with a lock in its hand. On a
//! paused clock nothing is earned, so however the threads are interleaved, a key that is
//! charged with more than its limit admits *exactly* its limit: one more is a unit charged by two threads
//! at once, one less is a unit lost between them. This holds in any order of events.
//!
//! On a real clock a key admits what it held plus at most what it earned meanwhile.
//!
//! # What it does not know
//!
//! Which interleavings it met. A run that passes proves nothing; one that fails proves a mistake.

mod gate;
mod growth;
mod limiter;
mod outcome;
mod workers;

pub use self::outcome::ThreadOutcome;
pub use self::workers::{ChargeBlock, Workers};

use self::growth::while_the_table_grows;
use tollgate::{ManualClock, Moment, Rate, Span};

/// Many threads that charge one limiter, and the outcome that must follow.
#[derive(Clone, Copy, Debug)]
pub struct ThreadScenario {
    /// What is charged.
    pub name: &'static str,
    run: fn(&mut Workers<'_>) -> Result<ThreadOutcome, String>,
}

/// All of them, in the order in which they are run.
pub const SCENARIOS: [ThreadScenario; 8] = [
    ThreadScenario::new("token bucket", limiter::token_bucket),
    ThreadScenario::new("gate of two", gate::all_or_none),
    ThreadScenario::new("token bucket on a real clock", limiter::on_a_real_clock),
    ThreadScenario::new("fixed window", limiter::fixed_window),
    ThreadScenario::new("sliding window", limiter::sliding_window),
    ThreadScenario::new(
        "sliding window with spans",
        limiter::sliding_window_with_spans,
    ),
    ThreadScenario::new("leaky bucket", limiter::leaky_bucket),
    ThreadScenario::new("token buckets in a growing table", while_the_table_grows),
];

impl ThreadScenario {
    const fn new(
        name: &'static str,
        run: fn(&mut Workers<'_>) -> Result<ThreadOutcome, String>,
    ) -> Self {
        Self { name, run }
    }

    /// Has `workers` make its charges.
    ///
    /// # Errors
    ///
    /// If there is no such limit, or a thread panicked.
    pub fn run(&self, workers: &mut Workers<'_>) -> Result<ThreadOutcome, String> {
        (self.run)(workers)
    }
}

/// What a key may take at once if `charges` are made in all: so little that most are refused, so much
/// that those that pass meet each other often.
fn burst(charges: u64) -> u64 {
    (charges / 10).max(1)
}

/// A stopped clock, far from its origin.
fn still() -> ManualClock {
    let clock = ManualClock::new();
    clock.set(Moment::from_nanos(1 << 50));
    clock
}

/// `units` per second.
fn per_second(units: u64) -> Result<Rate, String> {
    Rate::new(units, Span::from_secs(1)).map_err(|error| error.to_string())
}
