//! Encodes responses as frames: headers, message and trailers, or an error.
//!
//! Fields are literals or static-table entries, so the client's dynamic table never changes, and the headers and trailers of a
//! successful call are constant bytes.

use http::{HeaderMap, StatusCode};
use prost::Message;
use tonic::Status;
use tonic::body::Body;

use crate::frame::{self, CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADER, HEADERS, PAYLOAD};
use crate::hpack;

/// Bytes before a message: compression flag and length.
pub(crate) const PREFIX: usize = 5;

/// `:status: 200` and `content-type: application/grpc`.
const HEAD: &[u8] = b"\x88\x0f\x10\x10application/grpc";
/// `grpc-status: 0`.
pub(crate) const TRAILERS: &[u8] = b"\x00\x0bgrpc-status\x010";
/// HPACK's dynamic table size update to zero, which precedes the first field of a block.
const TABLE_SIZE_ZERO: u8 = 0x20;

/// Writes a complete response. Returns the window that its message takes, or `None`, with nothing written, if `window`
/// or a frame is too small for it.
pub(crate) fn write(
    out: &mut Vec<u8>,
    stream: u32,
    response: &impl Message,
    window: i64,
) -> Option<i64> {
    let start = out.len();
    frame::write(out, HEADERS, END_HEADERS, stream, HEAD);
    let message = out.len();
    out.extend_from_slice(&[0; HEADER + PREFIX]);
    // A `Vec` never lacks room.
    let is_written = response.encode(out).is_ok();
    let length = out.len() - message - HEADER;
    let takes = i64::try_from(length).ok().filter(|takes| *takes <= window);
    if !is_written || takes.is_none() || length > PAYLOAD {
        out.truncate(start);
        return None;
    }
    if let Some(reserved) = out.get_mut(message..message + HEADER + PREFIX) {
        let (header, prefix) = reserved.split_at_mut(HEADER);
        header.copy_from_slice(&frame::header(length, DATA, 0, stream));
        prefix.copy_from_slice(&encode_prefix(length - PREFIX));
    }
    frame::write(out, HEADERS, END_HEADERS | END_STREAM, stream, TRAILERS);
    takes
}

/// Writes the headers of a response whose message follows later.
pub(crate) fn write_head(out: &mut Vec<u8>, stream: u32) {
    frame::write(out, HEADERS, END_HEADERS, stream, HEAD);
}

/// Encodes a message with its prefix.
pub(crate) fn encode_message(response: &impl Message) -> Vec<u8> {
    let mut bytes = encode_prefix(response.encoded_len()).to_vec();
    bytes.extend(response.encode_to_vec());
    bytes
}

fn encode_prefix(length: usize) -> [u8; PREFIX] {
    let [a, b, c, d] = u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
    [0, a, b, c, d]
}

/// Writes an error: headers and trailers in one block.
pub(crate) fn write_status(out: &mut Vec<u8>, stream: u32, status: Status) {
    let (parts, _) = status.into_http::<Body>().into_parts();
    let block = encode_head(parts.status, &parts.headers);
    write_block(out, stream, &block, true);
}

/// Writes the HTTP response to a header list that is too large.
pub(crate) fn write_too_large(out: &mut Vec<u8>, stream: u32) {
    let block = encode_head(
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        &HeaderMap::new(),
    );
    write_block(out, stream, &block, true);
}

/// Encodes response headers.
pub(crate) fn encode_head(status: StatusCode, fields: &HeaderMap) -> Vec<u8> {
    let mut block = match status {
        StatusCode::OK => vec![0x88],
        _ => {
            let mut block = vec![0x08];
            hpack::write_string(&mut block, status.as_str().as_bytes());
            block
        }
    };
    encode_fields(&mut block, fields);
    block
}

/// Encodes trailers.
pub(crate) fn encode_trailers(fields: &HeaderMap) -> Vec<u8> {
    let mut block = Vec::new();
    encode_fields(&mut block, fields);
    block
}

fn encode_fields(block: &mut Vec<u8>, fields: &HeaderMap) {
    for (name, value) in fields {
        hpack::write(block, name.as_str().as_bytes(), value.as_bytes());
    }
}

/// Writes a header block in as many frames as it needs.
pub(crate) fn write_block(out: &mut Vec<u8>, stream: u32, block: &[u8], end_stream: bool) {
    let end = if end_stream { END_STREAM } else { 0 };
    // Leaves one byte of the first frame for `insert_table_size_update`.
    let mut chunks = block.chunks(PAYLOAD - 1).peekable();
    let first = chunks.next().unwrap_or_default();
    let last = |is_last: bool| if is_last { END_HEADERS } else { 0 };
    let flags = end | last(chunks.peek().is_none());
    frame::write(out, HEADERS, flags, stream, first);
    while let Some(chunk) = chunks.next() {
        let flags = last(chunks.peek().is_none());
        frame::write(out, CONTINUATION, flags, stream, chunk);
    }
}

/// Inserts a dynamic table size update into the header block that starts at `start`.
pub(crate) fn insert_table_size_update(out: &mut Vec<u8>, start: usize) {
    let Some([a, b, c, ..]) = out.get(start..) else {
        return;
    };
    let length = u32::from_be_bytes([0, *a, *b, *c]) + 1;
    let [_, length @ ..] = length.to_be_bytes();
    if let Some(field) = out.get_mut(start..start + length.len()) {
        field.copy_from_slice(&length);
        out.insert(start + HEADER, TABLE_SIZE_ZERO);
    }
}
