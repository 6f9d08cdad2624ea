//! Commands as they come off the wire: arrays of bulk strings, and lines of words.
//!
//! # Theory
//!
//! A request of this protocol is one array of strings, never deeper, or one line typed by a person. So a
//! command is a list of ranges in the bytes that were read; nothing is copied and nothing is allocated but the
//! list, which is used again and grows by what is there, never by what is announced. A command of which a
//! part is missing is read again from its start when more has come, but not before as much has come as it
//! says that it needs.
//!
//! # Invariant
//!
//! Whatever the bytes: no panic, no more memory than the bounds allow, and every error is a sentence that
//! clients of this protocol know, after which the connection ends (there is no way to find the next command).
//! Before a client has shown its password, the bounds are far narrower.

use std::fmt;

/// Digits of a count at the most, its sign and the end of its line included.
const COUNT_BYTES: usize = 32;

/// How much a command may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Strings in one command.
    args: usize,
    /// Bytes of one string.
    bulk: usize,
    /// Bytes of a whole command, or of a line.
    whole: usize,
    /// Are these the bounds of a stranger?
    strange: bool,
}

impl Bounds {
    /// For whoever has shown its password, or needs none.
    pub(super) const KNOWN: Bounds = Bounds {
        args: 1024,
        bulk: 64 * 1024,
        whole: 128 * 1024,
        strange: false,
    };
    /// For everybody else: enough to show a password.
    pub(super) const STRANGE: Bounds = Bounds {
        args: 10,
        bulk: 16 * 1024,
        whole: 32 * 1024,
        strange: true,
    };
}

/// What cannot be read. The connection ends with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Malformed {
    /// A count of strings that is none, or is too many.
    Count,
    /// More strings than a stranger may send.
    StrangeCount,
    /// Too many digits.
    CountText,
    /// A length that is none, or is too long.
    Length,
    /// A longer string than a stranger may send.
    StrangeLength,
    /// Too many digits.
    LengthText,
    /// Something else where a string was due.
    NoString(u8),
    /// A string that does not end where it said.
    NoEnd,
    /// A line without an end.
    LongLine,
    /// A quote that is never closed.
    Quotes,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Protocol error: ")?;
        f.write_str(match self {
            Self::Count => "invalid multibulk length",
            Self::StrangeCount => "unauthenticated multibulk length",
            Self::CountText => "too big mbulk count string",
            Self::Length => "invalid bulk length",
            Self::StrangeLength => "unauthenticated bulk length",
            Self::LengthText => "too big bulk count string",
            Self::NoString(got) => {
                let got = char::from(*got);
                let got = if got.is_ascii_graphic() { got } else { '?' };
                return write!(f, "expected '$', got '{got}'");
            }
            Self::NoEnd => "expected the end of a bulk string",
            Self::LongLine => "too big inline request",
            Self::Quotes => "unbalanced quotes in request",
        })
    }
}

/// What was found at the front of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A command of so many bytes.
    Command(usize),
    /// So many bytes that ask for nothing.
    Nothing(usize),
    /// A part of a command; it is not worth looking again before there are so many bytes.
    Part(usize),
}

/// The words of the command that was found last. Used again and again.
#[derive(Debug, Default)]
pub(super) struct Words {
    ranges: Vec<(usize, usize)>,
    /// The words of a line, without their quotes.
    unquoted: Vec<u8>,
    is_line: bool,
}

/// The words of one command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Command<'a> {
    ranges: &'a [(usize, usize)],
    bytes: &'a [u8],
    /// Was it a line, as a person types it?
    pub(super) is_line: bool,
}

impl<'a> Command<'a> {
    /// How many words, the name included.
    pub(super) fn len(&self) -> usize {
        self.ranges.len()
    }

    /// The word at this place; the name is at 0. Empty if there is none.
    #[inline]
    pub(super) fn word(&self, at: usize) -> &'a [u8] {
        let range = self.ranges.get(at);
        range
            .and_then(|(from, to)| self.bytes.get(*from..*to))
            .unwrap_or_default()
    }

    /// Where the word at this place stands in the bytes that were read. None if it was typed on a line.
    pub(super) fn range(&self, at: usize) -> Option<(usize, usize)> {
        self.ranges.get(at).copied().filter(|_| !self.is_line)
    }

    /// All words from this place on.
    pub(super) fn from(self, at: usize) -> impl Iterator<Item = &'a [u8]> {
        (at..self.len()).map(move |at| self.word(at))
    }
}

impl Words {
    /// The command that was found in `bytes`.
    pub(super) fn command<'a>(&'a self, bytes: &'a [u8]) -> Command<'a> {
        Command {
            ranges: &self.ranges,
            bytes: if self.is_line { &self.unquoted } else { bytes },
            is_line: self.is_line,
        }
    }

    /// Looks for a command at the front of `bytes`.
    #[inline]
    pub(super) fn find(&mut self, bytes: &[u8], bounds: &Bounds) -> Result<Found, Malformed> {
        self.ranges.clear();
        match bytes.first() {
            None => Ok(Found::Part(1)),
            Some(b'*') => {
                self.is_line = false;
                self.array(bytes, bounds)
            }
            Some(_) => {
                self.is_line = true;
                self.line(bytes, bounds)
            }
        }
    }

    fn array(&mut self, bytes: &[u8], bounds: &Bounds) -> Result<Found, Malformed> {
        // Beyond this no command goes on. What came with it must not matter: it depends on how the stream was cut.
        let bytes = bytes.get(..bounds.whole).unwrap_or(bytes);
        let (count, mut at) = match count(bytes, 1) {
            Counted::Is(count, at) => (count, at),
            Counted::Part => return Ok(Found::Part(bytes.len() + 1)),
            Counted::Long => return Err(Malformed::CountText),
            Counted::No => return Err(Malformed::Count),
        };
        if count <= 0 {
            return Ok(Found::Nothing(at));
        }
        let count = usize::try_from(count).map_err(|_| Malformed::Count)?;
        if count > bounds.args {
            return Err(match bounds.strange {
                true => Malformed::StrangeCount,
                false => Malformed::Count,
            });
        }
        for _ in 0..count {
            match bytes.get(at) {
                None => return part(bytes.len() + 1, bounds),
                Some(b'$') => {}
                Some(other) => return Err(Malformed::NoString(*other)),
            }
            let (length, begin) = match self::count(bytes, at + 1) {
                Counted::Is(length, begin) => (length, begin),
                Counted::Part => return part(bytes.len() + 1, bounds),
                Counted::Long => return Err(Malformed::LengthText),
                Counted::No => return Err(Malformed::Length),
            };
            let length = usize::try_from(length).map_err(|_| Malformed::Length)?;
            if length > bounds.bulk {
                return Err(match bounds.strange {
                    true => Malformed::StrangeLength,
                    false => Malformed::Length,
                });
            }
            // Cannot overflow: both are bounded by what was read and by the bounds.
            let end = begin + length;
            match bytes.get(end..end + 2) {
                Some(b"\r\n") => {}
                Some(_) => return Err(Malformed::NoEnd),
                None => return part(end + 2, bounds),
            }
            self.ranges.push((begin, end));
            at = end + 2;
        }
        Ok(Found::Command(at))
    }

    fn line(&mut self, bytes: &[u8], bounds: &Bounds) -> Result<Found, Malformed> {
        let most = bounds.whole.min(64 * 1024);
        let within = bytes.get(..most).unwrap_or(bytes);
        let Some(end) = within.iter().position(|byte| *byte == b'\n') else {
            return match bytes.len() < most {
                true => Ok(Found::Part(bytes.len() + 1)),
                false => Err(Malformed::LongLine),
            };
        };
        let line = within.get(..end).unwrap_or_default();
        self.unquoted.clear();
        self.split(line.strip_suffix(b"\r").unwrap_or(line))?;
        if self.ranges.len() > bounds.args {
            return Err(Malformed::Count);
        }
        Ok(match self.ranges.is_empty() {
            true => Found::Nothing(end + 1),
            false => Found::Command(end + 1),
        })
    }

    /// Words apart by blanks. In double quotes there may be blanks, `\n` and its kin, and `\x1f`; in single
    /// quotes only `\'` is special. A quote ends with a blank or the line.
    fn split(&mut self, line: &[u8]) -> Result<(), Malformed> {
        let mut rest = line;
        loop {
            rest = rest.trim_ascii_start();
            if rest.is_empty() {
                return Ok(());
            }
            let begin = self.unquoted.len();
            rest = self.unquote(rest)?;
            self.ranges.push((begin, self.unquoted.len()));
        }
    }

    /// Takes one word; what is behind it.
    fn unquote<'a>(&mut self, mut rest: &'a [u8]) -> Result<&'a [u8], Malformed> {
        let mut quote = None;
        loop {
            let Some((first, behind)) = rest.split_first() else {
                return match quote {
                    None => Ok(rest),
                    Some(_) => Err(Malformed::Quotes),
                };
            };
            rest = behind;
            match (quote, *first) {
                (None, blank) if blank.is_ascii_whitespace() || blank == 0 => return Ok(rest),
                (None, opening @ (b'"' | b'\'')) => quote = Some(opening),
                (Some(open), closing) if open == closing => {
                    return match rest.first() {
                        Some(next) if !next.is_ascii_whitespace() => Err(Malformed::Quotes),
                        _ => Ok(rest),
                    };
                }
                (Some(b'\''), b'\\') if rest.first() == Some(&b'\'') => {
                    self.unquoted.push(b'\'');
                    rest = rest.get(1..).unwrap_or_default();
                }
                (Some(b'"'), b'\\') => {
                    let (byte, length) = escaped(rest).ok_or(Malformed::Quotes)?;
                    self.unquoted.push(byte);
                    rest = rest.get(length..).unwrap_or_default();
                }
                (_, byte) => self.unquoted.push(byte),
            }
        }
    }
}

/// The byte that is meant by what follows a backslash, and how long that is.
fn escaped(rest: &[u8]) -> Option<(u8, usize)> {
    let digit = |at: usize| char::from(*rest.get(at)?).to_digit(16);
    if rest.first() == Some(&b'x')
        && let (Some(high), Some(low)) = (digit(1), digit(2))
    {
        return Some((u8::try_from(high * 16 + low).ok()?, 3));
    }
    let byte = match rest.first()? {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 8,
        b'a' => 7,
        other => *other,
    };
    Some((byte, 1))
}

fn part(needed: usize, bounds: &Bounds) -> Result<Found, Malformed> {
    match needed > bounds.whole {
        true => Err(Malformed::Length),
        false => Ok(Found::Part(needed)),
    }
}

enum Counted {
    /// A number, and what is behind its line.
    Is(i64, usize),
    /// Its line has no end yet.
    Part,
    /// It has too many digits.
    Long,
    /// It is none.
    No,
}

/// The number that begins at `begin` and ends its line.
#[inline]
fn count(bytes: &[u8], begin: usize) -> Counted {
    let rest = bytes.get(begin..).unwrap_or_default();
    // Most have one digit or two.
    if let [digit @ b'0'..=b'9', b'\r', b'\n', ..] = rest {
        return Counted::Is(i64::from(digit - b'0'), begin + 3);
    }
    if let [tens @ b'1'..=b'9', ones @ b'0'..=b'9', b'\r', b'\n', ..] = rest {
        let number = i64::from(tens - b'0') * 10 + i64::from(ones - b'0');
        return Counted::Is(number, begin + 4);
    }
    let within = rest.get(..COUNT_BYTES).unwrap_or(rest);
    let is_of_number = |byte: &u8| byte.is_ascii_digit() || *byte == b'-';
    let Some(end) = within.iter().position(|byte| !is_of_number(byte)) else {
        return match rest.len() < COUNT_BYTES {
            true => Counted::Part,
            false => Counted::Long,
        };
    };
    match (within.get(end), rest.get(end + 1)) {
        (Some(b'\r'), None) => Counted::Part,
        (Some(b'\r'), Some(b'\n')) => {
            let text = within.get(..end).unwrap_or_default();
            match plain_number(text) {
                Some(number) => Counted::Is(number, begin + end + 2),
                None => Counted::No,
            }
        }
        _ => Counted::No,
    }
}

/// Digits without a plus or needless zeros, as numbers of this protocol are.
fn plain_number(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let is_plain = match digits {
        [b'0'] => text.len() == 1,
        [b'1'..=b'9', ..] => true,
        _ => false,
    };
    let text = std::str::from_utf8(text).ok()?;
    is_plain.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
#[path = "codec/tests.rs"]
mod tests;
