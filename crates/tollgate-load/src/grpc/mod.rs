//! Envoy's rate limit service over gRPC, on frames of HTTP/2 that are written here.
//!
//! A library of HTTP/2 costs a client as much for a call as a good server needs to answer it, and a load that is slower
//! than what it measures measures itself. A unary call on a connection that nobody else uses is two frames out and three
//! in, so they are written and read by hand ([`frame`]). Fields are compressed as clients do: spelt once, then named by
//! their place ([`fields`]).
//!
//! The server is told to keep no table of its own fields, so that nothing of its answers has to be remembered.
//!
//! # What it does not know
//!
//! Header blocks in several frames, and messages that are compressed: no server of this service sends them.

mod fields;
mod frame;
mod message;

use std::collections::VecDeque;

use crate::codec::{Answer, Codec, Failure, Gibberish, Step, Verdict, shown};
use crate::target::Target;
use crate::template::{Spelling, Template};
use fields::{Block, Names};
use frame::{Frame, Kind};

/// What is asked over gRPC. Values may have `{key}` and `{cost}` in them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrpcAsk {
    /// The domain.
    pub domain: String,
    /// Keys and values of the one descriptor that is sent.
    pub descriptor: Vec<(String, String)>,
}

impl Default for GrpcAsk {
    fn default() -> GrpcAsk {
        GrpcAsk {
            domain: "bench".into(),
            descriptor: vec![("key".into(), "{key}".into())],
        }
    }
}

/// The largest window there is.
const WINDOW_MAX: u32 = (1 << 31) - 1;
/// The window before anybody says otherwise.
const WINDOW: i64 = 65_535;
/// A message of this service is far smaller.
const MESSAGE_MAX: usize = 64 << 10;
/// Answers of which a part is there: more than may be under way.
const PARTS_MAX: usize = 16 << 10;

/// Calls out, answers in.
#[derive(Clone, Debug)]
pub(crate) struct Grpc {
    names: Names,
    /// The frame with the message, without its stream.
    data: Template,
    line: Line,
}

/// How one connection stands.
#[derive(Clone, Debug)]
struct Line {
    /// The server has said what it allows.
    is_settled: bool,
    /// Streams at once that the server allows.
    streams: usize,
    /// The table of fields may be used.
    has_table: bool,
    /// Requests so far.
    asked: u64,
    /// What may still be sent.
    window: i64,
    /// What a stream may send from its beginning.
    stream_window: i64,
    /// Received since the server was last given room.
    received: u32,
    /// Answers of which a part is there.
    parts: VecDeque<Part>,
    /// The server takes no more requests from this number on.
    ends_before: Option<u64>,
}

/// What is known of an answer.
#[derive(Clone, Debug)]
struct Part {
    stream: u32,
    http: Option<u16>,
    grpc: Option<u32>,
    code: Option<u64>,
    /// A message of which not all is there.
    message: Vec<u8>,
}

impl Grpc {
    pub(crate) fn new(ask: &GrpcAsk, target: &Target, hits: u64, spelling: &Spelling) -> Grpc {
        let message = message::request(ask, hits, spelling);
        Grpc::calling(
            fields::SHOULD_RATE_LIMIT,
            &message,
            (&target.host, target.is_tls),
        )
    }

    /// Calls of another method, with this message.
    pub(crate) fn calling(path: &str, message: &Template, (host, is_tls): (&str, bool)) -> Grpc {
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
            names: Names::new(path, host, is_tls),
            data,
            line: Line::new(),
        }
    }

    /// What counts against windows.
    fn cost(&self) -> i64 {
        i64::try_from(self.data.len().saturating_sub(frame::HEADER)).unwrap_or(i64::MAX)
    }

    fn handle(&mut self, frame: &Frame<'_>, out: &mut Vec<u8>) -> Result<Option<Ended>, Gibberish> {
        let answers = matches!(frame.kind, Kind::Headers | Kind::Data | Kind::Reset);
        if answers && !self.line.was_asked(frame.stream) {
            return Err(broken("an answer that nobody asked for"));
        }
        match frame.kind {
            Kind::Settings if frame.flags & frame::ACK == 0 => self.settle(frame.payload, out)?,
            Kind::Ping if frame.flags & frame::ACK == 0 => {
                out.extend(frame::header(8, Kind::Ping, frame::ACK));
                out.extend_from_slice(frame.payload);
            }
            Kind::WindowUpdate if frame.stream == 0 => {
                let more = frame::number(frame.payload) & WINDOW_MAX;
                self.line.window += i64::from(more);
            }
            Kind::GoAway => {
                let code = frame::number(frame.payload.get(4..8).unwrap_or_default());
                if code != 0 {
                    let why = shown(frame.payload.get(8..).unwrap_or_default());
                    let what = format!("the server went away with code {code} of HTTP/2 {why}");
                    return Err(Gibberish::new(what, "look into the log of the server"));
                }
                // The last stream that it answers; ours have odd numbers.
                let last = frame::number(frame.payload) & WINDOW_MAX;
                self.line.ends_before = Some(u64::from(last.div_ceil(2)));
            }
            Kind::Headers => {
                if frame.flags & frame::END_HEADERS == 0 {
                    return Err(Gibberish::new(
                        "an answer with more header fields than fit one frame",
                        "name a server of Envoy's rate limit service",
                    ));
                }
                let block = fields::read(frame.payload)
                    .ok_or_else(|| broken("header fields that cannot be read"))?;
                self.line.part(frame.stream).learn(block);
            }
            Kind::Data => {
                self.line.received += u32::try_from(frame.len).unwrap_or(0);
                if self.line.received > WINDOW_MAX / 2 {
                    out.extend(frame::header(4, Kind::WindowUpdate, 0));
                    out.extend_from_slice(&self.line.received.to_be_bytes());
                    self.line.received = 0;
                }
                self.line.part(frame.stream).hear(frame.payload)?;
            }
            Kind::Reset => {
                let failure = Failure::Reset(frame::number(frame.payload));
                self.line.take(frame.stream);
                return Ok(Some(Ended::new(frame.stream, Verdict::Failed(failure))));
            }
            Kind::Settings | Kind::Ping | Kind::WindowUpdate | Kind::Other => {}
        }
        let ends = matches!(frame.kind, Kind::Headers | Kind::Data);
        if !ends || frame.flags & frame::END_STREAM == 0 {
            return Ok(None);
        }
        let verdict = self.line.take(frame.stream).map(|part| part.verdict());
        Ok(verdict.map(|verdict| Ended::new(frame.stream, verdict)))
    }

    fn settle(&mut self, payload: &[u8], out: &mut Vec<u8>) -> Result<(), Gibberish> {
        for (name, value) in frame::settings(payload) {
            match name {
                frame::HEADER_TABLE_SIZE => {
                    let has_table = value >= 4096;
                    // Fields that were put there may be gone: begin again on another connection.
                    if has_table != self.line.has_table && self.line.asked > 0 {
                        self.line.ends_before = Some(self.line.asked);
                    }
                    self.line.has_table = has_table;
                }
                frame::MAX_CONCURRENT_STREAMS => {
                    self.line.streams = usize::try_from(value).unwrap_or(usize::MAX);
                }
                frame::INITIAL_WINDOW_SIZE => self.line.stream_window = i64::from(value),
                _ => {}
            }
        }
        if self.cost() > self.line.stream_window.min(WINDOW) {
            return Err(Gibberish::new(
                "the server takes less at once than one request has",
                "send shorter descriptors",
            ));
        }
        if self.line.streams == 0 {
            return Err(broken("the server allows no stream"));
        }
        out.extend(frame::header(0, Kind::Settings, frame::ACK));
        self.line.is_settled = true;
        Ok(())
    }
}

/// A stream that ended.
struct Ended {
    stream: u32,
    verdict: Verdict<'static>,
}

impl Ended {
    fn new(stream: u32, verdict: Verdict<'static>) -> Ended {
        Ended { stream, verdict }
    }
}

impl Line {
    fn new() -> Line {
        Line {
            is_settled: false,
            streams: usize::MAX,
            has_table: true,
            asked: 0,
            window: WINDOW,
            stream_window: WINDOW,
            received: 0,
            parts: VecDeque::new(),
            ends_before: None,
        }
    }

    /// Is it one of ours, and is there room for what comes on it?
    fn was_asked(&self, stream: u32) -> bool {
        let is_ours = stream % 2 == 1 && u64::from(stream / 2) < self.asked;
        is_ours && self.parts.len() < PARTS_MAX
    }

    /// What is known of the answer on this stream. As many as there are streams at once.
    fn part(&mut self, stream: u32) -> &mut Part {
        let found = self.parts.iter().position(|part| part.stream == stream);
        let at = found.unwrap_or_else(|| {
            self.parts.push_front(Part {
                stream,
                http: None,
                grpc: None,
                code: None,
                message: Vec::new(),
            });
            0
        });
        &mut self.parts[at]
    }

    fn take(&mut self, stream: u32) -> Option<Part> {
        let at = self.parts.iter().position(|part| part.stream == stream)?;
        self.parts.swap_remove_front(at)
    }
}

impl Part {
    fn learn(&mut self, block: Block) {
        self.http = self.http.or(block.http);
        self.grpc = self.grpc.or(block.grpc);
    }

    fn hear(&mut self, bytes: &[u8]) -> Result<(), Gibberish> {
        if self.message.is_empty() {
            self.code = message::code_of_call(bytes)?;
            if self.code.is_some() || bytes.is_empty() {
                return Ok(());
            }
        }
        if self.message.len() + bytes.len() > MESSAGE_MAX {
            return Err(broken("a message of more than 64 KiB"));
        }
        self.message.extend_from_slice(bytes);
        self.code = message::code_of_call(&self.message)?;
        Ok(())
    }

    fn verdict(&self) -> Verdict<'static> {
        const ENVOY_OK: u64 = 1;
        const ENVOY_OVER_LIMIT: u64 = 2;
        match (self.http, self.grpc, self.code) {
            (Some(http), ..) if http != 200 => Verdict::Failed(Failure::Http(http)),
            (_, Some(status), _) if status != 0 => Verdict::Failed(Failure::Grpc(status)),
            (.., Some(ENVOY_OK)) => Verdict::Admitted,
            (.., Some(ENVOY_OVER_LIMIT)) => Verdict::Refused,
            (.., Some(code)) => Verdict::Failed(Failure::Code(code)),
            (.., None) => Verdict::Failed(Failure::NoMessage),
        }
    }
}

impl Codec for Grpc {
    fn greet(&mut self, out: &mut Vec<u8>) {
        self.line = Line::new();
        out.extend_from_slice(frame::PREFACE);
        let settings = [
            (frame::HEADER_TABLE_SIZE, 0),
            (frame::ENABLE_PUSH, 0),
            (frame::INITIAL_WINDOW_SIZE, WINDOW_MAX),
        ];
        out.extend(frame::header(settings.len() * 6, Kind::Settings, 0));
        for (name, value) in settings {
            out.extend_from_slice(&u16::to_be_bytes(name));
            out.extend_from_slice(&u32::to_be_bytes(value));
        }
        out.extend(frame::header(4, Kind::WindowUpdate, 0));
        out.extend_from_slice(&(WINDOW_MAX - 65_535).to_be_bytes());
    }

    fn may_ask(&self, under_way: usize) -> bool {
        let line = &self.line;
        line.is_settled
            && line.ends_before.is_none()
            && under_way < line.streams
            && line.window >= self.cost()
            && line.asked < frame::STREAMS_MAX
    }

    fn ends_before(&self) -> Option<u64> {
        let is_used_up = self.line.asked >= frame::STREAMS_MAX;
        let all = is_used_up.then_some(frame::STREAMS_MAX);
        self.line.ends_before.or(all)
    }

    fn ask(&mut self, key: u64, out: &mut Vec<u8>) {
        let stream = u32::try_from(self.line.asked * 2 + 1).unwrap_or(0);
        let is_first = self.line.asked == 0;
        let block = self.names.block(is_first, self.line.has_table);
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
        self.line.asked += 1;
        self.line.window -= self.cost();
    }

    fn read<'a>(&mut self, bytes: &'a [u8], out: &mut Vec<u8>) -> Result<Step<'a>, Gibberish> {
        if !self.line.is_settled && !frame::may_be_settings(bytes) {
            return Err(foreign(bytes));
        }
        let frame = match Frame::read(bytes) {
            Ok(Some(frame)) => frame,
            Ok(None) => return Ok(Step::More),
            Err(what) => return Err(broken(what)),
        };
        let len = frame::HEADER + frame.len;
        let ended = self.handle(&frame, out)?;
        Ok(ended.map_or(Step::Passed(len), |ended| {
            Step::Answer(Answer {
                len,
                to: Some(u64::from(ended.stream / 2)),
                verdict: ended.verdict,
                // Whoever goes away answers what it took, then closes.
                last: false,
            })
        }))
    }
}

fn broken(what: &str) -> Gibberish {
    Gibberish::new(what, "name a server of Envoy's rate limit service")
}

fn foreign(bytes: &[u8]) -> Gibberish {
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or(bytes);
    let hint = match bytes.first() {
        Some(b'H') => "this server speaks HTTP/1.1: write `http://` before its address",
        Some(b'+' | b'-' | b'*') => {
            "this server speaks the Redis protocol: write `resp://` before its address"
        }
        Some(0x15 | 0x16) => "this server wants TLS: write `grpcs://` before its address",
        _ => "name a server of Envoy's rate limit service, without TLS",
    };
    Gibberish::new(format!("no answer of HTTP/2: `{}`", shown(line)), hint)
}
