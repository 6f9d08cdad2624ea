//! HTTP/2 frames (RFC 9113): nine bytes of header, then the payload.

/// The client's connection preface.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Bytes of a frame header.
pub(crate) const HEADER: usize = 9;
/// Largest payload in both directions: the default of the standard.
pub(crate) const PAYLOAD: usize = 16_384;
/// Largest flow-control window.
pub(crate) const WINDOW_MAX: i64 = 0x7fff_ffff;
/// Initial flow-control window.
pub(crate) const WINDOW: u32 = 65_535;

pub(crate) const DATA: u8 = 0x0;
pub(crate) const HEADERS: u8 = 0x1;
pub(crate) const PRIORITY: u8 = 0x2;
pub(crate) const RST_STREAM: u8 = 0x3;
pub(crate) const SETTINGS: u8 = 0x4;
pub(crate) const PUSH_PROMISE: u8 = 0x5;
pub(crate) const PING: u8 = 0x6;
pub(crate) const GOAWAY: u8 = 0x7;
pub(crate) const WINDOW_UPDATE: u8 = 0x8;
pub(crate) const CONTINUATION: u8 = 0x9;

pub(crate) const END_STREAM: u8 = 0x1;
pub(crate) const ACK: u8 = 0x1;
pub(crate) const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const HAS_PRIORITY: u8 = 0x20;

pub(crate) const HEADER_TABLE_SIZE: u16 = 0x1;
pub(crate) const ENABLE_PUSH: u16 = 0x2;
pub(crate) const MAX_CONCURRENT_STREAMS: u16 = 0x3;
pub(crate) const INITIAL_WINDOW_SIZE: u16 = 0x4;
pub(crate) const MAX_FRAME_SIZE: u16 = 0x5;
pub(crate) const MAX_HEADER_LIST_SIZE: u16 = 0x6;

/// Error codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Code {
    NoError = 0x0,
    Protocol = 0x1,
    Internal = 0x2,
    FlowControl = 0x3,
    StreamClosed = 0x5,
    FrameSize = 0x6,
    RefusedStream = 0x7,
    Compression = 0x9,
    EnhanceYourCalm = 0xb,
}

impl Code {
    pub(crate) fn number(self) -> u32 {
        self as u32
    }
}

/// A complete frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    /// All bytes after the header, with padding.
    pub(crate) payload: &'a [u8],
}

/// The result of parsing one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next<'a> {
    /// A frame, and the bytes after it.
    Frame(Frame<'a>, &'a [u8]),
    /// An incomplete frame.
    Partial,
    /// A frame above the largest payload.
    TooLarge,
}

impl<'a> Frame<'a> {
    pub(crate) fn next(bytes: &'a [u8]) -> Next<'a> {
        let Some((header, rest)) = bytes.split_first_chunk::<HEADER>() else {
            return Next::Partial;
        };
        let [a, b, c, kind, flags, s0, s1, s2, s3] = *header;
        let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        if length > PAYLOAD {
            return Next::TooLarge;
        }
        let Some((payload, rest)) = rest.split_at_checked(length) else {
            return Next::Partial;
        };
        let frame = Frame {
            kind,
            flags,
            // The first bit is reserved.
            stream: u32::from_be_bytes([s0, s1, s2, s3]) & 0x7fff_ffff,
            payload,
        };
        Next::Frame(frame, rest)
    }

    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The payload without padding and priority, or `None` if it is too short for them.
    pub(crate) fn content(&self) -> Option<&'a [u8]> {
        let mut content = self.payload;
        if self.has(PADDED) {
            let (padding, rest) = content.split_first()?;
            content = rest.get(..rest.len().checked_sub(usize::from(*padding))?)?;
        }
        if self.kind == HEADERS && self.has(HAS_PRIORITY) {
            content = content.get(5..)?;
        }
        Some(content)
    }

    /// The payload as one number.
    pub(crate) fn number(&self) -> Option<u32> {
        <[u8; 4]>::try_from(self.payload)
            .ok()
            .map(u32::from_be_bytes)
    }

    /// The settings: identifiers and values.
    pub(crate) fn settings(&self) -> impl Iterator<Item = (u16, u32)> + use<'a> {
        self.payload.chunks_exact(6).filter_map(|setting| {
            let (name, value) = setting.split_first_chunk::<2>()?;
            let value = <[u8; 4]>::try_from(value).ok()?;
            Some((u16::from_be_bytes(*name), u32::from_be_bytes(value)))
        })
    }
}

/// Encodes a frame header. `length` is at most [`PAYLOAD`].
pub(crate) fn header(length: usize, kind: u8, flags: u8, stream: u32) -> [u8; HEADER] {
    let [_, a, b, c] = u32::try_from(length).unwrap_or(0).to_be_bytes();
    let [s0, s1, s2, s3] = stream.to_be_bytes();
    [a, b, c, kind, flags, s0, s1, s2, s3]
}

/// Writes a frame.
pub(crate) fn write(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    out.extend_from_slice(&header(payload.len(), kind, flags, stream));
    out.extend_from_slice(payload);
}

/// Writes RST_STREAM.
pub(crate) fn write_reset(out: &mut Vec<u8>, stream: u32, code: Code) {
    write(out, RST_STREAM, 0, stream, &code.number().to_be_bytes());
}

/// Writes WINDOW_UPDATE.
pub(crate) fn write_window(out: &mut Vec<u8>, stream: u32, bytes: u32) {
    write(out, WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_parsed_as_written_and_incomplete_at_every_split() {
        let mut bytes = Vec::new();
        write(&mut bytes, DATA, END_STREAM, 0x0102_0305, b"abc");
        for length in 0..bytes.len() {
            assert_eq!(Frame::next(&bytes[..length]), Next::Partial);
        }
        bytes.push(7);
        let Next::Frame(frame, rest) = Frame::next(&bytes) else {
            panic!("no frame");
        };
        assert_eq!((frame.kind, frame.stream), (DATA, 0x0102_0305));
        assert_eq!((frame.content(), rest), (Some(&b"abc"[..]), &[7_u8][..]));
    }

    #[test]
    fn an_oversized_frame_is_rejected_by_its_header() {
        assert_eq!(
            Frame::next(&header(PAYLOAD, DATA, 0, 1)),
            Next::Partial,
            "its payload may follow"
        );
        assert_eq!(
            Frame::next(&header(PAYLOAD + 1, DATA, 0, 1)),
            Next::TooLarge
        );
    }

    #[test]
    fn padding_and_priority_are_not_content() {
        let frame = |kind, flags, payload| Frame {
            kind,
            flags,
            stream: 1,
            payload,
        };
        let content = |kind, flags, payload| frame(kind, flags, payload).content();
        assert_eq!(content(DATA, PADDED, b"\x02abcd"), Some(&b"ab"[..]));
        assert_eq!(content(DATA, PADDED, b"\x04abcd"), Some(&b""[..]));
        assert_eq!(content(DATA, PADDED, b"\x05abcd"), None);
        assert_eq!(content(DATA, PADDED, b""), None);
        let both = PADDED | HAS_PRIORITY;
        assert_eq!(content(HEADERS, both, b"\x01ppppp-x"), Some(&b"-"[..]));
        assert_eq!(content(HEADERS, HAS_PRIORITY, b"pppp"), None);
        // DATA has no priority.
        assert_eq!(content(DATA, HAS_PRIORITY, b"pppp"), Some(&b"pppp"[..]));
    }
}
