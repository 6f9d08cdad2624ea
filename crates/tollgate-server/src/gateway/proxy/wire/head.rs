//! Writes request heads and parses response heads.
//!
//! # Theory
//!
//! The parser is that of hyper, and the body follows RFC 9112, 6.3. A response with two different lengths is an error. With
//! a length beside an encoding the encoding counts, as for hyper. The connection is not used again then, because another
//! program may read the response in the other way.

use std::mem::MaybeUninit;

use bytes::Bytes;
use hyper::body::Body;
use hyper::ext::ReasonPhrase;
use hyper::header::{CONTENT_LENGTH, HeaderName, HeaderValue, UPGRADE};
use hyper::http::HeaderMap;
use hyper::{Method, Request, Response, StatusCode, Version};

use crate::net::http1::head::content_length;

/// Fields of a response.
const FIELDS: usize = 256;
/// Room for the fields that the gateway adds.
const ADDED_FIELDS: usize = 6;

/// Is the request only a head? Others are for hyper.
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
    // A target of a host and a query has no path.
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

/// The length of the head, if it is complete. Bytes before `from` were scanned before.
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

/// The body that follows a response head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResponseBodyKind {
    None,
    /// This many bytes, at least one.
    Length(u64),
    Chunks,
    /// All bytes until the connection ends.
    UntilClose,
}

/// A response head.
#[derive(Debug)]
pub(super) struct ResponseHead {
    pub(super) response: Response<()>,
    pub(super) body: ResponseBodyKind,
    /// May the connection be used for another request?
    pub(super) is_reusable: bool,
}

/// Parses a complete head.
pub(super) fn parse(bytes: &Bytes, method: &Method) -> Result<ResponseHead, &'static str> {
    let mut fields = [const { MaybeUninit::uninit() }; FIELDS];
    let mut parsed = httparse::Response::new(&mut []);
    let parse_status = httparse::ParserConfig::default()
        .parse_response_with_uninit_headers(&mut parsed, bytes, &mut fields)
        .map_err(|_| "the head of the response is malformed")?;
    if parse_status.is_partial() {
        return Err("the head of the response is incomplete");
    }
    let status = parsed.code.and_then(|code| StatusCode::from_u16(code).ok());
    let status = status.ok_or("the response has no status")?;
    let is_old = parsed.version != Some(1);
    let mut framing = ResponseFraming::default();
    let mut headers = HeaderMap::with_capacity(parsed.headers.len() + ADDED_FIELDS);
    for field in parsed.headers.iter() {
        framing.add(field.name, field.value)?;
        let name = HeaderName::from_bytes(field.name.as_bytes());
        let name = name.map_err(|_| "a field of the response has no name")?;
        let value = HeaderValue::from_maybe_shared(bytes.slice_ref(field.value));
        let value = value.map_err(|_| "a field of the response has a control character")?;
        headers.append(name, value);
    }
    let mut response = Response::new(());
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    *response.version_mut() = match is_old {
        true => Version::HTTP_10,
        false => Version::HTTP_11,
    };
    if let Some(reason) = parsed.reason
        && status.canonical_reason() != Some(reason)
        && let Ok(reason) = ReasonPhrase::try_from(reason.as_bytes())
    {
        response.extensions_mut().insert(reason);
    }
    let body = framing.body(status, method, is_old)?;
    let is_ambiguous = framing.encoding.is_some() && framing.length.is_some();
    let is_reusable = body != ResponseBodyKind::UntilClose
        && !is_ambiguous
        && status != StatusCode::SWITCHING_PROTOCOLS
        && match is_old {
            true => framing.is_kept,
            false => !framing.is_closed,
        };
    Ok(ResponseHead {
        response,
        body,
        is_reusable,
    })
}

/// Parses the lines after the last chunk.
pub(super) fn parse_trailers(lines: &[u8]) -> Result<HeaderMap, &'static str> {
    let mut fields = [httparse::EMPTY_HEADER; 64];
    let error = "the lines after the last chunk are malformed";
    let parsed = httparse::parse_headers(lines, &mut fields).map_err(|_| error)?;
    let httparse::Status::Complete((_, fields)) = parsed else {
        return Err(error);
    };
    let mut trailers = HeaderMap::with_capacity(fields.len());
    for field in fields {
        let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| error)?;
        let value = HeaderValue::from_bytes(field.value).map_err(|_| error)?;
        trailers.append(name, value);
    }
    Ok(trailers)
}

/// The fields of a response that decide where it ends.
#[derive(Default)]
struct ResponseFraming {
    length: Option<u64>,
    /// The encoding, if there is one: is its last part `chunked`?
    encoding: Option<bool>,
    is_closed: bool,
    is_kept: bool,
}

impl ResponseFraming {
    fn add(&mut self, name: &str, value: &[u8]) -> Result<(), &'static str> {
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
                    let length =
                        content_length(digits).ok_or("`Content-Length` is not a number")?;
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

    fn body(
        &self,
        status: StatusCode,
        method: &Method,
        is_old: bool,
    ) -> Result<ResponseBodyKind, &'static str> {
        let has_no_body = *method == Method::HEAD
            || status.is_informational()
            || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        match (self.encoding, self.length) {
            _ if has_no_body => Ok(ResponseBodyKind::None),
            (Some(_), _) if is_old => Err("HTTP/1.0 has no encoding"),
            (Some(true), _) => Ok(ResponseBodyKind::Chunks),
            (Some(false), _) | (None, None) => Ok(ResponseBodyKind::UntilClose),
            (None, Some(0)) => Ok(ResponseBodyKind::None),
            (None, Some(length)) => Ok(ResponseBodyKind::Length(length)),
        }
    }
}

fn words(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> Result<ResponseHead, &'static str> {
        parse(&Bytes::copy_from_slice(text.as_bytes()), &Method::GET)
    }

    fn body(text: &str) -> Result<(ResponseBodyKind, bool), &'static str> {
        head(text).map(|head| (head.body, head.is_reusable))
    }

    #[test]
    fn the_body_is_what_the_head_states() {
        for (text, expected) in [
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
                (ResponseBodyKind::Length(5), true),
            ),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
                (ResponseBodyKind::None, true),
            ),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\n",
                (ResponseBodyKind::Length(5), true),
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, Chunked\r\n\r\n",
                (ResponseBodyKind::Chunks, true),
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
                (ResponseBodyKind::UntilClose, false),
            ),
            (
                "HTTP/1.1 200 OK\r\n\r\n",
                (ResponseBodyKind::UntilClose, false),
            ),
            (
                "HTTP/1.1 204 No Content\r\n\r\n",
                (ResponseBodyKind::None, true),
            ),
            (
                "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n",
                (ResponseBodyKind::None, true),
            ),
            (
                "HTTP/1.1 204 None\r\nConnection: x, Close\r\n\r\n",
                (ResponseBodyKind::None, false),
            ),
            ("HTTP/1.0 204 None\r\n\r\n", (ResponseBodyKind::None, false)),
            (
                "HTTP/1.0 204 None\r\nConnection: keep-alive\r\n\r\n",
                (ResponseBodyKind::None, true),
            ),
            ("HTTP/1.1 204 None\n\n", (ResponseBodyKind::None, true)),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
                (ResponseBodyKind::Chunks, false),
            ),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: identity\r\n\r\n",
                (ResponseBodyKind::UntilClose, false),
            ),
        ] {
            assert_eq!(body(text), Ok(expected), "{text:?}");
        }
        let text = Bytes::from_static(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n");
        assert_eq!(
            parse(&text, &Method::HEAD).unwrap().body,
            ResponseBodyKind::None
        );
    }

    #[test]
    fn malformed_heads_are_errors() {
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
            assert!(body(&text).is_err(), "{fields:?}");
        }
        assert!(body("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").is_err());
        assert!(body("HTTP/2.0 200 OK\r\n\r\n").is_err());
        assert!(body("garbage\r\n\r\n").is_err());
        let many = "a: b\r\n".repeat(FIELDS + 1);
        assert!(body(&format!("HTTP/1.1 200 OK\r\n{many}\r\n")).is_err());
    }

    #[test]
    fn the_end_of_a_head_is_found_however_it_is_split() {
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
    fn a_reason_phrase_of_the_server_is_kept() {
        let reason = |text: &str| {
            let head = head(text).unwrap();
            let reason = head.response.extensions().get::<ReasonPhrase>().cloned();
            reason.map(|reason| String::from_utf8_lossy(reason.as_bytes()).into_owned())
        };
        assert_eq!(reason("HTTP/1.1 200 Fine\r\n\r\n"), Some("Fine".into()));
        assert_eq!(reason("HTTP/1.1 200 OK\r\n\r\n"), None);
    }
}
