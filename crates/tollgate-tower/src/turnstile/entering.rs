//! The future of somebody who wants a turn.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tollgate_policy::QueuePlace;

use super::pacer::Call;
use super::state::Arrival;
use super::wakes::Wakes;
use super::{Turn, Turned, Turnstile};

/// Somebody who wants a turn: see [`Turnstile::enter`].
///
/// It arrives when it is first polled. Dropped before its turn, it leaves the queue as if it had never
/// come; dropped when its turn was given but not yet taken, the turn goes to the next.
#[derive(Debug)]
#[must_use = "nobody stands in the queue until this is polled"]
pub struct Entering {
    turnstile: Turnstile,
    place: QueuePlace,
    /// Where it is counted.
    account: Option<usize>,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Fresh,
    /// In this place of the roll.
    Waits(usize),
    Done,
}

impl Entering {
    pub(super) fn new(turnstile: Turnstile, place: QueuePlace) -> Entering {
        Entering {
            turnstile,
            place,
            account: None,
            stage: Stage::Fresh,
        }
    }
}

impl Future for Entering {
    type Output = Result<Turn, Turned>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let waker = cx.waker();
        let shared = &this.turnstile.shared;
        let mut wakes = Wakes::default();
        let (told, call) = {
            let mut state = shared.lock();
            // Read under the lock, so that whoever comes later is never earlier.
            let now = shared.now();
            state.look(now, &mut wakes);
            if this.stage == Stage::Fresh {
                this.account = state.account(this.place.tier);
            }
            let told = match this.stage {
                Stage::Done => None,
                Stage::Waits(slot) => state.hear(slot, waker, &mut wakes),
                Stage::Fresh => match state.arrive(now, &this.place, waker, &mut wakes) {
                    Arrival::Given(given) => Some(Ok(given)),
                    Arrival::Turned(turned) => Some(Err(turned)),
                    Arrival::Waits(slot) => {
                        this.stage = Stage::Waits(slot);
                        None
                    }
                },
            };
            if let Some(Ok(given)) = &told {
                state.count_served(this.account, given);
            }
            (told, Call::of(&mut state))
        };
        call.make(shared);
        wakes.wake();
        let Some(told) = told else {
            return Poll::Pending;
        };
        this.stage = Stage::Done;
        Poll::Ready(told.map(|given| Turn::new(this.turnstile.clone(), given)))
    }
}

impl Drop for Entering {
    fn drop(&mut self) {
        if let Stage::Waits(slot) = self.stage {
            drop(self.turnstile.act(|state, _| state.go_away(slot)));
        }
    }
}
