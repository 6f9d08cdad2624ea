//! The streams of HTTP/2, each with a bound in time of its own.
//!
//! # Theory
//!
//! A client of HTTP/2 says how much it takes of each answer. One that takes nothing holds the answer, the
//! server's connection behind it, and its places in limits and queues, while the connection itself looks
//! busy. So each stream is watched: when a piece of its answer was handed over, and nobody has asked for the
//! next one in time, the stream is dropped, which resets it and frees all that it held. The other streams
//! of the connection go on.
//!
//! Who waits for whom is noted by the answer's body while its stream is polled: it gave a piece (the client
//! is waited for), or it had none (the server is waited for, which has bounds of its own). A timer is there
//! only while a client is waited for.
//!
//! # What it does not know
//!
//! How much of a piece was taken. Pieces are small, so a client that is merely slow has time for each.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::rt::Executor;
use tokio::time::{Instant, Sleep, sleep};

/// Bytes of an answer that are handed over at once: as many as a frame of HTTP/2 usually has.
pub(super) const PIECE_BYTES: usize = 16 * 1024;

/// What an answer's body did last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// It was not asked.
    Same,
    /// It handed over a piece.
    Gave,
    /// It had nothing, or nothing more.
    Waits,
}

thread_local! {
    /// What the body of the stream did that is being polled on this thread.
    static MARK: Cell<Mark> = const { Cell::new(Mark::Same) };
}

/// Notes what a body does.
pub(super) fn mark(mark: Mark) {
    MARK.set(mark);
}

/// Runs streams, with so much time for a client to take a piece.
#[derive(Clone, Copy, Debug)]
pub(super) struct Streams {
    pub(super) write: Duration,
}

impl<F> Executor<F> for Streams
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, stream: F) {
        tokio::spawn(Stream {
            work: Box::pin(stream),
            write: self.write,
            timer: None,
        });
    }
}

/// One stream. Ends when its work does, or when its client takes too long.
struct Stream<F> {
    work: Pin<Box<F>>,
    write: Duration,
    /// There while the client is waited for.
    timer: Option<Pin<Box<Sleep>>>,
}

impl<F: Future> Future for Stream<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        MARK.set(Mark::Same);
        if this.work.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        match MARK.replace(Mark::Same) {
            Mark::Same => {}
            Mark::Waits => this.timer = None,
            Mark::Gave => match &mut this.timer {
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

    /// Does a stream end whose body does this whenever it is polled, for ever?
    async fn ends(what: Mark) -> bool {
        let mut did = false;
        let work = poll_fn(move |_| {
            if !std::mem::replace(&mut did, true) {
                mark(what);
            }
            Poll::<()>::Pending
        });
        let stream = Stream {
            work: Box::pin(work),
            write: WRITE,
            timer: None,
        };
        timeout(WRITE * 4, stream).await.is_ok()
    }

    #[tokio::test]
    async fn only_a_client_that_does_not_take_what_it_is_given_is_cut_off() {
        assert!(ends(Mark::Gave).await);
        assert!(!ends(Mark::Waits).await);
        assert!(!ends(Mark::Same).await);
    }
}
