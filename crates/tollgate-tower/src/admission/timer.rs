//! The timer task of a queue, its clock, and the wakers that are called after the lock is released.
//!
//! One task per queue dispatches when the rate allows it, rejects requests that have waited too long, and counts
//! requests that exceed the adaptive timeout as failed. The first request that waits starts the task. It sleeps until
//! the next event and is notified only if an event moves closer; an obsolete event wakes it once in vain. It ends with
//! the queue. If its runtime ends first, all waiting requests are woken, and the first one polled starts a new task.

use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use tollgate::Moment;

use super::Shared;
use super::state::State;

/// The longest single sleep: a task that wakes early looks again.
const MAX_SLEEP: Duration = Duration::from_secs(3600);

/// Tokio's clock, so that tests can pause and advance it.
#[derive(Clone, Copy, Debug)]
pub(super) struct RuntimeClock {
    origin: Instant,
}

impl RuntimeClock {
    pub(super) fn new() -> RuntimeClock {
        RuntimeClock {
            origin: Instant::now(),
        }
    }

    pub(super) fn now(self) -> Moment {
        let since = Instant::now().saturating_duration_since(self.origin);
        Moment::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }

    /// When to wake for `moment`, at the latest.
    fn wake_at(self, moment: Moment) -> Instant {
        let sleep = Duration::from(moment.since(self.now())).min(MAX_SLEEP);
        Instant::now() + sleep
    }
}

/// Wakers collected under the lock. A single one, the usual case, allocates nothing.
#[derive(Debug, Default)]
pub(super) struct Wakers {
    first: Option<Waker>,
    more: Vec<Waker>,
}

impl Wakers {
    pub(super) fn add(&mut self, waker: Option<Waker>) {
        if self.first.is_none() {
            self.first = waker;
        } else {
            self.more.extend(waker);
        }
    }

    /// Wakes all of them. Never under the lock: a waker may run the task at once, or drop it.
    pub(super) fn wake(self) {
        self.first
            .into_iter()
            .chain(self.more)
            .for_each(Waker::wake);
    }
}

/// What the timer task needs once the lock is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the next event would be missed"]
pub(super) enum TimerUpdate {
    Nothing,
    /// The next event is earlier than the task expects.
    Notify,
    /// No task runs.
    Spawn,
}

impl TimerUpdate {
    /// What keeps the next event from being missed.
    pub(super) fn needed_by(state: &mut State) -> TimerUpdate {
        if !state.advance_alarm() {
            return TimerUpdate::Nothing;
        }
        if state.has_timer {
            return TimerUpdate::Notify;
        }
        if Handle::try_current().is_err() {
            // A request that waits does so on a runtime, and starts the task when it is polled.
            state.alarm = None;
            return TimerUpdate::Nothing;
        }
        state.has_timer = true;
        TimerUpdate::Spawn
    }

    pub(super) fn apply(self, shared: &Arc<Shared>) {
        match self {
            TimerUpdate::Nothing => {}
            TimerUpdate::Notify => shared.timer.notify_one(),
            TimerUpdate::Spawn => {
                let guard = TimerGuard(Arc::downgrade(shared));
                // A runtime that is shutting down drops the task, and with it the guard.
                if let Ok(runtime) = Handle::try_current() {
                    runtime.spawn(run(guard, Arc::clone(&shared.timer)));
                }
            }
        }
    }
}

async fn run(guard: TimerGuard, notified: Arc<Notify>) {
    loop {
        let wake_at = {
            // The task must not keep the queue alive while it sleeps.
            let Some(shared) = guard.0.upgrade() else {
                return;
            };
            let mut wakers = Wakers::default();
            let next = {
                let mut state = shared.lock();
                state.advance(shared.clock.now(), &mut wakers);
                state.alarm = state.next_event();
                state.alarm
            };
            wakers.wake();
            next.map(|next| shared.clock.wake_at(next))
        };
        match wake_at {
            Some(at) => {
                let _ = timeout_at(at, notified.notified()).await;
            }
            None => notified.notified().await,
        }
    }
}

/// Held by the timer task. When it drops, the next request that is polled starts another task.
struct TimerGuard(Weak<Shared>);

impl Drop for TimerGuard {
    fn drop(&mut self) {
        let Some(shared) = self.0.upgrade() else {
            return;
        };
        let mut wakers = Wakers::default();
        {
            let mut state = shared.lock();
            state.has_timer = false;
            state.alarm = None;
            state.wake_all(&mut wakers);
        }
        wakers.wake();
    }
}
