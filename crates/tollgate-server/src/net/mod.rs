//! Listeners and connections of all ports: one lifecycle, one set of bounds, one HTTP/1.
//!
//! # Lifecycle of a connection
//!
//! ```text
//! accept -> [limiter] -> task --+--> Head --> Handling --> (Writing) --> Idle --+
//!              |                |     ^                                         |
//!          closed at once       |     +-----------------------------------------+
//!                               +--> Closing --> end
//! ```
//!
//! | phase | bound | closed by |
//! |---|---|---|
//! | new, or `Head`: an incomplete head | [`ListenLimits::head`] | the reaper aborts the task |
//! | `Handling`: a request is handled | none: its body, its waits and its upstream have bounds of their own | the request |
//! | `Writing`: the client does not read | [`ListenLimits::write`], anew for each byte taken | the reaper |
//! | `Idle`: between two requests | [`ListenLimits::idle`] | the connection, asked by the reaper; one tick later the reaper |
//! | `Closing`: the client may read the last response | [`ListenLimits::linger`], and a number of bytes | the connection or the reaper |
//! | shutdown | [`ListenLimits::drain`] | idle connections at once, others after their requests; then the reaper |
//!
//! Bounds hold to within one [`TICK`]: the accept loop of each thread looks at its connections once a tick, so a connection
//! has no timer. A client that disconnects ends its connection at its next read, and a request that waits through
//! [`hangup`].
//!
//! # Panics
//!
//! A panic of a handler ends at [`contain_panic`]: the response is 500, and the connection and its thread continue.
//!
//! # Files
//!
//! | file | what it does |
//! |---|---|
//! | `accept` | accepts connections within bounds; drains them at the end |
//! | `limiter` | bounds connections by address |
//! | `descriptors` | raises the limit of file descriptors and shares it between the ports |
//! | `state`, `reaper` | what a connection is doing; closes those that do it for too long |
//! | `io` | a connection as hyper sees it, with its state and its lingering end |
//! | `hangup` | detects that a client has disconnected while its request waits |
//! | `buffers` | the buffers of a thread |
//! | `http1` | heads, framing, fast path, bodies, responses |
//!
//! RLS and Redis connections use the same lifecycle and frame their bytes themselves.

pub(crate) mod accept;
pub(crate) mod buffers;
pub(crate) mod descriptors;
pub(crate) mod hangup;
pub(crate) mod http1;
pub(crate) mod io;
pub(crate) mod limiter;
mod reaper;
pub(crate) mod state;
#[cfg(test)]
mod tests;

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use http1::body::BodyLimits;
use state::ConnectionState;

pub(crate) use accept::{Accepted, admit_all, serve_connections};

/// Bounds of what an untrusted client can stretch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListenLimits {
    /// Connections at once; further ones wait in the system's queue.
    pub(crate) connections: usize,
    /// From the first byte of a head to its last; for the first head from the connection on.
    pub(crate) head: Duration,
    /// Between requests.
    pub(crate) idle: Duration,
    /// For the client to read a part of a response.
    pub(crate) write: Duration,
    /// From the last response to the client's end, so that it can read that response.
    pub(crate) linger: Duration,
    /// From the shutdown to the end of all requests in flight.
    pub(crate) drain: Duration,
    /// Bytes of a head.
    pub(crate) head_bytes: usize,
    /// Fields of a head.
    pub(crate) fields: usize,
    /// Bounds of a body.
    pub(crate) body: BodyLimits,
}

impl Default for ListenLimits {
    fn default() -> ListenLimits {
        ListenLimits {
            connections: 10_000,
            head: Duration::from_secs(5),
            idle: Duration::from_secs(60),
            write: Duration::from_secs(10),
            linger: Duration::from_secs(1),
            drain: Duration::from_secs(10),
            head_bytes: 16 * 1024,
            fields: 100,
            body: BodyLimits::default(),
        }
    }
}

/// How often the reaper looks at its connections.
pub(crate) const TICK: Duration = Duration::from_secs(1);
/// How long after the shutdown a connection that was just accepted may send its request.
const GRACE: Duration = Duration::from_millis(50);

pub(crate) fn ticks() -> Interval {
    let mut tick = interval_at(Instant::now() + TICK, TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tick
}

/// Waits for the shutdown signal. A dropped sender is a signal, too.
pub(crate) async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Drives a connection to its end; `shut_down` is called once if it is asked to end before.
pub(crate) async fn drive<C: Future>(
    mut connection: Pin<&mut C>,
    state: &ConnectionState,
    shut_down: impl Fn(Pin<&mut C>),
) -> C::Output {
    let mut is_asked = false;
    poll_fn(|cx| {
        // First the connection: hyper closes a connection whose shutdown precedes its first read, and a request of the
        // fast path may be waiting for that read.
        let polled = connection.as_mut().poll(cx);
        if polled.is_pending() && !is_asked && state.is_shutting_down() {
            is_asked = true;
            shut_down(connection.as_mut());
            return connection.as_mut().poll(cx);
        }
        polled
    })
    .await
}

/// Registers the current task with the state of its connection.
pub(crate) async fn register_task(state: &ConnectionState) {
    poll_fn(|cx| {
        state.register_waker(cx.waker());
        Poll::Ready(())
    })
    .await;
}

/// The output of `work`; `None` after a panic, which is logged.
pub(crate) async fn contain_panic<T>(work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    poll_fn(|cx| {
        // What a handler shares is atomic or behind a lock that survives a panic.
        let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx)));
        polled.map(|polled| polled.map(Some)).unwrap_or_else(|_| {
            tracing::error!("a request handler panicked; the response is 500");
            Poll::Ready(None)
        })
    })
    .await
}
