//! Serves HTTP/1 on a port: requests come to a [`Handler`] from the fast path, if it has one, and otherwise from hyper.

use std::convert::Infallible;
use std::future::Future;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::fast_path::{self, Exit, Respond};
use super::response::ResponseBuffer;
use super::unread::Unread;
use crate::net::io::{Framing, TrackedIo};
use crate::net::limiter::{AddressPermit, ConnectionRejected};
use crate::net::{Accepted, ListenLimits, contain_panic, drive, register_task, serve_connections};

/// Responds to the requests of a port.
pub(crate) trait Handler: Clone + Send + Sync + 'static {
    /// Responds to one request from `peer`.
    fn handle(
        &self,
        request: Request<Incoming>,
        peer: IpAddr,
    ) -> impl Future<Output = Response<Full<Bytes>>> + Send;

    /// Does [`Handler::respond`] respond to any request?
    const HAS_FAST_PATH: bool = false;

    /// Responds to a request that is complete in memory, or declines it. A declined one goes to [`Handler::handle`].
    fn respond(
        &self,
        request: &fast_path::Request<'_>,
        peer: IpAddr,
        response: &mut ResponseBuffer,
    ) -> Respond {
        let _ = (request, peer, response);
        Respond::Declined
    }

    /// Admits a connection, or rejects it.
    fn admit_connection(&self, peer: IpAddr) -> Result<Option<AddressPermit>, ConnectionRejected> {
        let _ = peer;
        Ok(None)
    }
}

/// Serves until `stop`, then drains.
pub(crate) async fn serve<H: Handler>(
    listener: TcpListener,
    handler: H,
    limits: ListenLimits,
    stop: watch::Receiver<bool>,
) {
    let mut protocol = http1::Builder::new();
    // Not `pipeline_flush`: with it, a response is lost if the connection ends while bytes after the request are
    // unread, as they are after every head that hyper does not accept.
    protocol
        .header_read_timeout(None)
        .max_headers(limits.fields)
        .max_buf_size(limits.head_bytes)
        // Responses are small: one copy after its head is cheaper than two slices.
        .writev(false)
        .keep_alive(true);
    let admit = |peer| handler.admit_connection(peer);
    serve_connections(
        listener,
        || limits,
        admit,
        stop,
        |accepted| serve_connection(accepted, handler.clone(), protocol.clone(), limits),
    )
    .await;
}

async fn serve_connection<H: Handler>(
    accepted: Accepted,
    handler: H,
    protocol: http1::Builder,
    limits: ListenLimits,
) {
    let Accepted {
        mut stream,
        peer,
        state,
    } = accepted;
    register_task(&state).await;
    let mut unread = Unread::default();
    if H::HAS_FAST_PATH {
        let respond = |request: &fast_path::Request<'_>, response: &mut ResponseBuffer| {
            handler.respond(request, peer, response)
        };
        let served = fast_path::serve(&mut stream, &mut unread, &state, &limits, respond);
        if served.await != Exit::ToHyper {
            return;
        }
    }
    let service = service_fn(|request| {
        let (handler, state) = (&handler, &state);
        async move {
            let guard = state.start_request();
            let response = contain_panic(handler.handle(request, peer)).await;
            drop(guard);
            Ok::<_, Infallible>(response.unwrap_or_else(panicked))
        }
    });
    let io = TrackedIo::new(stream, unread.bytes, Framing::Http1, Arc::clone(&state));
    let connection = pin!(protocol.serve_connection(io, service));
    // Its errors are those of the client: gone, too slow, not HTTP.
    let _ = drive(connection, &state, |connection| {
        connection.graceful_shutdown();
    })
    .await;
}

/// The response after a panic of the handler.
fn panicked() -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    response
}
