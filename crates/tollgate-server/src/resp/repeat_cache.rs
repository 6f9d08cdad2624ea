//! The last call of `CL.THROTTLE` or `THROTTLE`, to recognise the next one.
//!
//! # Theory
//!
//! A client that sends many calls sends the same one with other keys. The bytes before and after the key are then the
//! same, and equal bytes mean the same. So the last call is kept in two pieces, and a call that begins with the first and ends
//! with the second is recognised by two comparisons and the length of its key.
//!
//! # Invariant
//!
//! What is found here is what the codec would have found: a complete command that differs in its key alone. Everything else is
//! left to the codec.

use tollgate::InlineQuota;

use super::codec::Command;
use super::throttle::{Dialect, ThrottleCall};

/// Largest piece.
const MAX_PIECE_BYTES: usize = 256;

/// A call without its key.
#[derive(Debug)]
pub(super) struct RepeatCache {
    /// The bytes before the length of the key.
    head: Vec<u8>,
    /// The bytes after the key.
    tail: Vec<u8>,
    dialect: Dialect,
    terms: InlineQuota,
    quantity: i64,
}

impl RepeatCache {
    /// Keeps a call whose command is `array`; `None` if it cannot be recognised by its bytes.
    pub(super) fn new(
        array: &[u8],
        command: &Command<'_>,
        call: &ThrottleCall<'_>,
    ) -> Option<RepeatCache> {
        let ((_, name_ends), (_, key_ends)) = (command.range(0)?, command.range(1)?);
        // The end of the name's line, and the mark of the key.
        let head = array.get(..name_ends + 3)?;
        let tail = array.get(key_ends..)?;
        let is_short = head.len() <= MAX_PIECE_BYTES && tail.len() <= MAX_PIECE_BYTES;
        (is_short && head.ends_with(b"\r\n$")).then(|| RepeatCache {
            head: head.to_vec(),
            tail: tail.to_vec(),
            dialect: call.dialect,
            terms: call.terms,
            quantity: call.quantity,
        })
    }

    /// A complete call like the last one at the front of `bytes`, and its size.
    #[inline]
    pub(super) fn find<'a>(&self, bytes: &'a [u8]) -> Option<(ThrottleCall<'a>, usize)> {
        let rest = bytes.strip_prefix(self.head.as_slice())?;
        let number = |digit: &u8| usize::from(digit - b'0');
        // A length of one to three digits.
        let (length, begins) = match rest {
            [a @ b'0'..=b'9', b'\r', b'\n', ..] => (number(a), 3),
            [a @ b'1'..=b'9', b @ b'0'..=b'9', b'\r', b'\n', ..] => (number(a) * 10 + number(b), 4),
            [
                a @ b'1'..=b'9',
                b @ b'0'..=b'9',
                c @ b'0'..=b'9',
                b'\r',
                b'\n',
                ..,
            ] => (number(a) * 100 + number(b) * 10 + number(c), 5),
            _ => return None,
        };
        let key = rest.get(begins..begins + length)?;
        let behind = rest.get(begins + length..)?;
        behind.starts_with(&self.tail).then(|| {
            let call = ThrottleCall {
                dialect: self.dialect,
                key,
                terms: self.terms,
                quantity: self.quantity,
            };
            (call, self.head.len() + begins + length + self.tail.len())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::codec::{Bounds, Found, Words};
    use super::*;

    fn written(words: &[&str]) -> Vec<u8> {
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            bytes.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
        }
        bytes
    }

    fn cached(bytes: &[u8]) -> RepeatCache {
        let mut words = Words::default();
        let Ok(Found::Command(size)) = words.find(bytes, &Bounds::AUTHENTICATED) else {
            panic!("{}", bytes.escape_ascii())
        };
        let command = words.command(bytes);
        let dialect = Dialect::from_name(command.word(0)).unwrap();
        let call = dialect.read(&command).unwrap();
        RepeatCache::new(&bytes[..size], &command, &call).unwrap()
    }

    #[test]
    fn a_call_with_another_key_is_recognised_as_the_codec_reads_it() {
        let cache = cached(&written(&["CL.THROTTLE", "user:1", "15", "30", "60", "2"]));
        for key in [
            "",
            "x",
            "user:12345",
            &"k".repeat(99),
            &"k".repeat(100),
            &"k".repeat(999),
        ] {
            let bytes = written(&["CL.THROTTLE", key, "15", "30", "60", "2"]);
            let (call, size) = cache.find(&bytes).unwrap();
            assert_eq!(size, bytes.len());
            assert_eq!(call.key, key.as_bytes());
            let mut words = Words::default();
            let found = words.find(&bytes, &Bounds::AUTHENTICATED);
            assert_eq!(found, Ok(Found::Command(size)));
            let read = call.dialect.read(&words.command(&bytes)).unwrap();
            assert_eq!(read, call);
        }
    }

    #[test]
    fn everything_else_is_left_to_the_codec() {
        let cache = cached(&written(&["CL.THROTTLE", "user:1", "15", "30", "60"]));
        for other in [
            written(&["CL.THROTTLE", "user:1", "15", "30", "61"]),
            written(&["CL.THROTTLE", "user:1", "15", "30", "60", "1"]),
            written(&["cl.throttle", "user:1", "15", "30", "60"]),
            written(&["THROTTLE", "user:1", "15", "30", "60"]),
            written(&["CL.THROTTLE", &"k".repeat(1000), "15", "30", "60"]),
            b"*5\r\n$11\r\nCL.THROTTLE\r\n$01\r\nx\r\n$2\r\n15\r\n$2\r\n30\r\n$2\r\n60\r\n"
                .to_vec(),
            b"*5\r\n$11\r\nCL.THROTTLE\r\n$-1\r\n\r\n$2\r\n15\r\n$2\r\n30\r\n$2\r\n60\r\n".to_vec(),
        ] {
            assert!(cache.find(&other).is_none(), "{}", other.escape_ascii());
        }
        let whole = written(&["CL.THROTTLE", "user:1", "15", "30", "60"]);
        for length in 0..whole.len() {
            assert!(cache.find(&whole[..length]).is_none(), "{length}");
        }
        assert!(cache.find(&whole).is_some());
    }
}
