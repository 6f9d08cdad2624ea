//! The bytes of one connection, between the socket and the parser.
//!
//! For HTTP/1 everything read goes through [`Frames`]; HTTP/2 has frames of its own and goes straight
//! through. Both keep the connection's pulse. When it is over the client may read its last answer before
//! the connection is closed: closing while bytes are unread makes the system throw away what was sent.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use hyper::rt::{Read, ReadBufCursor, Write};
use tokio::io::{AsyncRead, AsyncWrite};

use super::frames::Frames;
use super::life::{Decision, Life};
use crate::gateway::scratch;
use crate::listen::pulse::Phase;

/// What is read of a client that goes on sending after its last answer.
const LINGER_BYTES: usize = 1 << 20;
/// Bytes that are read at once.
const READ_BYTES: usize = 16 * 1024;
/// A connection with nothing to read keeps no more room than this.
const KEPT_BYTES: usize = 4 * 1024;

/// A connection as the parser sees it.
#[derive(Debug)]
pub(super) struct Line<S> {
    io: S,
    /// None: HTTP/2.
    frames: Option<Frames>,
    /// What was read before it was known which protocol is spoken.
    before: BytesMut,
    life: Arc<Life>,
    thrown_away: usize,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Line<S> {
    pub(super) fn new(io: S, before: BytesMut, is_http1: bool, life: Arc<Life>) -> Line<S> {
        Line {
            io,
            frames: is_http1.then(Frames::new),
            before,
            life,
            thrown_away: 0,
        }
    }

    /// Reads something into the frames and notes what has begun with it. How many bytes; none at the end.
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let is_held = |line: &Line<S>| line.frames.as_ref().is_some_and(Frames::is_held);
        let was_held = is_held(self);
        let filled = ready!(self.poll_fill(cx))?;
        if filled > 0 {
            self.life.head_begins();
        }
        if !was_held && is_held(self) {
            // Its head is not handed over yet, so nobody can have decided about it.
            self.life.ask();
        }
        Poll::Ready(Ok(filled))
    }

    /// Reads what nobody wants, up to a bound; ready at the client's end or at the bound.
    fn poll_throw_away(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.thrown_away < LINGER_BYTES {
            let read = scratch::poll_read(&mut self.io, cx, READ_BYTES, <[u8]>::len);
            match ready!(read)? {
                0 => break,
                read => self.thrown_away += read,
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Reads something into the frames. How many bytes; none at the end.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let Some(frames) = &mut self.frames else {
            return Poll::Ready(Ok(0));
        };
        let wrong = |_| io::Error::other("the chunks of a body make no sense");
        if !self.before.is_empty() {
            let before = std::mem::take(&mut self.before);
            frames.feed(&before).map_err(wrong)?;
            return Poll::Ready(Ok(before.len()));
        }
        let fed = scratch::poll_read(&mut self.io, cx, READ_BYTES, |read| {
            frames.feed(read).map(|()| read.len())
        });
        Poll::Ready(ready!(fed)?.map_err(wrong))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Read for Line<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut cursor: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            let Some(frames) = &mut this.frames else {
                return this.poll_read_plain(cx, cursor);
            };
            if !frames.ready.is_empty() {
                let fits = frames.ready.len().min(cursor.remaining());
                cursor.put_slice(frames.ready.get(..fits).unwrap_or_default());
                frames.ready.advance(fits);
                if frames.ready.is_empty() {
                    // Begins anew where its room begins, if that is small.
                    match frames.ready.capacity() {
                        0..=KEPT_BYTES => frames.ready.clear(),
                        _ => frames.ready = BytesMut::new(),
                    }
                }
                return Poll::Ready(Ok(()));
            }
            if frames.is_over() {
                // What is wrong was handed over; that the connection ends is for the answer to do. If
                // it broke off there will be none.
                ready!(this.poll_throw_away(cx))?;
                return Poll::Pending;
            }
            if frames.is_held() {
                let wrong = |_| io::Error::other("the chunks of a body make no sense");
                match this.life.take_decision(cx.waker()) {
                    Decision::Tunnel => {
                        frames.decide(true).map_err(wrong)?;
                        continue;
                    }
                    Decision::Refused => {
                        frames.decide(false).map_err(wrong)?;
                        continue;
                    }
                    Decision::None if !frames.has_room() => return Poll::Pending,
                    Decision::None => {}
                }
            }
            if ready!(this.poll_more(cx))? == 0 {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Line<S> {
    fn poll_read_plain(
        &mut self,
        cx: &mut Context<'_>,
        mut cursor: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.before.is_empty() {
            let fits = self.before.len().min(cursor.remaining());
            cursor.put_slice(self.before.get(..fits).unwrap_or_default());
            self.before.advance(fits);
            return Poll::Ready(Ok(()));
        }
        let fits = READ_BYTES.min(cursor.remaining());
        scratch::poll_read(&mut self.io, cx, fits, |read| cursor.put_slice(read))
    }

    fn written(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match &written {
            Poll::Pending => self.life.stalls(),
            Poll::Ready(_) => self.life.goes_on(),
        }
        written
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Write for Line<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, buffer);
        self.written(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, buffers);
        self.written(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.frames.as_ref().is_some_and(Frames::is_tunnel) {
            // One way has ended. What comes the other way is not ours to throw away.
            return Pin::new(&mut this.io).poll_shutdown(cx);
        }
        let pulse = &this.life.pulse;
        if !pulse.is_in(Phase::Closing) {
            ready!(Pin::new(&mut this.io).poll_shutdown(cx))?;
            pulse.enter(Phase::Closing);
        }
        if pulse.is_hurried() {
            return Poll::Ready(Ok(()));
        }
        this.poll_throw_away(cx)
    }
}
