//! Parser of commands: arrays of bulk strings, and inline commands.
//!
//! # Theory
//!
//! A command is one array of strings, never nested, or one line. So it is a list of ranges in the bytes that were
//! read. Nothing is copied, and nothing is allocated but the list, which is reused and grows by what was received, never by what
//! is announced. An incomplete command is parsed again from its start, but not before as many bytes have
//! arrived as it needs.
//!
//! # Invariant
//!
//! Whatever the bytes: no panic, and no more memory than the bounds allow. Every error has the text that Redis uses, and
//! closes the connection, because the next command cannot be found. Before authentication the bounds are far narrower.

use std::fmt;

/// Most bytes of a number, with its sign and line end.
const MAX_NUMBER_BYTES: usize = 32;

/// Bounds of a command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Strings in one command.
    args: usize,
    /// Bytes of one string.
    bulk: usize,
    /// Bytes of a command, and of the read buffer of an unauthenticated client.
    pub(super) bytes: usize,
    pub(super) is_authenticated: bool,
}

impl Bounds {
    /// After authentication, or where no password is set.
    pub(super) const AUTHENTICATED: Bounds = Bounds {
        args: 1024,
        bulk: 64 * 1024,
        bytes: 128 * 1024,
        is_authenticated: true,
    };
    /// Before authentication: enough to authenticate.
    pub(super) const UNAUTHENTICATED: Bounds = Bounds {
        args: 10,
        bulk: 16 * 1024,
        bytes: 32 * 1024,
        is_authenticated: false,
    };
}

/// A protocol error. It closes the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Malformed {
    /// An invalid count of strings, or too many.
    Count,
    /// Too many strings before authentication.
    UnauthenticatedCount,
    /// Too many digits.
    LongCount,
    /// An invalid length, or too long.
    Length,
    /// Too long a string before authentication.
    UnauthenticatedLength,
    /// Too many digits.
    LongLength,
    /// Something else where a bulk string must begin.
    NotABulk(u8),
    /// A string that does not end where it call.
    Unterminated,
    /// Too long an inline command.
    LongLine,
    /// Unbalanced quotes.
    Quotes,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Protocol error: ")?;
        f.write_str(match self {
            Self::Count => "invalid multibulk length",
            Self::UnauthenticatedCount => "unauthenticated multibulk length",
            Self::LongCount => "too big mbulk count string",
            Self::Length => "invalid bulk length",
            Self::UnauthenticatedLength => "unauthenticated bulk length",
            Self::LongLength => "too big bulk count string",
            Self::NotABulk(got) => {
                let got = char::from(*got);
                let got = if got.is_ascii_graphic() { got } else { '?' };
                return write!(f, "expected '$', got '{got}'");
            }
            Self::Unterminated => "expected the end of a bulk string",
            Self::LongLine => "too big inline request",
            Self::Quotes => "unbalanced quotes in request",
        })
    }
}

/// The result of parsing the front of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A command of this many bytes.
    Command(usize),
    /// Bytes of no command.
    Empty(usize),
    /// An incomplete command, which needs at least this many bytes.
    Partial(usize),
}

/// The arguments of the command parsed last. Reused.
#[derive(Debug, Default)]
pub(super) struct Words {
    ranges: Vec<(usize, usize)>,
    /// The arguments of an inline command, without quotes.
    unquoted: Vec<u8>,
    is_line: bool,
}

/// The arguments of one command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Command<'a> {
    ranges: &'a [(usize, usize)],
    bytes: &'a [u8],
    /// It is an inline command.
    pub(super) is_line: bool,
}

impl<'a> Command<'a> {
    /// The number of arguments, with the name.
    pub(super) fn len(&self) -> usize {
        self.ranges.len()
    }

    /// An argument by its index; the name is at 0. Empty if there is none.
    #[inline]
    pub(super) fn word(&self, at: usize) -> &'a [u8] {
        let range = self.ranges.get(at);
        range
            .and_then(|(from, to)| self.bytes.get(*from..*to))
            .unwrap_or_default()
    }

    /// The range of an argument in the bytes; `None` for inline commands.
    pub(super) fn range(&self, at: usize) -> Option<(usize, usize)> {
        self.ranges.get(at).copied().filter(|_| !self.is_line)
    }

    /// The arguments from an index on.
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

    /// Parses a command at the front of `bytes`.
    #[inline]
    pub(super) fn find(&mut self, bytes: &[u8], bounds: &Bounds) -> Result<Found, Malformed> {
        self.ranges.clear();
        match bytes.first() {
            None => Ok(Found::Partial(1)),
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
        // No command extends beyond this. Later bytes must not matter: they depend on how the stream was cut.
        let bytes = bytes.get(..bounds.bytes).unwrap_or(bytes);
        let (count, mut at) = match count(bytes, 1) {
            NumberLine::Complete(count, at) => (count, at),
            NumberLine::Partial => return Ok(Found::Partial(bytes.len() + 1)),
            NumberLine::TooLong => return Err(Malformed::LongCount),
            NumberLine::Invalid => return Err(Malformed::Count),
        };
        if count <= 0 {
            return Ok(Found::Empty(at));
        }
        let count = usize::try_from(count).map_err(|_| Malformed::Count)?;
        if count > bounds.args {
            return Err(match bounds.is_authenticated {
                false => Malformed::UnauthenticatedCount,
                true => Malformed::Count,
            });
        }
        for _ in 0..count {
            match bytes.get(at) {
                None => return partial(bytes.len() + 1, bounds),
                Some(b'$') => {}
                Some(other) => return Err(Malformed::NotABulk(*other)),
            }
            let (length, begin) = match self::count(bytes, at + 1) {
                NumberLine::Complete(length, begin) => (length, begin),
                NumberLine::Partial => return partial(bytes.len() + 1, bounds),
                NumberLine::TooLong => return Err(Malformed::LongLength),
                NumberLine::Invalid => return Err(Malformed::Length),
            };
            let length = usize::try_from(length).map_err(|_| Malformed::Length)?;
            if length > bounds.bulk {
                return Err(match bounds.is_authenticated {
                    false => Malformed::UnauthenticatedLength,
                    true => Malformed::Length,
                });
            }
            // Cannot overflow: both are bounded by what was read and by the bounds.
            let end = begin + length;
            match bytes.get(end..end + 2) {
                Some(b"\r\n") => {}
                Some(_) => return Err(Malformed::Unterminated),
                None => return partial(end + 2, bounds),
            }
            self.ranges.push((begin, end));
            at = end + 2;
        }
        Ok(Found::Command(at))
    }

    fn line(&mut self, bytes: &[u8], bounds: &Bounds) -> Result<Found, Malformed> {
        let most = bounds.bytes.min(64 * 1024);
        let within = bytes.get(..most).unwrap_or(bytes);
        let Some(end) = within.iter().position(|byte| *byte == b'\n') else {
            return match bytes.len() < most {
                true => Ok(Found::Partial(bytes.len() + 1)),
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
            true => Found::Empty(end + 1),
            false => Found::Command(end + 1),
        })
    }

    /// Splits a line at blanks. Double quotes may contain blanks and escapes such as `\n` and `\x1f`; in single
    /// quotes only `\'` is an escape. A quote ends with a blank or the line.
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

    /// Takes one argument and returns the rest.
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

/// The byte that an escape after a backslash stands for, and its length.
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

fn partial(needed: usize, bounds: &Bounds) -> Result<Found, Malformed> {
    match needed > bounds.bytes {
        true => Err(Malformed::Length),
        false => Ok(Found::Partial(needed)),
    }
}

enum NumberLine {
    /// A number, and the index after its line.
    Complete(i64, usize),
    Partial,
    TooLong,
    Invalid,
}

/// Parses the number that begins at `begin` and ends its line.
#[inline]
fn count(bytes: &[u8], begin: usize) -> NumberLine {
    let rest = bytes.get(begin..).unwrap_or_default();
    // Most have one digit or two.
    if let [digit @ b'0'..=b'9', b'\r', b'\n', ..] = rest {
        return NumberLine::Complete(i64::from(digit - b'0'), begin + 3);
    }
    if let [tens @ b'1'..=b'9', ones @ b'0'..=b'9', b'\r', b'\n', ..] = rest {
        let number = i64::from(tens - b'0') * 10 + i64::from(ones - b'0');
        return NumberLine::Complete(number, begin + 4);
    }
    let within = rest.get(..MAX_NUMBER_BYTES).unwrap_or(rest);
    let is_of_number = |byte: &u8| byte.is_ascii_digit() || *byte == b'-';
    let Some(end) = within.iter().position(|byte| !is_of_number(byte)) else {
        return match rest.len() < MAX_NUMBER_BYTES {
            true => NumberLine::Partial,
            false => NumberLine::TooLong,
        };
    };
    match (within.get(end), rest.get(end + 1)) {
        (Some(b'\r'), None) => NumberLine::Partial,
        (Some(b'\r'), Some(b'\n')) => {
            let text = within.get(..end).unwrap_or_default();
            match plain_number(text) {
                Some(number) => NumberLine::Complete(number, begin + end + 2),
                None => NumberLine::Invalid,
            }
        }
        _ => NumberLine::Invalid,
    }
}

/// Parses digits without a plus or leading zeros.
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
