//! Accepts connections within bounds, and serves each in a task of its own.

use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::sleep;

use super::limiter::{AddressPermit, ConnectionRejected};
use super::reaper::{IdleReaper, drain};
use super::state::ConnectionState;
use super::{ListenLimits, stopped, ticks};

/// How long to wait when the system has no room for another connection.
const OUT_OF_ROOM: Duration = Duration::from_millis(100);

/// A connection that may be served.
pub(crate) struct Accepted {
    pub(crate) stream: TcpStream,
    pub(crate) peer: IpAddr,
    pub(crate) state: Arc<ConnectionState>,
}

/// Admits every address; only the total bounds the connections.
#[expect(
    clippy::unnecessary_wraps,
    reason = "has the form of a check that may refuse"
)]
pub(crate) fn admit_all(_: IpAddr) -> Result<Option<AddressPermit>, ConnectionRejected> {
    Ok(None)
}

/// Accepts connections until `stop`, then drains them.
///
/// A connection that `admit` rejects is closed at once. `limits` are read at every tick, so
/// a changed policy holds for open connections too; the total is that of the start.
///
/// No error of `accept` ends the loop: without a free descriptor it waits.
pub(crate) async fn serve_connections<F>(
    listener: TcpListener,
    limits: impl Fn() -> ListenLimits,
    admit: impl Fn(IpAddr) -> Result<Option<AddressPermit>, ConnectionRejected>,
    mut stop: watch::Receiver<bool>,
    serve: impl Fn(Accepted) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let connections = limits().connections;
    let room = Arc::new(Semaphore::new(connections));
    let spawn = |reaper: &mut IdleReaper, (stream, peer, permit): Connected| {
        let Ok(address) = admit(peer) else { return };
        // Without it, responses to pipelined requests wait for acknowledgements. If it fails, so does writing.
        let _ = stream.set_nodelay(true);
        let state = Arc::new(ConnectionState::new(Some(permit), address));
        let served = serve(Accepted {
            stream,
            peer,
            state: Arc::clone(&state),
        });
        reaper.track(&state, tokio::spawn(served).abort_handle());
    };
    let mut is_failing = false;
    let mut reaper = IdleReaper::default();
    let mut tick = ticks();
    loop {
        let accepted = tokio::select! {
            biased;
            () = stopped(&mut stop) => break,
            // Before the next connection: a flood of them must not delay the reaper.
            _ = tick.tick() => {
                reaper.tick(&limits());
                continue;
            }
            accepted = accept(&listener, &room) => accepted,
        };
        match accepted {
            Ok(connected) => {
                is_failing = false;
                spawn(&mut reaper, connected);
            }
            Err(error) if is_of_one_client(&error) => {}
            Err(error) => {
                if !is_failing {
                    tracing::error!(%error, "cannot accept connections; retrying every 100 ms");
                }
                is_failing = true;
                sleep(OUT_OF_ROOM).await;
            }
        }
    }
    let mut new = reaper.shut_down_used();
    // Connections in the system's queue, and what was sent on them, are still answered. The system is asked
    // directly: the runtime may not have seen them yet.
    if let Ok(queue) = listener.into_std() {
        while let Ok(permit) = Arc::clone(&room).try_acquire_owned() {
            let connected = queue.accept().and_then(|(stream, peer)| {
                stream.set_nonblocking(true)?;
                Ok((
                    TcpStream::from_std(stream)?,
                    peer.ip().to_canonical(),
                    permit,
                ))
            });
            match connected {
                Ok(connected) => spawn(&mut new, connected),
                Err(error) if is_of_one_client(&error) => {}
                // The queue is empty; or, for example, no descriptor is free, and the system closes what waits.
                Err(_) => break,
            }
        }
    }
    drain(reaper, new, &room, connections, &limits()).await;
}

type Connected = (TcpStream, IpAddr, OwnedSemaphorePermit);

async fn accept(listener: &TcpListener, room: &Arc<Semaphore>) -> io::Result<Connected> {
    let permit = Arc::clone(room).acquire_owned().await;
    let permit = permit.map_err(io::Error::other)?;
    let (stream, peer) = listener.accept().await?;
    Ok((stream, peer.ip().to_canonical(), permit))
}

/// Errors of one connection that ended before it was accepted.
fn is_of_one_client(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    matches!(
        error.kind(),
        Kind::ConnectionAborted
            | Kind::ConnectionReset
            | Kind::ConnectionRefused
            | Kind::Interrupted
    )
}
