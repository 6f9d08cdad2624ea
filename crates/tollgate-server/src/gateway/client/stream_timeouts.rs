//! HTTP/2 streams, each with a bound on how long its client may leave a response unread.
//!
//! # Theory
//!
//! An HTTP/2 client states how much of each response it takes. One that takes nothing holds the response, the upstream
//! connection behind it, and its places in limits and queues, while the connection looks busy. So each stream has a
//! timeout: if no further piece is asked for in time after one was handed over, the stream is dropped. That resets it and
//! frees what it held. Other streams of the connection continue.
//!
//! The response body records what it did while its stream was polled: it gave a piece, so the client is waited for, or it
//! had none, so the upstream is, which has bounds of its own. A timer exists only while a client is waited for.
//!
//! How much of a piece was taken is not known. Pieces are small, so a slow client has time for each.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::rt::Executor;
use tokio::time::{Instant, Sleep, sleep};

/// Bytes of a response that are handed over at once: those of a common HTTP/2 frame.
pub(super) const PIECE_BYTES: usize = 16 * 1024;

/// What a response body did last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyEvent {
    /// It was not polled.
    NotPolled,
    /// It handed over a piece.
    GavePiece,
    /// It had nothing, or has ended.
    Waits,
}

thread_local! {
    /// What the body of the polled stream did.
    static EVENT: Cell<BodyEvent> = const { Cell::new(BodyEvent::NotPolled) };
}

/// Records what a body does.
pub(super) fn record(event: BodyEvent) {
    EVENT.set(event);
}

/// Spawns streams with a timeout for each piece.
#[derive(Clone, Copy, Debug)]
pub(super) struct StreamExecutor {
    pub(super) write: Duration,
}

impl<F> Executor<F> for StreamExecutor
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, stream: F) {
        tokio::spawn(TimedStream {
            work: Box::pin(stream),
            write: self.write,
            timer: None,
        });
    }
}

/// One stream. Ends with its work, or when its client takes too long.
struct TimedStream<F> {
    work: Pin<Box<F>>,
    write: Duration,
    /// Exists while the client is waited for.
    timer: Option<Pin<Box<Sleep>>>,
}

impl<F: Future> Future for TimedStream<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        EVENT.set(BodyEvent::NotPolled);
        if this.work.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        match EVENT.replace(BodyEvent::NotPolled) {
            BodyEvent::NotPolled => {}
            BodyEvent::Waits => this.timer = None,
            BodyEvent::GavePiece => match &mut this.timer {
                Some(timer) => timer.as_mut().reset(Instant::now() + this.write),
                None => this.timer = Some(Box::pin(sleep(this.write))),
            },
        }
        match &mut this.timer {
            Some(timer) => timer.as_mut().poll(cx),
            None => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use tokio::time::timeout;

    const WRITE: Duration = Duration::from_millis(50);

    /// Does a stream end whose body did this once?
    async fn ends(event: BodyEvent) -> bool {
        let mut did = false;
        let work = poll_fn(move |_| {
            if !std::mem::replace(&mut did, true) {
                record(event);
            }
            Poll::<()>::Pending
        });
        let stream = TimedStream {
            work: Box::pin(work),
            write: WRITE,
            timer: None,
        };
        timeout(WRITE * 4, stream).await.is_ok()
    }

    #[tokio::test]
    async fn only_a_client_that_leaves_a_piece_unread_is_cut_off() {
        assert!(ends(BodyEvent::GavePiece).await);
        assert!(!ends(BodyEvent::Waits).await);
        assert!(!ends(BodyEvent::NotPolled).await);
    }
}
