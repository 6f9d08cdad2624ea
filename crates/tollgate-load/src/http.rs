//! HTTP/1.1, as much of it as a client needs to know that an answer is whole, and what it says.
//!
//! # What it does not know
//!
//! Answers that end with their connection: there would be no telling whether one is whole.

use crate::codec::{Answer, Codec, Failure, Gibberish, Step, Verdict, shown};
use crate::template::{Spelling, Template};

/// A head that is longer is no answer of a limiter.
const HEAD_MAX: usize = 64 << 10;

/// What is asked over HTTP. Every text may have `{key}` and `{cost}` in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpAsk {
    /// The method.
    pub method: String,
    /// Names and values.
    pub headers: Vec<(String, String)>,
    /// The body; none if empty.
    pub body: String,
    /// Statuses that refuse; 2xx admits, all others are errors.
    pub refused: Vec<u16>,
    /// A 2xx without this text in its body refuses; empty leaves it to the status.
    pub admitted_body: String,
}

impl Default for HttpAsk {
    fn default() -> HttpAsk {
        HttpAsk {
            method: "GET".into(),
            headers: Vec::new(),
            body: String::new(),
            refused: vec![429],
            admitted_body: String::new(),
        }
    }
}

/// Requests out, answers in.
#[derive(Clone, Debug)]
pub(crate) struct Http {
    request: Template,
    refused: Vec<u16>,
    admitted_body: Vec<u8>,
    /// Answers to HEAD tell of a body and have none.
    has_bodies: bool,
}

impl Http {
    pub(crate) fn new(ask: &HttpAsk, host: &str, path: &str, spelling: &Spelling) -> Http {
        let mut request = Template::typed(&format!("{} {path} HTTP/1.1\r\n", ask.method), spelling);
        let is_there = |name: &str| {
            let mut names = ask.headers.iter().map(|(name, _)| name);
            names.any(|there| there.eq_ignore_ascii_case(name))
        };
        let mut field = |name: &str, value: &str| {
            request.append(&Template::typed(&format!("{name}: {value}\r\n"), spelling));
        };
        if !is_there("host") {
            field("host", host);
        }
        for (name, value) in &ask.headers {
            field(name, value);
        }
        let body = Template::typed(&ask.body, spelling);
        if body.len() > 0 {
            if !is_there("content-type") {
                field("content-type", "application/json");
            }
            field("content-length", &body.len().to_string());
        } else if !matches!(ask.method.as_str(), "GET" | "HEAD" | "OPTIONS") {
            field("content-length", "0");
        }
        request.push(b"\r\n");
        request.append(&body);
        Http {
            request,
            refused: ask.refused.clone(),
            admitted_body: ask.admitted_body.clone().into_bytes(),
            has_bodies: ask.method != "HEAD",
        }
    }

    fn judge(&self, status: u16, body: &[u8]) -> Verdict<'static> {
        let text = self.admitted_body.as_slice();
        let has_text = || text.is_empty() || body.windows(text.len()).any(|part| part == text);
        match status {
            status if self.refused.contains(&status) => Verdict::Refused,
            200..=299 if has_text() => Verdict::Admitted,
            200..=299 => Verdict::Refused,
            status => Verdict::Failed(Failure::Http(status)),
        }
    }
}

impl Codec for Http {
    fn ask(&mut self, key: u64, out: &mut Vec<u8>) {
        self.request.write(key, out);
    }

    fn read<'a>(&mut self, bytes: &'a [u8], _: &mut Vec<u8>) -> Result<Step<'a>, Gibberish> {
        let Some(head) = head(bytes)? else {
            return Ok(Step::More);
        };
        if (100..200).contains(&head.status) {
            return Ok(Step::Passed(head.len));
        }
        let rest = bytes.get(head.len..).unwrap_or_default();
        let bodiless = !self.has_bodies || matches!(head.status, 204 | 304);
        let body = match head.body {
            _ if bodiless => Some(0),
            Body::Length(len) => (len <= rest.len()).then_some(len),
            Body::Chunked => chunks(rest)?,
            Body::ToTheEnd => {
                return Err(Gibberish::new(
                    "an answer without content-length or chunks, which ends with its connection",
                    "have the server send `content-length` and keep its connections",
                ));
            }
        };
        Ok(body.map_or(Step::More, |length| {
            let body = rest.get(..length).unwrap_or_default();
            Step::Answer(Answer {
                len: head.len + length,
                to: None,
                verdict: self.judge(head.status, body),
                last: head.last,
            })
        }))
    }
}

#[derive(Debug)]
struct Head {
    status: u16,
    len: usize,
    body: Body,
    last: bool,
}

#[derive(Debug)]
enum Body {
    Length(usize),
    Chunked,
    ToTheEnd,
}

/// The head of an answer, if all of it is there.
fn head(bytes: &[u8]) -> Result<Option<Head>, Gibberish> {
    let known = bytes.len().min(5);
    if bytes.get(..known) != b"HTTP/".get(..known) {
        return Err(foreign(bytes));
    }
    let mut at = 0;
    let Some(first) = line(bytes, &mut at) else {
        return unfinished(bytes);
    };
    let status = status(first).ok_or_else(|| foreign(bytes))?;
    let mut head = Head {
        status,
        len: 0,
        body: Body::ToTheEnd,
        last: first.starts_with(b"HTTP/1.0"),
    };
    loop {
        let Some(field) = line(bytes, &mut at) else {
            return unfinished(bytes);
        };
        if field.is_empty() {
            head.len = at;
            return Ok(Some(head));
        }
        if let Some(value) = value_of(field, b"content-length:") {
            let len = number(value).ok_or_else(|| {
                let what = format!("a content-length that is none: `{}`", shown(value));
                Gibberish::new(what, "name a server that speaks HTTP/1.1")
            })?;
            head.body = Body::Length(len);
        } else if value_of(field, b"transfer-encoding:").is_some() {
            head.body = Body::Chunked;
        } else if let Some(value) = value_of(field, b"connection:") {
            if value.eq_ignore_ascii_case(b"close") {
                head.last = true;
            } else if value.eq_ignore_ascii_case(b"keep-alive") {
                head.last = false;
            }
        }
    }
}

fn unfinished(bytes: &[u8]) -> Result<Option<Head>, Gibberish> {
    match bytes.len() > HEAD_MAX {
        true => Err(Gibberish::new(
            "an answer with a head of more than 64 KiB",
            "name a server that speaks HTTP/1.1",
        )),
        false => Ok(None),
    }
}

/// How long a body in chunks is, if all of it is there.
fn chunks(bytes: &[u8]) -> Result<Option<usize>, Gibberish> {
    let mut at = 0;
    loop {
        let Some(size) = line(bytes, &mut at) else {
            return Ok(None);
        };
        let digits = size.split(|byte| *byte == b';').next().unwrap_or(size);
        let size = std::str::from_utf8(digits.trim_ascii()).ok();
        let size = size.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let size = size.and_then(|size| usize::try_from(size).ok());
        let size = size.ok_or_else(|| {
            let what = format!("a chunk without a size: `{}`", shown(digits));
            Gibberish::new(what, "name a server that speaks HTTP/1.1")
        })?;
        if size == 0 {
            break;
        }
        at = at.saturating_add(size).saturating_add(2);
        if at > bytes.len() {
            return Ok(None);
        }
    }
    // Trailers, and an empty line.
    loop {
        match line(bytes, &mut at) {
            None => return Ok(None),
            Some([]) => return Ok(Some(at)),
            Some(_) => {}
        }
    }
}

/// The next whole line, without its end.
fn line<'a>(bytes: &'a [u8], at: &mut usize) -> Option<&'a [u8]> {
    let rest = bytes.get(*at..)?;
    let end = rest.iter().position(|byte| *byte == b'\n')?;
    *at += end + 1;
    let line = rest.get(..end)?;
    Some(line.strip_suffix(b"\r").unwrap_or(line))
}

fn status(line: &[u8]) -> Option<u16> {
    let digits = line.strip_prefix(b"HTTP/1.")?.get(2..5)?;
    u16::try_from(number(digits)?).ok()
}

fn value_of<'a>(field: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (head, value) = field.split_at_checked(name.len())?;
    head.eq_ignore_ascii_case(name).then(|| value.trim_ascii())
}

/// At most nine digits: nothing longer is waited for.
fn number(digits: &[u8]) -> Option<usize> {
    let is_number = (1..=9).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(digits)
        .ok()
        .filter(|_| is_number)?
        .parse()
        .ok()
}

fn foreign(bytes: &[u8]) -> Gibberish {
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or(bytes);
    let hint = match bytes.first() {
        Some(b'+' | b'-' | b':' | b'$' | b'*') => {
            "this server speaks the Redis protocol: write `resp://` before its address"
        }
        Some(0) => "this server may speak HTTP/2: write `grpc://` before its address",
        Some(0x15 | 0x16) => "this server wants TLS: write `https://` before its address",
        _ => "name a server that speaks HTTP/1.1",
    };
    Gibberish::new(format!("no answer of HTTP/1.1: `{}`", shown(line)), hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn http(ask: &HttpAsk) -> Http {
        Http::new(ask, "h:1", "/a?k={key}", &Spelling::new("k", 10, 2))
    }

    fn asked(ask: &HttpAsk) -> String {
        let mut out = Vec::new();
        http(ask).ask(7, &mut out);
        String::from_utf8(out).unwrap()
    }

    fn read(bytes: &[u8]) -> Result<Step<'_>, Gibberish> {
        http(&HttpAsk::default()).read(bytes, &mut Vec::new())
    }

    fn answer(bytes: &[u8]) -> Answer<'_> {
        match read(bytes) {
            Ok(Step::Answer(answer)) => answer,
            other => panic!("{}: {other:?}", bytes.escape_ascii()),
        }
    }

    #[test]
    fn path_fields_and_body_are_filled_in_and_the_body_says_its_length() {
        let ask = HttpAsk {
            method: "POST".into(),
            headers: vec![("x-api-key".into(), "{key}".into())],
            body: r#"{"key":"{key}","cost":{cost}}"#.into(),
            ..HttpAsk::default()
        };
        let text = "POST /a?k=k7 HTTP/1.1\r\nhost: h:1\r\nx-api-key: k7\r\ncontent-type: application/json\r\n\
                    content-length: 21\r\n\r\n{\"key\":\"k7\",\"cost\":2}";
        assert_eq!(asked(&ask), text);
    }

    #[test]
    fn a_host_of_ones_own_replaces_that_of_the_target() {
        let ask = HttpAsk {
            headers: vec![("Host".into(), "app".into())],
            ..HttpAsk::default()
        };
        assert_eq!(asked(&ask), "GET /a?k=k7 HTTP/1.1\r\nHost: app\r\n\r\n");
    }

    #[test]
    fn an_answer_is_waited_for_at_every_split_by_length_and_by_chunks() {
        for bytes in [
            &b"HTTP/1.1 200 OK\r\ndate: today\r\nContent-Length: 5\r\n\r\nhello"[..],
            b"HTTP/1.1 429 No\r\ntransfer-encoding: chunked\r\n\r\n5;x=y\r\nhello\r\na\r\n0123456789\r\n0\r\nx: y\r\n\r\n",
        ] {
            for len in 0..bytes.len() {
                assert_eq!(read(&bytes[..len]), Ok(Step::More), "after {len}");
            }
            assert_eq!(answer(bytes).len, bytes.len());
            assert_eq!(answer(&[bytes, bytes].concat()).len, bytes.len());
        }
    }

    #[test]
    fn a_status_admits_refuses_or_fails() {
        let verdict = |status: &str| {
            let text = format!("HTTP/1.1 {status} x\r\ncontent-length: 0\r\n\r\n");
            match answer(text.as_bytes()).verdict {
                Verdict::Failed(Failure::Http(status)) => status.to_string(),
                verdict => format!("{verdict:?}"),
            }
        };
        let found = ["200", "204", "429", "503", "301"].map(verdict);
        assert_eq!(found, ["Admitted", "Admitted", "Refused", "503", "301"]);
    }

    #[test]
    fn a_server_that_closes_says_so() {
        let last = |bytes: &[u8]| answer(bytes).last;
        assert!(!last(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"));
        assert!(last(
            b"HTTP/1.1 200 OK\r\nConnection: close\r\ncontent-length: 0\r\n\r\n"
        ));
        assert!(last(b"HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n"));
        assert!(!last(
            b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 0\r\n\r\n"
        ));
    }

    #[test]
    fn what_comes_before_an_answer_is_none_and_an_answer_to_head_has_no_body() {
        assert_eq!(read(b"HTTP/1.1 100 Continue\r\n\r\n"), Ok(Step::Passed(25)));
        let ask = HttpAsk {
            method: "HEAD".into(),
            ..HttpAsk::default()
        };
        let bytes = b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n";
        match http(&ask).read(bytes, &mut Vec::new()) {
            Ok(Step::Answer(answer)) => assert_eq!(answer.len, bytes.len()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn other_protocols_and_answers_without_an_end_are_told_and_not_waited_for() {
        for (bytes, hint) in [
            (&b"-ERR wrong\r\n"[..], "resp://"),
            (b"\x00\x00\x12\x04\x00", "grpc://"),
            (b"\x15\x03\x01", "TLS"),
            (b"HTTP/1.1 abc\r\n", "HTTP/1.1"),
            (b"HTTP/1.1 200 OK\r\n\r\n", "content-length"),
            (b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n", "HTTP/1.1"),
            (
                b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
                "HTTP/1.1",
            ),
        ] {
            let gibberish = read(bytes).unwrap_err();
            assert!(gibberish.hint.contains(hint), "{gibberish:?}");
        }
    }
}
