//! Refusals as gRPC writes them.
//!
//! # Theory
//!
//! A gRPC call that is refused gets a response of trailers only: HTTP 200, no body, and in its head
//!
//! | field | says |
//! |---|---|
//! | `grpc-status` | 8 `RESOURCE_EXHAUSTED`, 3 `INVALID_ARGUMENT`, 7 `PERMISSION_DENIED` or 14 `UNAVAILABLE` |
//! | `grpc-message` | what is wrong, percent-encoded |
//! | `grpc-status-details-bin` | a `google.rpc.Status` with a `google.rpc.RetryInfo`: in base64, when to come back |
//! | `grpc-retry-pushback-ms` | the same for clients that retry by themselves; -1: do not |
//!
//! The details are so small that they are encoded here by hand: fields of protobuf are a tag (number and
//! kind), a length and bytes; integers are sevens of bits.
//!
//! # What it does not know
//!
//! What is in a message. It looks at the content type and nothing else.

use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use tollgate::Span;

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// The codes that refusals have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    InvalidArgument = 3,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    Internal = 13,
    Unavailable = 14,
}

impl Code {
    /// The code for a refusal that has this status in HTTP.
    pub(crate) fn of(status: u16) -> Code {
        match status {
            429 => Code::ResourceExhausted,
            400 | 422 => Code::InvalidArgument,
            403 => Code::PermissionDenied,
            503 => Code::Unavailable,
            _ => Code::Internal,
        }
    }
}

/// Is it a call of gRPC?
pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    const GRPC: &[u8] = b"application/grpc";
    let media = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    media.is_some_and(|media| {
        let begin = media.get(..GRPC.len());
        let is_begun = begin.is_some_and(|begin| begin.eq_ignore_ascii_case(GRPC));
        // Not for some other type whose name happens to begin so.
        is_begun
            && matches!(
                media.get(GRPC.len()),
                None | Some(b'+' | b';' | b'-' | b' ')
            )
    })
}

/// Writes a refusal into the head of a response. `asked` are the headers of the request.
pub(crate) fn refuse(
    headers: &mut HeaderMap,
    asked: &HeaderMap,
    code: Code,
    message: &str,
    retry_after: Option<Span>,
) {
    // The same kind of gRPC as the client speaks: there are some for browsers, too.
    let media = asked.get(CONTENT_TYPE).cloned();
    let media = media.unwrap_or(HeaderValue::from_static("application/grpc"));
    headers.insert(CONTENT_TYPE, media);
    headers.insert(STATUS, HeaderValue::from(code as u16));
    if let Ok(message) = HeaderValue::try_from(percent_encoded(message)) {
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
    let details = retry_after.map(|wait| base64(&status(code, message, wait)));
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

/// Without `=` at the end, as gRPC sends it.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let byte = |at: usize| u32::from(three.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..=three.len() {
            let six = bits >> (18 - 6 * digit) & 63;
            text.push(char::from(*DIGITS.get(six as usize).unwrap_or(&b'A')));
        }
    }
    text
}

/// Everything but printable ASCII, and the `%` itself.
fn percent_encoded(message: &str) -> String {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let mut text = String::with_capacity(message.len());
    for byte in message.bytes() {
        if matches!(byte, b' '..=b'~') && byte != b'%' {
            text.push(char::from(byte));
        } else {
            text.push('%');
            for digit in [byte >> 4, byte & 15] {
                text.push(char::from(*HEX.get(usize::from(digit)).unwrap_or(&b'0')));
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grpc_is_known_by_its_content_type() {
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
    fn base64_is_that_of_the_standard_without_padding() {
        let cases: [(&[u8], &str); 6] = [
            (b"", ""),
            (b"f", "Zg"),
            (b"fo", "Zm8"),
            (b"foo", "Zm9v"),
            (b"foob", "Zm9vYg"),
            (&[0xfb, 0xff, 0xfe], "+//+"),
        ];
        for (bytes, text) in cases {
            assert_eq!(base64(bytes), text);
        }
    }

    #[test]
    fn messages_are_ascii_and_can_be_read_back() {
        assert_eq!(percent_encoded("100 % é\n"), "100 %25 %C3%A9%0A");
    }

    #[test]
    fn varints_of_more_than_seven_bits_go_on() {
        let mut bytes = Vec::new();
        push_varint(&mut bytes, 300);
        assert_eq!(bytes, [0xac, 0x02]);
    }
}
