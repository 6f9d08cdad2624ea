//! Bytes of a connection that a fast path has read and that belong to no answered request yet.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::timeout;

use crate::net::buffers;
use crate::net::state::ConnectionState;

/// Bytes that are read at once.
const READ_BYTES: usize = 16 * 1024;

/// Unread bytes. Requests are parsed where the thread's read buffer has them; only what is left over is copied.
#[derive(Debug, Default)]
pub(crate) struct Unread {
    pub(crate) bytes: BytesMut,
    /// The parser's note of how many bytes it need not scan again.
    pub(crate) scanned: usize,
}

/// What a parser made of the bytes that it was given, and how many of them it consumed.
pub(crate) type Consumed<T> = (T, usize);

impl Unread {
    /// Parses what is there.
    pub(crate) fn parse<T>(&mut self, parse: impl FnOnce(&[u8], &mut usize) -> Consumed<T>) -> T {
        let (parsed, consumed) = parse(&self.bytes, &mut self.scanned);
        self.bytes.advance(consumed.min(self.bytes.len()));
        if self.bytes.is_empty() {
            self.bytes = BytesMut::new();
        }
        parsed
    }

    /// Parses what is there together with `read`.
    pub(crate) fn parse_more<T>(
        &mut self,
        read: &[u8],
        parse: impl FnOnce(&[u8], &mut usize) -> Consumed<T>,
    ) -> T {
        if self.bytes.is_empty() {
            self.scanned = 0;
            let (parsed, consumed) = parse(read, &mut self.scanned);
            let rest = read.get(consumed..).unwrap_or_default();
            self.bytes.extend_from_slice(rest);
            return parsed;
        }
        self.bytes.extend_from_slice(read);
        self.parse(parse)
    }

    /// Reads once and parses. `None` if the client has ended, or if the server stops and nothing is there to answer.
    pub(crate) async fn read<S: AsyncRead + Unpin, T>(
        &mut self,
        io: &mut S,
        state: &ConnectionState,
        mut parse: impl FnMut(&[u8], &mut usize) -> Consumed<T>,
    ) -> io::Result<Option<T>> {
        if !self.bytes.is_empty() {
            state.enter_head();
        }
        poll_fn(|cx| {
            let read = buffers::poll_read(io, cx, READ_BYTES, |read| {
                (!read.is_empty()).then(|| self.parse_more(read, &mut parse))
            });
            // What came before the shutdown is answered; then there is nothing to wait for.
            if read.is_pending() && self.bytes.is_empty() && state.is_shutting_down() {
                return Poll::Ready(Ok(None));
            }
            read
        })
        .await
    }

    /// Reads until `missing` more bytes are there. False if they take longer than `max`.
    pub(crate) async fn fill<S: AsyncRead + Unpin>(
        &mut self,
        io: &mut S,
        missing: usize,
        max: Duration,
    ) -> io::Result<bool> {
        self.bytes.reserve(missing);
        let wanted = self.bytes.len().saturating_add(missing);
        let filled = pin!(async {
            while self.bytes.len() < wanted {
                if io.read_buf(&mut self.bytes).await? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
            Ok(true)
        });
        timeout(max, filled).await.unwrap_or(Ok(false))
    }
}
