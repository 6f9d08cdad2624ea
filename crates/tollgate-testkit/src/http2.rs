//! HTTP/2 frames as bytes, for clients that send what no library sends.
//!
//! Headers are written without tables or Huffman codes: each field is a literal without indexing (RFC 7541, 6.2.2),
//! so a block means the same in any position.

#![allow(missing_docs, reason = "constants have the names of RFC 9113")]

/// The client preface.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Types of frames.
pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const PRIORITY: u8 = 2;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PUSH_PROMISE: u8 = 5;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

/// Flags.
pub const NONE: u8 = 0;
pub const ACK: u8 = 1;
pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;

/// The error code of a cancelled stream.
pub const CANCEL: u32 = 8;

/// Settings.
pub const INITIAL_WINDOW: u16 = 4;

/// A frame that was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Type.
    pub kind: u8,
    /// Flags.
    pub flags: u8,
    /// Stream; 0 for the connection.
    pub stream: u32,
    /// Payload, with any padding.
    pub payload: Vec<u8>,
}

impl Frame {
    /// The first frame of these bytes, which then begin behind it; none if it is not complete.
    pub fn read(bytes: &mut &[u8]) -> Option<Frame> {
        let (header, rest) = bytes.split_first_chunk::<9>()?;
        let [high, middle, low, kind, flags, stream @ ..] = *header;
        let length = usize::try_from(u32::from_be_bytes([0, high, middle, low])).ok()?;
        let (payload, rest) = rest.split_at_checked(length)?;
        *bytes = rest;
        Some(Frame {
            kind,
            flags,
            stream: u32::from_be_bytes(stream),
            payload: payload.to_vec(),
        })
    }

    /// The 32-bit number at this offset of the payload, which must have it.
    #[track_caller]
    pub fn number(&self, at: usize) -> u32 {
        let number = self.payload.get(at..).and_then(<[u8]>::first_chunk);
        let number = number.unwrap_or_else(|| panic!("no number at {at} of {self:?}"));
        u32::from_be_bytes(*number)
    }
}

/// A frame. The length field has the low 24 bits of the payload's length.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    let [_, high, middle, low] = length.to_be_bytes();
    let mut bytes = vec![high, middle, low, kind, flags];
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// A frame of settings.
pub fn settings(pairs: &[(u16, u32)]) -> Vec<u8> {
    let mut payload = Vec::new();
    for (name, value) in pairs {
        payload.extend_from_slice(&name.to_be_bytes());
        payload.extend_from_slice(&value.to_be_bytes());
    }
    frame(SETTINGS, NONE, 0, &payload)
}

/// The acknowledgement of the peer's settings.
pub fn settings_ack() -> Vec<u8> {
    frame(SETTINGS, ACK, 0, &[])
}

/// More window for a stream, or for the connection.
pub fn window_update(stream: u32, more: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, NONE, stream, &more.to_be_bytes())
}

/// Cancels a stream.
pub fn reset(stream: u32) -> Vec<u8> {
    frame(RST_STREAM, NONE, stream, &CANCEL.to_be_bytes())
}

/// A ping.
pub fn ping() -> Vec<u8> {
    frame(PING, NONE, 0, b"tollgate")
}

/// The preface and settings of a connection.
pub fn hello(pairs: &[(u16, u32)]) -> Vec<u8> {
    [PREFACE, &settings(pairs)].concat()
}

/// One field of a block: a literal without indexing.
pub fn field(name: &str, value: &str) -> Vec<u8> {
    let mut bytes = vec![0];
    string(name, &mut bytes);
    string(value, &mut bytes);
    bytes
}

/// A text without a Huffman code, after its length: seven bits, then seven for each further byte.
pub fn string(text: &str, out: &mut Vec<u8>) {
    let low = |length: usize, mask: usize| u8::try_from(length & mask).unwrap_or_default();
    match text.len().checked_sub(127) {
        None => out.push(low(text.len(), 127)),
        Some(mut rest) => {
            out.push(127);
            while rest >= 128 {
                out.push(low(rest, 127) | 128);
                rest >>= 7;
            }
            out.push(low(rest, 127));
        }
    }
    out.extend_from_slice(text.as_bytes());
}

/// The block of a request.
pub fn request_block(method: &str, path: &str, headers: &[(&str, &str)]) -> Vec<u8> {
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
    fn frames_are_read_one_by_one_when_they_are_complete() {
        let all = [window_update(3, 7), frame(DATA, END_STREAM, 1, b"a")].concat();
        let mut bytes = &all[..all.len() - 1];
        let first = Frame::read(&mut bytes).unwrap();
        assert_eq!(
            (first.kind, first.stream, first.number(0)),
            (WINDOW_UPDATE, 3, 7)
        );
        assert_eq!(Frame::read(&mut bytes), None);
        let mut bytes = &all[all.len() - 10..];
        assert_eq!(Frame::read(&mut bytes).unwrap().payload, b"a");
        assert!(bytes.is_empty());
    }

    #[test]
    fn a_field_is_a_literal_without_a_table() {
        assert_eq!(field("a", "bc"), [0, 1, b'a', 2, b'b', b'c']);
    }

    #[test]
    fn a_long_text_has_a_length_of_several_bytes() {
        for (length, prefix) in [
            (126, &[126][..]),
            (127, &[127, 0]),
            (254, &[127, 127]),
            (255, &[127, 128, 1]),
        ] {
            let mut bytes = Vec::new();
            string(&"x".repeat(length), &mut bytes);
            assert_eq!(bytes.get(..prefix.len()), Some(prefix), "{length}");
            assert_eq!(bytes.len(), prefix.len() + length);
        }
    }
}
