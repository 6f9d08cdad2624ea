//! The async side of a queue: who waits, whose turn it is, and how many are under way.
//!
//! # Theory
//!
//! A turnstile stands in front of a backend that bears only so much. Whoever comes is given a turn at
//! once if nobody waits, a place is free and the rate allows it; otherwise they wait in a
//! [fair queue](tollgate::shape::fair_queue), each flow by its weight, and every turn that ends lets the
//! next one go. Four things bound what goes:
//!
//! - `at_once`: how many are under way, a fixed number or one that is learned from how they end: the time
//!   from when a turn was given, or [sent whole](SentWhole), to when it was [answered](Turn::answered) or [finished](Turn::finish),
//!   how many were under way when it began, and whether it [failed](Outcome::Failed). What takes longer
//!   than the `timeout` counts as failed as soon as that has passed, even while it goes on.
//! - `at_once_per_flow`: how many of one flow are under way. A flow that has so many is passed over until one
//!   of its own turns ends, so a client whose turns take long holds so many and leaves the others. It bounds
//!   with `at_once` or with a `rate` alone. An `at_once` that is learned may fall below it; then one flow can
//!   hold all there is.
//! - `rate`: a token bucket that each turn is paid from, see `pace`. A request that costs more than the
//!   burst waits for a full bucket and empties it.
//! - pressure: [`Turnstile::set_scale`] makes all of them smaller for a while. `at_once` is never below 1 then,
//!   but may be below the `min` of an adaptive one: `min` bounds what is learned.
//!
//! # Invariant
//!
//! Never more than `at_once` turns are given and not over, nor more than `at_once_per_flow` of one flow. A turn ends exactly once: when it is finished
//! or dropped, or when whoever it was given to went away before taking it. Nobody waits longer than
//! `max_wait`, give or take the millisecond that timers are good to. At most `total` wait, `per_flow` of
//! one flow. Costs that weights cannot order (more than `2^28` per unit of weight) are taken for the
//! largest that can.
//!
//! # What it costs
//!
//! One lock for coming and one for going, held for the few steps of the queue, and no allocation once
//! the queue has grown to its usual size. Wakers are called when the lock is let go. There is one timer
//! for the whole turnstile, and none while nobody waits, unless `at_once` is learned.
//!
//! # What it does not know
//!
//! What it is a turn for. It also cannot see whether a client is still there: whoever serves it drops the
//! future of [`Turnstile::enter`]. It needs a tokio runtime with its timer to wait on.

mod at_once;
mod entering;
mod ledger;
mod outlook;
mod pace;
mod pacer;
mod report;
mod roll;
mod set;
mod state;
mod time;
mod turn;
mod wakes;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tollgate::{Clock, Moment, Scale, Span};
use tollgate_policy::{QueuePlace, QueueRule};

pub use self::entering::Entering;
use self::pacer::Call;
pub use self::report::{QueueReport, Served, Unserved, Waits};
pub use self::set::QueueSet;
use self::state::State;
use self::time::RuntimeClock;
pub use self::turn::{Outcome, SentWhole, Turn};
use self::wakes::Wakes;

/// A queue with its capacity. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Turnstile {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    clock: RuntimeClock,
    state: Mutex<State>,
    /// Wakes the pacer.
    bell: Arc<Notify>,
}

/// No turn will come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turned {
    /// Why.
    pub why: Why,
    /// When it is worth coming back: an estimate, by what waits and how those who waited were lately given
    /// turns, whatever their flow. With a rate and no `at_once` it is how long the rate takes for all that waits. At least 1 ms; at most 60 s
    /// and, unless that is less, `max_wait`.
    pub retry_after: Span,
}

/// Why no turn will come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Why {
    /// Too many of the same flow wait.
    FlowFull,
    /// Too many wait in all, and this flow has the most of them.
    Full,
    /// It waited, and made room for a flow that had fewer.
    Displaced,
    /// It would have waited, or has waited, for longer than the queue lets anybody.
    TooLong,
}

/// Why a queue cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QueueError {
    /// It would never let anything through, or everything.
    Unusable {
        /// Its name.
        name: Arc<str>,
        /// What is wrong.
        why: String,
    },
}

impl fmt::Display for QueueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unusable { name, why } => write!(f, "the queue `{name}` cannot be: {why}"),
        }
    }
}

impl std::error::Error for QueueError {}

impl Turnstile {
    /// An empty queue.
    ///
    /// # Errors
    /// A queue that would never let anything through, or never let anybody wait.
    pub fn new(rule: &QueueRule) -> Result<Turnstile, QueueError> {
        let clock = RuntimeClock::new();
        let state = State::new(rule, clock)?;
        let shared = Arc::new(Shared {
            clock,
            state: Mutex::new(state),
            bell: Arc::new(Notify::new()),
        });
        Ok(Turnstile { shared })
    }

    /// Goes on under another rule. Who waits keeps waiting, where they stand and under the new
    /// `max_wait`; what is under way keeps its place; what was learned and what was used of the rate
    /// stay. Parts of the rule that cannot be, as [`Turnstile::new`] would tell, change nothing.
    pub fn change(&self, rule: &QueueRule) {
        self.act(|state, _| state.change(rule));
    }

    /// Gives everybody less for a while: so much of what may be under way and of the rate.
    pub fn set_scale(&self, scale: Scale) {
        self.act(|state, _| state.set_scale(scale));
    }

    /// Waits for a turn. Whoever drops the future gives the place back and has cost nothing.
    pub fn enter(&self, place: &QueuePlace) -> Entering {
        Entering::new(self.clone(), *place)
    }

    /// How things stand.
    pub fn report(&self) -> QueueReport {
        self.shared.lock().report()
    }

    /// Does something that may free a place, and gives the turns that come of it.
    fn act<R>(&self, act: impl FnOnce(&mut State, Moment) -> R) -> R {
        let mut wakes = Wakes::default();
        let (result, call) = {
            let mut state = self.shared.lock();
            let now = self.shared.now();
            let result = act(&mut state, now);
            state.look(now, &mut wakes);
            (result, Call::of(&mut state))
        };
        call.make(&self.shared);
        wakes.wake();
        result
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Moment {
        self.clock.now()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // So that the pacer sees that there is nothing to pace any more.
        self.bell.notify_one();
    }
}
