//! Just enough of HTTP/1.1 to know that an answer is whole, and what it says.

/// A whole answer at the start of what was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer<'a> {
    pub(crate) status: u16,
    pub(crate) body: &'a [u8],
    /// Bytes from the status line to the end of the body.
    pub(crate) len: usize,
}

/// Why the bytes will never be an answer that this client understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gibberish(pub(crate) &'static str);

/// Reads an answer; `None` while some of it is still to come.
pub(crate) fn parse(bytes: &[u8]) -> Result<Option<Answer<'_>>, Gibberish> {
    let mut lines = Lines { bytes, at: 0 };
    let Some(first) = lines.next() else {
        return Ok(None);
    };
    let status = status(first).ok_or(Gibberish("the first line has no status"))?;
    let mut body_len = None;
    loop {
        let Some(line) = lines.next() else {
            return Ok(None);
        };
        if line.is_empty() {
            break;
        }
        if let Some(value) = value_of(line, b"content-length:") {
            body_len = Some(number(value).ok_or(Gibberish("the length is no number"))?);
        }
    }
    let body_len = match (body_len, status) {
        (Some(len), _) => len,
        (None, 204 | 304) => 0,
        (None, _) => return Err(Gibberish("there is no content-length")),
    };
    let len = lines.at + body_len;
    Ok(bytes
        .get(lines.at..len)
        .map(|body| Answer { status, body, len }))
}

/// Lines that are whole, without their ends.
struct Lines<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Lines<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = &self.bytes[self.at..];
        let end = rest.iter().position(|&byte| byte == b'\n')?;
        self.at += end + 1;
        let line = &rest[..end];
        Some(line.strip_suffix(b"\r").unwrap_or(line))
    }
}

fn status(line: &[u8]) -> Option<u16> {
    let digits = line.strip_prefix(b"HTTP/1.")?.get(2..5)?;
    u16::try_from(number(digits)?).ok()
}

fn value_of<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (head, value) = line.split_at_checked(name.len())?;
    head.eq_ignore_ascii_case(name).then(|| value.trim_ascii())
}

/// At most nine digits, so that nothing overflows.
fn number(digits: &[u8]) -> Option<usize> {
    if !(1..=9).contains(&digits.len()) || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let add = |sum: usize, digit: &u8| sum * 10 + usize::from(digit - b'0');
    Some(digits.iter().fold(0, add))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &[u8] =
        b"HTTP/1.1 200 OK\r\ndate: today\r\nContent-Length: 5\r\nserver: x\r\n\r\nhello";

    #[test]
    fn an_answer_is_none_at_every_split_and_whole_at_its_last_byte() {
        for len in 0..WHOLE.len() {
            assert_eq!(parse(&WHOLE[..len]), Ok(None), "after {len} bytes");
        }
        let answer = Answer {
            status: 200,
            body: b"hello",
            len: WHOLE.len(),
        };
        assert_eq!(parse(WHOLE), Ok(Some(answer)));
    }

    #[test]
    fn what_follows_an_answer_is_not_part_of_it() {
        let two = [WHOLE, WHOLE].concat();
        let first = parse(&two).unwrap().unwrap();
        assert_eq!((first.body, first.len), (&b"hello"[..], WHOLE.len()));
    }

    #[test]
    fn a_refusal_is_an_answer_with_another_status() {
        let bytes = b"HTTP/1.1 429 Too Many Requests\r\ncontent-length:0\r\n\r\n";
        assert_eq!(parse(bytes).unwrap().unwrap().status, 429);
        let bytes = b"HTTP/1.1 204 No Content\r\n\r\n";
        assert_eq!(parse(bytes).unwrap().unwrap().status, 204);
    }

    #[test]
    fn what_this_client_does_not_understand_is_told_and_not_waited_for() {
        for bytes in [
            &b"+PONG\r\n"[..],
            b"HTTP/1.1 abc\r\n",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\n",
        ] {
            assert!(parse(bytes).is_err(), "{}", bytes.escape_ascii());
        }
    }
}
