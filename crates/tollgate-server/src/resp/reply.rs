//! Writer of replies in RESP2 and RESP3.

use serde::Serialize;

use super::serialize::Serializer;

/// Most bytes of a client's input in an error.
const MAX_QUOTED_BYTES: usize = 128;

/// Writes replies in the version that the client negotiated.
#[derive(Debug)]
pub(super) struct Reply<'a> {
    pub(super) out: &'a mut Vec<u8>,
    /// RESP3 has maps, nulls and booleans.
    pub(super) is_resp3: bool,
}

impl Reply<'_> {
    /// A simple string.
    pub(super) fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    /// An error. Control characters become blanks.
    pub(super) fn error(&mut self, text: &str) {
        self.out.push(b'-');
        let printable = |byte: u8| {
            if byte < b' ' || byte == 127 {
                b' '
            } else {
                byte
            }
        };
        self.out.extend(text.bytes().map(printable));
        self.out.extend_from_slice(b"\r\n");
    }

    pub(super) fn integer(&mut self, number: i64) {
        self.out.push(b':');
        push_integer(self.out, number);
        self.out.extend_from_slice(b"\r\n");
    }

    /// A count, at most the largest integer of the protocol.
    pub(super) fn count(&mut self, count: u64) {
        self.integer(i64::try_from(count).unwrap_or(i64::MAX));
    }

    pub(super) fn bulk(&mut self, bytes: &[u8]) {
        self.size(b'$', bytes.len());
        self.out.extend_from_slice(bytes);
        self.out.extend_from_slice(b"\r\n");
    }

    pub(super) fn text(&mut self, text: &str) {
        self.bulk(text.as_bytes());
    }

    pub(super) fn nil(&mut self) {
        self.out
            .extend_from_slice(if self.is_resp3 { b"_\r\n" } else { b"$-1\r\n" });
    }

    /// A boolean; an integer in RESP2.
    pub(super) fn boolean(&mut self, value: bool) {
        self.out.extend_from_slice(match (self.is_resp3, value) {
            (true, true) => b"#t\r\n",
            (true, false) => b"#f\r\n",
            (false, true) => b":1\r\n",
            (false, false) => b":0\r\n",
        });
    }

    /// The header of an array; its items follow.
    pub(super) fn array(&mut self, items: usize) {
        self.size(b'*', items);
    }

    /// The header of a map; its pairs follow. RESP2 has flat arrays instead.
    pub(super) fn map(&mut self, pairs: usize) {
        match self.is_resp3 {
            true => self.size(b'%', pairs),
            false => self.size(b'*', pairs.saturating_mul(2)),
        }
    }

    /// A view, with the names that it has in JSON.
    pub(super) fn view(&mut self, view: &impl Serialize) {
        let begins = self.out.len();
        if let Err(error) = view.serialize(Serializer::new(self)) {
            self.out.truncate(begins);
            self.error(&format!("ERR {error}"));
        }
    }

    fn line(&mut self, kind: u8, text: &[u8]) {
        self.out.push(kind);
        self.out.extend_from_slice(text);
        self.out.extend_from_slice(b"\r\n");
    }

    fn size(&mut self, kind: u8, size: usize) {
        self.out.push(kind);
        push_integer(self.out, i64::try_from(size).unwrap_or(i64::MAX));
        self.out.extend_from_slice(b"\r\n");
    }
}

/// Appends an integer in decimal digits.
#[inline]
pub(super) fn push_integer(out: &mut Vec<u8>, number: i64) {
    if let Ok(digit @ 0..=9) = u8::try_from(number) {
        out.push(b'0' + digit);
        return;
    }
    if number < 0 {
        out.push(b'-');
    }
    let mut digits = [0u8; 20];
    let mut rest = number.unsigned_abs();
    let mut length = 0;
    for place in digits.iter_mut().rev() {
        // Below ten, so it fits.
        *place = b'0' + u8::try_from(rest % 10).unwrap_or(0);
        rest /= 10;
        length += 1;
        if rest == 0 {
            break;
        }
    }
    let begin = digits.len().saturating_sub(length);
    out.extend_from_slice(digits.get(begin..).unwrap_or_default());
}

/// An array of five integers, built before it is written: one copy instead of fifteen.
#[derive(Debug)]
pub(super) struct FiveIntegers {
    text: [u8; FiveIntegers::ROOM],
    at: usize,
}

impl Default for FiveIntegers {
    #[inline]
    fn default() -> FiveIntegers {
        let mut text = [0; FiveIntegers::ROOM];
        if let Some(head) = text.first_chunk_mut() {
            *head = *b"*5\r\n";
        }
        FiveIntegers { text, at: 4 }
    }
}

impl FiveIntegers {
    /// A head, and five times a mark, a sign, nineteen digits and the end of a line.
    const ROOM: usize = 4 + 5 * 23;

    #[inline]
    fn byte(&mut self, byte: u8) {
        if let Some(place) = self.text.get_mut(self.at) {
            *place = byte;
            self.at += 1;
        }
    }

    /// The next number.
    #[inline]
    pub(super) fn push(&mut self, number: i64) {
        self.byte(b':');
        if number < 0 {
            self.byte(b'-');
        }
        match number.unsigned_abs() {
            // A digit fits a byte.
            digit @ 0..=9 => self.byte(b'0' + digit as u8),
            many => self.digits(many),
        }
        self.byte(b'\r');
        self.byte(b'\n');
    }

    #[inline]
    fn digits(&mut self, mut number: u64) {
        let length = number.ilog10() as usize + 1;
        let end = self.at + length;
        for place in self.text.get_mut(self.at..end).into_iter().flatten().rev() {
            *place = b'0' + (number % 10) as u8;
            number /= 10;
        }
        self.at = end;
    }

    #[inline]
    pub(super) fn written(&self) -> &[u8] {
        self.text.get(..self.at).unwrap_or_default()
    }
}

/// A client's input for an error, cut to a bounded length.
pub(super) fn quoted(bytes: &[u8]) -> String {
    let shown = bytes.get(..MAX_QUOTED_BYTES).unwrap_or(bytes);
    String::from_utf8_lossy(shown).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(is_resp3: bool, write: impl FnOnce(&mut Reply<'_>)) -> String {
        let mut out = Vec::new();
        write(&mut Reply {
            out: &mut out,
            is_resp3,
        });
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn integers_are_written_as_by_the_standard_library() {
        for number in [0, 9, 10, 99, 100, -1, -10, 12_345, i64::MAX, i64::MIN] {
            let text = written(false, |reply| reply.integer(number));
            assert_eq!(text, format!(":{number}\r\n"));
        }
        for numbers in [
            [0, 9, 10, 99, 100],
            [-1, -10, 12_345, i64::MAX, i64::MIN],
            [i64::MIN; 5],
        ] {
            let mut five = FiveIntegers::default();
            numbers.iter().for_each(|number| five.push(*number));
            let text: String = numbers
                .iter()
                .map(|number| format!(":{number}\r\n"))
                .collect();
            assert_eq!(five.written(), format!("*5\r\n{text}").as_bytes());
        }
        let text = written(false, |reply| reply.count(u64::MAX));
        assert_eq!(text, format!(":{}\r\n", i64::MAX));
    }

    #[test]
    fn a_view_is_written_in_both_versions() {
        let value = serde_json::json!({"a": null, "b": [true, -3, "x"]});
        let second = written(false, |reply| reply.view(&value));
        assert_eq!(
            second,
            "*4\r\n$1\r\na\r\n$-1\r\n$1\r\nb\r\n*3\r\n:1\r\n:-3\r\n$1\r\nx\r\n"
        );
        let third = written(true, |reply| reply.view(&value));
        assert_eq!(
            third,
            "%2\r\n$1\r\na\r\n_\r\n$1\r\nb\r\n*3\r\n#t\r\n:-3\r\n$1\r\nx\r\n"
        );
    }

    #[test]
    fn an_error_stays_on_one_line() {
        let text = written(false, |reply| reply.error("ERR a\r\n+OK\0b"));
        assert_eq!(text, "-ERR a  +OK b\r\n");
        assert_eq!(quoted(&[0xff; 1000]).chars().count(), MAX_QUOTED_BYTES);
    }
}
