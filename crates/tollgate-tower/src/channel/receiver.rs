//! The end that items come out of.

use std::fmt;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::task::JoinSet;
use tollgate::{Clock, MonotonicClock};

use super::Shared;
use crate::slots::{Alarm, instant_of};

/// Takes items out, at the rate.
pub struct Receiver<T, C = MonotonicClock> {
    shared: Arc<Shared<T, C>>,
    alarm: Alarm,
}

impl<T, C> Receiver<T, C> {
    pub(super) fn new(shared: Arc<Shared<T, C>>) -> Receiver<T, C> {
        Receiver {
            shared,
            alarm: Alarm::default(),
        }
    }

    /// Takes nothing in from now on. What waits still comes out.
    pub fn close(&mut self) {
        self.shared.close();
    }

    /// Items that wait.
    pub fn len(&self) -> usize {
        self.shared.state().queue.len()
    }

    /// Does nothing wait?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T, C: Clock> Receiver<T, C> {
    /// The next item, when it may come out. None when the channel is closed and nothing waits any more. Can be
    /// dropped while it waits: no item is lost.
    pub async fn recv(&mut self) -> Option<T> {
        poll_fn(|context| self.poll_recv(context)).await
    }

    /// The same for those who poll.
    pub fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Option<T>> {
        let Shared { clock, spin, .. } = &*self.shared;
        self.watch_the_clock();
        let mut state = self.shared.state();
        if let Some(item) = state.queue.due(clock.now()) {
            drop(state);
            self.shared.changed.notify_waiters();
            return Poll::Ready(Some(item));
        }
        let next = state.queue.next_at();
        if next.is_none() && state.is_closed {
            return Poll::Ready(None);
        }
        state.receiver = Some(context.waker().clone());
        drop(state);
        if let Some(next) = next
            && !self
                .alarm
                .set(instant_of(clock, next.minus(*spin)), context.waker())
        {
            context.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Waits for what is due within the time that it may spin.
    fn watch_the_clock(&self) {
        let Shared { clock, spin, .. } = &*self.shared;
        if spin.is_zero() {
            return;
        }
        let Some(next) = self.shared.state().queue.next_at() else {
            return;
        };
        // A clock that stands still is not watched.
        let mut readings = 0_u32;
        while (1..=spin.as_nanos()).contains(&next.since(clock.now()).as_nanos()) {
            std::hint::spin_loop();
            readings += 1;
            if readings > 200_000 {
                return;
            }
        }
    }

    /// Runs `worker` for every item as it comes out, at most `at_once` of them at the same time, until the
    /// channel is closed, nothing waits and all are done. While `at_once` are under way nothing comes out, and
    /// what is late then is not made good unless [`super::Settings::catch_up`] says so. Dropped, it stops the
    /// workers.
    ///
    /// # Panics
    /// A worker panicked: so does this.
    pub async fn drain<F, W>(mut self, at_once: usize, mut worker: F)
    where
        F: FnMut(T) -> W,
        W: Future<Output = ()> + Send + 'static,
    {
        let mut workers = JoinSet::new();
        let ended = |ended: Result<(), tokio::task::JoinError>| {
            if let Err(error) = ended
                && let Ok(panicked) = error.try_into_panic()
            {
                std::panic::resume_unwind(panicked);
            }
        };
        loop {
            while let Some(done) = workers.try_join_next() {
                ended(done);
            }
            while workers.len() >= at_once.max(1) {
                if let Some(done) = workers.join_next().await {
                    ended(done);
                }
            }
            match self.recv().await {
                Some(item) => drop(workers.spawn(worker(item))),
                None => break,
            }
        }
        while let Some(done) = workers.join_next().await {
            ended(done);
        }
    }
}

impl<T, C> Drop for Receiver<T, C> {
    fn drop(&mut self) {
        self.shared.close();
        // Items are dropped outside the lock: they may hold senders of this very channel.
        drop(self.shared.take_all());
    }
}

impl<T, C> fmt::Debug for Receiver<T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").finish_non_exhaustive()
    }
}
