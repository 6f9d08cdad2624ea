//! Delimits messages of RESP in a stream that comes in pieces of any size.
//!
//! # Theory
//!
//! A message is an element; an aggregate is an element that requires more elements. So not the nesting is stored, only how many
//! elements are missing: a message starts with one, an array of `n` completes one and requires `n` more, and the message ends when
//! none is missing. An attribute (`|`) precedes the element that it describes: it requires its own fields and completes nothing.
//! No bytes are stored, so neither depth nor length of a message costs memory.
//!
//! # What it does not know
//!
//! Aggregates without a length (`*?`), which RESP3 describes and no server sends. They are an error here.

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageKind {
    /// A reply, or a command.
    Message,
    /// A push (`>`): it answers no command, so it is not a reply.
    Push,
}

/// The stream is not the Redis protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidFrame;

/// A stream of messages, somewhere in the middle.
#[derive(Clone, Debug)]
pub struct RespFramer {
    /// Whether a message may be a bare line, as commands may.
    lines_allowed: bool,
    /// Elements that are not complete yet, the one at hand included. Zero between messages.
    missing: u64,
    frame: MessageKind,
    state: FramerState,
}

#[derive(Clone, Copy, Debug)]
enum FramerState {
    /// Before an element.
    Type,
    /// In a line whose text does not matter.
    Line { returned: bool },
    /// In a line that is a number.
    Length(LengthOf, DecimalReader),
    /// In the bytes of a string, the line end after it included.
    Body { left: u64 },
}

/// What a number is the length of.
#[derive(Clone, Copy, Debug)]
enum LengthOf {
    String,
    Aggregate { each: u64 },
    Attribute,
}

#[derive(Clone, Copy, Debug, Default)]
struct DecimalReader {
    negative: bool,
    value: u64,
    /// The carriage return was seen: only the line feed may follow.
    returned: bool,
}

impl RespFramer {
    /// A stream of replies.
    pub fn replies() -> RespFramer {
        RespFramer {
            lines_allowed: false,
            missing: 0,
            frame: MessageKind::Message,
            state: FramerState::Type,
        }
    }

    /// A stream of commands.
    pub fn commands() -> RespFramer {
        RespFramer {
            lines_allowed: true,
            ..RespFramer::replies()
        }
    }

    /// Whether the next byte begins a message.
    pub fn is_between(&self) -> bool {
        self.missing == 0
    }

    /// Continues to the end of the message or of the bytes. Returns how many bytes belong to this message, and its kind if it ended.
    pub fn advance(&mut self, bytes: &[u8]) -> Result<(usize, Option<MessageKind>), InvalidFrame> {
        let mut used = 0;
        while let Some(&byte) = bytes.get(used) {
            let took = match self.state {
                FramerState::Body { left } => {
                    let rest = bytes.len().saturating_sub(used);
                    let take = usize::try_from(left).map_or(rest, |left| left.min(rest));
                    let left = left.saturating_sub(u64::try_from(take).unwrap_or(left));
                    self.state = FramerState::Body { left };
                    if left == 0 {
                        self.complete();
                    }
                    take
                }
                _ => {
                    self.step(byte)?;
                    1
                }
            };
            used += took;
            if self.missing == 0 {
                return Ok((used, Some(self.frame)));
            }
        }
        Ok((used, None))
    }

    fn step(&mut self, byte: u8) -> Result<(), InvalidFrame> {
        match self.state {
            FramerState::Type => self.begin(byte)?,
            FramerState::Line { returned } => match byte {
                b'\n' if returned => self.complete(),
                _ => {
                    let returned = byte == b'\r';
                    self.state = FramerState::Line { returned };
                }
            },
            FramerState::Length(of, number) => match number.with(byte)? {
                Some(number) => self.state = FramerState::Length(of, number),
                None => self.counted(of, number)?,
            },
            FramerState::Body { .. } => {}
        }
        Ok(())
    }

    fn begin(&mut self, byte: u8) -> Result<(), InvalidFrame> {
        let first = self.missing == 0;
        let length = |of| FramerState::Length(of, DecimalReader::default());
        self.state = match byte {
            b'+' | b'-' | b':' | b',' | b'#' | b'_' | b'(' => FramerState::Line { returned: false },
            b'$' | b'=' | b'!' => length(LengthOf::String),
            b'*' | b'~' | b'>' => length(LengthOf::Aggregate { each: 1 }),
            b'%' => length(LengthOf::Aggregate { each: 2 }),
            b'|' => length(LengthOf::Attribute),
            _ if first && self.lines_allowed => FramerState::Line {
                returned: byte == b'\r',
            },
            _ => return Err(InvalidFrame),
        };
        if first {
            self.missing = 1;
            self.frame = if byte == b'>' {
                MessageKind::Push
            } else {
                MessageKind::Message
            };
        }
        Ok(())
    }

    /// The length is known.
    fn counted(&mut self, of: LengthOf, number: DecimalReader) -> Result<(), InvalidFrame> {
        if number.negative {
            // A null, not an empty value. Only RESP2 encodes it like this.
            self.complete();
            return Ok(());
        }
        match of {
            LengthOf::String => {
                let left = number.value.checked_add(2).ok_or(InvalidFrame)?;
                self.state = FramerState::Body { left };
            }
            LengthOf::Aggregate { each } => {
                self.require(number.value, each)?;
                self.complete();
            }
            LengthOf::Attribute => {
                self.require(number.value, 2)?;
                self.state = FramerState::Type;
            }
        }
        Ok(())
    }

    fn require(&mut self, count: u64, each: u64) -> Result<(), InvalidFrame> {
        let more = count.checked_mul(each).ok_or(InvalidFrame)?;
        self.missing = self.missing.checked_add(more).ok_or(InvalidFrame)?;
        Ok(())
    }

    fn complete(&mut self) {
        self.missing = self.missing.saturating_sub(1);
        self.state = FramerState::Type;
    }
}

impl DecimalReader {
    /// The number with one more byte; nothing if that was the end of its line.
    fn with(mut self, byte: u8) -> Result<Option<DecimalReader>, InvalidFrame> {
        match byte {
            b'\n' if self.returned => return Ok(None),
            _ if self.returned => return Err(InvalidFrame),
            b'\r' => self.returned = true,
            b'-' if !self.negative && self.value == 0 => self.negative = true,
            b'0'..=b'9' => {
                let digit = u64::from(byte.saturating_sub(b'0'));
                let shifted = self.value.checked_mul(10).ok_or(InvalidFrame)?;
                self.value = shifted.checked_add(digit).ok_or(InvalidFrame)?;
            }
            _ => return Err(InvalidFrame),
        }
        Ok(Some(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages of every type, each exactly one.
    const MESSAGES: [&[u8]; 20] = [
        b"+OK\r\n",
        b"-ERR no\r\n",
        b":-7\r\n",
        b"$3\r\na\r\n\r\n",
        b"$0\r\n\r\n",
        b"$-1\r\n",
        b"*-1\r\n",
        b"*0\r\n",
        b"*2\r\n$1\r\na\r\n:1\r\n",
        b"*2\r\n*1\r\n+a\r\n*2\r\n:1\r\n*0\r\n",
        b"%1\r\n+a\r\n*2\r\n:1\r\n:2\r\n",
        b"~2\r\n:1\r\n:2\r\n",
        b"_\r\n",
        b"#t\r\n",
        b",1.5\r\n",
        b"(1234567890123456789012345678901234567890\r\n",
        b"=7\r\ntxt:a\r\n\r\n",
        b"!5\r\nERR x\r\n",
        b"|1\r\n+ttl\r\n:5\r\n*1\r\n:1\r\n",
        b"*1\r\n|1\r\n+a\r\n+b\r\n:1\r\n",
    ];

    /// The lengths of the messages, if `bytes` come in pieces of `size`.
    fn lengths(
        frames: &mut RespFramer,
        bytes: &[u8],
        size: usize,
    ) -> Result<Vec<usize>, InvalidFrame> {
        let (mut found, mut length) = (Vec::new(), 0);
        for mut piece in bytes.chunks(size) {
            while !piece.is_empty() {
                let (used, end) = frames.advance(piece)?;
                length += used;
                piece = &piece[used..];
                if end.is_some() {
                    found.push(std::mem::take(&mut length));
                }
            }
        }
        Ok(found)
    }

    #[test]
    fn messages_are_delimited_however_they_are_split() {
        let expected: Vec<usize> = MESSAGES.iter().map(|m| m.len()).collect();
        let all = MESSAGES.concat();
        for size in 1..=all.len() {
            let mut frames = RespFramer::replies();
            assert_eq!(
                lengths(&mut frames, &all, size).unwrap(),
                expected,
                "{size}"
            );
            assert!(frames.is_between());
        }
    }

    #[test]
    fn a_message_that_lacks_its_last_byte_has_not_ended() {
        for message in MESSAGES {
            let mut frames = RespFramer::replies();
            let (used, end) = frames.advance(&message[..message.len() - 1]).unwrap();
            assert_eq!((used, end), (message.len() - 1, None));
            assert!(!frames.is_between());
        }
    }

    #[test]
    fn a_push_is_not_a_reply() {
        let mut frames = RespFramer::replies();
        let both = b">2\r\n+message\r\n$1\r\na\r\n+OK\r\n";
        let (used, end) = frames.advance(both).unwrap();
        assert_eq!((used, end), (21, Some(MessageKind::Push)));
        assert_eq!(
            frames.advance(&both[21..]),
            Ok((5, Some(MessageKind::Message)))
        );
    }

    #[test]
    fn commands_may_be_bare_lines_and_replies_may_not() {
        let bytes = b"PING\r\n*1\r\n$4\r\nPING\r\n";
        let found = lengths(&mut RespFramer::commands(), bytes, 3);
        assert_eq!(found.unwrap(), [6, 14]);
        assert_eq!(RespFramer::replies().advance(bytes), Err(InvalidFrame));
    }

    #[test]
    fn invalid_frames_are_errors() {
        for bad in [
            b"*99999999999999999999\r\n".as_slice(),
            b"$18446744073709551615\r\n",
            b"*18446744073709551615\r\n:1\r\n*18446744073709551615\r\n",
            b"*?\r\n",
            b"$1\rx",
            b"$--1\r\n",
            b"\x16\x03\x01",
        ] {
            assert_eq!(
                lengths(&mut RespFramer::replies(), bad, 4),
                Err(InvalidFrame),
                "{bad:?}"
            );
        }
    }
}
