//! An operation in flight that several requests wait for.
//!
//! Every poll drives it, so it survives callers that leave.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// A task that owns all that it needs.
pub(super) type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A handle of an operation in flight. It ends when the operation has ended.
pub(super) struct Flight {
    shared: Arc<Shared>,
    /// The index of this handle's waker.
    place: u64,
}

struct Shared(Mutex<State>);

struct State {
    stage: Stage,
    /// Whether the task was woken while it was polled.
    is_woken: bool,
    wakers: BTreeMap<u64, Waker>,
    places: u64,
}

enum Stage {
    Idle(Task),
    Polled,
    Ended,
}

impl Flight {
    pub(super) fn new(task: impl Future<Output = ()> + Send + 'static) -> Flight {
        let shared = Arc::new(Shared(Mutex::new(State {
            stage: Stage::Idle(Box::pin(task)),
            is_woken: false,
            wakers: BTreeMap::new(),
            places: 0,
        })));
        Flight { shared, place: 0 }
    }
}

impl Clone for Flight {
    fn clone(&self) -> Flight {
        let mut state = self.shared.lock();
        state.places += 1;
        let place = state.places;
        drop(state);
        Flight {
            shared: Arc::clone(&self.shared),
            place,
        }
    }
}

impl std::fmt::Debug for Flight {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Flight")
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts the task back, or records that it has ended. Every waiter is woken at the end.
    fn put_back(&self, stage: Stage) -> bool {
        let mut state = self.lock();
        let is_ended = matches!(stage, Stage::Ended);
        state.stage = stage;
        let woken = match is_ended {
            true => std::mem::take(&mut state.wakers),
            false => BTreeMap::new(),
        };
        let is_woken = std::mem::take(&mut state.is_woken);
        drop(state);
        woken.into_values().for_each(Waker::wake);
        is_woken && !is_ended
    }
}

impl Wake for Shared {
    fn wake(self: Arc<Self>) {
        let mut state = self.lock();
        state.is_woken = true;
        // The next poll stores its waker again.
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        wakers.into_values().for_each(Waker::wake);
    }
}

/// Ends the flight if the task panics, so that no waiter hangs.
struct EndOnPanic<'a>(&'a Shared, bool);

impl Drop for EndOnPanic<'_> {
    fn drop(&mut self) {
        if self.1 {
            self.0.put_back(Stage::Ended);
        }
    }
}

impl Future for Flight {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        loop {
            let mut state = self.shared.lock();
            let mut task = match std::mem::replace(&mut state.stage, Stage::Polled) {
                Stage::Ended => {
                    state.stage = Stage::Ended;
                    return Poll::Ready(());
                }
                Stage::Polled => {
                    state.wakers.insert(self.place, context.waker().clone());
                    return Poll::Pending;
                }
                Stage::Idle(task) => task,
            };
            state.is_woken = false;
            state.wakers.insert(self.place, context.waker().clone());
            drop(state);
            let mut ends = EndOnPanic(&self.shared, true);
            let waker = Waker::from(Arc::clone(&self.shared));
            let polled = task.as_mut().poll(&mut Context::from_waker(&waker));
            ends.1 = false;
            match polled {
                Poll::Ready(()) => {
                    self.shared.put_back(Stage::Ended);
                    return Poll::Ready(());
                }
                Poll::Pending => {
                    if !self.shared.put_back(Stage::Idle(task)) {
                        return Poll::Pending;
                    }
                    // Woken during a poll: the woken waiter found the task in use.
                }
            }
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let waker = self.shared.lock().wakers.remove(&self.place);
        drop(waker);
    }
}

/// Waits for all of these, and drives them meanwhile.
pub(super) async fn all(mut flights: Vec<Flight>) {
    poll_fn(|context| {
        flights.retain_mut(|flight| Pin::new(flight).poll(context).is_pending());
        match flights.is_empty() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
}
