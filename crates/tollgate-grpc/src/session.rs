//! One HTTP/2 connection: frames in, frames out.
//!
//! # Theory
//!
//! Everything here happens in memory, at once. The owner passes received bytes to [`Session::receive`] and events of
//! pending calls to [`Session::on_event`]; what is to be written collects in the output. The owner reads, writes and
//! keeps the time.
//!
//! An error of one call resets its stream. An error after which the two sides may disagree about the connection closes
//! it, with a GOAWAY that has the reason.
//!
//! # Bounds
//!
//! | what grows | bound |
//! |---|---|
//! | open streams | 1,000, of which the fallback serves 32 |
//! | bytes buffered for them | 1 MiB |
//! | output | 64 KiB and one response per stream |
//! | a header list | 16 KiB decoded |
//! | work without a result | 1,000 events in 10 s |

use std::collections::VecDeque;
use std::task::Context;

use bytes::Buf;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::Instant;

use crate::abuse_budget::AbuseBudget;
use crate::fallback::{Event, EventSender, Fallback};
use crate::frame::{
    self, CONTINUATION, Code, DATA, Frame, GOAWAY, HEADERS, Next, PING, PREFACE, PRIORITY,
    PUSH_PROMISE, RST_STREAM, SETTINGS, WINDOW, WINDOW_UPDATE,
};
use crate::handler::{FutureHandler, Handler};
use crate::hpack::Decoder;
use crate::request_head::{HeaderList, UnaryCall};
use crate::streams::Streams;
use crate::{
    CONNECTION_WINDOW, MAX_HEADER_BYTES, MAX_OUTPUT_BYTES, MAX_STREAMS, Method, STREAM_WINDOW,
};

mod control_frames;
mod data;
mod headers;
mod send;

/// Payloads of the PING that checks the client, and of the one that announces the shutdown.
const KEEPALIVE_PING: [u8; 8] = *b"tollgate";
const SHUTDOWN_PING: [u8; 8] = *b"tg-ends.";

/// How many reset streams are remembered.
const RESET_STREAMS: usize = 64;

/// An error that closes the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionError(Code, &'static str);

impl ConnectionError {
    const fn protocol(reason: &'static str) -> ConnectionError {
        ConnectionError(Code::Protocol, reason)
    }

    const fn frame_size(reason: &'static str) -> ConnectionError {
        ConnectionError(Code::FrameSize, reason)
    }

    const fn flow_control(reason: &'static str) -> ConnectionError {
        ConnectionError(Code::FlowControl, reason)
    }
}

/// The state of a graceful shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shutdown {
    Open,
    /// GOAWAY was sent. Calls that the client sent before it received that are still served.
    Announced,
    /// No further call is accepted.
    Draining,
    /// Closed as soon as the output is written.
    Closed,
}

/// A header block of which frames are missing.
#[derive(Debug)]
struct HeaderBlock {
    stream: u32,
    end_stream: bool,
    bytes: Vec<u8>,
    frames: u32,
}

/// The last header block of a call. Valid while the decoder's table stays the same.
#[derive(Debug)]
struct CachedBlock {
    block: Vec<u8>,
    table_changes: u64,
    call: UnaryCall,
}

/// The receiver of a session's events: the stream and what happened to its call.
pub type Events<R> = UnboundedReceiver<(u32, Event<R>)>;

/// One connection. `H` handles the calls of the method, `S` serves all others.
pub struct Session<S, H: Handler> {
    method: Method,
    handler: H,
    fallback: S,
    events: EventSender<H::Response>,
    decoder: Decoder,
    header_list: HeaderList,
    cached: Option<CachedBlock>,
    block: Option<HeaderBlock>,
    streams: Streams,
    last_stream: u32,
    /// Streams that this side reset last: the client may not know it yet.
    reset_streams: VecDeque<u32>,
    /// Bytes that may be received on all streams together, and received bytes not acknowledged yet.
    receive_window: u32,
    unacknowledged: u32,
    /// Bytes that may be sent on all streams together, and on each new one.
    send_window: i64,
    initial_send_window: i64,
    /// A window may have opened for something unsent.
    can_send: bool,
    /// The next header block must start with a table size update.
    must_update_table_size: bool,
    has_preface: bool,
    has_settings: bool,
    shutdown: Shutdown,
    abuse_budget: AbuseBudget,
    /// The time of this call of `receive`, once something needed it.
    now: Option<Instant>,
    output: Vec<u8>,
}

impl<S, H: Handler> std::fmt::Debug for Session<S, H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("streams", &self.streams.len())
            .field("shutdown", &self.shutdown)
            .finish_non_exhaustive()
    }
}

impl<S, M, F, Q, R> Session<S, FutureHandler<M, F, Q, R>>
where
    FutureHandler<M, F, Q, R>: Handler<Response = R>,
{
    /// A new connection that handles calls of `method` by `handle`, an asynchronous function from a request and its
    /// deadline to a response, and all others by `fallback`. The owner passes the events of pending calls to
    /// [`Session::on_event`].
    pub fn new(method: Method, handle: M, fallback: S) -> (Self, Events<R>) {
        let (events, receiver) = unbounded_channel();
        let session = Session {
            method,
            handler: FutureHandler::new(handle, events.clone()),
            fallback,
            events,
            decoder: Decoder::default(),
            header_list: HeaderList::default(),
            cached: None,
            block: None,
            streams: Streams::default(),
            last_stream: 0,
            reset_streams: VecDeque::new(),
            receive_window: CONNECTION_WINDOW,
            unacknowledged: 0,
            send_window: i64::from(WINDOW),
            initial_send_window: i64::from(WINDOW),
            can_send: false,
            must_update_table_size: false,
            has_preface: false,
            has_settings: false,
            shutdown: Shutdown::Open,
            abuse_budget: AbuseBudget::default(),
            now: None,
            output: Vec::new(),
        };
        (session, receiver)
    }
}

impl<S: Fallback, H: Handler> Session<S, H> {
    /// True while the client has sent only a part of its preface and settings, or of a header block.
    pub fn is_mid_request(&self) -> bool {
        !self.has_settings || self.block.is_some()
    }

    /// True if the connection ends once the output is written.
    pub fn is_closed(&self) -> bool {
        match self.shutdown {
            Shutdown::Closed => true,
            Shutdown::Draining => self.streams.is_empty(),
            Shutdown::Open | Shutdown::Announced => false,
        }
    }

    /// True if no stream is open.
    pub fn is_idle(&self) -> bool {
        self.streams.is_empty()
    }

    /// True if [`Session::send`] may make progress.
    pub fn has_sendable(&self) -> bool {
        self.can_send
    }

    /// True if the output must be written before more is received.
    pub fn is_full(&self) -> bool {
        self.output.len() >= MAX_OUTPUT_BYTES
    }

    /// What is to be written. The owner removes what it has written.
    pub fn output(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    /// Processes received bytes and returns how many were consumed. The rest is an incomplete frame, or waits until output
    /// is written.
    pub fn receive(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> usize {
        self.now = None;
        let mut rest = bytes;
        if !self.has_preface {
            match has_preface(bytes) {
                Some(true) => rest.advance(PREFACE.len()),
                Some(false) => {
                    // Not HTTP/2: no reply would be understood.
                    self.shutdown = Shutdown::Closed;
                    return bytes.len();
                }
                None => return 0,
            }
            self.has_preface = true;
            self.send_settings();
        }
        while self.shutdown != Shutdown::Closed && !self.is_full() {
            let result = match Frame::next(rest) {
                Next::Partial => break,
                Next::TooLarge => Err(ConnectionError::frame_size("a frame exceeds 16384 bytes")),
                Next::Frame(frame, behind) => {
                    rest = behind;
                    self.on_frame(cx, &frame)
                }
            };
            if let Err(error) = result {
                self.fail(error);
            }
        }
        match self.shutdown {
            Shutdown::Closed => bytes.len(),
            _ => bytes.len() - rest.len(),
        }
    }

    fn send_settings(&mut self) {
        let mut settings = Vec::new();
        for (name, value) in [
            (
                frame::MAX_CONCURRENT_STREAMS,
                u32::try_from(MAX_STREAMS).unwrap_or(u32::MAX),
            ),
            (frame::INITIAL_WINDOW_SIZE, STREAM_WINDOW),
            (
                frame::MAX_HEADER_LIST_SIZE,
                u32::try_from(MAX_HEADER_BYTES).unwrap_or(u32::MAX),
            ),
        ] {
            settings.extend_from_slice(&name.to_be_bytes());
            settings.extend_from_slice(&value.to_be_bytes());
        }
        frame::write(&mut self.output, SETTINGS, 0, 0, &settings);
        frame::write_window(&mut self.output, 0, CONNECTION_WINDOW - WINDOW);
    }

    /// Closes the connection because of an error.
    fn fail(&mut self, ConnectionError(code, reason): ConnectionError) {
        if self.shutdown == Shutdown::Closed {
            return;
        }
        self.go_away(self.last_stream, code, reason);
        self.streams.remove_all();
        self.shutdown = Shutdown::Closed;
    }

    fn go_away(&mut self, last_stream: u32, code: Code, reason: &str) {
        let mut payload = last_stream.to_be_bytes().to_vec();
        payload.extend_from_slice(&code.number().to_be_bytes());
        payload.extend_from_slice(reason.as_bytes());
        frame::write(&mut self.output, GOAWAY, 0, 0, &payload);
    }

    /// Announces the shutdown, with a PING whose reply confirms that the client has read it.
    pub fn start_shutdown(&mut self) {
        if self.shutdown == Shutdown::Open {
            self.shutdown = Shutdown::Announced;
            if !self.has_preface {
                self.shutdown = Shutdown::Closed;
                return;
            }
            self.go_away(0x7fff_ffff, Code::NoError, "");
            frame::write(&mut self.output, PING, 0, 0, &SHUTDOWN_PING);
        }
    }

    /// Accepts no further calls: the client has read the announcement, or had time to.
    pub fn drain(&mut self) {
        if self.shutdown == Shutdown::Announced {
            self.shutdown = Shutdown::Draining;
            self.go_away(self.last_stream, Code::NoError, "");
            // A watch would never end by itself.
            for id in self.streams.close_idle_fallbacks() {
                frame::write_reset(&mut self.output, id, Code::RefusedStream);
            }
        }
    }

    /// Sends a keepalive PING. Any bytes from the client answer it.
    pub fn send_keepalive(&mut self) {
        frame::write(&mut self.output, PING, 0, 0, &KEEPALIVE_PING);
    }

    fn on_frame(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Result<(), ConnectionError> {
        if !self.has_settings && frame.kind != SETTINGS {
            return Err(ConnectionError::protocol("the first frame is not SETTINGS"));
        }
        if self.block.is_some() && frame.kind != CONTINUATION {
            return Err(ConnectionError::protocol("a header block is incomplete"));
        }
        match frame.kind {
            DATA => self.on_data(cx, frame),
            HEADERS => self.on_headers(cx, frame),
            CONTINUATION => self.on_continuation(cx, frame),
            WINDOW_UPDATE => self.on_window_update(frame),
            PING => self.on_ping(frame),
            SETTINGS => self.on_settings(frame),
            RST_STREAM => self.on_reset(frame),
            PRIORITY => self.on_priority(frame),
            PUSH_PROMISE => Err(ConnectionError::protocol("PUSH_PROMISE by a client")),
            GOAWAY => match (frame.stream, frame.payload.len()) {
                (0, 8..) => Ok(()),
                (0, _) => Err(ConnectionError::frame_size(
                    "GOAWAY is shorter than 8 bytes",
                )),
                _ => Err(ConnectionError::protocol("GOAWAY on a stream")),
            },
            // Unknown types are ignored (RFC 9113, 5.5).
            _ => self.spend_abuse(),
        }
    }

    fn now(&mut self) -> Instant {
        *self.now.get_or_insert_with(Instant::now)
    }

    /// Counts work without a result.
    fn spend_abuse(&mut self) -> Result<(), ConnectionError> {
        let now = self.now();
        match self.abuse_budget.spend(now) {
            true => Ok(()),
            false => Err(ConnectionError(
                Code::EnhanceYourCalm,
                "too many frames without effect",
            )),
        }
    }

    /// Resets a stream because of an error in it.
    fn reset(&mut self, stream: u32, code: Code) -> Result<(), ConnectionError> {
        if let Some(index) = self.streams.index_of(stream) {
            self.streams.remove(index);
        }
        self.write_reset(stream, code);
        self.spend_abuse()
    }

    /// Writes RST_STREAM and remembers the stream.
    fn write_reset(&mut self, stream: u32, code: Code) {
        frame::write_reset(&mut self.output, stream, code);
        if self.reset_streams.len() >= RESET_STREAMS {
            self.reset_streams.pop_front();
        }
        self.reset_streams.push_back(stream);
    }

    /// Fails unless the client has opened this stream at some time.
    fn check_opened(&self, stream: u32) -> Result<(), ConnectionError> {
        match stream {
            0 => Err(ConnectionError::protocol("a stream frame without a stream")),
            _ if stream > self.last_stream || stream.is_multiple_of(2) => {
                Err(ConnectionError::protocol("the stream is idle"))
            }
            _ => Ok(()),
        }
    }
}

/// True if the bytes start with the preface of HTTP/2; `None` if there are too few of them.
fn has_preface(bytes: &[u8]) -> Option<bool> {
    match bytes.get(..PREFACE.len()) {
        Some(first) => Some(first == PREFACE),
        None if PREFACE.starts_with(bytes) => None,
        None => Some(false),
    }
}

#[cfg(test)]
mod tests;
