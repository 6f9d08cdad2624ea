//! Connections that became something else than HTTP: bytes both ways until one side ends, or both are
//! silent for too long.
//!
//! Whatever the request held (a place in a limit, its turn in a queue, its place at the server) is held
//! until then.
//!
//! A server that stops ends its tunnels at once. Nobody knows when one would end by itself, and one that
//! says nothing must not hold up a stop for which nothing else is waited for.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional};
use tokio::sync::watch;
use tokio::time::timeout;
use tollgate_tower::TunnelGuard;

use super::life::Life;
use crate::gateway::proxy::Ends;
use crate::listen::{stopped, ticks};

/// Both sides have said that they switch; it must not take long until both have.
const SWITCH: Duration = Duration::from_secs(10);

/// Opens a tunnel that goes on by itself.
pub(super) fn open(
    ends: Ends,
    held: Option<TunnelGuard>,
    life: Arc<Life>,
    mut stop: watch::Receiver<bool>,
) {
    let Ends {
        client,
        server,
        idle,
        with,
    } = ends;
    tokio::spawn(async move {
        let both = async { tokio::try_join!(client, server) };
        if let Ok(Ok((client, server))) = timeout(SWITCH, both).await {
            let moved = AtomicU64::new(0);
            let seen = |io| Seen { io, moved: &moved };
            let mut client = seen(TokioIo::new(client));
            let mut server = seen(TokioIo::new(server));
            tokio::select! {
                _ = copy_bidirectional(&mut client, &mut server) => {}
                () = silence(&moved, idle) => {}
                () = stopped(&mut stop) => {}
            }
        }
        drop((held, with, life));
    });
}

/// Ends when nothing has moved for so long.
async fn silence(moved: &AtomicU64, idle: Duration) {
    let mut tick = ticks();
    let (mut before, mut still) = (0, Duration::ZERO);
    while still < idle {
        tick.tick().await;
        let now = moved.load(Relaxed);
        if now == before {
            still += crate::listen::TICK;
        } else {
            (before, still) = (now, Duration::ZERO);
        }
    }
}

/// Counts what is read.
struct Seen<'a, S> {
    io: S,
    moved: &'a AtomicU64,
}

impl<S: AsyncRead + Unpin> AsyncRead for Seen<'_, S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.io).poll_read(cx, buffer))?;
        self.moved.fetch_add(1, Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Seen<'_, S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buffer)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
