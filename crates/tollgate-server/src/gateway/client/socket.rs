//! A client's socket, which can be read, written, and watched for its end at the same time.

use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind, IoSlice};
use std::net::Shutdown;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use crate::net::hangup::hung_up;
use crate::net::state::ConnectionState;

/// The socket, and the watch for its end.
pub(super) fn split(stream: TcpStream) -> (Socket, HangupWatch) {
    let (read, write) = stream.into_split();
    (Socket(read), HangupWatch(Some(write)))
}

/// The socket for reading and writing. The watch has the other half, and only observes it.
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

/// Sees the client's end while the socket is used.
#[derive(Debug)]
pub(super) struct HangupWatch(Option<OwnedWriteHalf>);

impl HangupWatch {
    /// Returns when the client has ended its side and a request of it is in flight.
    ///
    /// To be polled by the task that starts and ends the requests.
    pub(super) async fn gone(&self, state: &ConnectionState) {
        let Some(half) = &self.0 else { return };
        let mut ended = pin!(hung_up(half.as_ref()));
        let mut has_ended = false;
        poll_fn(|cx| {
            has_ended = has_ended || ended.as_mut().poll(cx).is_ready();
            match has_ended && state.has_requests() {
                true => Poll::Ready(()),
                // What it sent before its end is read first.
                false => Poll::Pending,
            }
        })
        .await;
    }
}

impl Drop for HangupWatch {
    fn drop(&mut self) {
        // A dropped half would shut the socket down.
        if let Some(half) = self.0.take() {
            half.forget();
        }
    }
}
