//! HTTP/2 frames as bytes, because no library sends invalid ones.
//!
//! Headers are written without tables or Huffman codes: each field is a literal without indexing (RFC 7541, 6.2.2),
//! so a block means the same in any position.

/// The client preface.
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Kinds of frames.
pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PING: u8 = 6;
pub(super) const CONTINUATION: u8 = 9;

/// Flags.
pub(super) const NONE: u8 = 0;
pub(super) const ACK: u8 = 1;
pub(super) const END_STREAM: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;

/// The error code of a cancelled stream.
pub(super) const CANCEL: u32 = 8;

/// Settings.
pub(super) const INITIAL_WINDOW: u16 = 4;

/// A frame. A longer payload is cut.
pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX).min(16_384);
    let [_, high, middle, low] = length.to_be_bytes();
    let mut bytes = vec![high, middle, low, kind, flags];
    bytes.extend_from_slice(&(stream & 0x7FFF_FFFF).to_be_bytes());
    let taken = usize::try_from(length).unwrap_or_default();
    bytes.extend_from_slice(payload.get(..taken).unwrap_or_default());
    bytes
}

pub(super) fn settings(pairs: &[(u16, u32)]) -> Vec<u8> {
    let mut payload = Vec::new();
    for (name, value) in pairs {
        payload.extend_from_slice(&name.to_be_bytes());
        payload.extend_from_slice(&value.to_be_bytes());
    }
    frame(SETTINGS, NONE, 0, &payload)
}

pub(super) fn settings_ack() -> Vec<u8> {
    frame(SETTINGS, ACK, 0, &[])
}

pub(super) fn reset(stream: u32) -> Vec<u8> {
    frame(RST_STREAM, NONE, stream, &CANCEL.to_be_bytes())
}

pub(super) fn ping() -> Vec<u8> {
    frame(PING, NONE, 0, b"tollgate")
}

/// The preface and settings of a connection.
pub(super) fn hello(pairs: &[(u16, u32)]) -> Vec<u8> {
    let mut bytes = PREFACE.to_vec();
    bytes.extend_from_slice(&settings(pairs));
    bytes
}

/// One field of a block, not longer than 126 bytes on either side.
pub(super) fn field(name: &str, value: &str) -> Vec<u8> {
    let mut bytes = vec![0];
    for text in [name, value] {
        let text = text.get(..text.len().min(126)).unwrap_or_default();
        bytes.push(u8::try_from(text.len()).unwrap_or_default());
        bytes.extend_from_slice(text.as_bytes());
    }
    bytes
}

/// The block of a request.
pub(super) fn request_block(method: &str, path: &str, headers: &[(&str, &str)]) -> Vec<u8> {
    let pseudo = [
        (":method", method),
        (":scheme", "http"),
        (":authority", "app.test"),
        (":path", path),
    ];
    let all = pseudo.iter().chain(headers);
    all.flat_map(|(name, value)| field(name, value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_has_a_length_a_kind_and_a_stream() {
        let bytes = frame(HEADERS, END_HEADERS, 5, b"abc");
        assert_eq!(bytes, b"\x00\x00\x03\x01\x04\x00\x00\x00\x05abc");
    }

    #[test]
    fn a_field_is_a_literal_without_a_table() {
        assert_eq!(field("a", "bc"), [0, 1, b'a', 2, b'b', b'c']);
    }
}
