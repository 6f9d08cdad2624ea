//! Refusals in the form of gRPC.
//!
//! A refused call gets a trailers-only response: HTTP 200, no body, and in its head
//!
//! | field | value |
//! |---|---|
//! | `grpc-status` | 8 `RESOURCE_EXHAUSTED`, 3 `INVALID_ARGUMENT`, 7 `PERMISSION_DENIED`, 13 `INTERNAL` or 14 `UNAVAILABLE` |
//! | `grpc-message` | the problem, percent-encoded |
//! | `grpc-status-details-bin` | a `google.rpc.Status` with a `google.rpc.RetryInfo`, in base64 |
//! | `grpc-retry-pushback-ms` | the same for clients that retry by themselves; -1: do not retry |
//!
//! The details are two nested messages of five fields, so they are encoded here: a protobuf runtime would be the larger part
//! of this crate's dependencies. Calls are recognised by their content type; messages are never read.

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use tollgate::Span;

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// All bytes but printable ASCII, and the `%` itself.
const NOT_IN_MESSAGE: &AsciiSet = &CONTROLS.add(b'%');

/// The status codes of refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    InvalidArgument = 3,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    Internal = 13,
    Unavailable = 14,
}

impl Code {
    /// The code of a refusal with this status in HTTP.
    pub(crate) fn from_http(status: u16) -> Code {
        match status {
            429 => Code::ResourceExhausted,
            400 | 422 => Code::InvalidArgument,
            403 => Code::PermissionDenied,
            503 => Code::Unavailable,
            _ => Code::Internal,
        }
    }
}

/// Whether a request is a gRPC call.
pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    const GRPC: &[u8] = b"application/grpc";
    let media = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    let media = media.and_then(|media| media.split_at_checked(GRPC.len()));
    media.is_some_and(|(name, rest)| {
        // Not another type whose name starts with this one.
        name.eq_ignore_ascii_case(GRPC)
            && matches!(rest.first(), None | Some(b'+' | b';' | b'-' | b' '))
    })
}

/// Writes a refusal into the head of a response.
pub(crate) fn write(
    headers: &mut HeaderMap,
    request_headers: &HeaderMap,
    code: Code,
    message: &str,
    retry_after: Option<Span>,
) {
    // The variant of gRPC that the client uses: browsers have their own.
    let media = request_headers.get(CONTENT_TYPE).cloned();
    let media = media.unwrap_or(HeaderValue::from_static("application/grpc"));
    headers.insert(CONTENT_TYPE, media);
    headers.insert(STATUS, HeaderValue::from(code as u16));
    let encoded = utf8_percent_encode(message, NOT_IN_MESSAGE).to_string();
    if let Ok(message) = HeaderValue::try_from(encoded) {
        headers.insert(MESSAGE, message);
    }
    let pushback = match retry_after {
        None => HeaderValue::from_static("-1"),
        Some(wait) => {
            let ms = wait.as_nanos().div_ceil(1_000_000);
            HeaderValue::from(i32::try_from(ms).unwrap_or(i32::MAX))
        }
    };
    headers.insert(PUSHBACK, pushback);
    let details = retry_after.map(|wait| STANDARD_NO_PAD.encode(status(code, message, wait)));
    if let Some(details) = details.and_then(|details| HeaderValue::try_from(details).ok()) {
        headers.insert(DETAILS, details);
    }
}

/// `google.rpc.Status` with one detail, `google.rpc.RetryInfo`.
fn status(code: Code, message: &str, wait: Span) -> Vec<u8> {
    let (mut duration, mut info, mut any, mut status) = (vec![], vec![], vec![], vec![]);
    push_integer(&mut duration, 1, wait.as_nanos() / 1_000_000_000);
    push_integer(&mut duration, 2, wait.as_nanos() % 1_000_000_000);
    push_bytes(&mut info, 1, &duration);
    push_bytes(&mut any, 1, b"type.googleapis.com/google.rpc.RetryInfo");
    push_bytes(&mut any, 2, &info);
    push_integer(&mut status, 1, code as u64);
    push_bytes(&mut status, 2, message.as_bytes());
    push_bytes(&mut status, 3, &any);
    status
}

fn push_integer(to: &mut Vec<u8>, field: u8, value: u64) {
    if value > 0 {
        to.push(field << 3);
        push_varint(to, value);
    }
}

fn push_bytes(to: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    to.push(field << 3 | 2);
    push_varint(to, bytes.len() as u64);
    to.extend_from_slice(bytes);
}

fn push_varint(to: &mut Vec<u8>, mut value: u64) {
    while value > 0x7f {
        to.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    to.push((value & 0x7f) as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grpc_is_recognised_by_its_content_type() {
        let is = |media: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(media));
            is_grpc(&headers)
        };
        assert!(is("application/grpc"));
        assert!(is("application/grpc+proto"));
        assert!(is("Application/GRPC-web-text"));
        assert!(is("application/grpc; x=y"));
        assert!(!is("application/grpcish"));
        assert!(!is("application/json"));
        assert!(!is("application/grp"));
        assert!(!is_grpc(&HeaderMap::new()));
    }

    #[test]
    fn messages_are_printable_ascii() {
        let encoded = utf8_percent_encode("100 % é\n~\x7f", NOT_IN_MESSAGE).to_string();
        assert_eq!(encoded, "100 %25 %C3%A9%0A~%7F");
    }

    #[test]
    fn varints_above_seven_bits_continue() {
        let mut bytes = Vec::new();
        push_varint(&mut bytes, 300);
        assert_eq!(bytes, [0xac, 0x02]);
    }
}
