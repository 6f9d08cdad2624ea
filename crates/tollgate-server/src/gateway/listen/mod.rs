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
pub(crate) mod lane;
mod life;
mod line;
mod socket;
mod streams;
mod tunnel;

use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tollgate_config::ClientTimeouts;

use super::Stack;
use super::proxy::Way;
use crate::listen::{Accepted, ListenLimits, accept_until};

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
    stop: watch::Receiver<bool>,
) {
    let common = Arc::new(connection::Common {
        door: Arc::clone(&door),
        stack,
        protocols: connection::Protocols::new(),
        stop: stop.clone(),
    });
    let begin = |(stream, peer, room): Accepted| {
        let admitted = door.keeper.load().admit(peer, room);
        let counted = admitted.inspect_err(|why| door.turned_away.add(*why as usize, 1));
        let life = life::Life::new(counted.ok()?);
        let pulse = Arc::clone(&life.pulse);
        let made = connection::Made {
            stream,
            peer,
            life,
            common: Arc::clone(&common),
        };
        Some((pulse, tokio::spawn(made.serve()).abort_handle()))
    };
    let bounds = || limits(&door.timeouts.load());
    accept_until(listener, connections, bounds, stop, begin).await;
}
