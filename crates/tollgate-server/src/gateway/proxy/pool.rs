//! Connections to servers, each thread with its own.
//!
//! # Theory
//!
//! A thread keeps the connections that it made and uses the one that rested least. They are dropped when
//! they have rested for longer than [`REST`], which is below what common servers allow, so that a server
//! seldom closes a connection just as a request goes out on it.
//!
//! # Invariant
//!
//! A request is sent once. Only one that the connection gave back, before a byte of it was written, is put
//! on another connection. A connection whose answer was not read to its end is closed, never used again.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};
use tollgate_config::{Protocol, UpstreamSpec};

use super::body::{BoxError, Passes, Upload};
use super::server::Server;
use super::stream::connect;
use super::wire;

/// How long a connection rests before it is dropped: servers that close after five seconds are common.
pub(super) const REST: Duration = Duration::from_secs(4);
/// Connections of one thread to one server that rest.
pub(super) const RESTING: usize = 256;
/// Bytes of the head of an answer.
pub(super) const HEAD_BYTES: usize = 64 * 1024;

/// A connection of HTTP/1 to a server.
#[derive(Debug)]
pub(super) struct Http1 {
    sender: http1::SendRequest<Upload>,
    task: AbortHandle,
    rested_since: Instant,
}

/// A connection of HTTP/2 to a server.
#[derive(Clone, Debug)]
pub(super) struct Http2 {
    sender: http2::SendRequest<Upload>,
}

/// Why a request was not answered.
#[derive(Debug)]
pub(super) enum Unsent {
    /// No connection could be made; the request is whole and where it was.
    Unreachable(io::Error),
    /// The request went out, perhaps, and no answer came.
    Broken(BoxError),
}

/// A connection that a request is on. Closed when this is dropped, unless it was given back.
#[derive(Debug)]
pub(super) struct Lent {
    connection: Option<Http1>,
    server: Arc<Server>,
    thread: usize,
}

impl Lent {
    /// The answer was read to its end: the connection rests, if it can.
    pub(super) fn give_back(mut self) {
        let Some(mut connection) = self.connection.take() else {
            return;
        };
        if connection.sender.is_ready() {
            rest(&self.server, self.thread, connection);
            return;
        }
        if connection.sender.is_closed() {
            return;
        }
        // The rest of the request is still being sent, or the connection has not come round to it.
        let (server, thread) = (Arc::clone(&self.server), self.thread);
        tokio::spawn(async move {
            match timeout(Duration::from_secs(1), connection.sender.ready()).await {
                Ok(Ok(())) => rest(&server, thread, connection),
                _ => connection.task.abort(),
            }
        });
    }

    /// The connection becomes something else than HTTP.
    pub(super) fn let_go(mut self) {
        self.connection = None;
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            connection.task.abort();
        }
    }
}

fn rest(server: &Server, thread: usize, mut connection: Http1) {
    connection.rested_since = Instant::now();
    let Some(mut idle) = server.idle(thread) else {
        return;
    };
    // The oldest are in front.
    while let Some(oldest) = idle.front() {
        let is_old = connection.rested_since.duration_since(oldest.rested_since) > REST;
        if !is_old && idle.len() < RESTING && !oldest.sender.is_closed() {
            break;
        }
        idle.pop_front();
    }
    idle.push_back(connection);
}

/// A connection that rested, and not for too long.
fn rested(server: &Server, thread: usize) -> Option<Http1> {
    let mut idle = server.idle(thread)?;
    while let Some(connection) = idle.pop_back() {
        if !connection.sender.is_ready() {
            continue;
        }
        if connection.rested_since.elapsed() > REST {
            // All others have rested for longer.
            idle.clear();
            return None;
        }
        return Some(connection);
    }
    None
}

/// Sends a request to a server and waits for the head of the answer.
///
/// The request is taken from its place when it goes out, and put back if nothing of it did. So it is moved
/// once, not with every future around it. One that is only lent goes out as it lies there.
pub(super) async fn send(
    server: &Arc<Server>,
    spec: &UpstreamSpec,
    thread: usize,
    request: &mut Option<Request<Upload>>,
) -> Result<Response<Passes>, Unsent> {
    // Boxed: streams and bodies are dear beside a box, and the common way stays small.
    match (spec.protocol, &*request) {
        (Protocol::Http1, Some(bare)) if wire::is_bare(bare) => {
            let answer = wire::exchange(server, spec, thread, bare).await?;
            Ok(answer.map(Passes::from))
        }
        (Protocol::Http1, _) => {
            let sent = Box::pin(send_http1(server, spec, thread, request)).await?;
            let (answer, lent) = sent;
            Ok(answer.map(|body| Passes::Http1(body, Some(lent))))
        }
        (Protocol::Http2, _) => {
            let answer = Box::pin(send_http2(server, spec, thread, request)).await?;
            Ok(answer.map(Passes::Http2))
        }
    }
}

async fn send_http1(
    server: &Arc<Server>,
    spec: &UpstreamSpec,
    thread: usize,
    request: &mut Option<Request<Upload>>,
) -> Result<(Response<Incoming>, Lent), Unsent> {
    loop {
        let known = rested(server, thread);
        let is_new = known.is_none();
        let connection = match known {
            Some(connection) => connection,
            None => in_time(spec, Box::pin(connect_http1(server))).await?,
        };
        let mut lent = Lent {
            connection: Some(connection),
            server: Arc::clone(server),
            thread,
        };
        let (Some(connection), Some(whole)) = (&mut lent.connection, request.take()) else {
            return Err(Unsent::Unreachable(timed_out()));
        };
        match connection.sender.try_send_request(whole).await {
            Ok(answer) => return Ok((answer, lent)),
            Err(mut error) => match error.take_message() {
                // It was closed while it rested; nothing of the request was written.
                Some(whole) => *request = Some(whole),
                None => return Err(Unsent::Broken(error.into_error().into())),
            },
        }
        if is_new {
            let cause = io::Error::from(io::ErrorKind::ConnectionAborted);
            return Err(Unsent::Unreachable(cause));
        }
    }
}

async fn send_http2(
    server: &Arc<Server>,
    spec: &UpstreamSpec,
    thread: usize,
    request: &mut Option<Request<Upload>>,
) -> Result<Response<Incoming>, Unsent> {
    let gone = || Unsent::Unreachable(timed_out());
    let known = server.shared(thread).and_then(|shared| shared.clone());
    if let Some(mut known) = known.filter(|known| known.sender.is_ready()) {
        let whole = request.take().ok_or_else(gone)?;
        match known.sender.try_send_request(whole).await {
            Ok(answer) => return Ok(answer),
            Err(mut error) => match error.take_message() {
                Some(whole) => *request = Some(whole),
                None => return Err(Unsent::Broken(error.into_error().into())),
            },
        }
    }
    let mut connection = in_time(spec, connect_http2(server)).await?;
    if let Some(mut shared) = server.shared(thread) {
        // Two may have been made at once; the later stays, the earlier ends with its requests.
        *shared = Some(connection.clone());
    }
    let whole = request.take().ok_or_else(gone)?;
    connection
        .sender
        .try_send_request(whole)
        .await
        .map_err(|error| Unsent::Broken(error.into_error().into()))
}

/// A connection, made in the time that there is for it.
pub(super) async fn in_time<T>(
    spec: &UpstreamSpec,
    connecting: impl Future<Output = io::Result<T>>,
) -> Result<T, Unsent> {
    match timeout(spec.connect.into(), connecting).await {
        Ok(connected) => connected.map_err(Unsent::Unreachable),
        Err(_) => Err(Unsent::Unreachable(timed_out())),
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
    // Its errors are told to whoever waits for an answer on it.
    let task = tokio::spawn(async move {
        let _ = connection.with_upgrades().await;
    });
    Ok(Http1 {
        sender,
        task: task.abort_handle(),
        rested_since: Instant::now(),
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
