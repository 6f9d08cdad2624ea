//! Waiting for a permit of a queue, and the permit itself.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tollgate_policy::QueuePlace;

use super::state::{Arrival, Grant, SampleKey};
use super::timer::{TimerUpdate, Wakers};
use super::{AdmissionQueue, Rejected};

/// The wait for a permit; see [`AdmissionQueue::acquire`].
///
/// The request arrives when this is first polled. Dropped while it waits, it leaves the queue and has cost nothing;
/// dropped after its permit was granted, the permit goes to the next request.
#[derive(Debug)]
#[must_use = "the request joins the queue when this is polled"]
pub struct Acquire {
    queue: AdmissionQueue,
    place: QueuePlace,
    /// The index of its tier's counter.
    counter: Option<usize>,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    New,
    /// In this slot of the waiter list.
    Waiting(usize),
    Done,
}

impl Acquire {
    pub(super) fn new(queue: AdmissionQueue, place: QueuePlace) -> Acquire {
        Acquire {
            queue,
            place,
            counter: None,
            stage: Stage::New,
        }
    }
}

impl Future for Acquire {
    type Output = Result<QueuePermit, Rejected>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let waker = cx.waker();
        let shared = &this.queue.shared;
        let mut wakers = Wakers::default();
        let (result, timer) = {
            let mut state = shared.lock();
            // Read under the lock, so that arrival times are in the order of arrival.
            let now = shared.clock.now();
            state.advance(now, &mut wakers);
            let result = match this.stage {
                Stage::Done => None,
                Stage::Waiting(slot) => state.take_result(slot, waker, &mut wakers),
                Stage::New => {
                    this.counter = state.tier_counter(this.place.tier);
                    match state.arrive(now, &this.place, waker, &mut wakers) {
                        Arrival::Decided(result) => Some(result),
                        Arrival::Waiting(slot) => {
                            this.stage = Stage::Waiting(slot);
                            None
                        }
                    }
                }
            };
            if let Some(Ok(grant)) = &result {
                state.count_served(this.counter, grant);
            }
            (result, TimerUpdate::needed_by(&mut state))
        };
        timer.apply(shared);
        wakers.wake();
        let Some(result) = result else {
            return Poll::Pending;
        };
        this.stage = Stage::Done;
        Poll::Ready(result.map(|grant| QueuePermit {
            queue: this.queue.clone(),
            grant,
            is_released: false,
        }))
    }
}

impl Drop for Acquire {
    fn drop(&mut self) {
        if let Stage::Waiting(slot) = self.stage {
            drop(self.queue.update(|state, _| state.cancel(slot)));
        }
    }
}

/// Permission to call the backend. The next request may go when it is finished or dropped.
#[derive(Debug)]
#[must_use = "dropping the permit releases it before it was used"]
pub struct QueuePermit {
    queue: AdmissionQueue,
    grant: Grant,
    is_released: bool,
}

/// How a request ended, as a sample of what the backend can bear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendOutcome {
    /// The backend answered.
    Answered,
    /// The backend is overloaded: no answer in time, no connection, 503.
    Overloaded,
    /// No sample, for example because the client disconnected.
    Ignored,
}

impl QueuePermit {
    /// How long the request waited.
    pub fn waited(&self) -> Duration {
        self.grant.waited.into()
    }

    /// The timer of this request's sample. `None` if the limit takes no samples.
    pub fn service_timer(&self) -> Option<ServiceTimer> {
        Some(ServiceTimer {
            key: self.grant.sample?,
            queue: self.queue.clone(),
            is_paused: false,
        })
    }

    /// Records the outcome and keeps the permit: for a response whose head has arrived and whose body still occupies
    /// the backend. Later outcomes are ignored.
    pub fn record(&mut self, outcome: BackendOutcome) {
        if self.grant.sample.is_some() {
            let grant = &mut self.grant;
            self.queue
                .update(|state, now| state.record(now, grant, outcome));
        }
    }

    /// Records the outcome and releases the permit.
    pub fn finish(mut self, outcome: BackendOutcome) {
        self.release(outcome);
    }

    fn release(&mut self, outcome: BackendOutcome) {
        if std::mem::replace(&mut self.is_released, true) {
            return;
        }
        let grant = &mut self.grant;
        self.queue.update(|state, now| {
            state.record(now, grant, outcome);
            state.release(grant);
        });
    }
}

impl Drop for QueuePermit {
    fn drop(&mut self) {
        self.release(BackendOutcome::Ignored);
    }
}

/// Controls which part of a request's time counts as the backend's: none while the client still uploads.
///
/// A [`crate::QueueLayer`] puts it into the extensions of requests that are timed. It does not hold the permit, and
/// after the permit's release it has no effect.
#[derive(Clone, Debug)]
pub struct ServiceTimer {
    queue: AdmissionQueue,
    key: SampleKey,
    is_paused: bool,
}

impl ServiceTimer {
    /// Stops the timer until [`ServiceTimer::restart`]. A response before that is a sample only if it reports
    /// [`BackendOutcome::Overloaded`].
    pub fn pause(&mut self) {
        if !std::mem::replace(&mut self.is_paused, true) {
            let key = self.key;
            self.queue.update(|state, _| state.pause_sample(key));
        }
    }

    /// Whether the timer is paused.
    pub fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Restarts the timer: the backend has the whole request.
    pub fn restart(self) {
        let key = self.key;
        self.queue
            .update(|state, now| state.restart_sample(now, key));
    }
}
