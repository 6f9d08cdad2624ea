//! Answers as bytes.
//!
//! Fields are spelt or named by their fixed places, so a client's table never changes, and the usual head and the
//! usual end are the same bytes every time.

use hyper::http::{HeaderMap, StatusCode};
use prost::Message;
use tonic::Status;
use tonic::body::Body;

use super::frame::{self, CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADER, HEADERS, PAYLOAD};
use super::hpack;
use crate::rls::messages::RateLimitResponse;

/// What stands before a message: whether it is compressed, and how long it is.
pub(super) const PREFIX: usize = 5;

/// `:status: 200` and `content-type: application/grpc`.
const HEAD: &[u8] = b"\x88\x0f\x10\x10application/grpc";
/// `grpc-status: 0`.
pub(super) const END: &[u8] = b"\x00\x0bgrpc-status\x010";
/// The client's table is not used from here on: to be said before the first field of a block.
const NO_TABLE: u8 = 0x20;

/// Writes a whole answer, and says how much room its message takes; nothing if that is more than there is.
pub(super) fn write_whole(
    out: &mut Vec<u8>,
    stream: u32,
    response: &RateLimitResponse,
    room: i64,
) -> Option<i64> {
    let begins = out.len();
    frame::write(out, HEADERS, END_HEADERS, stream, HEAD);
    let message = out.len();
    out.extend_from_slice(&[0; HEADER + PREFIX]);
    // There is always room in memory.
    let is_written = response.encode(out).is_ok();
    let length = out.len() - message - HEADER;
    let takes = i64::try_from(length).ok().filter(|takes| *takes <= room);
    if !is_written || takes.is_none() || length > PAYLOAD {
        out.truncate(begins);
        return None;
    }
    if let Some(place) = out.get_mut(message..message + HEADER + PREFIX) {
        let (header, prefix) = place.split_at_mut(HEADER);
        header.copy_from_slice(&frame::header(length, DATA, 0, stream));
        prefix.copy_from_slice(&prefix_of(length - PREFIX));
    }
    frame::write(out, HEADERS, END_HEADERS | END_STREAM, stream, END);
    takes
}

/// Writes the head of an answer whose message comes later.
pub(super) fn write_head(out: &mut Vec<u8>, stream: u32) {
    frame::write(out, HEADERS, END_HEADERS, stream, HEAD);
}

/// A message with what stands before it.
pub(super) fn message(response: &RateLimitResponse) -> Vec<u8> {
    let mut bytes = prefix_of(response.encoded_len()).to_vec();
    bytes.extend(response.encode_to_vec());
    bytes
}

fn prefix_of(length: usize) -> [u8; PREFIX] {
    let [a, b, c, d] = u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
    [0, a, b, c, d]
}

/// Writes an answer that has no message: head and end are one.
pub(super) fn write_status(out: &mut Vec<u8>, stream: u32, status: Status) {
    let (parts, _) = status.into_http::<Body>().into_parts();
    let block = head(parts.status, &parts.headers);
    write_block(out, stream, &block, true);
}

/// Writes the answer of HTTP to a head that is too large.
pub(super) fn write_too_large(out: &mut Vec<u8>, stream: u32) {
    let block = head(
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        &HeaderMap::new(),
    );
    write_block(out, stream, &block, true);
}

/// The fields of a head.
pub(super) fn head(status: StatusCode, fields: &HeaderMap) -> Vec<u8> {
    let mut block = match status {
        StatusCode::OK => vec![0x88],
        _ => {
            let mut block = vec![0x08];
            hpack::write_string(&mut block, status.as_str().as_bytes());
            block
        }
    };
    add(&mut block, fields);
    block
}

/// The fields of an end.
pub(super) fn end(fields: &HeaderMap) -> Vec<u8> {
    let mut block = Vec::new();
    add(&mut block, fields);
    block
}

fn add(block: &mut Vec<u8>, fields: &HeaderMap) {
    for (name, value) in fields {
        hpack::write(block, name.as_str().as_bytes(), value.as_bytes());
    }
}

/// Writes fields, in as many frames as they need.
pub(super) fn write_block(out: &mut Vec<u8>, stream: u32, block: &[u8], is_end: bool) {
    let ends = if is_end { END_STREAM } else { 0 };
    // One byte less than fits: see [`say_no_table`].
    let mut parts = block.chunks(PAYLOAD - 1).peekable();
    let first = parts.next().unwrap_or_default();
    let last = |is_last: bool| if is_last { END_HEADERS } else { 0 };
    let flags = ends | last(parts.peek().is_none());
    frame::write(out, HEADERS, flags, stream, first);
    while let Some(part) = parts.next() {
        let flags = last(parts.peek().is_none());
        frame::write(out, CONTINUATION, flags, stream, part);
    }
}

/// Puts into the head that begins there that the client's table is not used.
pub(super) fn say_no_table(out: &mut Vec<u8>, begins: usize) {
    let Some([a, b, c, ..]) = out.get(begins..) else {
        return;
    };
    let length = u32::from_be_bytes([0, *a, *b, *c]) + 1;
    let [_, length @ ..] = length.to_be_bytes();
    if let Some(place) = out.get_mut(begins..begins + length.len()) {
        place.copy_from_slice(&length);
        out.insert(begins + HEADER, NO_TABLE);
    }
}
