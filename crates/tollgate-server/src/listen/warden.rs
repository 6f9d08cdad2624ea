//! Closes idle connections on the fast path, so that each needs no timer of its own.
//!
//! # Theory
//!
//! A connection that waits for three things at once (bytes, a clock, the word to stop) asks for all three
//! whenever one of them happens, which is once for every request. In the lane it waits for bytes alone.
//! The loop that accepts connections has a list of them and looks at every pulse once a second: one that
//! stood still for too long is ended. When the server stops, it tells them, and each ends itself between
//! two requests.

use std::pin::pin;
use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::pulse::{Beat, Pulse};
use super::{GRACE, ListenLimits, TICK, ticks};

/// The connections of one loop.
#[derive(Debug, Default)]
pub(super) struct Warden {
    wards: Vec<Ward>,
}

#[derive(Debug)]
struct Ward {
    pulse: Arc<Pulse>,
    beat: Beat,
    task: AbortHandle,
}

impl Warden {
    /// Looks after a connection from now on, if there is one.
    pub(super) fn add(&mut self, connection: Option<(Arc<Pulse>, AbortHandle)>) {
        self.wards.extend(connection.map(|(pulse, task)| Ward {
            pulse,
            beat: Beat::default(),
            task,
        }));
    }

    /// To be called once every [`TICK`]: ends what stood still, forgets what has ended.
    pub(super) fn look(&mut self, limits: &ListenLimits) {
        self.wards.retain_mut(|ward| {
            if !ward.pulse.is_in_lane() || ward.task.is_finished() {
                return false;
            }
            let is_overdue = ward.beat.is_overdue(&ward.pulse, TICK, limits);
            if is_overdue {
                ward.task.abort();
            }
            !is_overdue
        });
    }

    /// The server stops: whoever has nothing to answer ends now, the others afterwards.
    pub(super) fn tell_to_end(&self) {
        self.wards.iter().for_each(|ward| ward.pulse.hurry());
    }

    /// The drain is over.
    pub(super) fn end_all(&self) {
        let in_lane = self.wards.iter().filter(|ward| ward.pulse.is_in_lane());
        in_lane.for_each(|ward| ward.task.abort());
    }
}

/// Ends what is in flight after the word to stop: `early` has heard it, `late` was made just before it and
/// is told a moment later, because what it was made for may be on its way. Comes back when all of `room` is
/// free again, or when the time for that is over.
pub(super) async fn drain(
    mut early: Warden,
    mut late: Warden,
    room: &Semaphore,
    places: usize,
    limits: &ListenLimits,
) {
    let everything = u32::try_from(places).unwrap_or(u32::MAX);
    // Who has begun to ask may end that, but does not hold up everybody.
    let hasty = ListenLimits {
        head: TICK,
        ..*limits
    };
    let ended = timeout(limits.drain, async {
        sleep(GRACE).await;
        late.tell_to_end();
        let mut all = pin!(room.acquire_many(everything));
        let mut tick = ticks();
        loop {
            tokio::select! {
                biased;
                _ = &mut all => return,
                _ = tick.tick() => {
                    early.look(&hasty);
                    late.look(&hasty);
                }
            }
        }
    });
    if ended.await.is_err() {
        // Those that are not in the lane end themselves within a tick.
        early.end_all();
        late.end_all();
        let _ = timeout(TICK, room.acquire_many(everything)).await;
    }
}
