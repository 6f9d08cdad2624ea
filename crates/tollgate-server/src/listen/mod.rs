//! Connections: accepted, bounded, drained.
//!
//! # Theory
//!
//! One loop accepts, one task serves each connection: first on the [`fast_path`] if the handler has one,
//! then with hyper's HTTP/1. Everything that a stranger can
//! stretch has a bound in [`ListenLimits`]: how many connections, how long a head may take, how long a
//! connection may be idle, how large and how slow a body may be.
//!
//! Time is bounded without a timer per request. Each connection has a [`pulse::Pulse`]: a word that says
//! what it is doing and changes when that changes. Once a second the connection looks at its own word; one
//! that stood still for too long ends the connection. So a bound holds to within a second, and a request
//! pays two stores for it. (hyper's own timer is one allocation per request, and it also ends connections
//! that are merely idle.)
//!
//! # Invariant
//!
//! The loop ends only when it is told to stop. No error of `accept`, no panic of a handler and no client
//! ends it: out of descriptors it waits, a panic is answered with 500.
//!
//! # What it does not know
//!
//! What is asked: a [`Handler`] gets a request and the peer's address. A partial head that arrives in one
//! packet behind a whole request counts as idle until its next byte.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, sleep, timeout};

pub(crate) mod body;
pub(crate) mod fast_path;
pub(crate) mod hangup;
pub(crate) mod pulse;
pub(crate) mod response;
mod warden;

use fast_path::{Exit, Respond};
use response::ResponseBuffer;

use pulse::{Phase, Pulse, Watched};
use warden::{Warden, drain};

/// What answers requests.
pub(crate) trait Handler: Clone + Send + Sync + 'static {
    /// Answers one request from `peer`.
    fn handle(
        &self,
        request: Request<Incoming>,
        peer: IpAddr,
    ) -> impl Future<Output = Response<Full<Bytes>>> + Send;

    /// Are there requests that [`Handler::respond`] answers?
    const HAS_FAST_PATH: bool = false;

    /// Answers one request whose bytes are all there, or declines it. What it declines comes to
    /// [`Handler::handle`].
    fn respond(
        &self,
        request: &fast_path::Request<'_>,
        peer: IpAddr,
        response: &mut ResponseBuffer,
    ) -> Respond {
        let _ = (request, peer, response);
        Respond::Declined
    }
}

/// What a stranger may stretch, and how far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListenLimits {
    /// Connections at once; further ones wait in the system's queue.
    pub(crate) connections: usize,
    /// From the first byte of a head to its last.
    pub(crate) head: Duration,
    /// Between requests.
    pub(crate) idle: Duration,
    /// From the answer to its last byte.
    pub(crate) write: Duration,
    /// From the end of the answers to the client's own end, so that it reads the last one.
    pub(crate) linger: Duration,
    /// From the word to stop to the end of all requests in flight.
    pub(crate) drain: Duration,
    /// Bytes of a head.
    pub(crate) head_bytes: usize,
    /// Fields of a head.
    pub(crate) fields: usize,
    /// What a body may be.
    pub(crate) body: body::BodyLimits,
}

impl Default for ListenLimits {
    fn default() -> ListenLimits {
        ListenLimits {
            connections: 10_000,
            head: Duration::from_secs(5),
            idle: Duration::from_secs(60),
            write: Duration::from_secs(10),
            linger: Duration::from_secs(1),
            drain: Duration::from_secs(10),
            head_bytes: 16 * 1024,
            fields: 100,
            body: body::BodyLimits::default(),
        }
    }
}

/// How often a connection looks at its pulse.
pub(crate) const TICK: Duration = Duration::from_secs(1);
/// How long after the word to stop a connection that was just made may bring its request.
const GRACE: Duration = Duration::from_millis(50);
/// How long to wait when the system has no room for another connection.
pub(crate) const OUT_OF_ROOM: Duration = Duration::from_millis(100);

/// Serves until `stop` says so, then ends what is in flight.
pub(crate) async fn serve<H: Handler>(
    listener: TcpListener,
    handler: H,
    limits: ListenLimits,
    stop: watch::Receiver<bool>,
) {
    let mut protocol = http1::Builder::new();
    // Not `pipeline_flush`: with it, an answer is lost if the connection ends while bytes behind the
    // request are unread, as they are behind every head that is not understood.
    protocol
        .header_read_timeout(None)
        .max_headers(limits.fields)
        .max_buf_size(limits.head_bytes)
        // Answers are small: copying one behind its head is cheaper than handing over two parts.
        .writev(false)
        .keep_alive(true);
    let told = stop.clone();
    let begin = |(stream, peer, permit): Accepted| {
        // On the fast path from the start: its task may run later than the warden looks.
        let pulse = Arc::new(Pulse::beginning(H::HAS_FAST_PATH));
        let (handler, protocol) = (handler.clone(), protocol.clone());
        let (watched, stop) = (Arc::clone(&pulse), told.clone());
        let served = connection(stream, peer, watched, handler, protocol, limits, stop);
        let task = tokio::spawn(async move {
            served.await;
            drop(permit);
        });
        Some((pulse, task.abort_handle()))
    };
    accept_until(listener, limits.connections, || limits, stop, begin).await;
}

/// Accepts connections until `stop` says so, so many at once, has each of them served by what `begin` starts
/// unless it is turned away, and looks after those that are in the lane by the limits of that moment; then
/// ends what is in flight.
pub(crate) async fn accept_until(
    listener: TcpListener,
    connections: usize,
    limits: impl Fn() -> ListenLimits,
    mut stop: watch::Receiver<bool>,
    begin: impl Fn(Accepted) -> Option<(Arc<Pulse>, AbortHandle)>,
) {
    let room = Arc::new(Semaphore::new(connections));
    let mut failing = false;
    let mut warden = Warden::default();
    let mut tick = ticks();
    loop {
        let accepted = tokio::select! {
            biased;
            () = stopped(&mut stop) => break,
            // Before the next connection: a flood of them must not keep anybody from looking.
            _ = tick.tick() => {
                warden.look(&limits());
                continue;
            }
            accepted = accept(&listener, &room) => accepted,
        };
        match accepted {
            Ok(accepted) => {
                failing = false;
                warden.add(begin(accepted));
            }
            // The client was gone before we came: its own affair.
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
            Ok(accepted) => late.add(begin(accepted)),
            Err(error) if is_of_one_client(&error) => {}
            // Out of descriptors, say: who waits then finds nobody.
            Err(_) => break,
        }
    }
    drop(listener);
    drain(warden, late, &room, connections, &limits()).await;
}

/// A connection, whom it is with, and its part of the room for connections.
pub(crate) type Accepted = (TcpStream, IpAddr, OwnedSemaphorePermit);

pub(crate) fn ticks() -> Interval {
    let mut tick = interval_at(Instant::now() + TICK, TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tick
}

/// Waits for the word to stop; that nobody can say it any more is the word, too.
pub(crate) async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

async fn accept(listener: &TcpListener, room: &Arc<Semaphore>) -> io::Result<Accepted> {
    let permit = Arc::clone(room).acquire_owned().await;
    let permit = permit.map_err(io::Error::other)?;
    let (stream, peer) = listener.accept().await?;
    Ok((stream, peer.ip().to_canonical(), permit))
}

pub(crate) fn is_of_one_client(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    matches!(
        error.kind(),
        Kind::ConnectionAborted
            | Kind::ConnectionReset
            | Kind::ConnectionRefused
            | Kind::Interrupted
    )
}

async fn connection<H: Handler>(
    mut stream: TcpStream,
    peer: IpAddr,
    pulse: Arc<Pulse>,
    handler: H,
    protocol: http1::Builder,
    limits: ListenLimits,
    mut stop: watch::Receiver<bool>,
) {
    // Without it answers to pipelined requests wait for acknowledgements. If it fails, so will writing.
    let _ = stream.set_nodelay(true);
    let mut read = BytesMut::new();
    if H::HAS_FAST_PATH {
        let respond = |request: &fast_path::Request<'_>, response: &mut ResponseBuffer| {
            handler.respond(request, peer, response)
        };
        let served = fast_path::serve(&mut stream, &mut read, &pulse, &limits, respond);
        let exit = served.await;
        pulse.leave_lane();
        if exit == Exit::Done {
            return;
        }
    }
    let service = service_fn(|request| {
        let (handler, pulse) = (&handler, &pulse);
        async move {
            pulse.enter(Phase::Handling);
            let answer = contained(handler.handle(request, peer)).await;
            let answer = answer.unwrap_or_else(failed);
            pulse.enter(Phase::Writing);
            Ok::<_, Infallible>(answer)
        }
    });
    let io = Watched::new(stream, read.freeze(), Arc::clone(&pulse));
    let served = pin!(protocol.serve_connection(io, service));
    let ends = |served: Pin<&mut http1::Connection<_, _>>| served.graceful_shutdown();
    // Its errors are those of the client: gone, too slow, not HTTP.
    let _ = attended(served, &pulse, &limits, &mut stop, ends).await;
}

/// Waits for what a connection does, and gives it up if its pulse stands still for too long, or if it is
/// not done by the end of the drain. `ends` is told when the server stops.
pub(crate) async fn attended<F: Future>(
    mut work: Pin<&mut F>,
    pulse: &Pulse,
    limits: &ListenLimits,
    stop: &mut watch::Receiver<bool>,
    ends: impl FnOnce(Pin<&mut F>),
) -> Option<F::Output> {
    let mut tick = ticks();
    let mut beat = pulse::Beat::default();
    let mut ends = Some(ends);
    let mut last = None;
    loop {
        tokio::select! {
            biased;
            done = work.as_mut() => return Some(done),
            () = stopped(stop), if last.is_none() => {
                pulse.hurry();
                last = Some(Instant::now() + limits.drain);
                if let Some(ends) = ends.take() {
                    ends(work.as_mut());
                }
            }
            now = tick.tick() => {
                if beat.is_overdue(pulse, TICK, limits) || last.is_some_and(|last| now >= last) {
                    return None;
                }
            }
        }
    }
}

/// What the handler comes to; none if it panics.
pub(crate) async fn contained<T>(handling: impl Future<Output = T>) -> Option<T> {
    let mut handling = pin!(handling);
    poll_fn(|cx| {
        // What a handler shares with others is atomic or behind a lock that survives a panic.
        let polled = catch_unwind(AssertUnwindSafe(|| handling.as_mut().poll(cx)));
        polled.map(|polled| polled.map(Some)).unwrap_or_else(|_| {
            tracing::error!("a request made its handler panic; it was answered with 500");
            Poll::Ready(None)
        })
    })
    .await
}

/// The answer if the handler panics.
fn failed() -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::default());
    *answer.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    answer
}

#[cfg(test)]
mod tests;
