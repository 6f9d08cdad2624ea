//! Heads: where calls begin.

use std::task::Context;

use super::{Block, Ends, Fault, Known, Session};
use crate::rls::Served;
use crate::rls::wire::calls::Decides;
use crate::rls::wire::elsewhere::{self, Teller};
use crate::rls::wire::frame::{self, Code, END_HEADERS, END_STREAM, Frame};
use crate::rls::wire::head::Head;
use crate::rls::wire::stream::{Does, Stream};
use crate::rls::wire::{ELSEWHERE, HEAD_BYTES, STREAM_WINDOW, STREAMS, answer};

/// Bytes of a head as they are packed. More than a head may have in fact, so that one that is a little too large is
/// answered; both sides would lose their table if it were not read to its end.
const BLOCK_BYTES: usize = 4 * HEAD_BYTES;
/// Bytes of a block that is kept to know it again: heads that a client repeats are a few places in its table.
const KNOWN_BYTES: usize = 512;
/// Frames that go on with a head. A quarter of them are enough for the largest.
const CONTINUATIONS: u32 = 16;

impl<S: Served> Session<S> {
    pub(super) fn headers(
        &mut self,
        cx: &mut Context<'_>,
        decides: &mut impl Decides,
        frame: &Frame<'_>,
    ) -> Result<(), Fault> {
        if frame.stream.is_multiple_of(2) {
            return Err(Fault(
                Code::Protocol,
                "the streams of clients have odd numbers",
            ));
        }
        let Some(block) = frame.carried() else {
            return Err(Fault(Code::Protocol, "more padding than there is"));
        };
        let is_all = frame.has(END_STREAM);
        if frame.has(END_HEADERS) {
            return self.head(cx, decides, frame.stream, block, is_all);
        }
        self.block = Some(Block {
            stream: frame.stream,
            is_all,
            bytes: block.to_vec(),
            frames: 0,
        });
        Ok(())
    }

    pub(super) fn continuation(
        &mut self,
        cx: &mut Context<'_>,
        decides: &mut impl Decides,
        frame: &Frame<'_>,
    ) -> Result<(), Fault> {
        let block = self.block.as_mut();
        let Some(block) = block.filter(|block| block.stream == frame.stream) else {
            return Err(Fault(Code::Protocol, "there is no head to go on with"));
        };
        block.frames += 1;
        if block.bytes.len() + frame.payload.len() > BLOCK_BYTES || block.frames > CONTINUATIONS {
            return Err(Fault(
                Code::EnhanceYourCalm,
                "a head is larger than 65536 bytes",
            ));
        }
        block.bytes.extend_from_slice(frame.payload);
        if !frame.has(END_HEADERS) {
            return Ok(());
        }
        match self.block.take() {
            Some(block) => self.head(cx, decides, block.stream, &block.bytes, block.is_all),
            None => Ok(()),
        }
    }

    /// A whole head.
    pub(super) fn head(
        &mut self,
        cx: &mut Context<'_>,
        decides: &mut impl Decides,
        id: u32,
        block: &[u8],
        is_all: bool,
    ) -> Result<(), Fault> {
        if id <= self.last {
            return self.trailers(cx, decides, id, block, is_all);
        }
        self.last = id;
        let head = self.read_head(block)?;
        if self.ends == Ends::Closing {
            frame::write_reset(&mut self.out, id, Code::RefusedStream);
            self.has_ended(id);
            return Ok(());
        }
        if self.streams.len() >= STREAMS {
            return self.reset(id, Code::RefusedStream);
        }
        let (does, missing) = match head {
            Head::Ours(ours) => {
                let message = Vec::new();
                let timeout = ours.timeout;
                (Does::Reads { message, timeout }, ours.length)
            }
            Head::Other(..) if self.streams.elsewhere() >= ELSEWHERE => {
                return self.reset(id, Code::RefusedStream);
            }
            Head::Other(parts, length) => {
                let teller = Teller {
                    stream: id,
                    to: self.teller.to.clone(),
                };
                let services = self.services.clone();
                (elsewhere::begin(services, *parts, is_all, teller), length)
            }
            Head::TooLarge => {
                let begins = self.out.len();
                answer::write_too_large(&mut self.out, id);
                self.has_head(begins);
                if !is_all {
                    frame::write_reset(&mut self.out, id, Code::NoError);
                    self.has_ended(id);
                }
                return self.bear();
            }
            Head::Malformed => return self.reset(id, Code::Protocol),
        };
        self.streams.add(Stream {
            id,
            room: self.stream_room,
            window: STREAM_WINDOW,
            is_all: false,
            missing,
            held: 0,
            does,
            sending: None,
            is_stuck: false,
        });
        match is_all {
            true => self.arrived(cx, decides, id, &[], true),
            false => Ok(()),
        }
    }

    /// Reads a head, or knows it again.
    pub(super) fn read_head(&mut self, block: &[u8]) -> Result<Head, Fault> {
        let changes = self.decoder.changes();
        if let Some(known) = &self.known
            && known.changes == changes
            && known.block == block
        {
            return Ok(Head::Ours(known.means));
        }
        self.read_fields(block)?;
        let head = self.gathered.read();
        if let Head::Ours(means) = head
            && self.decoder.changes() == changes
            && block.len() <= KNOWN_BYTES
        {
            let mut kept = self.known.take().map_or_else(Vec::new, |known| known.block);
            kept.clear();
            kept.extend_from_slice(block);
            self.known = Some(Known {
                block: kept,
                changes,
                means,
            });
        }
        Ok(head)
    }

    pub(super) fn read_fields(&mut self, block: &[u8]) -> Result<(), Fault> {
        let gathered = &mut self.gathered;
        gathered.clear();
        let read = self
            .decoder
            .read(block, |name, value| gathered.add(name, value));
        read.map_err(|_| Fault(Code::Compression, "a head cannot be read"))
    }

    /// Fields behind a body: they end it, and nobody wants them.
    pub(super) fn trailers(
        &mut self,
        cx: &mut Context<'_>,
        decides: &mut impl Decides,
        id: u32,
        block: &[u8],
        is_all: bool,
    ) -> Result<(), Fault> {
        self.read_fields(block)?;
        match self.streams.find(id).map(|stream| stream.is_all) {
            // The client had not heard of its end.
            None if self.ended.contains(&id) => Ok(()),
            None => Err(Fault(
                Code::Protocol,
                "a stream begins with a higher number",
            )),
            Some(true) => self.reset(id, Code::StreamClosed),
            Some(false) if !is_all || !self.gathered.are_trailers() => {
                self.reset(id, Code::Protocol)
            }
            Some(false) => self.arrived(cx, decides, id, &[], true),
        }
    }
}
