//! The client side of unary calls over gRPC: those of Envoy's rate limit service, and of other services.
//!
//! An HTTP/2 library costs a client as much for a call as a good server needs to answer it, and a load generator that is slower
//! than its target measures itself. A unary call on a connection of its own is two frames out and three in, so they are written
//! and read here ([`frame`]). Header fields are spelt once and then named by their index ([`header_blocks`]). The codec is
//! independent of `tollgate-grpc`, so that a fault of one is not hidden by the same fault of the other.
//!
//! The client announces a header table of size 0, so that no state of the server's fields has to be kept.
//!
//! # Limits
//!
//! Header blocks in several frames, and compressed messages, are rejected: no server of this service sends them.

mod frame;
mod header_blocks;
mod message;

use std::collections::VecDeque;

use crate::codec::{Codec, Event, Failure, Judgement, Response, sanitized};
use crate::error::LoadError;
use crate::target::Target;
use crate::template::{KeyFormat, Template};
use frame::{Frame, Kind};
use header_blocks::{HeaderBlocks, StatusFields};

/// A call over gRPC. Values may contain `{key}` and `{cost}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrpcTemplate {
    /// The domain.
    pub domain: String,
    /// Keys and values of the one descriptor.
    pub descriptor: Vec<(String, String)>,
}

impl Default for GrpcTemplate {
    fn default() -> GrpcTemplate {
        GrpcTemplate {
            domain: "bench".into(),
            descriptor: vec![("key".into(), "{key}".into())],
        }
    }
}

/// A unary call of another service, whose response has field 1 `true`, or 1, if it admits.
#[derive(Clone, Debug)]
pub struct UnaryCall {
    /// Service and method.
    pub path: String,
    /// The message before the key.
    pub before_key: Vec<u8>,
    /// The message after the key.
    pub after_key: Vec<u8>,
}

/// The largest flow-control window.
const MAX_WINDOW: u32 = (1 << 31) - 1;
/// The initial flow-control window.
const INITIAL_WINDOW: i64 = 65_535;
/// The largest message; those of this service are far smaller.
const MAX_MESSAGE: usize = 64 << 10;
/// The most incomplete responses: more than may be in flight.
const MAX_PARTIAL: usize = 16 << 10;

/// The codec.
#[derive(Clone, Debug)]
pub(crate) struct Grpc {
    headers: HeaderBlocks,
    /// The frame with the message, without its stream.
    data: Template,
    state: Http2State,
}

/// The state of one connection.
#[derive(Clone, Debug)]
struct Http2State {
    /// The settings of the server have arrived.
    has_settings: bool,
    /// The most concurrent streams that the server allows.
    max_streams: usize,
    /// The server keeps a header table.
    has_table: bool,
    /// Requests so far.
    sent: u64,
    /// The connection window for sending.
    window: i64,
    /// The initial window of a stream.
    stream_window: i64,
    /// Bytes received since the last window update.
    received: u32,
    /// Incomplete responses.
    partial: VecDeque<PartialResponse>,
    /// The server handles no request from this number on.
    request_limit: Option<u64>,
}

/// An incomplete response.
#[derive(Clone, Debug)]
struct PartialResponse {
    stream: u32,
    http: Option<u16>,
    grpc: Option<u32>,
    code: Option<u64>,
    /// An incomplete message.
    message: Vec<u8>,
}

impl Grpc {
    pub(crate) fn new(
        template: &GrpcTemplate,
        target: &Target,
        hits: u64,
        key_format: &KeyFormat,
    ) -> Grpc {
        let message = message::request(template, hits, key_format);
        Grpc::with_method(
            header_blocks::SHOULD_RATE_LIMIT,
            &message,
            (&target.host, target.is_tls),
        )
    }

    /// Calls of another service.
    pub(crate) fn unary(call: &UnaryCall, host: &str, keys: &KeyFormat) -> Grpc {
        let mut message = Template::fixed(call.before_key.as_slice());
        message.append(&Template::parse("{key}", keys));
        message.push(&call.after_key);
        Grpc::with_method(&call.path, &message, (host, false))
    }

    /// Calls of another method, with this message.
    pub(crate) fn with_method(
        path: &str,
        message: &Template,
        (host, is_tls): (&str, bool),
    ) -> Grpc {
        let mut data = Template::fixed(frame::header(
            message.len() + 5,
            Kind::Data,
            frame::END_STREAM,
        ));
        let len = u32::try_from(message.len()).unwrap_or(u32::MAX);
        data.push(&[0]);
        data.push(&len.to_be_bytes());
        data.append(message);
        Grpc {
            headers: HeaderBlocks::new(path, host, is_tls),
            data,
            state: Http2State::new(),
        }
    }

    /// Bytes of a request that count against windows.
    fn cost(&self) -> i64 {
        i64::try_from(self.data.len().saturating_sub(frame::HEADER)).unwrap_or(i64::MAX)
    }

    fn handle(
        &mut self,
        frame: &Frame<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<(u32, Judgement<'static>)>, LoadError> {
        let is_response = matches!(frame.kind, Kind::Headers | Kind::Data | Kind::Reset);
        if is_response && !self.state.is_open(frame.stream) {
            return Err(malformed("a response to no request"));
        }
        match frame.kind {
            Kind::Settings if frame.flags & frame::ACK == 0 => {
                self.apply_settings(frame.payload, out)?;
            }
            Kind::Ping if frame.flags & frame::ACK == 0 => {
                out.extend(frame::header(8, Kind::Ping, frame::ACK));
                out.extend_from_slice(frame.payload);
            }
            Kind::WindowUpdate if frame.stream == 0 => {
                let more = frame::number(frame.payload) & MAX_WINDOW;
                self.state.window += i64::from(more);
            }
            Kind::GoAway => {
                let code = frame::number(frame.payload.get(4..8).unwrap_or_default());
                if code != 0 {
                    let why = sanitized(frame.payload.get(8..).unwrap_or_default());
                    let what = format!("the server closed with HTTP/2 error {code} {why}");
                    return Err(LoadError::new(what, "check the log of the server"));
                }
                // The last stream that it handles; clients use odd numbers.
                let last = frame::number(frame.payload) & MAX_WINDOW;
                self.state.request_limit = Some(u64::from(last.div_ceil(2)));
            }
            Kind::Headers => {
                if frame.flags & frame::END_HEADERS == 0 {
                    return Err(LoadError::new(
                        "a response with more header fields than fit one frame",
                        "name a server of Envoy's rate limit service",
                    ));
                }
                let block = StatusFields::read(frame.payload)
                    .ok_or_else(|| malformed("malformed header fields"))?;
                self.state.response(frame.stream).add_headers(block);
            }
            Kind::Data => {
                self.state.received += u32::try_from(frame.len).unwrap_or(0);
                if self.state.received > MAX_WINDOW / 2 {
                    out.extend(frame::header(4, Kind::WindowUpdate, 0));
                    out.extend_from_slice(&self.state.received.to_be_bytes());
                    self.state.received = 0;
                }
                self.state.response(frame.stream).add_data(frame.payload)?;
            }
            Kind::Reset => {
                let failure = Failure::Reset(frame::number(frame.payload));
                self.state.take(frame.stream);
                return Ok(Some((frame.stream, Judgement::Failed(failure))));
            }
            Kind::Settings | Kind::Ping | Kind::WindowUpdate | Kind::Other => {}
        }
        let ends = matches!(frame.kind, Kind::Headers | Kind::Data);
        if !ends || frame.flags & frame::END_STREAM == 0 {
            return Ok(None);
        }
        let response = self.state.take(frame.stream);
        Ok(response.map(|response| (frame.stream, response.judgement())))
    }

    fn apply_settings(&mut self, payload: &[u8], out: &mut Vec<u8>) -> Result<(), LoadError> {
        for (name, value) in frame::settings(payload) {
            match name {
                frame::HEADER_TABLE_SIZE => {
                    let has_table = value >= 4096;
                    // Fields that were added to the table may be dropped: restart on another connection.
                    if has_table != self.state.has_table && self.state.sent > 0 {
                        self.state.request_limit = Some(self.state.sent);
                    }
                    self.state.has_table = has_table;
                }
                frame::MAX_CONCURRENT_STREAMS => {
                    self.state.max_streams = usize::try_from(value).unwrap_or(usize::MAX);
                }
                frame::INITIAL_WINDOW_SIZE => self.state.stream_window = i64::from(value),
                _ => {}
            }
        }
        if self.cost() > self.state.stream_window.min(INITIAL_WINDOW) {
            return Err(LoadError::new(
                "the window of the server is smaller than one request",
                "send shorter descriptors",
            ));
        }
        if self.state.max_streams == 0 {
            return Err(malformed("the server allows no stream"));
        }
        out.extend(frame::header(0, Kind::Settings, frame::ACK));
        self.state.has_settings = true;
        Ok(())
    }
}

impl Http2State {
    fn new() -> Http2State {
        Http2State {
            has_settings: false,
            max_streams: usize::MAX,
            has_table: true,
            sent: 0,
            window: INITIAL_WINDOW,
            stream_window: INITIAL_WINDOW,
            received: 0,
            partial: VecDeque::new(),
            request_limit: None,
        }
    }

    /// Whether a request was sent on this stream and a response is accepted.
    fn is_open(&self, stream: u32) -> bool {
        let is_ours = stream % 2 == 1 && u64::from(stream / 2) < self.sent;
        is_ours && self.partial.len() < MAX_PARTIAL
    }

    /// The incomplete response on this stream.
    fn response(&mut self, stream: u32) -> &mut PartialResponse {
        let found = self
            .partial
            .iter()
            .position(|response| response.stream == stream);
        let at = found.unwrap_or_else(|| {
            self.partial.push_front(PartialResponse {
                stream,
                http: None,
                grpc: None,
                code: None,
                message: Vec::new(),
            });
            0
        });
        &mut self.partial[at]
    }

    fn take(&mut self, stream: u32) -> Option<PartialResponse> {
        let at = self
            .partial
            .iter()
            .position(|response| response.stream == stream)?;
        self.partial.swap_remove_front(at)
    }
}

impl PartialResponse {
    fn add_headers(&mut self, block: StatusFields) {
        self.http = self.http.or(block.http);
        self.grpc = self.grpc.or(block.grpc);
    }

    fn add_data(&mut self, bytes: &[u8]) -> Result<(), LoadError> {
        if self.message.is_empty() {
            self.code = message::code_of_call(bytes)?;
            if self.code.is_some() || bytes.is_empty() {
                return Ok(());
            }
        }
        if self.message.len() + bytes.len() > MAX_MESSAGE {
            return Err(malformed("a message of more than 64 KiB"));
        }
        self.message.extend_from_slice(bytes);
        self.code = message::code_of_call(&self.message)?;
        Ok(())
    }

    fn judgement(&self) -> Judgement<'static> {
        const ENVOY_OK: u64 = 1;
        const ENVOY_OVER_LIMIT: u64 = 2;
        match (self.http, self.grpc, self.code) {
            (Some(http), ..) if http != 200 => Judgement::Failed(Failure::Http(http)),
            (_, Some(status), _) if status != 0 => Judgement::Failed(Failure::Grpc(status)),
            (.., Some(ENVOY_OK)) => Judgement::Admitted,
            (.., Some(ENVOY_OVER_LIMIT)) => Judgement::Refused,
            (.., Some(code)) => Judgement::Failed(Failure::EnvoyCode(code)),
            (.., None) => Judgement::Failed(Failure::NoMessage),
        }
    }
}

impl Codec for Grpc {
    fn start(&mut self, out: &mut Vec<u8>) {
        self.state = Http2State::new();
        out.extend_from_slice(frame::PREFACE);
        let settings = [
            (frame::HEADER_TABLE_SIZE, 0),
            (frame::ENABLE_PUSH, 0),
            (frame::INITIAL_WINDOW_SIZE, MAX_WINDOW),
        ];
        out.extend(frame::header(settings.len() * 6, Kind::Settings, 0));
        for (name, value) in settings {
            out.extend_from_slice(&u16::to_be_bytes(name));
            out.extend_from_slice(&u32::to_be_bytes(value));
        }
        out.extend(frame::header(4, Kind::WindowUpdate, 0));
        out.extend_from_slice(&(MAX_WINDOW - 65_535).to_be_bytes());
    }

    fn can_send(&self, in_flight: usize) -> bool {
        let state = &self.state;
        state.has_settings
            && state.request_limit.is_none()
            && in_flight < state.max_streams
            && state.window >= self.cost()
            && state.sent < frame::MAX_STREAMS
    }

    fn request_limit(&self) -> Option<u64> {
        let is_used_up = self.state.sent >= frame::MAX_STREAMS;
        let all = is_used_up.then_some(frame::MAX_STREAMS);
        self.state.request_limit.or(all)
    }

    fn write_request(&mut self, key: u64, out: &mut Vec<u8>) {
        let stream = u32::try_from(self.state.sent * 2 + 1).unwrap_or(0);
        let is_first = self.state.sent == 0;
        let block = self.headers.block(is_first, self.state.has_table);
        let at = out.len();
        out.extend(frame::header(
            block.len(),
            Kind::Headers,
            frame::END_HEADERS,
        ));
        out.extend_from_slice(block);
        frame::put_stream(out, at, stream);
        let at = out.len();
        self.data.write(key, out);
        frame::put_stream(out, at, stream);
        self.state.sent += 1;
        self.state.window -= self.cost();
    }

    fn read<'a>(&mut self, bytes: &'a [u8], out: &mut Vec<u8>) -> Result<Event<'a>, LoadError> {
        if !self.state.has_settings && !frame::may_be_settings(bytes) {
            return Err(not_http2(bytes));
        }
        let frame = match Frame::read(bytes) {
            Ok(Some(frame)) => frame,
            Ok(None) => return Ok(Event::Incomplete),
            Err(what) => return Err(malformed(what)),
        };
        let len = frame::HEADER + frame.len;
        let ended = self.handle(&frame, out)?;
        Ok(ended.map_or(Event::Skip(len), |(stream, judgement)| {
            Event::Response(Response {
                len,
                request: Some(u64::from(stream / 2)),
                judgement,
                // A server that sends GOAWAY handles its open requests, then closes.
                is_last: false,
            })
        }))
    }
}

fn malformed(what: &str) -> LoadError {
    LoadError::new(what, "name a server of Envoy's rate limit service")
}

fn not_http2(bytes: &[u8]) -> LoadError {
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or(bytes);
    let hint = match bytes.first() {
        Some(b'H') => "this server uses HTTP/1.1: write `http://` before its address",
        Some(b'+' | b'-' | b'*') => {
            "this server uses the Redis protocol: write `resp://` before its address"
        }
        Some(0x15 | 0x16) => "this server requires TLS: write `grpcs://` before its address",
        _ => "name a server of Envoy's rate limit service, without TLS",
    };
    LoadError::new(format!("no HTTP/2 response: `{}`", sanitized(line)), hint)
}
