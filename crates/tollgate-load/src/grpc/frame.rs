//! HTTP/2 frames (RFC 9113): nine bytes of header, then the payload.

/// The first bytes of a client.
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Bytes before the payload.
pub(super) const HEADER: usize = 9;
/// The largest payload, unless a client raises it.
const MAX_PAYLOAD: usize = 16_384;
/// Requests on one connection: clients have the odd numbers below 2^31.
pub(super) const MAX_STREAMS: u64 = 1 << 30;

pub(super) const END_STREAM: u8 = 0x1;
pub(super) const ACK: u8 = 0x1;
pub(super) const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

pub(super) const HEADER_TABLE_SIZE: u16 = 0x1;
pub(super) const ENABLE_PUSH: u16 = 0x2;
pub(super) const MAX_CONCURRENT_STREAMS: u16 = 0x3;
pub(super) const INITIAL_WINDOW_SIZE: u16 = 0x4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Data,
    Headers,
    Reset,
    Settings,
    Ping,
    GoAway,
    WindowUpdate,
    Other,
}

impl Kind {
    const ALL: [(Kind, u8); 7] = [
        (Kind::Data, 0),
        (Kind::Headers, 1),
        (Kind::Reset, 3),
        (Kind::Settings, 4),
        (Kind::Ping, 6),
        (Kind::GoAway, 7),
        (Kind::WindowUpdate, 8),
    ];

    fn read(byte: u8) -> Kind {
        let found = Kind::ALL.iter().find(|(_, number)| *number == byte);
        found.map_or(Kind::Other, |(kind, _)| *kind)
    }

    fn number(self) -> u8 {
        let found = Kind::ALL.iter().find(|(kind, _)| *kind == self);
        found.map_or(u8::MAX, |(_, number)| *number)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame<'a> {
    pub(super) kind: Kind,
    pub(super) flags: u8,
    pub(super) stream: u32,
    /// Bytes after the header, padding among them.
    pub(super) len: usize,
    /// Without padding and priority.
    pub(super) payload: &'a [u8],
}

impl Frame<'_> {
    /// The first frame, if it is complete.
    pub(super) fn read(bytes: &[u8]) -> Result<Option<Frame<'_>>, &'static str> {
        let Some((header, rest)) = bytes.split_first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let [a, b, c, kind, flags, s0, s1, s2, s3] = *header;
        let len = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        if len > MAX_PAYLOAD {
            return Err("a frame above the agreed size");
        }
        let Some(mut payload) = rest.get(..len) else {
            return Ok(None);
        };
        let kind = Kind::read(kind);
        if matches!(kind, Kind::Data | Kind::Headers) {
            payload =
                without_padding(payload, flags).ok_or("a frame with more padding than payload")?;
            if kind == Kind::Headers && flags & PRIORITY != 0 {
                payload = payload.get(5..).ok_or("a frame without its fields")?;
            }
        }
        Ok(Some(Frame {
            kind,
            flags,
            stream: u32::from_be_bytes([s0, s1, s2, s3]) & 0x7fff_ffff,
            len,
            payload,
        }))
    }
}

fn without_padding(payload: &[u8], flags: u8) -> Option<&[u8]> {
    if flags & PADDED == 0 {
        return Some(payload);
    }
    let (padding, rest) = payload.split_first()?;
    rest.get(..rest.len().checked_sub(usize::from(*padding))?)
}

/// The header of a frame, on stream 0.
pub(super) fn header(len: usize, kind: Kind, flags: u8) -> [u8; HEADER] {
    let len = u32::try_from(len).unwrap_or(u32::MAX);
    let [_, a, b, c] = len.to_be_bytes();
    [a, b, c, kind.number(), flags, 0, 0, 0, 0]
}

/// Puts the frame that begins at `at` on this stream.
pub(super) fn put_stream(out: &mut [u8], at: usize, stream: u32) {
    if let Some(place) = out.get_mut(at + 5..at + HEADER) {
        place.copy_from_slice(&stream.to_be_bytes());
    }
}

/// The first four bytes as a number; 0 if there are fewer.
pub(super) fn number(payload: &[u8]) -> u32 {
    payload
        .first_chunk::<4>()
        .map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

/// Names and values of settings.
pub(super) fn settings(payload: &[u8]) -> impl Iterator<Item = (u16, u32)> + '_ {
    payload.chunks_exact(6).filter_map(|setting| {
        let (name, value) = setting.split_first_chunk::<2>()?;
        Some((u16::from_be_bytes(*name), number(value)))
    })
}

/// Whether these bytes can start a SETTINGS frame, the first of every server.
pub(super) fn may_be_settings(bytes: &[u8]) -> bool {
    let small = bytes.iter().take(1).all(|byte| *byte == 0);
    small
        && bytes
            .get(3)
            .is_none_or(|kind| *kind == Kind::Settings.number())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_read_as_written_and_incomplete_at_every_split() {
        let mut bytes = header(3, Kind::Data, END_STREAM).to_vec();
        bytes.extend_from_slice(b"abc");
        put_stream(&mut bytes, 0, 0x0102_0305);
        for len in 0..bytes.len() {
            assert_eq!(Frame::read(&bytes[..len]), Ok(None));
        }
        let frame = Frame {
            kind: Kind::Data,
            flags: END_STREAM,
            stream: 0x0102_0305,
            len: 3,
            payload: b"abc",
        };
        assert_eq!(Frame::read(&bytes), Ok(Some(frame)));
    }

    #[test]
    fn padding_and_priority_are_not_payload() {
        let mut bytes = header(10, Kind::Headers, PADDED | PRIORITY).to_vec();
        bytes.extend_from_slice(b"\x02.....xy\0\0");
        let frame = Frame::read(&bytes).unwrap().unwrap();
        assert_eq!((frame.payload, frame.len), (&b"xy"[..], 10));
        let mut bytes = header(2, Kind::Data, PADDED).to_vec();
        bytes.extend_from_slice(b"\x02x");
        assert!(Frame::read(&bytes).is_err());
    }

    #[test]
    fn a_frame_above_the_agreed_size_is_rejected_before_it_arrives() {
        assert!(Frame::read(&header(16_385, Kind::Data, 0)).is_err());
    }
}
