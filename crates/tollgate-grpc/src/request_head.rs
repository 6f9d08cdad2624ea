//! The headers of a request, and whether they are a call of the session's own method.
//!
//! # Theory
//!
//! A call of the own method needs two facts of its headers: that it is one, and how long its caller waits. A compressed
//! message makes it a fallback request. So only the rules of HTTP/2 itself are enforced here, and tonic judges the rest.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Uri, uri};

use crate::MAX_HEADER_BYTES;
use crate::timeout::parse_timeout;

/// What a field costs besides its text, as the standard counts it.
const FIELD_BYTES: usize = 32;

/// A complete header list.
#[derive(Debug)]
pub(crate) enum RequestHead {
    /// A call of the session's method.
    Unary(UnaryCall),
    /// Any other request, and its `content-length`.
    Other(Box<http::request::Parts>, Option<u64>),
    /// It exceeds [`MAX_HEADER_BYTES`].
    TooLarge,
    /// It violates HTTP/2.
    Malformed,
}

/// What matters of a call of the session's method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnaryCall {
    /// `grpc-timeout`.
    pub(crate) timeout: Option<Duration>,
    /// `content-length`.
    pub(crate) length: Option<u64>,
}

/// Collects the fields of a header list. Reused for the next one.
#[derive(Debug, Default)]
pub(crate) struct HeaderList {
    /// Names and values, concatenated; then their lengths.
    text: Vec<u8>,
    fields: Vec<(usize, usize)>,
    /// How many of the fields are pseudo-headers, which come first.
    pseudo: usize,
    bytes: usize,
    is_malformed: bool,
}

impl HeaderList {
    pub(crate) fn clear(&mut self) {
        self.text.clear();
        self.fields.clear();
        self.pseudo = 0;
        self.bytes = 0;
        self.is_malformed = false;
    }

    pub(crate) fn push(&mut self, name: &[u8], value: &[u8]) {
        self.bytes = self
            .bytes
            .saturating_add(name.len() + value.len() + FIELD_BYTES);
        if self.bytes > MAX_HEADER_BYTES {
            return;
        }
        if name.first() == Some(&b':') {
            // None may follow a regular field.
            self.is_malformed |= self.pseudo != self.fields.len();
            self.pseudo += 1;
        }
        self.is_malformed |= !is_valid_field(name, value);
        self.text.extend_from_slice(name);
        self.text.extend_from_slice(value);
        self.fields.push((name.len(), value.len()));
    }

    fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut rest = self.text.as_slice();
        self.fields.iter().map_while(move |(name, value)| {
            let (name, behind) = rest.split_at_checked(*name)?;
            let (value, behind) = behind.split_at_checked(*value)?;
            rest = behind;
            Some((name, value))
        })
    }

    /// The request, given the path of the session's method.
    pub(crate) fn request(&self, path: &str) -> RequestHead {
        if self.bytes > MAX_HEADER_BYTES {
            return RequestHead::TooLarge;
        }
        if self.is_malformed {
            return RequestHead::Malformed;
        }
        self.classify(path).unwrap_or(RequestHead::Malformed)
    }

    /// True if the fields may be trailers.
    pub(crate) fn is_trailers(&self) -> bool {
        self.pseudo == 0 && !self.is_malformed
    }

    fn classify(&self, unary_path: &str) -> Option<RequestHead> {
        let mut pseudo = PseudoHeaders::default();
        for (name, value) in self.iter().take(self.pseudo) {
            pseudo.set(name, value)?;
        }
        let (method, path) = (pseudo.method?, pseudo.path?);
        pseudo.scheme?;
        let mut call = UnaryCall {
            timeout: None,
            length: None,
        };
        let mut has_timeout = false;
        let mut is_unary = path == unary_path.as_bytes();
        for (name, value) in self.iter().skip(self.pseudo) {
            match name {
                // The first one counts, as in tonic.
                b"grpc-timeout" if !has_timeout => {
                    has_timeout = true;
                    let text = std::str::from_utf8(value).ok();
                    call.timeout = text.and_then(parse_timeout);
                }
                b"grpc-encoding" => is_unary &= value == b"identity",
                b"content-length" => call.length = Some(content_length(value, call.length)?),
                _ => {}
            }
        }
        if is_unary {
            return Some(RequestHead::Unary(call));
        }
        let mut request = http::Request::new(()).into_parts().0;
        request.version = http::Version::HTTP_2;
        request.method = http::Method::from_bytes(method).ok()?;
        request.uri = pseudo.uri()?;
        request.headers = self.headers()?;
        Some(RequestHead::Other(Box::new(request), call.length))
    }

    fn headers(&self) -> Option<HeaderMap> {
        let mut headers = HeaderMap::with_capacity(self.fields.len());
        for (name, value) in self.iter().skip(self.pseudo) {
            let name = HeaderName::from_lowercase(name).ok()?;
            headers.append(name, HeaderValue::from_bytes(value).ok()?);
        }
        Some(headers)
    }
}

/// True if an HTTP/2 request may have this field (RFC 9113, 8.2.1 and 8.2.2).
fn is_valid_field(name: &[u8], value: &[u8]) -> bool {
    let regular = name.strip_prefix(b":").unwrap_or(name);
    let is_name_byte =
        |byte: &u8| byte.is_ascii_graphic() && !byte.is_ascii_uppercase() && *byte != b':';
    let is_value = value.trim_ascii().len() == value.len()
        && !value.iter().any(|byte| matches!(byte, 0 | b'\r' | b'\n'));
    !regular.is_empty()
        && regular.iter().all(is_name_byte)
        && is_value
        && match name {
            b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding"
            | b"upgrade" => false,
            b"te" => value == b"trailers",
            _ => true,
        }
}

/// A length in digits, equal to any earlier one.
fn content_length(value: &[u8], before: Option<u64>) -> Option<u64> {
    let text = std::str::from_utf8(value).ok()?;
    let is_number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let length = is_number.then(|| text.parse().ok())??;
    before
        .is_none_or(|before| before == length)
        .then_some(length)
}

#[derive(Debug, Default)]
struct PseudoHeaders<'a> {
    method: Option<&'a [u8]>,
    scheme: Option<&'a [u8]>,
    authority: Option<&'a [u8]>,
    path: Option<&'a [u8]>,
}

impl<'a> PseudoHeaders<'a> {
    /// `None` if the pseudo-header is unknown or repeated.
    fn set(&mut self, name: &[u8], value: &'a [u8]) -> Option<()> {
        let field = match name {
            b":method" => &mut self.method,
            b":scheme" => &mut self.scheme,
            b":authority" => &mut self.authority,
            b":path" => &mut self.path,
            _ => return None,
        };
        field.replace(value).is_none().then_some(())
    }

    fn uri(&self) -> Option<Uri> {
        let mut parts = uri::Parts::default();
        let path = self.path.filter(|path| path.first() == Some(&b'/'))?;
        let path = uri::PathAndQuery::from_maybe_shared(Bytes::copy_from_slice(path));
        parts.path_and_query = Some(path.ok()?);
        // Envoy sends names of clusters and sockets that are not valid authorities. No service here reads them.
        let scheme = self.scheme.and_then(|s| uri::Scheme::try_from(s).ok());
        let authority = self
            .authority
            .and_then(|a| uri::Authority::try_from(a).ok());
        if let (Some(scheme), Some(authority)) = (scheme, authority) {
            parts.scheme = Some(scheme);
            parts.authority = Some(authority);
        }
        Uri::from_parts(parts).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: &str = "/test.Service/Call";
    const CALL: [(&str, &str); 4] = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", PATH),
        (":authority", "limits:8081"),
    ];

    fn read(fields: &[(&str, &str)]) -> RequestHead {
        let mut list = HeaderList::default();
        for (name, value) in fields {
            list.push(name.as_bytes(), value.as_bytes());
        }
        list.request(PATH)
    }

    fn with(more: &[(&str, &str)]) -> RequestHead {
        read(&[&CALL, more].concat())
    }

    #[test]
    fn a_call_of_the_method_is_recognised_with_its_timeout() {
        let usual = [("te", "trailers"), ("content-type", "application/grpc")];
        let RequestHead::Unary(call) = with(&[&usual[..], &[("grpc-timeout", "20m")]].concat())
        else {
            panic!("not recognised");
        };
        assert_eq!(call.timeout, Some(Duration::from_millis(20)));
        // As in tonic: neither `te` nor `content-type` is required, and a malformed timeout is none.
        for more in [
            &[][..],
            &[("grpc-timeout", "soon")],
            &[("grpc-encoding", "identity")],
        ] {
            let head = with(more);
            assert!(
                matches!(head, RequestHead::Unary(UnaryCall { timeout: None, .. })),
                "{head:?}"
            );
        }
    }

    #[test]
    fn unusual_requests_go_to_the_fallback() {
        let path = [CALL[0], CALL[1], (":path", "/grpc.health.v1.Health/Check")];
        for head in [read(&path), with(&[("grpc-encoding", "gzip")])] {
            assert!(matches!(head, RequestHead::Other(..)), "{head:?}");
        }
        let RequestHead::Other(parts, _) =
            read(&[&path[..], &[("x-a", "1"), ("x-a", "2")]].concat())
        else {
            panic!("not a fallback request");
        };
        assert_eq!(parts.uri, "/grpc.health.v1.Health/Check");
        assert_eq!(parts.headers.get_all("x-a").iter().count(), 2);
    }

    #[test]
    fn violations_of_http2_are_malformed() {
        for fields in [
            &CALL[1..],
            &CALL[..2],
            &[CALL[0], CALL[2]],
            &[CALL[0], CALL[0], CALL[1], CALL[2]],
            &[CALL[0], CALL[1], CALL[2], (":status", "200")],
            &[CALL[0], CALL[1], ("a", "b"), CALL[2]],
            &[CALL[0], CALL[1], (":path", "no-slash")],
            &[CALL[0], CALL[1], (":path", "")],
        ] {
            assert!(matches!(read(fields), RequestHead::Malformed), "{fields:?}");
        }
        for field in [
            ("", "x"),
            ("Te", "trailers"),
            ("te", "gzip"),
            ("connection", "close"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("content-length", "x"),
            ("content-length", "-1"),
            ("a b", "x"),
            ("a\0", "x"),
            ("a\x7f", "x"),
            ("a\u{e4}", "x"),
            ("a:b", "x"),
            (":", "x"),
            ("a", "x\0"),
            ("a", "x\ny"),
            ("a", "x\r"),
            ("a", " x"),
            ("a", "x\t"),
        ] {
            assert!(
                matches!(with(&[field]), RequestHead::Malformed),
                "{field:?}"
            );
        }
        let two = [("content-length", "1"), ("content-length", "2")];
        assert!(matches!(with(&two), RequestHead::Malformed));
    }

    #[test]
    fn a_header_list_is_bounded() {
        let value = "v".repeat(MAX_HEADER_BYTES);
        assert!(matches!(with(&[("x", &value)]), RequestHead::TooLarge));
        let many = vec![("x", ""); 1_000];
        assert!(matches!(with(&many), RequestHead::TooLarge));
    }
}
