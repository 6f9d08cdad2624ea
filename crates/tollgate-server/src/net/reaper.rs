//! Closes connections that are longer in a phase than they may be, so that none needs a timer of its own.
//!
//! # Theory
//!
//! A connection with its own timer and its own shutdown signal would register for both at every request. Here it waits
//! for bytes alone. The accept loop keeps the list of its connections and looks at each state once a [`TICK`].

use std::pin::pin;
use std::sync::{Arc, Weak};

use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::state::{ConnectionState, Phase, Staleness};
use super::{GRACE, ListenLimits, TICK, ticks};

/// The connections of one accept loop.
#[derive(Debug, Default)]
pub(super) struct IdleReaper {
    connections: Vec<Tracked>,
}

#[derive(Debug)]
struct Tracked {
    /// Weak: what the state holds is free as soon as its connection ends, not at the next tick.
    state: Weak<ConnectionState>,
    staleness: Staleness,
    task: AbortHandle,
}

impl IdleReaper {
    /// Tracks a connection until its task ends.
    pub(super) fn track(&mut self, state: &Arc<ConnectionState>, task: AbortHandle) {
        self.connections.push(Tracked {
            state: Arc::downgrade(state),
            staleness: Staleness::default(),
            task,
        });
    }

    /// Closes overdue connections and forgets ended ones. To be called once every [`TICK`].
    pub(super) fn tick(&mut self, limits: &ListenLimits) {
        self.connections.retain_mut(|tracked| {
            let Some(state) = tracked.state.upgrade() else {
                return false;
            };
            if tracked.task.is_finished() {
                return false;
            }
            if !tracked.staleness.is_overdue(&state, TICK, limits) {
                return true;
            }
            // An idle connection ends by itself, so that HTTP/2 sends a GOAWAY first. It has one tick for that.
            if state.is_in(Phase::Idle) && !state.is_shutting_down() {
                state.shut_down();
                return true;
            }
            tracked.task.abort();
            false
        });
    }

    /// Asks all connections to end.
    fn shut_down(&self) {
        let states = self.connections.iter().map(|tracked| &tracked.state);
        states
            .filter_map(Weak::upgrade)
            .for_each(|state| state.shut_down());
    }

    /// Asks all connections to end, except new ones. Returns the new ones: their first request may be in the
    /// system's buffer, and no read has seen it yet.
    pub(super) fn shut_down_used(&mut self) -> IdleReaper {
        let is_new = |tracked: &mut Tracked| {
            let state = tracked.state.upgrade();
            state.is_some_and(|state| state.is_new())
        };
        let connections = self.connections.extract_if(.., is_new).collect();
        self.shut_down();
        IdleReaper { connections }
    }

    fn abort_all(&self) {
        self.connections
            .iter()
            .for_each(|tracked| tracked.task.abort());
    }
}

/// Waits for the end of all connections, and aborts what has not ended after [`ListenLimits::drain`].
///
/// `used` was asked to end already. `new` connections had not sent anything at the shutdown. They are asked [`GRACE`]
/// later, because their first requests may be on their way. Returns when all permits of `room` are back.
pub(super) async fn drain(
    mut used: IdleReaper,
    mut new: IdleReaper,
    room: &Semaphore,
    permits: usize,
    limits: &ListenLimits,
) {
    let all_permits = u32::try_from(permits).unwrap_or(u32::MAX);
    // An incomplete head may be completed, but does not hold up the shutdown.
    let hasty = ListenLimits {
        head: TICK,
        ..*limits
    };
    let ended = timeout(limits.drain, async {
        sleep(GRACE).await;
        new.shut_down();
        let mut all_ended = pin!(room.acquire_many(all_permits));
        let mut tick = ticks();
        loop {
            tokio::select! {
                biased;
                _ = &mut all_ended => return,
                _ = tick.tick() => {
                    used.tick(&hasty);
                    new.tick(&hasty);
                }
            }
        }
    });
    if ended.await.is_err() {
        used.abort_all();
        new.abort_all();
        // An aborted task is dropped when its thread comes to it.
        let _ = timeout(TICK, room.acquire_many(all_permits)).await;
    }
}
