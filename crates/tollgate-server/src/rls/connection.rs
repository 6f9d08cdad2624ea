//! One connection of Envoy: reads what has arrived, answers all of it, writes once.
//!
//! # Time
//!
//! The listener ([`crate::net`]) bounds the time of the preface, of an incomplete frame or header block, of unread
//! responses, and of a shutdown. This module sends keepalive PINGs, which any bytes answer, and resets streams that have
//! waited for their client since the last PING.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::AsyncWrite;
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};

use tollgate_grpc::{Events, Fallback, Handler, Method, Session};

use super::Limits;
use super::messages::{RateLimitResponse, SHOULD_RATE_LIMIT};
use super::request::MESSAGE_BYTES;
use crate::net::buffers::{self, READ_BYTES};
use crate::net::io::linger;
use crate::net::register_task;
use crate::net::state::{ConnectionState, Phase};

/// How often a client is pinged, and how long it may take to answer.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(60);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a client may take to acknowledge the announced shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);
/// How often a connection is read before it yields to others.
const READS_PER_POLL: u32 = 16;
/// Output capacity that an idle connection keeps.
const KEPT_CAPACITY: usize = 8 * 1024;

/// The method that is decided where its frames are read.
pub(super) const METHOD: Method = Method {
    path: SHOULD_RATE_LIMIT,
    max_message_bytes: MESSAGE_BYTES,
};

/// Serves a connection to its end.
pub(super) async fn serve(
    stream: TcpStream,
    limits: Arc<Limits>,
    fallback: impl Fallback,
    state: Arc<ConnectionState>,
) {
    let respond = move |request, deadline| {
        let limits = Arc::clone(&limits);
        async move { limits.respond(request, deadline).await }
    };
    let session = Session::new(METHOD, respond, fallback);
    let mut connection = Connection::new(stream, session, state);
    connection.state.enter(Phase::Head);
    let mut keepalive = pin!(sleep(KEEPALIVE_INTERVAL));
    let mut shutdown: Option<Pin<Box<Sleep>>> = None;
    register_task(&connection.state).await;
    let run = poll_fn(|cx| {
        if connection.state.is_shutting_down() && shutdown.is_none() {
            connection.session.start_shutdown();
            shutdown = Some(Box::pin(sleep(SHUTDOWN_TIMEOUT)));
        }
        if let Some(timeout) = &mut shutdown
            && timeout.as_mut().poll(cx).is_ready()
        {
            connection.session.drain();
            timeout.as_mut().reset(Instant::now() + KEEPALIVE_INTERVAL);
        }
        while keepalive.as_mut().poll(cx).is_ready() {
            let Some(again) = connection.check_alive() else {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            };
            keepalive.as_mut().reset(Instant::now() + again);
        }
        connection.poll(cx)
    });
    if run.await.is_ok() {
        let _ = linger(connection.stream, &connection.state).await;
    }
}

/// A connection.
struct Connection<S, H: Handler> {
    stream: TcpStream,
    session: Session<S, H>,
    events: Events<RateLimitResponse>,
    /// Received and not consumed: an incomplete frame, or bytes that wait until output is written.
    unread: BytesMut,
    /// Bytes of the output that are written.
    written: usize,
    /// A complete frame was consumed since the phase was last updated.
    has_progressed: bool,
    /// The client sent bytes since the last PING.
    received: bool,
    is_pinged: bool,
    state: Arc<ConnectionState>,
}

impl<S: Fallback, H: Handler<Response = RateLimitResponse>> Connection<S, H> {
    fn new(
        stream: TcpStream,
        (session, events): (Session<S, H>, Events<RateLimitResponse>),
        state: Arc<ConnectionState>,
    ) -> Connection<S, H> {
        Connection {
            stream,
            session,
            events,
            unread: BytesMut::new(),
            written: 0,
            has_progressed: false,
            received: false,
            is_pinged: false,
            state,
        }
    }

    /// Pings the client, or checks that it answered. Returns the time until the next call, or `None` if the client has disconnected.
    fn check_alive(&mut self) -> Option<Duration> {
        if std::mem::replace(&mut self.is_pinged, false) {
            return self
                .received
                .then_some(KEEPALIVE_INTERVAL - KEEPALIVE_TIMEOUT);
        }
        self.is_pinged = true;
        self.received = false;
        self.session.reset_stalled();
        self.session.send_keepalive();
        Some(KEEPALIVE_TIMEOUT)
    }

    /// Makes progress until the connection is closed and its output written. An error means that the client has disconnected.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        for _ in 0..READS_PER_POLL {
            let has_all_events = self.take_events(cx);
            self.session.send();
            let is_written = self.poll_write(cx)?.is_ready();
            if self.session.is_closed() {
                return match is_written {
                    true => Poll::Ready(Ok(())),
                    false => Poll::Pending,
                };
            }
            // Output was just written, so events and streams that waited for room can continue. Nothing else would wake them.
            if is_written && (!has_all_events || self.session.has_sendable()) {
                continue;
            }
            if self.session.is_full() {
                return Poll::Pending;
            }
            ready!(self.poll_receive(cx))?;
        }
        // Yields to the other connections of this thread.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Passes events to the session until its output is full. Returns true if no event is left.
    fn take_events(&mut self, cx: &mut Context<'_>) -> bool {
        if self.session.is_idle() {
            // These belong to calls that were reset.
            while !self.events.is_empty() && self.events.try_recv().is_ok() {}
            return true;
        }
        while !self.session.is_full() {
            match self.events.poll_recv(cx) {
                Poll::Ready(Some((id, event))) => self.session.on_event(id, event),
                Poll::Ready(None) | Poll::Pending => return true,
            }
        }
        false
    }

    /// Writes the output.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> io::Result<Poll<()>> {
        while let Some(rest) = self.session.output().get(self.written..)
            && !rest.is_empty()
        {
            match Pin::new(&mut self.stream).poll_write(cx, rest) {
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(written) => {
                    self.written += written?;
                    // The client reads.
                    if self.state.is_in(Phase::Writing) {
                        self.state.enter(Phase::Writing);
                    }
                }
                Poll::Pending => {
                    if !self.state.is_in(Phase::Writing) {
                        self.state.enter(Phase::Writing);
                    }
                    // Written bytes no longer count as output.
                    self.session.output().drain(..self.written);
                    self.written = 0;
                    return Ok(Poll::Pending);
                }
            }
        }
        self.written = 0;
        let output = self.session.output();
        output.clear();
        if output.capacity() > KEPT_CAPACITY {
            *output = Vec::new();
        }
        self.update_phase();
        Ok(Poll::Ready(()))
    }

    /// An incomplete frame or header block has the time of a request head. Single bytes do not extend it; a complete frame
    /// restarts it.
    fn update_phase(&mut self) {
        let progressed = std::mem::take(&mut self.has_progressed);
        let phase = match !self.unread.is_empty() || self.session.is_mid_request() {
            true => Phase::Head,
            false => Phase::Idle,
        };
        if !self.state.is_in(phase) || (progressed && phase == Phase::Head) {
            self.state.enter(phase);
        }
    }

    /// Processes what was left unread, or reads once.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Connection {
            stream,
            session,
            unread,
            has_progressed,
            ..
        } = self;
        if !unread.is_empty() {
            let consumed = session.receive(cx, unread);
            unread.advance(consumed);
            if consumed > 0 {
                *has_progressed = true;
                return Poll::Ready(Ok(()));
            }
        }
        let mut cx_in_session = Context::from_waker(cx.waker());
        let cx_in_session = &mut cx_in_session;
        let read = buffers::poll_read(stream, cx, READ_BYTES, |bytes| {
            let consumed = match unread.is_empty() {
                true => {
                    let consumed = session.receive(cx_in_session, bytes);
                    *unread = BytesMut::from(bytes.get(consumed..).unwrap_or_default());
                    consumed
                }
                false => {
                    unread.extend_from_slice(bytes);
                    let consumed = session.receive(cx_in_session, unread);
                    unread.advance(consumed);
                    consumed
                }
            };
            *has_progressed |= consumed > 0;
            !bytes.is_empty()
        });
        match ready!(read)? {
            true => {
                self.received = true;
                Poll::Ready(Ok(()))
            }
            false => Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
        }
    }
}

#[cfg(test)]
mod tests;
