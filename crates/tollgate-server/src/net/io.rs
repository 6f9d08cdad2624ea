//! The bytes of a connection between its socket and hyper.
//!
//! [`TrackedIo`] keeps the [`ConnectionState`] and, after the last response, discards what the client still sends.
//! Closing a socket with unread bytes would make the system discard the response that was written.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use super::buffers;
use super::http1::framer::{BadChunks, RequestFramer};
use super::state::{ConnectionState, Phase};

/// Bytes that are discarded of a client that continues to send after its last response.
const LINGER_BYTES: usize = 1 << 20;
/// Bytes that are read at once.
const READ_BYTES: usize = 16 * 1024;
/// A framer with nothing to hand out keeps no more room than this.
const KEPT_BYTES: usize = 4 * 1024;

/// Which bytes the parser behind gets to see.
#[derive(Debug)]
pub(crate) enum Framing {
    /// HTTP/1 that the framer has checked. For the gateway, where two parsers must agree about each request.
    Checked(RequestFramer),
    /// HTTP/1 as it comes. For ports with no HTTP server behind them.
    Http1,
    /// HTTP/2 as it comes.
    Http2,
}

/// A connection as hyper sees it.
#[derive(Debug)]
pub(crate) struct TrackedIo<S> {
    io: S,
    framing: Framing,
    /// What was read before hyper took over.
    before: BytesMut,
    state: Arc<ConnectionState>,
    discarded: usize,
}

impl<S: AsyncRead + AsyncWrite + Unpin> TrackedIo<S> {
    pub(crate) fn new(
        io: S,
        before: BytesMut,
        framing: Framing,
        state: Arc<ConnectionState>,
    ) -> TrackedIo<S> {
        TrackedIo {
            io,
            framing,
            before,
            state,
            discarded: 0,
        }
    }

    fn poll_read_unchecked(
        &mut self,
        cx: &mut Context<'_>,
        mut cursor: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if self.before.is_empty() {
            ready!(Pin::new(&mut TokioIo::new(&mut self.io)).poll_read(cx, cursor))?;
        } else {
            put(&mut self.before, &mut cursor);
        }
        if matches!(self.framing, Framing::Http1) {
            self.state.enter_head();
        }
        Poll::Ready(Ok(()))
    }

    /// Feeds the framer once. Returns the number of bytes; 0 at the end.
    fn poll_feed(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let Framing::Checked(framer) = &mut self.framing else {
            return Poll::Ready(Ok(0));
        };
        let was_held = framer.is_held();
        let fed = if self.before.is_empty() {
            ready!(buffers::poll_read(&mut self.io, cx, READ_BYTES, |read| {
                framer.feed(read).map(|()| read.len())
            }))?
        } else {
            let before = std::mem::take(&mut self.before);
            framer.feed(&before).map(|()| before.len())
        };
        if !was_held && framer.is_held() {
            // hyper has not seen this head yet, so a decision that is there is about an earlier one.
            self.state.upgrade.reset();
        }
        let fed = fed.map_err(bad_chunks)?;
        if fed > 0 {
            self.state.enter_head();
        }
        Poll::Ready(Ok(fed))
    }

    /// Discards what the client sends, up to a bound. Ready at its end, at the bound, or at a shutdown.
    fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.discarded < LINGER_BYTES && !self.state.is_shutting_down() {
            let read = buffers::poll_read(&mut self.io, cx, READ_BYTES, <[u8]>::len);
            match ready!(read)? {
                0 => break,
                read => self.discarded += read,
            }
        }
        Poll::Ready(Ok(()))
    }

    fn track_write(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match &written {
            Poll::Pending => self.state.stall(),
            Poll::Ready(_) => self.state.resume(),
        }
        written
    }
}

/// Writes nothing more, and lets the client read the last response within [`super::ListenLimits::linger`].
pub(crate) async fn linger<S: AsyncRead + AsyncWrite + Unpin>(
    mut io: S,
    state: &Arc<ConnectionState>,
) -> io::Result<()> {
    state.enter(Phase::Closing);
    io.shutdown().await?;
    let mut tracked = TrackedIo::new(io, BytesMut::new(), Framing::Http1, Arc::clone(state));
    poll_fn(|cx| tracked.poll_discard(cx)).await
}

/// Moves as many bytes as fit.
fn put(from: &mut BytesMut, cursor: &mut ReadBufCursor<'_>) {
    let fits = from.len().min(cursor.remaining());
    cursor.put_slice(from.get(..fits).unwrap_or_default());
    from.advance(fits);
}

fn bad_chunks(_: BadChunks) -> io::Error {
    io::Error::other("malformed chunks in a request body")
}

impl<S: AsyncRead + AsyncWrite + Unpin> Read for TrackedIo<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut cursor: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            let Framing::Checked(framer) = &mut this.framing else {
                return this.poll_read_unchecked(cx, cursor);
            };
            if !framer.ready.is_empty() {
                put(&mut framer.ready, &mut cursor);
                if framer.ready.is_empty() {
                    // Reuses its room from the start, if that is small.
                    match framer.ready.capacity() {
                        0..=KEPT_BYTES => framer.ready.clear(),
                        _ => framer.ready = BytesMut::new(),
                    }
                }
                return Poll::Ready(Ok(()));
            }
            if framer.is_over() {
                // The refusal was handed out; its response ends the connection. If the client has disconnected there is none.
                ready!(this.poll_discard(cx))?;
                return Poll::Pending;
            }
            if framer.is_held() {
                match this.state.upgrade.take(cx.waker()) {
                    Some(is_tunnel) => {
                        framer.decide(is_tunnel).map_err(bad_chunks)?;
                        continue;
                    }
                    None if !framer.has_room() => return Poll::Pending,
                    None => {}
                }
            }
            if ready!(this.poll_feed(cx))? == 0 {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Write for TrackedIo<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, buffer);
        self.track_write(written)
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
        self.track_write(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if matches!(&this.framing, Framing::Checked(framer) if framer.is_tunnel()) {
            // One direction of a tunnel has ended; the other continues.
            return Pin::new(&mut this.io).poll_shutdown(cx);
        }
        if !this.state.is_in(Phase::Closing) {
            ready!(Pin::new(&mut this.io).poll_shutdown(cx))?;
            this.state.enter(Phase::Closing);
        }
        this.poll_discard(cx)
    }
}
