//! The client side of HTTP/1.1: complete responses and what they mean.
//!
//! # Limits
//!
//! Responses that end with their connection are rejected: a client cannot know whether one is complete.

use httparse::Status;

use crate::codec::{Codec, Event, Failure, Judgement, Response, sanitized};
use crate::error::LoadError;
use crate::template::{KeyFormat, Template};

/// The longest head of a response.
const MAX_HEAD_BYTES: usize = 64 << 10;
/// The most fields of a response.
const MAX_FIELDS: usize = 96;
/// The longest body: nothing longer is awaited.
const MAX_BODY_BYTES: u64 = 999_999_999;

/// A request over HTTP. All texts may contain `{key}` and `{cost}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpTemplate {
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

impl Default for HttpTemplate {
    fn default() -> HttpTemplate {
        HttpTemplate {
            method: "GET".into(),
            headers: Vec::new(),
            body: String::new(),
            refused: vec![429],
            admitted_body: String::new(),
        }
    }
}

/// The codec.
#[derive(Clone, Debug)]
pub(crate) struct Http {
    request: Template,
    refused: Vec<u16>,
    admitted_body: Vec<u8>,
    /// Responses to HEAD announce a body and have none.
    has_bodies: bool,
}

impl Http {
    pub(crate) fn new(template: &HttpTemplate, host: &str, path: &str, keys: &KeyFormat) -> Http {
        let mut request =
            Template::parse(&format!("{} {path} HTTP/1.1\r\n", template.method), keys);
        let is_given = |name: &str| {
            let mut names = template.headers.iter().map(|(name, _)| name);
            names.any(|given| given.eq_ignore_ascii_case(name))
        };
        let mut field = |name: &str, value: &str| {
            request.append(&Template::parse(&format!("{name}: {value}\r\n"), keys));
        };
        if !is_given("host") {
            field("host", host);
        }
        for (name, value) in &template.headers {
            field(name, value);
        }
        let body = Template::parse(&template.body, keys);
        if body.len() > 0 {
            if !is_given("content-type") {
                field("content-type", "application/json");
            }
            field("content-length", &body.len().to_string());
        } else if !matches!(template.method.as_str(), "GET" | "HEAD" | "OPTIONS") {
            field("content-length", "0");
        }
        request.push(b"\r\n");
        request.append(&body);
        Http {
            request,
            refused: template.refused.clone(),
            admitted_body: template.admitted_body.clone().into_bytes(),
            has_bodies: template.method != "HEAD",
        }
    }

    fn judge(&self, status: u16, body: &[u8]) -> Judgement<'static> {
        let text = self.admitted_body.as_slice();
        let has_text = || text.is_empty() || body.windows(text.len()).any(|part| part == text);
        match status {
            status if self.refused.contains(&status) => Judgement::Refused,
            200..=299 if has_text() => Judgement::Admitted,
            200..=299 => Judgement::Refused,
            status => Judgement::Failed(Failure::Http(status)),
        }
    }
}

impl Codec for Http {
    fn write_request(&mut self, key: u64, out: &mut Vec<u8>) {
        self.request.write(key, out);
    }

    fn read<'a>(&mut self, bytes: &'a [u8], _: &mut Vec<u8>) -> Result<Event<'a>, LoadError> {
        let Some(head) = Head::read(bytes)? else {
            return Ok(Event::Incomplete);
        };
        if (100..200).contains(&head.status) {
            return Ok(Event::Skip(head.len));
        }
        let rest = bytes.get(head.len..).unwrap_or_default();
        let has_body = self.has_bodies && !matches!(head.status, 204 | 304);
        let body = match head.body {
            _ if !has_body => Some(0),
            Body::Length(len) => (len <= rest.len()).then_some(len),
            Body::Chunked => chunked_len(rest)?,
            Body::UntilClose => {
                return Err(LoadError::new(
                    "a response without content-length or chunks, which ends with its connection",
                    "have the server send `content-length` and keep its connections",
                ));
            }
        };
        Ok(body.map_or(Event::Incomplete, |length| {
            let body = rest.get(..length).unwrap_or_default();
            Event::Response(Response {
                len: head.len + length,
                request: None,
                judgement: self.judge(head.status, body),
                is_last: head.is_last,
            })
        }))
    }
}

#[derive(Debug)]
struct Head {
    status: u16,
    len: usize,
    body: Body,
    /// The server closes the connection after this response.
    is_last: bool,
}

#[derive(Debug)]
enum Body {
    Length(usize),
    Chunked,
    UntilClose,
}

impl Head {
    /// The head of a response, if it is complete.
    fn read(bytes: &[u8]) -> Result<Option<Head>, LoadError> {
        let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
        let mut response = httparse::Response::new(&mut fields);
        let len = match response.parse(bytes) {
            Ok(Status::Complete(len)) if len <= MAX_HEAD_BYTES => len,
            Ok(Status::Partial) if bytes.len() <= MAX_HEAD_BYTES => return Ok(None),
            Ok(_) => {
                return Err(malformed(
                    "a response with a head of more than 64 KiB".into(),
                ));
            }
            Err(_) => return Err(not_http(bytes)),
        };
        let mut head = Head {
            status: response.code.ok_or_else(|| not_http(bytes))?,
            len,
            body: Body::UntilClose,
            is_last: response.version == Some(0),
        };
        for field in response.headers.iter() {
            let value = field.value.trim_ascii();
            let is = |name: &str| field.name.eq_ignore_ascii_case(name);
            if is("content-length") {
                head.body = Body::Length(content_length(value)?);
            } else if is("transfer-encoding") {
                head.body = Body::Chunked;
            } else if is("connection") {
                if value.eq_ignore_ascii_case(b"close") {
                    head.is_last = true;
                } else if value.eq_ignore_ascii_case(b"keep-alive") {
                    head.is_last = false;
                }
            }
        }
        Ok(Some(head))
    }
}

fn content_length(value: &[u8]) -> Result<usize, LoadError> {
    let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(value).ok().filter(|_| is_number);
    let len: Option<u64> = text.and_then(|digits| digits.parse().ok());
    len.filter(|len| *len <= MAX_BODY_BYTES)
        .and_then(|len| usize::try_from(len).ok())
        .ok_or_else(|| {
            malformed(format!(
                "a malformed content-length: `{}`",
                sanitized(value)
            ))
        })
}

/// The length of a chunked body, if it is complete.
fn chunked_len(bytes: &[u8]) -> Result<Option<usize>, LoadError> {
    let mut at = 0_usize;
    loop {
        let rest = bytes.get(at..).unwrap_or_default();
        let (line, size) = match httparse::parse_chunk_size(rest) {
            Ok(Status::Complete((line, size))) if size <= MAX_BODY_BYTES => (line, size),
            Ok(Status::Partial) => return Ok(None),
            _ => {
                let line = rest.split(|byte| *byte == b'\n').next().unwrap_or(rest);
                return Err(malformed(format!(
                    "a malformed chunk: `{}`",
                    sanitized(line)
                )));
            }
        };
        at += line;
        if size == 0 {
            break;
        }
        let end = at.saturating_add(usize::try_from(size).unwrap_or(usize::MAX));
        at = end.saturating_add(2);
        if at > bytes.len() {
            return Ok(None);
        }
    }
    // Trailers, and an empty line.
    let mut trailers = [httparse::EMPTY_HEADER; MAX_FIELDS];
    match httparse::parse_headers(bytes.get(at..).unwrap_or_default(), &mut trailers) {
        Ok(Status::Complete((len, _))) => Ok(Some(at + len)),
        Ok(Status::Partial) => Ok(None),
        Err(error) => Err(malformed(format!("malformed trailers: {error}"))),
    }
}

fn malformed(problem: String) -> LoadError {
    LoadError::new(problem, "name a server with HTTP/1.1")
}

fn not_http(bytes: &[u8]) -> LoadError {
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or(bytes);
    let hint = match bytes.first() {
        Some(b'+' | b'-' | b':' | b'$' | b'*') => {
            "this server uses the Redis protocol: write `resp://` before its address"
        }
        Some(0) => "this server may speak HTTP/2: write `grpc://` before its address",
        Some(0x15 | 0x16) => "this server wants TLS: write `https://` before its address",
        _ => "name a server with HTTP/1.1",
    };
    LoadError::new(format!("no HTTP/1.1 response: `{}`", sanitized(line)), hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn http(template: &HttpTemplate) -> Http {
        Http::new(template, "h:1", "/a?k={key}", &KeyFormat::new("k", 10, 2))
    }

    fn request(template: &HttpTemplate) -> String {
        let mut out = Vec::new();
        http(template).write_request(7, &mut out);
        String::from_utf8(out).unwrap()
    }

    fn read(bytes: &[u8]) -> Result<Event<'_>, LoadError> {
        http(&HttpTemplate::default()).read(bytes, &mut Vec::new())
    }

    fn response(bytes: &[u8]) -> Response<'_> {
        match read(bytes) {
            Ok(Event::Response(response)) => response,
            other => panic!("{}: {other:?}", bytes.escape_ascii()),
        }
    }

    #[test]
    fn path_fields_and_body_are_filled_in_and_the_body_says_its_length() {
        let template = HttpTemplate {
            method: "POST".into(),
            headers: vec![("x-api-key".into(), "{key}".into())],
            body: r#"{"key":"{key}","cost":{cost}}"#.into(),
            ..HttpTemplate::default()
        };
        let text = "POST /a?k=k7 HTTP/1.1\r\nhost: h:1\r\nx-api-key: k7\r\ncontent-type: application/json\r\n\
                    content-length: 21\r\n\r\n{\"key\":\"k7\",\"cost\":2}";
        assert_eq!(request(&template), text);
    }

    #[test]
    fn a_host_of_ones_own_replaces_that_of_the_target() {
        let template = HttpTemplate {
            headers: vec![("Host".into(), "app".into())],
            ..HttpTemplate::default()
        };
        assert_eq!(
            request(&template),
            "GET /a?k=k7 HTTP/1.1\r\nHost: app\r\n\r\n"
        );
    }

    #[test]
    fn an_answer_is_waited_for_at_every_split_by_length_and_by_chunks() {
        for bytes in [
            &b"HTTP/1.1 200 OK\r\ndate: today\r\nContent-Length: 5\r\n\r\nhello"[..],
            b"HTTP/1.1 429 No\r\ntransfer-encoding: chunked\r\n\r\n5;x=y\r\nhello\r\na\r\n0123456789\r\n0\r\nx: y\r\n\r\n",
        ] {
            for len in 0..bytes.len() {
                assert_eq!(read(&bytes[..len]), Ok(Event::Incomplete), "after {len}");
            }
            assert_eq!(response(bytes).len, bytes.len());
            assert_eq!(response(&[bytes, bytes].concat()).len, bytes.len());
        }
    }

    #[test]
    fn a_status_admits_refuses_or_fails() {
        let judgement = |status: &str| {
            let text = format!("HTTP/1.1 {status} x\r\ncontent-length: 0\r\n\r\n");
            match response(text.as_bytes()).judgement {
                Judgement::Failed(Failure::Http(status)) => status.to_string(),
                judgement => format!("{judgement:?}"),
            }
        };
        let found = ["200", "204", "429", "503", "301"].map(judgement);
        assert_eq!(found, ["Admitted", "Admitted", "Refused", "503", "301"]);
    }

    #[test]
    fn a_server_that_closes_says_so() {
        let last = |bytes: &[u8]| response(bytes).is_last;
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
        assert_eq!(read(b"HTTP/1.1 100 Continue\r\n\r\n"), Ok(Event::Skip(25)));
        let template = HttpTemplate {
            method: "HEAD".into(),
            ..HttpTemplate::default()
        };
        let bytes = b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n";
        match http(&template).read(bytes, &mut Vec::new()) {
            Ok(Event::Response(response)) => assert_eq!(response.len, bytes.len()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn other_protocols_and_responses_without_an_end_are_rejected_at_once() {
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
            let error = read(bytes).unwrap_err();
            assert!(error.hint.contains(hint), "{error:?}");
        }
    }
}
