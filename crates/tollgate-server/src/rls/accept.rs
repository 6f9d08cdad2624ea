//! Connections: accepted and bounded, for a server that takes a stream of them.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;

use crate::listen::{OUT_OF_ROOM, is_of_one_client};

/// Connections at once; further ones wait in the system's queue.
const CONNECTIONS: usize = 10_000;
/// How long a connection may be silent at first.
const FIRST_BYTE: Duration = Duration::from_secs(5);

/// The connections that come to `listener`, as one of so many threads that share the bound. Ends when the
/// stream is dropped.
pub(super) fn connections(
    listener: TcpListener,
    threads: usize,
) -> ReceiverStream<io::Result<Connection>> {
    let (to, from) = mpsc::channel(1);
    let room = Arc::new(Semaphore::new(CONNECTIONS.div_ceil(threads.max(1))));
    tokio::spawn(async move {
        tokio::select! {
            () = accept(&listener, &room, &to) => {}
            () = to.closed() => {}
        }
    });
    ReceiverStream::new(from)
}

async fn accept(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
    to: &mpsc::Sender<io::Result<Connection>>,
) {
    let mut failing = false;
    loop {
        let Ok(permit) = Arc::clone(room).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                failing = false;
                // If it fails, so will writing.
                let _ = stream.set_nodelay(true);
                let to = to.clone();
                tokio::spawn(async move {
                    // Whoever says nothing never becomes a client of HTTP/2, which has no bound for it.
                    if let Ok(Ok(())) = tokio::time::timeout(FIRST_BYTE, stream.readable()).await {
                        let connection = Connection {
                            stream,
                            _permit: permit,
                        };
                        let _ = to.send(Ok(connection)).await;
                    }
                });
            }
            // The client was gone before we came: its own affair.
            Err(error) if is_of_one_client(&error) => {}
            Err(error) => {
                if !failing {
                    tracing::error!(%error, "cannot accept connections; trying again");
                }
                failing = true;
                tokio::time::sleep(OUT_OF_ROOM).await;
            }
        }
    }
}

/// A connection and its place among those that may be.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    _permit: OwnedSemaphorePermit,
}

impl Connection {
    fn stream(self: Pin<&mut Self>) -> Pin<&mut TcpStream> {
        Pin::new(&mut self.get_mut().stream)
    }
}

impl Connected for Connection {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.stream().poll_read(context, to)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stream().poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream().poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_shutdown(context)
    }
}
