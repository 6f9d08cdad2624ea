//! Sends requests to servers over connections of each thread.
//!
//! # Invariant
//!
//! A request is sent once. It is put on another connection only if no byte of it was written. A connection whose response
//! was not read to its end is closed.

use std::future::Future;
use std::io;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tollgate_config::{Protocol, UpstreamSpec};

use super::body::{BoxError, Upload, UpstreamBody};
use super::idle_pool::{self, IdlePool, Reusable};
use super::server::Server;
use super::stream::connect;
use super::wire;

/// Bytes of a response head.
pub(super) const HEAD_BYTES: usize = 64 * 1024;

/// An HTTP/1 connection to a server.
#[derive(Debug)]
pub(super) struct Http1 {
    sender: http1::SendRequest<Upload>,
    task: AbortHandle,
}

/// An HTTP/2 connection to a server.
#[derive(Clone, Debug)]
pub(super) struct Http2 {
    sender: http2::SendRequest<Upload>,
}

/// Why a request was not answered.
#[derive(Debug)]
pub(super) enum SendError {
    /// No connection was made; the request is unchanged in its place.
    Unreachable(io::Error),
    /// The request may have been sent, and no response arrived.
    Broken(BoxError),
}

/// A connection that is in use by a request. Dropping it closes the connection unless it was put back.
#[derive(Debug)]
pub(super) struct Checkout {
    connection: Option<Http1>,
    server: Arc<Server>,
    thread: usize,
}

impl Checkout {
    /// The response was read to its end: the connection becomes idle, if it can.
    pub(super) fn put_back(mut self) {
        let Some(mut connection) = self.connection.take() else {
            return;
        };
        if connection.sender.is_ready() {
            idle_pool::put_back(&self.server, self.thread, connection);
            return;
        }
        if connection.sender.is_closed() {
            return;
        }
        // The connection still sends the request, or has not been polled since.
        let (server, thread) = (Arc::clone(&self.server), self.thread);
        tokio::spawn(async move {
            match timeout(Duration::from_secs(1), connection.sender.ready()).await {
                Ok(Ok(())) => idle_pool::put_back(&server, thread, connection),
                _ => connection.task.abort(),
            }
        });
    }

    /// The connection becomes a tunnel.
    pub(super) fn detach(mut self) {
        self.connection = None;
    }
}

impl Drop for Checkout {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            connection.task.abort();
        }
    }
}

impl Reusable for Http1 {
    fn pool(server: &Server, thread: usize) -> Option<MutexGuard<'_, IdlePool<Http1>>> {
        server.idle_http1(thread)
    }

    fn is_usable(&mut self) -> bool {
        self.sender.is_ready()
    }
}

/// Sends a request to a server and waits for the head of the response.
///
/// The request is taken from its place when it is sent, and put back if nothing of it was. So it is moved once, not with
/// every future around it.
pub(super) async fn send(
    server: &Arc<Server>,
    spec: &UpstreamSpec,
    thread: usize,
    request: &mut Option<Request<Upload>>,
) -> Result<Response<UpstreamBody>, SendError> {
    // Boxed, so that the future of the common case stays small.
    match (spec.protocol, &*request) {
        (Protocol::Http1, Some(bare)) if wire::is_bare(bare) => {
            let response = wire::exchange(server, spec, thread, bare).await?;
            Ok(response.map(UpstreamBody::from))
        }
        (Protocol::Http1, _) => {
            let sent = Box::pin(send_http1(server, spec, thread, request)).await?;
            let (response, checkout) = sent;
            Ok(response.map(|body| UpstreamBody::Hyper(body, Some(checkout))))
        }
        (Protocol::Http2, _) => {
            let response = Box::pin(send_http2(server, spec, thread, request)).await?;
            Ok(response.map(|body| UpstreamBody::Hyper(body, None)))
        }
    }
}

async fn send_http1(
    server: &Arc<Server>,
    spec: &UpstreamSpec,
    thread: usize,
    request: &mut Option<Request<Upload>>,
) -> Result<(Response<Incoming>, Checkout), SendError> {
    loop {
        let idle = idle_pool::take::<Http1>(server, thread);
        let is_new = idle.is_none();
        let connection = match idle {
            Some(connection) => connection,
            None => in_time(spec, Box::pin(connect_http1(server))).await?,
        };
        let mut checkout = Checkout {
            connection: Some(connection),
            server: Arc::clone(server),
            thread,
        };
        let (Some(connection), Some(whole)) = (&mut checkout.connection, request.take()) else {
            return Err(SendError::Unreachable(timed_out()));
        };
        match connection.sender.try_send_request(whole).await {
            Ok(response) => return Ok((response, checkout)),
            Err(mut error) => match error.take_message() {
                // It was closed while it was idle; nothing of the request was written.
                Some(whole) => *request = Some(whole),
                None => return Err(SendError::Broken(error.into_error().into())),
            },
        }
        if is_new {
            let cause = io::Error::from(io::ErrorKind::ConnectionAborted);
            return Err(SendError::Unreachable(cause));
        }
    }
}

async fn send_http2(
    server: &Arc<Server>,
    spec: &UpstreamSpec,
    thread: usize,
    request: &mut Option<Request<Upload>>,
) -> Result<Response<Incoming>, SendError> {
    let gone = || SendError::Unreachable(timed_out());
    let known = server.http2(thread).and_then(|known| known.clone());
    if let Some(mut known) = known.filter(|known| known.sender.is_ready()) {
        let whole = request.take().ok_or_else(gone)?;
        match known.sender.try_send_request(whole).await {
            Ok(response) => return Ok(response),
            Err(mut error) => match error.take_message() {
                Some(whole) => *request = Some(whole),
                None => return Err(SendError::Broken(error.into_error().into())),
            },
        }
    }
    let mut connection = in_time(spec, connect_http2(server)).await?;
    if let Some(mut known) = server.http2(thread) {
        // Two may be made at once. The later one stays; the earlier one ends with its requests.
        *known = Some(connection.clone());
    }
    let whole = request.take().ok_or_else(gone)?;
    connection
        .sender
        .try_send_request(whole)
        .await
        .map_err(|error| SendError::Broken(error.into_error().into()))
}

/// The result of `connecting` within the connect timeout.
pub(super) async fn in_time<T>(
    spec: &UpstreamSpec,
    connecting: impl Future<Output = io::Result<T>>,
) -> Result<T, SendError> {
    match timeout(spec.connect.into(), connecting).await {
        Ok(connected) => connected.map_err(SendError::Unreachable),
        Err(_) => Err(SendError::Unreachable(timed_out())),
    }
}

fn timed_out() -> io::Error {
    io::Error::from(io::ErrorKind::TimedOut)
}

async fn connect_http1(server: &Server) -> io::Result<Http1> {
    let io = TokioIo::new(connect(server).await?);
    let mut builder = http1::Builder::new();
    builder.max_headers(256).max_buf_size(HEAD_BYTES);
    let (sender, connection) = builder.handshake(io).await.map_err(io::Error::other)?;
    // Its errors reach the request that waits for a response.
    let task = tokio::spawn(async move {
        let _ = connection.with_upgrades().await;
    });
    Ok(Http1 {
        sender,
        task: task.abort_handle(),
    })
}

async fn connect_http2(server: &Server) -> io::Result<Http2> {
    let io = TokioIo::new(connect(server).await?);
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .initial_stream_window_size(256 * 1024)
        .initial_connection_window_size(4 * 1024 * 1024)
        .max_header_list_size(64 * 1024)
        .keep_alive_interval(Duration::from_secs(20))
        .keep_alive_timeout(Duration::from_secs(10));
    let (sender, connection) = builder.handshake(io).await.map_err(io::Error::other)?;
    tokio::spawn(async move {
        let _ = connection.await;
    });
    Ok(Http2 { sender })
}
