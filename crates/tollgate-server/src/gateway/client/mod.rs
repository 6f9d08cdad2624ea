//! The client side of the gateway: connections of HTTP/1.1 and HTTP/2, over TLS or not.
//!
//! # Theory
//!
//! Connections have the lifecycle of [`crate::net`]. TLS negotiates the version of HTTP; without TLS the first bytes show
//! it. Common HTTP/1.1 requests are answered on the [`fast_path`]. All others are for hyper, which reads HTTP/1 through the
//! framer of [`crate::net::http1`], so that what its parser sees is unambiguous. A malformed request is refused before any
//! limit sees it.
//!
//! Limits, queues and upstreams are behind a service that gets each request.

mod access_log;
mod connection;
pub(crate) mod fast_path;
mod socket;
mod stream_timeouts;
mod tunnel;

use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tollgate_config::ClientTimeouts;

use super::Stack;
use super::proxy::RoutingTable;
use crate::engine::Engine;
use crate::metrics::Striped;
use crate::net::limiter::ConnectionLimiter;
use crate::net::{ListenLimits, serve_connections};

/// What all threads of the listener share. A reload replaces its parts.
#[derive(Debug)]
pub(crate) struct ListenerState {
    pub(crate) limiter: ArcSwap<ConnectionLimiter>,
    pub(crate) timeouts: ArcSwap<ClientTimeouts>,
    /// `None`: no TLS.
    pub(crate) tls: ArcSwapOption<ServerConfig>,
    pub(crate) routes: Arc<ArcSwap<RoutingTable>>,
    /// Rejected connections, by [`crate::net::limiter::ConnectionRejected`].
    pub(crate) rejected: Striped<2>,
    /// The engine whose policy says what the access log may show; `None`: no access log.
    pub(crate) access_log: Option<Arc<Engine>>,
}

/// Bounds of a connection under the current policy.
fn limits(timeouts: &ClientTimeouts) -> ListenLimits {
    ListenLimits {
        head: timeouts.head.into(),
        idle: timeouts.idle.into(),
        write: timeouts.write.into(),
        ..ListenLimits::default()
    }
}

/// Serves until `stop`, then drains.
pub(super) async fn serve(
    listener: TcpListener,
    connections: usize,
    listening: Arc<ListenerState>,
    stack: Stack,
    stop: watch::Receiver<bool>,
) {
    let context = Arc::new(connection::ConnectionContext::new(
        Arc::clone(&listening),
        stack,
        stop.clone(),
    ));
    let limits = || ListenLimits {
        connections,
        ..limits(&listening.timeouts.load())
    };
    let admit = |peer| {
        let admitted = listening.limiter.load().admit(peer);
        admitted.inspect_err(|why| listening.rejected.add(*why as usize, 1))
    };
    serve_connections(listener, limits, admit, stop, |accepted| {
        connection::serve(accepted, Arc::clone(&context))
    })
    .await;
}
