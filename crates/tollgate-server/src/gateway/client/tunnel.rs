//! Tunnels: bytes in both directions until one side ends or both are silent for too long.
//!
//! A tunnel holds what its request holds: permits of limits and of a queue, and its place at the server. A shutdown ends
//! tunnels at once, because when one would end by itself cannot be known.

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

use crate::gateway::proxy::TunnelEnds;
use crate::net::state::ConnectionState;
use crate::net::{TICK, stopped, ticks};

/// Until both sides have switched protocols.
const SWITCH: Duration = Duration::from_secs(10);

/// Runs a tunnel in a task of its own.
pub(super) fn open(
    ends: TunnelEnds,
    held: Option<TunnelGuard>,
    state: Arc<ConnectionState>,
    mut stop: watch::Receiver<bool>,
) {
    let TunnelEnds {
        client,
        server,
        idle,
        in_flight,
    } = ends;
    tokio::spawn(async move {
        let both = async { tokio::try_join!(client, server) };
        if let Ok(Ok((client, server))) = timeout(SWITCH, both).await {
            let moved = AtomicU64::new(0);
            let counted = |io| CountedReads { io, moved: &moved };
            let mut client = counted(TokioIo::new(client));
            let mut server = counted(TokioIo::new(server));
            tokio::select! {
                _ = copy_bidirectional(&mut client, &mut server) => {}
                () = silence(&moved, idle) => {}
                () = stopped(&mut stop) => {}
            }
        }
        drop((held, in_flight, state));
    });
}

/// Returns when no byte has moved for `idle`.
async fn silence(moved: &AtomicU64, idle: Duration) {
    let mut tick = ticks();
    let (mut before, mut still) = (0, Duration::ZERO);
    while still < idle {
        tick.tick().await;
        let now = moved.load(Relaxed);
        if now == before {
            still += TICK;
        } else {
            (before, still) = (now, Duration::ZERO);
        }
    }
}

/// Counts reads.
struct CountedReads<'a, S> {
    io: S,
    moved: &'a AtomicU64,
}

impl<S: AsyncRead + Unpin> AsyncRead for CountedReads<'_, S> {
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

impl<S: AsyncWrite + Unpin> AsyncWrite for CountedReads<'_, S> {
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
