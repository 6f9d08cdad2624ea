//! One connection as both sides agreed on it: frames come in, frames go out.
//!
//! # Theory
//!
//! Everything here happens in memory and at once. Bytes that were read go into [`Session::receive`], what became of
//! calls that had to wait goes into [`Session::tell`], and what is to be written gathers in `out`. Who runs it reads,
//! writes and watches the time.
//!
//! A mistake of one call ends that call; a mistake after which the two sides may understand different things ends the
//! connection, with a word why.
//!
//! # Invariant
//!
//! Bounded are: calls under way, by [`STREAMS`]; bytes kept for them, by [`super::HELD_BYTES`]; what is to be written, by
//! [`OUT_BYTES`] and one answer for each call; a head, by [`HEAD_BYTES`]; what leads to nothing, by
//! [`super::patience`].

use std::collections::VecDeque;
use std::task::Context;

use bytes::Buf;
use tokio::time::Instant;

use super::calls::Decides;
use super::elsewhere::Teller;
use super::frame::{
    self, CONTINUATION, Code, DATA, Frame, GOAWAY, HEADERS, Next, PING, PREFACE, PRIORITY,
    PUSH_PROMISE, RST_STREAM, SETTINGS, WINDOW, WINDOW_UPDATE,
};
use super::head::{Gathered, Ours};
use super::hpack::Decoder;
use super::patience::Patience;
use super::stream::Streams;
use super::{CONNECTION_WINDOW, HEAD_BYTES, OUT_BYTES, STREAM_WINDOW, STREAMS};
use crate::rls::Served;

mod bodies;
mod heads;
mod says;
mod sends;

/// What is sent along when we ask whether anybody is there, and when we say that the end is near.
const ALIVE: [u8; 8] = *b"tollgate";
const ENDING: [u8; 8] = *b"tg-ends.";

/// So many calls are remembered that we ended.
const ENDED: usize = 64;

/// A mistake that ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fault(Code, &'static str);

/// How far the end of a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    /// It does not end.
    Not,
    /// The client was told; what it sent before it heard that is still served.
    Told,
    /// No further call is taken.
    Closing,
    /// It is over as soon as everything is written.
    Over,
}

/// A head of which not all frames have come.
#[derive(Debug)]
struct Block {
    stream: u32,
    is_all: bool,
    bytes: Vec<u8>,
    frames: u32,
}

/// A block that was read before, and means the same as long as the table does.
#[derive(Debug)]
struct Known {
    block: Vec<u8>,
    changes: u64,
    means: Ours,
}

/// One connection.
pub(super) struct Session<S> {
    services: S,
    teller: Teller,
    decoder: Decoder,
    gathered: Gathered,
    known: Option<Known>,
    block: Option<Block>,
    streams: Streams,
    /// The highest number of a call so far.
    last: u32,
    /// The calls that we ended last before their client had: it may not have heard it yet.
    ended: VecDeque<u32>,
    /// So much may come on all calls together, and so much of it is not told to the client yet.
    window: u32,
    taken: u32,
    /// So much may be sent on all calls together, and on each new one.
    room: i64,
    stream_room: i64,
    /// Something that waits for room may have got some.
    may_send: bool,
    /// The next head has to say that the client's table is not used.
    says_no_table: bool,
    has_preface: bool,
    has_settings: bool,
    ends: Ends,
    patience: Patience,
    /// What time it is, once that was needed.
    now: Option<Instant>,
    /// What is to be written.
    pub(super) out: Vec<u8>,
}

impl<S: Served> Session<S> {
    /// A connection of which nothing was read. Events of its calls come back through [`Session::tell`].
    pub(super) fn new(services: S, teller: Teller) -> Session<S> {
        Session {
            services,
            teller,
            decoder: Decoder::default(),
            gathered: Gathered::default(),
            known: None,
            block: None,
            streams: Streams::default(),
            last: 0,
            ended: VecDeque::new(),
            window: CONNECTION_WINDOW,
            taken: 0,
            room: i64::from(WINDOW),
            stream_room: i64::from(WINDOW),
            may_send: false,
            says_no_table: false,
            has_preface: false,
            has_settings: false,
            ends: Ends::Not,
            patience: Patience::default(),
            now: None,
            out: Vec::new(),
        }
    }

    /// Is the client in the middle of something that has to come to its end: what it says first, or a head?
    pub(super) fn is_half_told(&self) -> bool {
        !self.has_settings || self.block.is_some()
    }

    /// Is there nothing more to do but to write what is to be written?
    pub(super) fn is_over(&self) -> bool {
        match self.ends {
            Ends::Over => true,
            Ends::Closing => self.streams.is_empty(),
            Ends::Not | Ends::Told => false,
        }
    }

    /// Is no call under way?
    pub(super) fn is_idle(&self) -> bool {
        self.streams.is_empty()
    }

    /// May something that waits for room have got some?
    pub(super) fn wants_to_send(&self) -> bool {
        self.may_send
    }

    /// Is there as much to be written as may be?
    pub(super) fn is_full(&self) -> bool {
        self.out.len() >= OUT_BYTES
    }

    /// Takes what was read; says how much of it. What is left is the beginning of a frame, or waits until something
    /// was written.
    pub(super) fn receive(
        &mut self,
        cx: &mut Context<'_>,
        decides: &mut impl Decides,
        bytes: &[u8],
    ) -> usize {
        self.now = None;
        let mut rest = bytes;
        if !self.has_preface {
            match begins(bytes) {
                Some(true) => rest.advance(PREFACE.len()),
                Some(false) => {
                    // Not HTTP/2: there is no word that it would understand.
                    self.ends = Ends::Over;
                    return bytes.len();
                }
                None => return 0,
            }
            self.has_preface = true;
            self.greet();
        }
        while self.ends != Ends::Over && !self.is_full() {
            let taken = match Frame::next(rest) {
                Next::Part => break,
                Next::TooLarge => Err(Fault(Code::FrameSize, "a frame is larger than 16384 bytes")),
                Next::Frame(frame, behind) => {
                    rest = behind;
                    self.take(cx, decides, &frame)
                }
            };
            if let Err(fault) = taken {
                self.fail(fault);
            }
        }
        match self.ends {
            Ends::Over => bytes.len(),
            _ => bytes.len() - rest.len(),
        }
    }

    /// What we say first.
    fn greet(&mut self) {
        let mut settings = Vec::new();
        for (name, value) in [
            (
                frame::MAX_CONCURRENT_STREAMS,
                u32::try_from(STREAMS).unwrap_or(u32::MAX),
            ),
            (frame::INITIAL_WINDOW_SIZE, STREAM_WINDOW),
            (
                frame::MAX_HEADER_LIST_SIZE,
                u32::try_from(HEAD_BYTES).unwrap_or(u32::MAX),
            ),
        ] {
            settings.extend_from_slice(&name.to_be_bytes());
            settings.extend_from_slice(&value.to_be_bytes());
        }
        frame::write(&mut self.out, SETTINGS, 0, 0, &settings);
        frame::write_window(&mut self.out, 0, CONNECTION_WINDOW - WINDOW);
    }

    /// Ends the connection because of a mistake.
    pub(super) fn fail(&mut self, Fault(code, why): Fault) {
        if self.ends == Ends::Over {
            return;
        }
        self.go_away(self.last, code, why);
        self.streams.remove_all();
        self.ends = Ends::Over;
    }

    fn go_away(&mut self, last: u32, code: Code, why: &str) {
        let mut payload = last.to_be_bytes().to_vec();
        payload.extend_from_slice(&code.number().to_be_bytes());
        payload.extend_from_slice(why.as_bytes());
        frame::write(&mut self.out, GOAWAY, 0, 0, &payload);
    }

    /// The server stops: the client is told to come no more, and asked to say when it has heard that.
    pub(super) fn end(&mut self) {
        if self.ends == Ends::Not {
            self.ends = Ends::Told;
            if !self.has_preface {
                self.ends = Ends::Over;
                return;
            }
            self.go_away(0x7fff_ffff, Code::NoError, "");
            frame::write(&mut self.out, PING, 0, 0, &ENDING);
        }
    }

    /// The client has heard of the end, or had time to.
    pub(super) fn close(&mut self) {
        if self.ends == Ends::Told {
            self.ends = Ends::Closing;
            self.go_away(self.last, Code::NoError, "");
            // Who watches something would watch for ever.
            for id in self.streams.end_watches() {
                frame::write_reset(&mut self.out, id, Code::RefusedStream);
            }
        }
    }

    /// Asks whether the client is there. Whatever it says next is an answer.
    pub(super) fn ask_alive(&mut self) {
        frame::write(&mut self.out, PING, 0, 0, &ALIVE);
    }

    fn take(
        &mut self,
        cx: &mut Context<'_>,
        decides: &mut impl Decides,
        frame: &Frame<'_>,
    ) -> Result<(), Fault> {
        if !self.has_settings && frame.kind != SETTINGS {
            return Err(Fault(Code::Protocol, "settings come first"));
        }
        if self.block.is_some() && frame.kind != CONTINUATION {
            return Err(Fault(Code::Protocol, "a head is not at its end"));
        }
        match frame.kind {
            DATA => self.data(cx, decides, frame),
            HEADERS => self.headers(cx, decides, frame),
            CONTINUATION => self.continuation(cx, decides, frame),
            WINDOW_UPDATE => self.window_update(frame),
            PING => self.ping(frame),
            SETTINGS => self.settings(frame),
            RST_STREAM => self.reset_by_client(frame),
            PRIORITY => self.priority(frame),
            PUSH_PROMISE => Err(Fault(Code::Protocol, "clients promise nothing")),
            GOAWAY => match (frame.stream, frame.payload.len()) {
                (0, 8..) => Ok(()),
                (0, _) => Err(Fault(Code::FrameSize, "a goodbye is eight bytes at least")),
                _ => Err(Fault(Code::Protocol, "a goodbye is on no stream")),
            },
            // Kinds that nobody knows yet mean nothing.
            _ => self.bear(),
        }
    }

    fn now(&mut self) -> Instant {
        *self.now.get_or_insert_with(Instant::now)
    }

    /// Something led to nothing.
    fn bear(&mut self) -> Result<(), Fault> {
        let now = self.now();
        match self.patience.bears(now) {
            true => Ok(()),
            false => Err(Fault(
                Code::EnhanceYourCalm,
                "too much that leads to nothing",
            )),
        }
    }

    /// Ends a call because of a mistake in it.
    fn reset(&mut self, stream: u32, code: Code) -> Result<(), Fault> {
        if let Some(place) = self.streams.place(stream) {
            self.streams.remove(place);
        }
        frame::write_reset(&mut self.out, stream, code);
        self.has_ended(stream);
        self.bear()
    }

    /// Remembers a call that we ended.
    fn has_ended(&mut self, stream: u32) {
        if self.ended.len() >= ENDED {
            self.ended.pop_front();
        }
        self.ended.push_back(stream);
    }

    /// Was there a call of this number? Otherwise nothing can be said about it.
    fn is_known(&self, stream: u32) -> Result<(), Fault> {
        match stream {
            0 => Err(Fault(Code::Protocol, "it belongs to a stream")),
            _ if stream > self.last || stream.is_multiple_of(2) => {
                Err(Fault(Code::Protocol, "the stream has not begun"))
            }
            _ => Ok(()),
        }
    }
}

/// Do these bytes begin as a client of HTTP/2 does? None if that cannot be said yet.
fn begins(bytes: &[u8]) -> Option<bool> {
    match bytes.get(..PREFACE.len()) {
        Some(first) => Some(first == PREFACE),
        None if PREFACE.starts_with(bytes) => None,
        None => Some(false),
    }
}

#[cfg(test)]
mod tests;
