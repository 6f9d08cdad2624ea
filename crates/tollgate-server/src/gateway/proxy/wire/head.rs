//! Heads: of a request as it is written, of an answer as it is read.
//!
//! # Theory
//!
//! The same parser as hyper's reads an answer's head. What follows it is told as RFC 9112 (6.3) says. An
//! answer with two lengths is no answer. With a length beside an encoding the encoding counts, as it does
//! for hyper; the connection is not used again, because others may have read it
//! in the other way.

use std::mem::MaybeUninit;

use bytes::Bytes;
use hyper::body::Body;
use hyper::ext::ReasonPhrase;
use hyper::header::{CONTENT_LENGTH, HeaderName, HeaderValue, UPGRADE};
use hyper::http::HeaderMap;
use hyper::{Method, Request, Response, StatusCode, Version};

/// Fields of an answer.
const FIELDS: usize = 256;
/// Fields that are put onto an answer on its way, and which there is room for from the beginning.
const OURS: usize = 6;

/// Is it a request whose head is all of it? Others are for hyper.
pub(in crate::gateway::proxy) fn is_bare<B: Body>(request: &Request<B>) -> bool {
    let headers = request.headers();
    let is_zero = |length: &HeaderValue| length == "0";
    request.body().is_end_stream()
        && headers.get(CONTENT_LENGTH).is_none_or(is_zero)
        && !headers.contains_key(UPGRADE)
}

/// Writes the head of a request.
pub(super) fn write<B>(request: &Request<B>, out: &mut Vec<u8>) {
    out.extend_from_slice(request.method().as_str().as_bytes());
    out.push(b' ');
    let target = request.uri().path_and_query();
    let target = target.map_or("/", |target| target.as_str());
    // A target of a host and a query has no path of its own.
    if target.starts_with('?') {
        out.push(b'/');
    }
    out.extend_from_slice(target.as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\n");
    for (name, value) in request.headers() {
        out.extend_from_slice(name.as_str().as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(value.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"\r\n");
}

/// Where the head ends, if it does; everything before `from` was looked at before.
pub(super) fn end(bytes: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    loop {
        let line = bytes.get(at..)?;
        at += line.iter().position(|byte| *byte == b'\n')? + 1;
        match bytes.get(at..)? {
            [b'\r', b'\n', ..] => return Some(at + 2),
            [b'\n', ..] => return Some(at + 1),
            _ => {}
        }
    }
}

/// What follows the head of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Follows {
    Nothing,
    /// So many bytes, at least one.
    Length(u64),
    Chunks,
    /// Bytes until the connection ends.
    Rest,
}

/// The head of an answer.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) answer: Response<()>,
    pub(super) follows: Follows,
    /// May the connection be used for another request?
    pub(super) may_rest: bool,
}

/// Reads a whole head.
pub(super) fn read(bytes: &Bytes, method: &Method) -> Result<Head, &'static str> {
    let mut fields = [const { MaybeUninit::uninit() }; FIELDS];
    let mut parsed = httparse::Response::new(&mut []);
    let is_whole = httparse::ParserConfig::default()
        .parse_response_with_uninit_headers(&mut parsed, bytes, &mut fields)
        .map_err(|_| "the head of the answer makes no sense")?;
    if is_whole.is_partial() {
        return Err("the head of the answer is not whole");
    }
    let status = parsed.code.and_then(|code| StatusCode::from_u16(code).ok());
    let status = status.ok_or("the answer has no status")?;
    let is_old = parsed.version != Some(1);
    let mut seen = Seen::default();
    let mut headers = HeaderMap::with_capacity(parsed.headers.len() + OURS);
    for field in parsed.headers.iter() {
        seen.field(field.name, field.value)?;
        let name = HeaderName::from_bytes(field.name.as_bytes());
        let name = name.map_err(|_| "a field of the answer has no name")?;
        let value = HeaderValue::from_maybe_shared(bytes.slice_ref(field.value));
        let value = value.map_err(|_| "a field of the answer has a control character")?;
        headers.append(name, value);
    }
    let mut answer = Response::new(());
    *answer.status_mut() = status;
    *answer.headers_mut() = headers;
    *answer.version_mut() = match is_old {
        true => Version::HTTP_10,
        false => Version::HTTP_11,
    };
    if let Some(reason) = parsed.reason
        && status.canonical_reason() != Some(reason)
        && let Ok(reason) = ReasonPhrase::try_from(reason.as_bytes())
    {
        answer.extensions_mut().insert(reason);
    }
    let follows = seen.follows(status, method, is_old)?;
    let is_doubtful = seen.encoding.is_some() && seen.length.is_some();
    let may_rest = follows != Follows::Rest
        && !is_doubtful
        && status != StatusCode::SWITCHING_PROTOCOLS
        && match is_old {
            true => seen.is_kept,
            false => !seen.is_closed,
        };
    Ok(Head {
        answer,
        follows,
        may_rest,
    })
}

/// Reads the lines behind the last chunk.
pub(super) fn read_trailers(lines: &[u8]) -> Result<HeaderMap, &'static str> {
    let mut fields = [httparse::EMPTY_HEADER; 64];
    let wrong = "the lines behind the last chunk make no sense";
    let parsed = httparse::parse_headers(lines, &mut fields).map_err(|_| wrong)?;
    let httparse::Status::Complete((_, fields)) = parsed else {
        return Err(wrong);
    };
    let mut trailers = HeaderMap::with_capacity(fields.len());
    for field in fields {
        let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| wrong)?;
        let value = HeaderValue::from_bytes(field.value).map_err(|_| wrong)?;
        trailers.append(name, value);
    }
    Ok(trailers)
}

/// What was seen of the fields that say where an answer ends.
#[derive(Default)]
struct Seen {
    length: Option<u64>,
    /// Is there an encoding, and is chunks the last of it?
    encoding: Option<bool>,
    is_closed: bool,
    is_kept: bool,
}

impl Seen {
    fn field(&mut self, name: &str, value: &[u8]) -> Result<(), &'static str> {
        let is = |other: &str| name.eq_ignore_ascii_case(other);
        // By the length of the name first: most are none of these.
        match name.len() {
            10 if is("connection") => {
                for word in words(value) {
                    self.is_closed |= word.eq_ignore_ascii_case(b"close");
                    self.is_kept |= word.eq_ignore_ascii_case(b"keep-alive");
                }
            }
            14 if is("content-length") => {
                for digits in words(value) {
                    let length = number(digits).ok_or("`Content-Length` is not a number")?;
                    if self.length.is_some_and(|known| known != length) {
                        return Err("there are two lengths");
                    }
                    self.length = Some(length);
                }
            }
            17 if is("transfer-encoding") => {
                let last = words(value).last().unwrap_or_default();
                self.encoding = Some(last.eq_ignore_ascii_case(b"chunked"));
            }
            _ => {}
        }
        Ok(())
    }

    fn follows(
        &self,
        status: StatusCode,
        method: &Method,
        is_old: bool,
    ) -> Result<Follows, &'static str> {
        let is_without = *method == Method::HEAD
            || status.is_informational()
            || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        match (self.encoding, self.length) {
            _ if is_without => Ok(Follows::Nothing),
            (Some(_), _) if is_old => Err("HTTP/1.0 has no encoding"),
            (Some(true), _) => Ok(Follows::Chunks),
            (Some(false), _) | (None, None) => Ok(Follows::Rest),
            (None, Some(0)) => Ok(Follows::Nothing),
            (None, Some(length)) => Ok(Follows::Length(length)),
        }
    }
}

fn words(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii)
}

/// A number in digits and nothing else, of so few that no sum with it overflows.
fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 18 {
        return None;
    }
    digits.iter().try_fold(0_u64, |sum, digit| {
        let digit = char::from(*digit).to_digit(10)?;
        Some(sum * 10 + u64::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> Result<Head, &'static str> {
        read(&Bytes::copy_from_slice(text.as_bytes()), &Method::GET)
    }

    fn follows(text: &str) -> Result<(Follows, bool), &'static str> {
        head(text).map(|head| (head.follows, head.may_rest))
    }

    #[test]
    fn what_follows_is_what_the_head_says() {
        for (text, told) in [
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
                (Follows::Length(5), true),
            ),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
                (Follows::Nothing, true),
            ),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\n",
                (Follows::Length(5), true),
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, Chunked\r\n\r\n",
                (Follows::Chunks, true),
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
                (Follows::Rest, false),
            ),
            ("HTTP/1.1 200 OK\r\n\r\n", (Follows::Rest, false)),
            ("HTTP/1.1 204 No Content\r\n\r\n", (Follows::Nothing, true)),
            (
                "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n",
                (Follows::Nothing, true),
            ),
            (
                "HTTP/1.1 204 None\r\nConnection: x, Close\r\n\r\n",
                (Follows::Nothing, false),
            ),
            ("HTTP/1.0 204 None\r\n\r\n", (Follows::Nothing, false)),
            (
                "HTTP/1.0 204 None\r\nConnection: keep-alive\r\n\r\n",
                (Follows::Nothing, true),
            ),
            ("HTTP/1.1 204 None\n\n", (Follows::Nothing, true)),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
                (Follows::Chunks, false),
            ),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: identity\r\n\r\n",
                (Follows::Rest, false),
            ),
        ] {
            assert_eq!(follows(text), Ok(told), "{text:?}");
        }
        let text = Bytes::from_static(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n");
        assert_eq!(
            read(&text, &Method::HEAD).unwrap().follows,
            Follows::Nothing
        );
    }

    #[test]
    fn what_makes_no_sense_is_no_answer() {
        for fields in [
            "Content-Length: 5\r\nContent-Length: 6",
            "Content-Length: 5, 6",
            "Content-Length: +5",
            "Content-Length: 0x5",
            "Content-Length: 9999999999999999999",
            "Transfer-Encoding : chunked",
            "a: b\r\n c: d",
            "a: \x01",
            "no colon",
        ] {
            let text = format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n");
            assert!(follows(&text).is_err(), "{fields:?}");
        }
        assert!(follows("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").is_err());
        assert!(follows("HTTP/2.0 200 OK\r\n\r\n").is_err());
        assert!(follows("garbage\r\n\r\n").is_err());
        let many = "a: b\r\n".repeat(FIELDS + 1);
        assert!(follows(&format!("HTTP/1.1 200 OK\r\n{many}\r\n")).is_err());
    }

    #[test]
    fn the_end_of_a_head_is_found_wherever_the_bytes_were_cut() {
        let text = b"HTTP/1.1 200 OK\r\na: b\r\n\r\nbody";
        let whole = text.len() - 4;
        for cut in 0..text.len() {
            let found = end(&text[..cut], 0);
            assert_eq!(found, (cut >= whole).then_some(whole), "{cut}");
            assert_eq!(end(text, cut.min(whole).saturating_sub(3)), Some(whole));
        }
        assert_eq!(end(b"HTTP/1.1 200 OK\n\nbody", 0), Some(17));
    }

    #[test]
    fn the_words_of_a_status_are_kept_if_they_are_its_own() {
        let reason = |text: &str| {
            let head = head(text).unwrap();
            let reason = head.answer.extensions().get::<ReasonPhrase>().cloned();
            reason.map(|reason| String::from_utf8_lossy(reason.as_bytes()).into_owned())
        };
        assert_eq!(reason("HTTP/1.1 200 Fine\r\n\r\n"), Some("Fine".into()));
        assert_eq!(reason("HTTP/1.1 200 OK\r\n\r\n"), None);
    }
}
