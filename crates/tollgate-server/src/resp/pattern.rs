//! The call before, to know the next one by.
//!
//! # Theory
//!
//! Whoever sends many calls sends the same one again and again, with another key. What stands before the key and what
//! stands behind it are then the same bytes, and bytes that are the same mean the same: they need not be read
//! again. So the last call is kept in two pieces, and a call that begins with the one and ends with the other is
//! known by two comparisons and the length of its key.
//!
//! # Invariant
//!
//! What is found here is what the codec would have found: a whole command, with nothing but its key to differ. Whatever is
//! not sure is left to the codec.

use tollgate::Terms;

use super::codec::Command;
use super::throttle::{Form, Said};

/// Pieces longer than this are not kept.
const PIECE_MAX: usize = 256;

/// A call without its key.
#[derive(Debug)]
pub(super) struct Pattern {
    /// Up to the mark before the length of the key.
    head: Vec<u8>,
    /// From the end of the key on.
    tail: Vec<u8>,
    form: Form,
    terms: Terms,
    quantity: i64,
}

/// A call that was known by its pattern.
#[derive(Debug)]
pub(super) struct Again<'a> {
    pub(super) form: Form,
    pub(super) said: Said<'a>,
    /// Bytes of the command.
    pub(super) size: usize,
}

impl Pattern {
    /// Keeps a call of `size` bytes at the beginning of `bytes`; None if it cannot be kept.
    pub(super) fn of(
        bytes: &[u8],
        size: usize,
        command: &Command<'_>,
        form: Form,
        said: &Said<'_>,
    ) -> Option<Pattern> {
        let ((_, name_ends), (_, key_ends)) = (command.range(0)?, command.range(1)?);
        // The end of the name's line, and the mark of the key.
        let head = bytes.get(..name_ends + 3)?;
        let tail = bytes.get(key_ends..size)?;
        let is_short = head.len() <= PIECE_MAX && tail.len() <= PIECE_MAX;
        (is_short && head.ends_with(b"\r\n$")).then(|| Pattern {
            head: head.to_vec(),
            tail: tail.to_vec(),
            form,
            terms: said.terms,
            quantity: said.quantity,
        })
    }

    /// A call like this one at the beginning of `bytes`, whole.
    #[inline]
    pub(super) fn find<'a>(&self, bytes: &'a [u8]) -> Option<Again<'a>> {
        let rest = bytes.strip_prefix(self.head.as_slice())?;
        let number = |digit: &u8| usize::from(digit - b'0');
        // A length of one digit, two or three, as the protocol writes it.
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
        behind.starts_with(&self.tail).then(|| Again {
            form: self.form,
            said: Said {
                key,
                terms: self.terms,
                quantity: self.quantity,
            },
            size: self.head.len() + begins + length + self.tail.len(),
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

    fn learnt(bytes: &[u8]) -> Pattern {
        let mut words = Words::default();
        let Ok(Found::Command(size)) = words.find(bytes, &Bounds::KNOWN) else {
            panic!("{}", bytes.escape_ascii())
        };
        let command = words.command(bytes);
        let form = Form::of(command.word(0)).unwrap();
        let said = form.read(&command).unwrap();
        Pattern::of(bytes, size, &command, form, &said).unwrap()
    }

    #[test]
    fn a_call_with_another_key_is_known_and_read_as_the_codec_reads_it() {
        let pattern = learnt(&written(&["CL.THROTTLE", "user:1", "15", "30", "60", "2"]));
        for key in [
            "",
            "x",
            "user:12345",
            &"k".repeat(99),
            &"k".repeat(100),
            &"k".repeat(999),
        ] {
            let bytes = written(&["CL.THROTTLE", key, "15", "30", "60", "2"]);
            let again = pattern.find(&bytes).unwrap();
            assert_eq!(again.size, bytes.len());
            assert_eq!(again.said.key, key.as_bytes());
            let mut words = Words::default();
            let found = words.find(&bytes, &Bounds::KNOWN);
            assert_eq!(found, Ok(Found::Command(again.size)));
            let read = again.form.read(&words.command(&bytes)).unwrap();
            assert_eq!(read, again.said);
        }
    }

    #[test]
    fn whatever_is_not_the_same_is_left_to_the_codec() {
        let pattern = learnt(&written(&["CL.THROTTLE", "user:1", "15", "30", "60"]));
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
            assert!(pattern.find(&other).is_none(), "{}", other.escape_ascii());
        }
        // A part of it is none.
        let whole = written(&["CL.THROTTLE", "user:1", "15", "30", "60"]);
        for length in 0..whole.len() {
            assert!(pattern.find(&whole[..length]).is_none(), "{length}");
        }
        assert!(pattern.find(&whole).is_some());
    }
}
