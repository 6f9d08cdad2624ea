//! The gateway's listener: connections of HTTP/1.1 and HTTP/2, bounded, watched, drained.
//!
//! # Theory
//!
//! Each thread accepts for itself, and a connection stays on the thread that accepted it. Which HTTP is
//! spoken is agreed in the TLS handshake, or seen from the first bytes. Everything that a stranger can
//! stretch has a bound; those in time are held by the connection's pulse, looked at once a second
//! (see [`crate::listen`]).
//!
//! Common requests of HTTP/1.1 are answered in the [`lane`]. All others are for hyper, which reads HTTP/1
//! through [`frames`], so that what the parser sees is unambiguous. Whatever is refused for
//! its form is refused before any limit is asked.
//!
//! # What it does not know
//!
//! Limits, queues and servers: a request is given to a service, and what it answers is written down.

mod accept;
mod connection;
mod frames;
mod head;
mod lane;
mod life;
mod line;
mod socket;
mod streams;
mod tunnel;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{sleep, timeout};
use tollgate_policy::ClientTimeouts;

use super::Stack;
use super::proxy::Way;
use crate::listen::warden::{Warden, drain};
use crate::listen::{ListenLimits, OUT_OF_ROOM, is_of_one_client, stopped, ticks};

pub(crate) use accept::Doorkeeper;

/// What all threads of a listener share.
#[derive(Debug)]
pub(crate) struct Door {
    pub(crate) keeper: ArcSwap<Doorkeeper>,
    pub(crate) timeouts: ArcSwap<ClientTimeouts>,
    /// None: no TLS.
    pub(crate) tls: ArcSwapOption<ServerConfig>,
    pub(crate) way: Arc<ArcSwap<Way>>,
    /// Connections that were turned away.
    pub(crate) turned_away: crate::metrics::Striped<2>,
}

/// Bounds in time of one connection, as the policy has them now.
fn limits(timeouts: &ClientTimeouts) -> ListenLimits {
    ListenLimits {
        head: timeouts.head.into(),
        idle: timeouts.idle.into(),
        write: timeouts.write.into(),
        ..ListenLimits::default()
    }
}

/// Serves until `stop` says so, then ends what is in flight.
pub(super) async fn serve(
    listener: TcpListener,
    connections: usize,
    door: Arc<Door>,
    stack: Stack,
    mut stop: watch::Receiver<bool>,
) {
    let room = Arc::new(Semaphore::new(connections));
    let common = Arc::new(connection::Common {
        door: Arc::clone(&door),
        stack,
        protocols: connection::Protocols::new(),
        stop: stop.clone(),
    });
    let begin = |(stream, peer, room): Accepted, warden: &mut Warden| {
        let admitted = match door.keeper.load().admit(peer, room) {
            Ok(admitted) => admitted,
            Err(why) => return door.turned_away.add(why as usize, 1),
        };
        let life = life::Life::new(admitted);
        let pulse = Arc::clone(&life.pulse);
        let made = connection::Made {
            stream,
            peer,
            life,
            common: Arc::clone(&common),
        };
        warden.add(pulse, tokio::spawn(made.serve()).abort_handle());
    };
    let mut failing = false;
    let mut warden = Warden::default();
    let mut tick = ticks();
    loop {
        let accepted = tokio::select! {
            biased;
            () = stopped(&mut stop) => break,
            // Before the next connection: a flood of them must not keep anybody from looking.
            _ = tick.tick() => {
                warden.look(&limits(&door.timeouts.load()));
                continue;
            }
            accepted = accept(&listener, &room) => accepted,
        };
        match accepted {
            Ok(accepted) => {
                failing = false;
                begin(accepted, &mut warden);
            }
            Err(error) if is_of_one_client(&error) => {}
            Err(error) => {
                if !failing {
                    tracing::error!(%error, "cannot accept connections; trying again");
                }
                failing = true;
                sleep(OUT_OF_ROOM).await;
            }
        }
    }
    warden.tell_to_end();
    // Connections that were made before the word to stop, and what was sent on them, are still answered.
    let mut late = Warden::default();
    while let Ok(accepted) = timeout(Duration::ZERO, accept(&listener, &room)).await {
        match accepted {
            Ok(accepted) => begin(accepted, &mut late),
            Err(error) if is_of_one_client(&error) => {}
            // Out of descriptors, say: who waits then finds nobody.
            Err(_) => break,
        }
    }
    drop(listener);
    drain(
        warden,
        late,
        &room,
        connections,
        &limits(&door.timeouts.load()),
    )
    .await;
}

type Accepted = (TcpStream, IpAddr, OwnedSemaphorePermit);

async fn accept(listener: &TcpListener, room: &Arc<Semaphore>) -> std::io::Result<Accepted> {
    let permit = Arc::clone(room).acquire_owned().await;
    let permit = permit.map_err(std::io::Error::other)?;
    let (stream, peer) = listener.accept().await?;
    Ok((stream, peer.ip().to_canonical(), permit))
}
