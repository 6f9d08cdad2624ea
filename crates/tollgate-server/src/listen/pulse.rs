//! What a connection is doing, and for how long.
//!
//! # Theory
//!
//! The phases go round: idle, head, handling, writing, idle. Reading the first byte ends idleness; the
//! handler knows when it begins and ends; flushing what was written begins idleness again. A word counts
//! the changes, with the phase in its low bits. Who looks once a second and finds the same word has seen
//! a second of one phase: no clock is read on the way of a request.
//!
//! # Invariant
//!
//! A head that dribbles does not change the word, so dribbling gains no time.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::ListenLimits;

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nothing of the next request is there.
    Idle = 0,
    /// A head has begun.
    Head = 1,
    /// A request is being answered.
    Handling = 2,
    /// An answer is on its way.
    Writing = 3,
    /// Everything was answered; the client may still read.
    Closing = 4,
}

const PHASE_BITS: u32 = 3;

/// What a connection is doing, as a word that changes whenever that changes. Whoever looks at it sees it a
/// little late at worst, so nothing needs an order.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    word: AtomicU32,
    hurried: AtomicBool,
    in_lane: AtomicBool,
    /// Whom to wake for the word to stop, while in the lane.
    waker: Mutex<Option<Waker>>,
}

impl Pulse {
    pub(crate) fn enter(&self, phase: Phase) {
        let changes = (self.word.load(Relaxed) >> PHASE_BITS).wrapping_add(1);
        self.word
            .store(changes << PHASE_BITS | phase as u32, Relaxed);
    }

    fn phase(&self) -> Phase {
        match self.word.load(Relaxed) & ((1 << PHASE_BITS) - 1) {
            0 => Phase::Idle,
            1 => Phase::Head,
            2 => Phase::Handling,
            3 => Phase::Writing,
            _ => Phase::Closing,
        }
    }

    pub(crate) fn is_in(&self, phase: Phase) -> bool {
        self.phase() == phase
    }

    /// From now on nobody waits for clients to close.
    pub(crate) fn hurry(&self) {
        self.hurried.store(true, Relaxed);
        // The lock puts the word before the waking, for whoever runs on another thread.
        let waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(waker) = &*waker {
            waker.wake_by_ref();
        }
    }

    /// A pulse of a connection that begins on the fast path, or not.
    pub(crate) fn beginning(in_lane: bool) -> Pulse {
        Pulse {
            in_lane: AtomicBool::new(in_lane),
            ..Pulse::default()
        }
    }

    /// The connection on the fast path wakes by this.
    pub(crate) fn wakes_by(&self, waker: &Waker) {
        let mut known = self.waker.lock().unwrap_or_else(PoisonError::into_inner);
        *known = Some(waker.clone());
    }

    pub(crate) fn leave_lane(&self) {
        self.in_lane.store(false, Relaxed);
        let mut known = self.waker.lock().unwrap_or_else(PoisonError::into_inner);
        *known = None;
    }

    pub(crate) fn is_in_lane(&self) -> bool {
        self.in_lane.load(Relaxed)
    }

    pub(crate) fn is_hurried(&self) -> bool {
        self.hurried.load(Relaxed)
    }
}

/// What was seen of a pulse so far.
#[derive(Debug, Default)]
pub(crate) struct Beat {
    word: u32,
    ticks: u32,
}

impl Beat {
    /// To be asked once every `tick`: has it stood still for too long?
    pub(crate) fn is_overdue(
        &mut self,
        pulse: &Pulse,
        tick: Duration,
        limits: &ListenLimits,
    ) -> bool {
        let word = pulse.word.load(Relaxed);
        if word != self.word {
            self.word = word;
            self.ticks = 0;
            return false;
        }
        self.ticks = self.ticks.saturating_add(1);
        let bound = match pulse.phase() {
            Phase::Idle => limits.idle,
            Phase::Head => limits.head,
            Phase::Writing => limits.write,
            Phase::Closing => limits.linger,
            // Bodies and waits have bounds of their own.
            Phase::Handling => return false,
        };
        tick.saturating_mul(self.ticks) >= bound
    }
}

/// A connection that keeps its pulse, and that lets the client read its last answer before it is closed:
/// closing while bytes are unread makes the system throw away what was sent.
#[derive(Debug)]
pub(super) struct Watched {
    io: TokioIo<TcpStream>,
    /// What was read of the connection before, and is still to be read from it.
    before: Bytes,
    pulse: Arc<Pulse>,
    thrown_away: usize,
}

/// What is read of a client that goes on sending after its last answer.
const LINGER_BYTES: usize = 1 << 20;

impl Watched {
    pub(super) fn new(stream: TcpStream, before: Bytes, pulse: Arc<Pulse>) -> Watched {
        Watched {
            io: TokioIo::new(stream),
            before,
            pulse,
            thrown_away: 0,
        }
    }
}

impl Read for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.before.is_empty() {
            let fits = self.before.len().min(buffer.remaining());
            buffer.put_slice(&self.before.split_to(fits));
            if self.pulse.is_in(Phase::Idle) {
                self.pulse.enter(Phase::Head);
            }
            return Poll::Ready(Ok(()));
        }
        let read = Pin::new(&mut self.io).poll_read(cx, buffer);
        if read.is_ready() && self.pulse.phase() == Phase::Idle {
            self.pulse.enter(Phase::Head);
        }
        read
    }
}

impl Write for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buffer)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, buffers)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(cx);
        if flushed.is_ready() && self.pulse.phase() == Phase::Writing {
            self.pulse.enter(Phase::Idle);
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.pulse.phase() != Phase::Closing {
            ready!(Pin::new(self.io.inner_mut()).poll_shutdown(cx))?;
            self.pulse.enter(Phase::Closing);
        }
        let mut scratch = [std::mem::MaybeUninit::uninit(); 4096];
        while !self.pulse.is_hurried() && self.thrown_away < LINGER_BYTES {
            let mut buffer = ReadBuf::uninit(&mut scratch);
            ready!(Pin::new(self.io.inner_mut()).poll_read(cx, &mut buffer))?;
            match buffer.filled().len() {
                0 => break,
                read => self.thrown_away += read,
            }
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overdue_after(phase: Phase) -> Option<u32> {
        let limits = ListenLimits::default();
        let pulse = Pulse::default();
        pulse.enter(phase);
        let mut beat = Beat::default();
        let tick = Duration::from_secs(1);
        (0..100).find(|_| beat.is_overdue(&pulse, tick, &limits))
    }

    #[test]
    fn each_phase_has_its_bound_and_handling_has_none() {
        assert_eq!(overdue_after(Phase::Head), Some(5));
        assert_eq!(overdue_after(Phase::Idle), Some(60));
        assert_eq!(overdue_after(Phase::Writing), Some(10));
        assert_eq!(overdue_after(Phase::Closing), Some(1));
        assert_eq!(overdue_after(Phase::Handling), None);
    }

    #[test]
    fn going_round_is_a_sign_of_life_even_if_the_phase_is_the_same() {
        let limits = ListenLimits::default();
        let (pulse, mut beat) = (Pulse::default(), Beat::default());
        for _ in 0..100 {
            for phase in [Phase::Head, Phase::Handling, Phase::Writing, Phase::Idle] {
                pulse.enter(phase);
            }
            assert!(!beat.is_overdue(&pulse, Duration::from_secs(30), &limits));
        }
    }
}
