//! A bounded channel whose items come out at a constant rate: a leaky bucket with a worker behind it.
//!
//! # Theory
//!
//! [`tollgate::shape::LeakyQueue`] decides what is taken in and what may come out; this adds the waiting.
//! Senders take one short lock and never wait unless they ask to. The one receiver sleeps until the next item
//! is due, on the exact timer of [`crate::slots`].
//!
//! # Invariant
//!
//! Items come out in order, never faster than the rate in any window, measured when they are handed out.
//! Lateness of the receiver (the timer, the runtime, the worker) costs output; [`Settings::catch_up`] makes
//! it good up to a bound, [`Settings::spin`] avoids the timer's part of it. At most `queue` units wait.
//!
//! # Ends
//!
//! As with tokio's channels: when the last [`Sender`] is dropped or the receiver is closed, what waits still
//! comes out, at the rate, and then nothing. When the [`Receiver`] is dropped, what waits is dropped, and
//! senders get their items back. [`Receiver::recv`] loses nothing if it is dropped while it waits.
//!
//! ```
//! # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
//! # runtime.block_on(async {
//! use tollgate_tower::channel::{Settings, channel};
//!
//! let (sender, mut receiver) = channel(&Settings::new("1000/s".parse()?, 2))?;
//! sender.try_send("a").unwrap();
//! sender.try_send("b").unwrap();
//! assert!(sender.try_send("c").is_err(), "full; it is told when to come again");
//! drop(sender);
//! assert_eq!(receiver.recv().await, Some("a"));
//! assert_eq!(receiver.recv().await, Some("b")); // a millisecond later
//! assert_eq!(receiver.recv().await, None);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod receiver;
mod sender;

pub use receiver::Receiver;
pub use sender::{SendError, Sender};

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use tokio::sync::{Notify, Semaphore};
use tollgate::shape::LeakyQueue;
use tollgate::{Clock, LimitError, MonotonicClock, Rate, Span};

/// How a channel lets its items out.
#[derive(Clone, Debug)]
pub struct Settings {
    rate: Rate,
    queue: u64,
    max_wait: Option<Span>,
    catch_up: Span,
    spin: Span,
}

impl Settings {
    /// At most `queue` units waiting or in service, leaving at `rate`.
    pub fn new(rate: Rate, queue: u64) -> Settings {
        Settings {
            rate,
            queue,
            max_wait: None,
            catch_up: Span::ZERO,
            spin: Span::ZERO,
        }
    }

    /// Refuses what would wait longer.
    #[must_use]
    pub fn max_wait(mut self, span: Span) -> Settings {
        self.max_wait = Some(span);
        self
    }

    /// Makes lateness of up to `span` good by letting more out at once: a stall of `d` may then be followed by
    /// `min(d, span) / T` units. Without, never more than the rate comes out.
    #[must_use]
    pub fn catch_up(mut self, span: Span) -> Settings {
        self.catch_up = span;
        self
    }

    /// Has the receiver wake up this much early and watch the clock until the item is due, so that being woken
    /// late costs no output. It keeps a thread of the runtime busy for up to that long for every item: tens of
    /// microseconds are enough, and more than a millisecond is taken for one.
    #[must_use]
    pub fn spin(mut self, span: Span) -> Settings {
        self.spin = span.min(Span::from_millis(1));
        self
    }
}

/// Both ends of a channel.
pub type Ends<T, C = MonotonicClock> = (Sender<T, C>, Receiver<T, C>);

/// A channel whose items come out at a constant rate.
///
/// # Errors
/// A queue of zero, or one that takes more than 73 years to drain.
pub fn channel<T>(settings: &Settings) -> Result<Ends<T>, LimitError> {
    channel_on(settings, MonotonicClock::new())
}

/// The same on another clock.
///
/// # Errors
/// A queue of zero, or one that takes more than 73 years to drain.
pub fn channel_on<T, C: Clock>(settings: &Settings, clock: C) -> Result<Ends<T, C>, LimitError> {
    let queue = LeakyQueue::new(settings.rate, settings.queue, settings.max_wait)?;
    let shared = Arc::new(Shared {
        state: Mutex::new(State {
            queue: queue.catch_up(settings.catch_up),
            senders: 1,
            is_closed: false,
            receiver: None,
        }),
        clock,
        spin: settings.spin,
        turn: Semaphore::new(1),
        changed: Notify::new(),
    });
    let sender = Sender::new(Arc::clone(&shared));
    Ok((sender, Receiver::new(shared)))
}

struct Shared<T, C> {
    state: Mutex<State<T>>,
    clock: C,
    /// How long before its time the receiver watches the clock.
    spin: Span,
    /// Held by the one sender that waits for room; the others wait for it, in order.
    turn: Semaphore,
    /// An item came out, or the channel was closed.
    changed: Notify,
}

struct State<T> {
    queue: LeakyQueue<T>,
    senders: usize,
    /// Nothing is taken in any more.
    is_closed: bool,
    /// Waits for an item, or for its time.
    receiver: Option<Waker>,
}

impl<T, C> Shared<T, C> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes out what waits, whatever the rate: it goes nowhere.
    fn take_all(&self) -> Vec<T> {
        self.state().queue.clear()
    }

    /// Takes nothing in from now on, and tells everybody who waits.
    fn close(&self) {
        let receiver = {
            let mut state = self.state();
            state.is_closed = true;
            state.receiver.take()
        };
        self.turn.close();
        self.changed.notify_waiters();
        if let Some(receiver) = receiver {
            receiver.wake();
        }
    }
}
