//! A client's socket, and the watch for its end.
//!
//! # Theory
//!
//! Who reads a connection sees its end only behind all bytes before it. But a request may wait while bytes
//! lie behind its head, a body or further requests, that nobody reads yet. So the end is learned from the
//! system, which knows it without reading: nothing has to be kept, however much was sent.
//!
//! A client that ends its side while a request of it is under way is taken for gone, whether it would still
//! read or not: both look the same from here, and a request of a client that is gone must not wait in a
//! queue, nor reach a server. A client that wants its answer keeps its side open until it has it.
//!
//! # What it does not know
//!
//! The end of a client that sends more than the system takes, until that is read; that it broke off is seen
//! at once. On systems other than Linux the end is seen only by reading.

use std::future::{Future, pending, poll_fn};
use std::io::{self, ErrorKind, IoSlice};
use std::net::Shutdown;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use super::life::Life;

/// The socket, and the watch for its end.
pub(super) fn watched(stream: TcpStream) -> (Socket, Ending) {
    let (read, write) = stream.into_split();
    (Socket(read), Ending(Some(write)))
}

/// The socket, for reading and writing. The other half is with the watch, which only looks.
#[derive(Debug)]
pub(super) struct Socket(OwnedReadHalf);

impl Socket {
    fn stream(&self) -> &TcpStream {
        self.0.as_ref()
    }

    fn poll_written(
        &self,
        cx: &mut Context<'_>,
        write: impl Fn(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.stream().poll_write_ready(cx))?;
            match write(self.stream()) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_written(cx, |stream| stream.try_write(buffer))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_written(cx, |stream| stream.try_write_vectored(buffers))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match SockRef::from(self.stream()).shutdown(Shutdown::Write) {
            Err(error) if error.kind() != ErrorKind::NotConnected => Poll::Ready(Err(error)),
            _ => Poll::Ready(Ok(())),
        }
    }
}

/// The watch for the client's end.
#[derive(Debug)]
pub(super) struct Ending(Option<OwnedWriteHalf>);

impl Ending {
    /// Comes back when the client has ended its side and a request of it is under way. To be polled
    /// by the task that begins and ends the requests.
    pub(super) async fn gone(&self, life: &Life) {
        let mut came = pin!(self.came());
        let mut has_come = false;
        poll_fn(|cx| {
            has_come = has_come || came.as_mut().poll(cx).is_ready();
            match has_come && life.is_under_way() {
                true => Poll::Ready(()),
                // What it sent before it ended is read, and its end behind that.
                false => Poll::Pending,
            }
        })
        .await;
    }

    async fn came(&self) {
        // Readiness for priority is that for the end, without that for bytes.
        #[cfg(any(target_os = "linux", target_os = "android"))]
        if let Some(half) = &self.0
            && let Ok(ready) = half.ready(tokio::io::Interest::PRIORITY).await
            && ready.is_read_closed()
        {
            return;
        }
        pending::<()>().await;
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        // Who only looks ends nothing.
        if let Some(half) = self.0.take() {
            half.forget();
        }
    }
}
