//! The asynchronous part of a fair queue: which requests wait, which one is next, and how many are in flight.
//!
//! # Theory
//!
//! An admission queue protects a backend of limited capacity. A request is admitted at once if no request waits, the
//! concurrency limit has room and the rate allows it. Otherwise it waits in a
//! [fair queue](tollgate::shape::fair_queue), each flow by its weight, and every released permit admits the next one.
//!
//! | bound | what it bounds |
//! |---|---|
//! | `at_once` | requests in flight: a fixed number, or one that adapts to samples |
//! | `at_once_per_flow` | requests in flight of one flow; other flows overtake a flow at this limit |
//! | `rate` | dispatches: a token bucket, see `dispatch_rate`; a cost above the burst waits for a full bucket and empties it |
//! | load shedding | [`AdmissionQueue::set_scale`] scales all of them down for a while |
//!
//! A sample is the time from admission (or from [`ServiceTimer::restart`]) to [`QueuePermit::record`] or
//! [`QueuePermit::finish`], the number of requests in flight when it started, and its [`BackendOutcome`]. A request that
//! exceeds the adaptive `timeout` counts as [`BackendOutcome::Overloaded`] at that moment, even while it continues.
//!
//! Load shedding leaves at least 1 in flight, but may go below the `min` of an adaptive limit: `min` bounds what is
//! learned. An adaptive limit may fall below `at_once_per_flow`; one flow can then occupy all of it.
//!
//! # Invariant
//!
//! | at most | of |
//! |---|---|
//! | `at_once` | permits that are granted and not released |
//! | `at_once_per_flow` | such permits of one flow |
//! | `total`, `per_flow` | waiting requests, in all and of one flow |
//! | `max_wait` plus about 1 ms (timer granularity) | waiting time |
//!
//! A permit is released exactly once: when it is finished or dropped, or when its request is cancelled before it takes it.
//! Costs that the weights cannot order (above `2^28` per unit of weight) count as the largest cost that they can.
//!
//! # Cost
//!
//! One lock to arrive and one to leave, each for a few steps of the queue. Nothing is allocated once the queue has grown
//! to its usual size. Wakers are called after the lock is released. There is one timer task per queue, and none
//! while no request waits, unless the limit is adaptive.
//!
//! # Limits
//!
//! The queue cannot see whether a client is still connected: the server must drop the future of
//! [`AdmissionQueue::acquire`]. Waiting needs a tokio runtime with its timer.

mod concurrency_limit;
mod dispatch;
mod dispatch_rate;
mod permit;
mod state;
mod stats;
mod timer;
mod wait_estimate;
mod waiter_list;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tollgate::{Moment, Scale, Span};
use tollgate_policy::{QueuePlace, QueueRule};

pub use self::permit::{Acquire, BackendOutcome, QueuePermit, ServiceTimer};
use self::state::State;
pub use self::stats::{QueueStats, ServedCounts, UnservedCounts, WaitHistogram};
use self::timer::{RuntimeClock, TimerUpdate, Wakers};

/// A fair queue with its capacity. Clones share it.
#[derive(Clone, Debug)]
pub struct AdmissionQueue {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    clock: RuntimeClock,
    state: Mutex<State>,
    /// Wakes the timer task.
    timer: Arc<Notify>,
}

/// A request is not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// Why.
    pub reason: RejectReason,
    /// When a retry is worthwhile: an estimate by the number of waiting requests and the recent dispatches of all flows.
    /// With a rate and no `at_once` it is the time that the rate takes for all waiting requests. Between 1 ms and 60 s,
    /// and at most `max_wait`.
    pub retry_after: Span,
}

/// Why a request is not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RejectReason {
    /// Too many requests of its flow wait.
    FlowFull,
    /// Too many requests wait, and its flow has the most of them.
    QueueFull,
    /// It waited, and made room for a flow with fewer waiting requests.
    Displaced,
    /// It would exceed, or has exceeded, the `max_wait` of the queue.
    MaxWait,
}

/// A queue rule that cannot work.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueError {
    /// The name of the queue.
    pub queue: Arc<str>,
    /// What is wrong with it.
    pub problem: String,
}

impl fmt::Display for QueueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "queue `{}` is unusable: {}", self.queue, self.problem)
    }
}

impl std::error::Error for QueueError {}

impl AdmissionQueue {
    /// An empty queue.
    ///
    /// # Errors
    /// A rule that would admit nothing, or never make a request wait.
    pub fn new(rule: &QueueRule) -> Result<AdmissionQueue, QueueError> {
        let clock = RuntimeClock::new();
        Ok(AdmissionQueue {
            shared: Arc::new(Shared {
                clock,
                state: Mutex::new(State::new(rule, clock)?),
                timer: Arc::new(Notify::new()),
            }),
        })
    }

    /// Applies another rule. Waiting requests keep their places, under the new `max_wait`. Requests in flight, samples
    /// and the state of the rate stay. Parts of the rule that [`AdmissionQueue::new`] would reject change nothing.
    pub fn change(&self, rule: &QueueRule) {
        self.update(|state, _| state.change(rule));
    }

    /// Scales the concurrency limits and the rate: load shedding.
    pub fn set_scale(&self, scale: Scale) {
        self.update(|state, _| state.set_scale(scale));
    }

    /// Waits for a permit.
    pub fn acquire(&self, place: &QueuePlace) -> Acquire {
        Acquire::new(self.clone(), *place)
    }

    /// A snapshot of the counters.
    pub fn stats(&self) -> QueueStats {
        self.shared.lock().stats()
    }

    /// Changes the state, then dispatches the requests that the change admits.
    fn update<R>(&self, change: impl FnOnce(&mut State, Moment) -> R) -> R {
        let mut wakers = Wakers::default();
        let (result, timer) = {
            let mut state = self.shared.lock();
            let now = self.shared.clock.now();
            let result = change(&mut state, now);
            state.advance(now, &mut wakers);
            (result, TimerUpdate::needed_by(&mut state))
        };
        timer.apply(&self.shared);
        wakers.wake();
        result
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // The timer task ends when the queue was dropped.
        self.timer.notify_one();
    }
}

/// The queues of one policy, in its order.
#[derive(Debug, Default)]
pub struct QueueSet {
    queues: Vec<(QueueRule, AdmissionQueue)>,
}

impl QueueSet {
    /// The queues of a policy. Queues of `previous` with the same name are kept, under their old rules until
    /// [`QueueSet::apply`].
    ///
    /// # Errors
    /// A rule that cannot work.
    pub fn new(rules: &[QueueRule], previous: Option<&QueueSet>) -> Result<QueueSet, QueueError> {
        let kept = |name: &str| {
            let mut queues = previous.iter().flat_map(|previous| &previous.queues);
            queues.find(|(old, _)| *old.name == *name)
        };
        let queue = |rule: &QueueRule| {
            // Also for a kept queue: its new rule has to work.
            let new = AdmissionQueue::new(rule)?;
            let queue = kept(&rule.name).map_or(new, |(_, queue)| queue.clone());
            Ok((rule.clone(), queue))
        };
        let queues = rules.iter().map(queue).collect::<Result<_, QueueError>>()?;
        Ok(QueueSet { queues })
    }

    /// Applies the new rules to the queues that were kept.
    pub fn apply(&self) {
        for (rule, queue) in &self.queues {
            queue.change(rule);
        }
    }

    /// A queue, by its index in the policy.
    pub fn get(&self, index: usize) -> Option<&AdmissionQueue> {
        self.queues.get(index).map(|(_, queue)| queue)
    }

    /// All queues with their rules.
    pub fn iter(&self) -> impl Iterator<Item = (&QueueRule, &AdmissionQueue)> {
        self.queues.iter().map(|(rule, queue)| (rule, queue))
    }
}
