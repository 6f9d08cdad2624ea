//! Handles HEADERS and CONTINUATION frames: new streams, and trailers.

use std::task::Context;

use super::{CachedBlock, ConnectionError, HeaderBlock, Session, Shutdown};
use crate::fallback::{self, Fallback, StreamSender};
use crate::frame::{Code, END_HEADERS, END_STREAM, Frame};
use crate::handler::Handler;
use crate::request_head::RequestHead;
use crate::streams::{Stream, StreamState};
use crate::{MAX_FALLBACK_STREAMS, MAX_HEADER_BYTES, MAX_STREAMS, STREAM_WINDOW, response};

/// Largest encoded header block. It exceeds the decoded bound, so that a slightly oversized list gets a response: a block that is
/// not decoded would leave the two HPACK tables different.
const BLOCK_BYTES: usize = 4 * MAX_HEADER_BYTES;
/// Largest cached block: repeated headers are a few table indexes.
const CACHED_BYTES: usize = 512;
/// CONTINUATION frames of a block. The largest block needs a quarter of them.
const CONTINUATIONS: u32 = 16;

impl<S: Fallback, H: Handler> Session<S, H> {
    pub(super) fn on_headers(
        &mut self,
        cx: &mut Context<'_>,
        frame: &Frame<'_>,
    ) -> Result<(), ConnectionError> {
        if frame.stream.is_multiple_of(2) {
            return Err(ConnectionError::protocol(
                "a client's stream has an even number",
            ));
        }
        let Some(block) = frame.content() else {
            return Err(ConnectionError::protocol("the padding exceeds the frame"));
        };
        let end_stream = frame.has(END_STREAM);
        if frame.has(END_HEADERS) {
            return self.on_block(cx, frame.stream, block, end_stream);
        }
        self.block = Some(HeaderBlock {
            stream: frame.stream,
            end_stream,
            bytes: block.to_vec(),
            frames: 0,
        });
        Ok(())
    }

    pub(super) fn on_continuation(
        &mut self,
        cx: &mut Context<'_>,
        frame: &Frame<'_>,
    ) -> Result<(), ConnectionError> {
        let block = self.block.as_mut();
        let Some(block) = block.filter(|block| block.stream == frame.stream) else {
            return Err(ConnectionError::protocol(
                "CONTINUATION without a header block",
            ));
        };
        block.frames += 1;
        if block.bytes.len() + frame.payload.len() > BLOCK_BYTES || block.frames > CONTINUATIONS {
            return Err(ConnectionError(
                Code::EnhanceYourCalm,
                "a header block exceeds 65536 bytes",
            ));
        }
        block.bytes.extend_from_slice(frame.payload);
        if !frame.has(END_HEADERS) {
            return Ok(());
        }
        match self.block.take() {
            Some(block) => self.on_block(cx, block.stream, &block.bytes, block.end_stream),
            None => Ok(()),
        }
    }

    /// Handles a complete header block.
    fn on_block(
        &mut self,
        cx: &mut Context<'_>,
        id: u32,
        block: &[u8],
        end_stream: bool,
    ) -> Result<(), ConnectionError> {
        if id <= self.last_stream {
            return self.on_trailers(cx, id, block, end_stream);
        }
        self.last_stream = id;
        let head = self.decode_head(block)?;
        if self.shutdown == Shutdown::Draining {
            self.write_reset(id, Code::RefusedStream);
            return Ok(());
        }
        if self.streams.len() >= MAX_STREAMS {
            return self.reset(id, Code::RefusedStream);
        }
        let (state, unread_length) = match head {
            RequestHead::Unary(call) => {
                let message = Vec::new();
                let timeout = call.timeout;
                (StreamState::Receiving { message, timeout }, call.length)
            }
            RequestHead::Other(..) if self.streams.fallback_count() >= MAX_FALLBACK_STREAMS => {
                return self.reset(id, Code::RefusedStream);
            }
            RequestHead::Other(parts, length) => {
                let sender = StreamSender {
                    stream: id,
                    to: self.events.clone(),
                };
                let service = self.fallback.clone();
                (fallback::start(service, *parts, end_stream, sender), length)
            }
            RequestHead::TooLarge => {
                let start = self.output.len();
                response::write_too_large(&mut self.output, id);
                self.after_headers(start);
                if !end_stream {
                    self.write_reset(id, Code::NoError);
                }
                return self.spend_abuse();
            }
            RequestHead::Malformed => return self.reset(id, Code::Protocol),
        };
        self.streams.push(Stream {
            id,
            send_window: self.initial_send_window,
            receive_window: STREAM_WINDOW,
            end_stream: false,
            unread_length,
            buffered: 0,
            state,
            unsent: None,
            is_stalled: false,
        });
        match end_stream {
            true => self.on_body(cx, id, &[], true),
            false => Ok(()),
        }
    }

    /// Decodes the headers of a request, or finds them in the cache.
    fn decode_head(&mut self, block: &[u8]) -> Result<RequestHead, ConnectionError> {
        let table_changes = self.decoder.changes();
        if let Some(cached) = &self.cached
            && cached.table_changes == table_changes
            && cached.block == block
        {
            return Ok(RequestHead::Unary(cached.call));
        }
        self.decode_fields(block)?;
        let head = self.header_list.request(self.method.path);
        if let RequestHead::Unary(call) = head
            && self.decoder.changes() == table_changes
            && block.len() <= CACHED_BYTES
        {
            let mut kept = self
                .cached
                .take()
                .map_or_else(Vec::new, |cached| cached.block);
            kept.clear();
            kept.extend_from_slice(block);
            self.cached = Some(CachedBlock {
                block: kept,
                table_changes,
                call,
            });
        }
        Ok(head)
    }

    fn decode_fields(&mut self, block: &[u8]) -> Result<(), ConnectionError> {
        let list = &mut self.header_list;
        list.clear();
        let decoded = self
            .decoder
            .read(block, |name, value| list.push(name, value));
        decoded.map_err(|_| ConnectionError(Code::Compression, "a header block is malformed"))
    }

    /// Trailers end the body. Their fields are ignored.
    fn on_trailers(
        &mut self,
        cx: &mut Context<'_>,
        id: u32,
        block: &[u8],
        end_stream: bool,
    ) -> Result<(), ConnectionError> {
        self.decode_fields(block)?;
        match self.streams.find(id).map(|stream| stream.end_stream) {
            // The client did not know yet that the stream was reset.
            None if self.reset_streams.contains(&id) => Ok(()),
            None => Err(ConnectionError::protocol(
                "a new stream has too low a number",
            )),
            Some(true) => self.reset(id, Code::StreamClosed),
            Some(false) if !end_stream || !self.header_list.is_trailers() => {
                self.reset(id, Code::Protocol)
            }
            Some(false) => self.on_body(cx, id, &[], true),
        }
    }

    /// Must follow every header block written from `start` on. A client that made its table smaller expects a table
    /// size update, although the table is never used.
    pub(super) fn after_headers(&mut self, start: usize) {
        if self.must_update_table_size {
            self.must_update_table_size = false;
            response::insert_table_size_update(&mut self.output, start);
        }
    }
}
