//! The one timer of a turnstile: a task that looks when something happens by itself.
//!
//! It gives turns when the rate has earned them, turns away who waited too long, and counts as failed
//! what takes too long. It is started by the first who waits, sleeps until the next such moment, and
//! is told only if that moment comes nearer; a moment that has become needless wakes it once for
//! nothing. It ends with the turnstile. If the runtime that it runs on ends first, everybody who waits
//! is woken, and the first to be polled starts another.

use std::sync::{Arc, Weak};

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::timeout_at;

use super::Shared;
use super::state::State;
use super::wakes::Wakes;

/// What the pacer must be told, once the lock is let go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a moment that nobody waits for would pass unseen"]
pub(super) enum Call {
    Nothing,
    /// Its moment comes sooner than it thinks.
    Ring,
    /// There is none.
    Start,
}

impl Call {
    /// What must be done so that the next moment is not missed.
    pub(super) fn of(state: &mut State) -> Call {
        if !state.set_alarm() {
            return Call::Nothing;
        }
        if state.is_pacer_there {
            return Call::Ring;
        }
        if Handle::try_current().is_err() {
            // Whoever waits does so on a runtime and will see to it when polled.
            state.alarm = None;
            return Call::Nothing;
        }
        state.is_pacer_there = true;
        Call::Start
    }

    pub(super) fn make(self, shared: &Arc<Shared>) {
        match self {
            Call::Nothing => {}
            Call::Ring => shared.bell.notify_one(),
            Call::Start => start(shared),
        }
    }
}

fn start(shared: &Arc<Shared>) {
    let post = Post {
        turnstile: Arc::downgrade(shared),
    };
    let bell = Arc::clone(&shared.bell);
    match Handle::try_current() {
        // Not even started, it is dropped properly if the runtime is going down.
        Ok(runtime) => drop(runtime.spawn(pace(post, bell))),
        Err(_) => drop(post),
    }
}

async fn pace(post: Post, bell: Arc<Notify>) {
    loop {
        let wake_at = {
            // The turnstile is not kept alive while this sleeps.
            let Some(shared) = post.turnstile.upgrade() else {
                return;
            };
            let mut wakes = Wakes::default();
            let next = {
                let mut state = shared.lock();
                state.look(shared.now(), &mut wakes);
                state.alarm = state.next_event();
                state.alarm
            };
            wakes.wake();
            next.map(|next| shared.clock.wake_at(next))
        };
        match wake_at {
            Some(at) => {
                let _ = timeout_at(at, bell.notified()).await;
            }
            None => bell.notified().await,
        }
    }
}

/// Held by the pacer while it is there.
struct Post {
    turnstile: Weak<Shared>,
}

impl Drop for Post {
    fn drop(&mut self) {
        let Some(shared) = self.turnstile.upgrade() else {
            return;
        };
        let mut wakes = Wakes::default();
        {
            let mut state = shared.lock();
            state.is_pacer_there = false;
            state.alarm = None;
            state.wake_all(&mut wakes);
        }
        wakes.wake();
    }
}
