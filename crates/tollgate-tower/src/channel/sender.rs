//! The end that items go in at.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use tollgate::shape::Refused;
use tollgate::{Clock, Moment, MonotonicClock, Span};

use super::Shared;
use crate::slots::sleep;

/// Puts items in. Clones are for the same channel.
pub struct Sender<T, C = MonotonicClock> {
    shared: Arc<Shared<T, C>>,
}

/// An item that was not taken in, and is given back.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendError<T> {
    /// There is no room.
    Full {
        /// The item.
        item: T,
        /// The shortest wait after which there is room, if the receiver is in time and nobody else comes.
        retry_after: Span,
    },
    /// It costs more than the channel ever holds.
    Never(T),
    /// Nobody takes items out any more.
    Closed(T),
}

impl<T> SendError<T> {
    /// The item.
    pub fn into_item(self) -> T {
        match self {
            Self::Full { item, .. } | Self::Never(item) | Self::Closed(item) => item,
        }
    }
}

impl<T> fmt::Debug for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Full { .. } => "Full",
            Self::Never(_) => "Never",
            Self::Closed(_) => "Closed",
        };
        f.debug_struct(name).finish_non_exhaustive()
    }
}

impl<T> fmt::Display for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full { retry_after, .. } => {
                write!(f, "the channel is full; try again in {retry_after}")
            }
            Self::Never(_) => {
                f.write_str("this costs more than the channel ever holds; raise its `queue`")
            }
            Self::Closed(_) => f.write_str("the channel is closed"),
        }
    }
}

impl<T> std::error::Error for SendError<T> {}

impl<T, C: Clock> Sender<T, C> {
    pub(super) fn new(shared: Arc<Shared<T, C>>) -> Sender<T, C> {
        Sender { shared }
    }

    /// Puts an item of one unit in, and tells when it comes out if nobody is late.
    ///
    /// # Errors
    /// There is no room, or the channel is closed; the item is given back.
    pub fn try_send(&self, item: T) -> Result<Moment, SendError<T>> {
        self.try_send_cost(1, item)
    }

    /// Puts an item of `cost` units in; a cost of zero counts as one.
    ///
    /// # Errors
    /// As [`Sender::try_send`].
    pub fn try_send_cost(&self, cost: u64, item: T) -> Result<Moment, SendError<T>> {
        let mut state = self.shared.state();
        if state.is_closed {
            return Err(SendError::Closed(item));
        }
        // Read under the lock, so that items come out in the order of the moments that they are told.
        let now = self.shared.clock.now();
        let offered = state.queue.offer(now, cost, item);
        // It looks for itself when something waits already.
        let receiver = match state.queue.len() {
            1 if offered.is_ok() => state.receiver.take(),
            _ => None,
        };
        drop(state);
        if let Some(receiver) = receiver {
            receiver.wake();
        }
        offered.map_err(|Refused { item, retry_after }| match retry_after {
            Some(retry_after) => SendError::Full { item, retry_after },
            None => SendError::Never(item),
        })
    }

    /// Puts an item of one unit in when there is room. Those who wait get room in the order in which they
    /// came. Dropped while it waits, it drops the item.
    ///
    /// # Errors
    /// The channel is closed; the item is given back.
    pub async fn send(&self, item: T) -> Result<Moment, SendError<T>> {
        self.send_cost(1, item).await
    }

    /// Puts an item of `cost` units in when there is room.
    ///
    /// # Errors
    /// The channel is closed, or never has room for so much; the item is given back.
    pub async fn send_cost(&self, cost: u64, item: T) -> Result<Moment, SendError<T>> {
        let shared = &*self.shared;
        let Ok(_turn) = shared.turn.acquire().await else {
            return Err(SendError::Closed(item));
        };
        let mut item = item;
        loop {
            // Before it is tried, so that no change is missed in between.
            let mut changed = pin!(shared.changed.notified());
            changed.as_mut().enable();
            let retry_after = match self.try_send_cost(cost, item) {
                Err(SendError::Full {
                    item: back,
                    retry_after,
                }) => {
                    item = back;
                    retry_after
                }
                done => return done,
            };
            if self.is_stalled() {
                changed.await;
                continue;
            }
            let mut room = pin!(sleep(retry_after.into()));
            poll_fn(|context| {
                let changed = changed.as_mut().poll(context);
                let room = room.as_mut().poll(context);
                if changed.is_ready() || room.is_ready() {
                    Poll::Ready(())
                } else {
                    Poll::Pending
                }
            })
            .await;
        }
    }

    /// Is something due that the receiver has not taken? Then time alone makes no room.
    fn is_stalled(&self) -> bool {
        let state = self.shared.state();
        let now = self.shared.clock.now();
        state.queue.next_at().is_some_and(|next| next <= now)
    }

    /// Units waiting or in service.
    pub fn level(&self) -> u64 {
        let state = self.shared.state();
        state.queue.level(self.shared.clock.now())
    }

    /// Is nothing taken in any more?
    pub fn is_closed(&self) -> bool {
        self.shared.state().is_closed
    }
}

impl<T, C> Clone for Sender<T, C> {
    fn clone(&self) -> Sender<T, C> {
        self.shared.state().senders += 1;
        let shared = Arc::clone(&self.shared);
        Sender { shared }
    }
}

impl<T, C> Drop for Sender<T, C> {
    fn drop(&mut self) {
        let is_last = {
            let mut state = self.shared.state();
            state.senders -= 1;
            state.senders == 0
        };
        if is_last {
            self.shared.close();
        }
    }
}

impl<T, C> fmt::Debug for Sender<T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").finish_non_exhaustive()
    }
}
