//! Frames of HTTP/2 (RFC 9113): nine bytes of header, then what they carry.

/// What a client says first.
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Bytes before what a frame carries.
pub(super) const HEADER: usize = 9;
/// Bytes that a frame may carry, in both directions: what holds unless somebody asks for more.
pub(super) const PAYLOAD: usize = 16_384;
/// A window may not be wider.
pub(super) const WINDOW_MAX: i64 = 0x7fff_ffff;
/// How wide every window is at first.
pub(super) const WINDOW: u32 = 65_535;

pub(super) const DATA: u8 = 0x0;
pub(super) const HEADERS: u8 = 0x1;
pub(super) const PRIORITY: u8 = 0x2;
pub(super) const RST_STREAM: u8 = 0x3;
pub(super) const SETTINGS: u8 = 0x4;
pub(super) const PUSH_PROMISE: u8 = 0x5;
pub(super) const PING: u8 = 0x6;
pub(super) const GOAWAY: u8 = 0x7;
pub(super) const WINDOW_UPDATE: u8 = 0x8;
pub(super) const CONTINUATION: u8 = 0x9;

pub(super) const END_STREAM: u8 = 0x1;
pub(super) const ACK: u8 = 0x1;
pub(super) const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const HAS_PRIORITY: u8 = 0x20;

pub(super) const HEADER_TABLE_SIZE: u16 = 0x1;
pub(super) const ENABLE_PUSH: u16 = 0x2;
pub(super) const MAX_CONCURRENT_STREAMS: u16 = 0x3;
pub(super) const INITIAL_WINDOW_SIZE: u16 = 0x4;
pub(super) const MAX_FRAME_SIZE: u16 = 0x5;
pub(super) const MAX_HEADER_LIST_SIZE: u16 = 0x6;

/// Why a stream or a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Code {
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
    pub(super) fn number(self) -> u32 {
        self as u32
    }
}

/// A frame whose bytes are all there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame<'a> {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
    /// All bytes after the header.
    pub(super) payload: &'a [u8],
}

/// What stands at the beginning of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next<'a> {
    /// A frame, and what stands behind it.
    Frame(Frame<'a>, &'a [u8]),
    /// Not all of a frame.
    Part,
    /// A frame that is larger than anybody allowed.
    TooLarge,
}

impl<'a> Frame<'a> {
    pub(super) fn next(bytes: &'a [u8]) -> Next<'a> {
        let Some((header, rest)) = bytes.split_first_chunk::<HEADER>() else {
            return Next::Part;
        };
        let [a, b, c, kind, flags, s0, s1, s2, s3] = *header;
        let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        if length > PAYLOAD {
            return Next::TooLarge;
        }
        let Some((payload, rest)) = rest.split_at_checked(length) else {
            return Next::Part;
        };
        let frame = Frame {
            kind,
            flags,
            // The first bit means nothing.
            stream: u32::from_be_bytes([s0, s1, s2, s3]) & 0x7fff_ffff,
            payload,
        };
        Next::Frame(frame, rest)
    }

    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// What it carries without padding, and without a priority if it may have one; None if there is less than that.
    pub(super) fn carried(&self) -> Option<&'a [u8]> {
        let mut carried = self.payload;
        if self.has(PADDED) {
            let (padding, rest) = carried.split_first()?;
            carried = rest.get(..rest.len().checked_sub(usize::from(*padding))?)?;
        }
        if self.kind == HEADERS && self.has(HAS_PRIORITY) {
            carried = carried.get(5..)?;
        }
        Some(carried)
    }

    /// The one number that it carries.
    pub(super) fn number(&self) -> Option<u32> {
        <[u8; 4]>::try_from(self.payload)
            .ok()
            .map(u32::from_be_bytes)
    }

    /// The names and values of settings.
    pub(super) fn settings(&self) -> impl Iterator<Item = (u16, u32)> + use<'a> {
        self.payload.chunks_exact(6).filter_map(|setting| {
            let (name, value) = setting.split_first_chunk::<2>()?;
            let value = <[u8; 4]>::try_from(value).ok()?;
            Some((u16::from_be_bytes(*name), u32::from_be_bytes(value)))
        })
    }
}

/// The header of a frame. What a frame carries is never longer than [`PAYLOAD`].
pub(super) fn header(length: usize, kind: u8, flags: u8, stream: u32) -> [u8; HEADER] {
    let [_, a, b, c] = u32::try_from(length).unwrap_or(0).to_be_bytes();
    let [s0, s1, s2, s3] = stream.to_be_bytes();
    [a, b, c, kind, flags, s0, s1, s2, s3]
}

/// Writes a whole frame.
pub(super) fn write(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    out.extend_from_slice(&header(payload.len(), kind, flags, stream));
    out.extend_from_slice(payload);
}

/// Writes that a stream ends here.
pub(super) fn write_reset(out: &mut Vec<u8>, stream: u32, code: Code) {
    write(out, RST_STREAM, 0, stream, &code.number().to_be_bytes());
}

/// Writes that so many bytes more may come.
pub(super) fn write_window(out: &mut Vec<u8>, stream: u32, bytes: u32) {
    write(out, WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_read_as_it_was_written_and_waited_for_at_every_split() {
        let mut bytes = Vec::new();
        write(&mut bytes, DATA, END_STREAM, 0x0102_0305, b"abc");
        for length in 0..bytes.len() {
            assert_eq!(Frame::next(&bytes[..length]), Next::Part);
        }
        bytes.push(7);
        let Next::Frame(frame, rest) = Frame::next(&bytes) else {
            panic!("no frame");
        };
        assert_eq!((frame.kind, frame.stream), (DATA, 0x0102_0305));
        assert_eq!((frame.carried(), rest), (Some(&b"abc"[..]), &[7_u8][..]));
    }

    #[test]
    fn a_frame_that_is_too_large_is_known_by_its_header() {
        assert_eq!(
            Frame::next(&header(PAYLOAD, DATA, 0, 1)),
            Next::Part,
            "it may come"
        );
        assert_eq!(
            Frame::next(&header(PAYLOAD + 1, DATA, 0, 1)),
            Next::TooLarge
        );
    }

    #[test]
    fn padding_and_priority_are_not_what_is_carried() {
        let frame = |kind, flags, payload| Frame {
            kind,
            flags,
            stream: 1,
            payload,
        };
        let carried = |kind, flags, payload| frame(kind, flags, payload).carried();
        assert_eq!(carried(DATA, PADDED, b"\x02abcd"), Some(&b"ab"[..]));
        assert_eq!(carried(DATA, PADDED, b"\x04abcd"), Some(&b""[..]));
        assert_eq!(carried(DATA, PADDED, b"\x05abcd"), None);
        assert_eq!(carried(DATA, PADDED, b""), None);
        let both = PADDED | HAS_PRIORITY;
        assert_eq!(carried(HEADERS, both, b"\x01ppppp-x"), Some(&b"-"[..]));
        assert_eq!(carried(HEADERS, HAS_PRIORITY, b"pppp"), None);
        // Data has no priority.
        assert_eq!(carried(DATA, HAS_PRIORITY, b"pppp"), Some(&b"pppp"[..]));
    }
}
