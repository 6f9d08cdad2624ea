//! The head of a request: what its fields say, and which way it goes.
//!
//! # Theory
//!
//! Only two things of the one call that matters are needed: that it is that call, and how long its caller waits.
//! Whatever is unusual about it (another method, a compressed message) makes it any other request, and those are
//! for tonic to judge. So this lane needs no opinion about anything but the bare rules of HTTP/2.

use std::time::Duration;

use bytes::Bytes;
use hyper::http::{self, HeaderMap, HeaderName, HeaderValue, Method, Uri, uri};

use super::super::deadline;
use super::super::messages::SHOULD_RATE_LIMIT;
use super::HEAD_BYTES;

/// What a field costs beside its text, as the standard counts it.
const FIELD_BYTES: usize = 32;

/// A head that was read to its end.
#[derive(Debug)]
pub(super) enum Head {
    /// The one call.
    Ours(Ours),
    /// Any other request, and how long its body says that it is.
    Other(Box<http::request::Parts>, Option<u64>),
    /// It is larger than it may be.
    TooLarge,
    /// It is no head of a request.
    Malformed,
}

/// What matters of the one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ours {
    /// How long its caller waits.
    pub(super) timeout: Option<Duration>,
    /// How long its body says that it is.
    pub(super) length: Option<u64>,
}

/// Gathers the fields of a head, and is used again for the next one.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    /// Names and values behind each other; then how long each of them is.
    text: Vec<u8>,
    fields: Vec<(usize, usize)>,
    /// How many of the fields are pseudo fields, which come first.
    pseudo: usize,
    bytes: usize,
    is_malformed: bool,
}

impl Gathered {
    pub(super) fn clear(&mut self) {
        self.text.clear();
        self.fields.clear();
        self.pseudo = 0;
        self.bytes = 0;
        self.is_malformed = false;
    }

    pub(super) fn add(&mut self, name: &[u8], value: &[u8]) {
        self.bytes = self
            .bytes
            .saturating_add(name.len() + value.len() + FIELD_BYTES);
        if self.bytes > HEAD_BYTES {
            return;
        }
        if name.first() == Some(&b':') {
            // Behind an ordinary field there is none.
            self.is_malformed |= self.pseudo != self.fields.len();
            self.pseudo += 1;
        }
        self.is_malformed |= !may_be(name, value);
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

    /// What it comes to.
    pub(super) fn read(&self) -> Head {
        if self.bytes > HEAD_BYTES {
            return Head::TooLarge;
        }
        if self.is_malformed {
            return Head::Malformed;
        }
        self.judge().unwrap_or(Head::Malformed)
    }

    /// May these fields stand behind a body?
    pub(super) fn are_trailers(&self) -> bool {
        self.pseudo == 0 && !self.is_malformed
    }

    fn judge(&self) -> Option<Head> {
        let mut first = First::default();
        for (name, value) in self.iter().take(self.pseudo) {
            first.take(name, value)?;
        }
        let (method, path) = (first.method?, first.path?);
        first.scheme?;
        let mut ours = Ours {
            timeout: None,
            length: None,
        };
        let mut has_timeout = false;
        let mut is_ours = method == b"POST" && path == SHOULD_RATE_LIMIT.as_bytes();
        for (name, value) in self.iter().skip(self.pseudo) {
            match name {
                // The first one counts, as it does for tonic.
                b"grpc-timeout" if !has_timeout => {
                    has_timeout = true;
                    let text = std::str::from_utf8(value).ok();
                    ours.timeout = text.and_then(deadline::parse);
                }
                b"grpc-encoding" => is_ours &= value == b"identity",
                b"content-length" => ours.length = Some(length(value, ours.length)?),
                _ => {}
            }
        }
        if is_ours {
            return Some(Head::Ours(ours));
        }
        let mut request = http::Request::new(()).into_parts().0;
        request.version = http::Version::HTTP_2;
        request.method = Method::from_bytes(method).ok()?;
        request.uri = first.uri()?;
        request.headers = self.headers()?;
        Some(Head::Other(Box::new(request), ours.length))
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

/// May a request of HTTP/2 have this field?
fn may_be(name: &[u8], value: &[u8]) -> bool {
    !name.is_empty()
        && !name.iter().any(u8::is_ascii_uppercase)
        && match name {
            b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding"
            | b"upgrade" => false,
            b"te" => value == b"trailers",
            _ => true,
        }
}

/// A length in digits, the same as was said before.
fn length(value: &[u8], before: Option<u64>) -> Option<u64> {
    let text = std::str::from_utf8(value).ok()?;
    let is_number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let length = is_number.then(|| text.parse().ok())??;
    before
        .is_none_or(|before| before == length)
        .then_some(length)
}

/// What comes first in a head.
#[derive(Debug, Default)]
struct First<'a> {
    method: Option<&'a [u8]>,
    scheme: Option<&'a [u8]>,
    authority: Option<&'a [u8]>,
    path: Option<&'a [u8]>,
}

impl<'a> First<'a> {
    /// None if there is no such field, or there was one already.
    fn take(&mut self, name: &[u8], value: &'a [u8]) -> Option<()> {
        let place = match name {
            b":method" => &mut self.method,
            b":scheme" => &mut self.scheme,
            b":authority" => &mut self.authority,
            b":path" => &mut self.path,
            _ => return None,
        };
        place.replace(value).is_none().then_some(())
    }

    fn uri(&self) -> Option<Uri> {
        let mut parts = uri::Parts::default();
        let path = self.path.filter(|path| path.first() == Some(&b'/'))?;
        let path = uri::PathAndQuery::from_maybe_shared(Bytes::copy_from_slice(path));
        parts.path_and_query = Some(path.ok()?);
        // Names of clusters and sockets stand there that are no authorities. Nobody here reads them.
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

    const CALL: [(&str, &str); 4] = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", SHOULD_RATE_LIMIT),
        (":authority", "limits:8081"),
    ];

    fn read(fields: &[(&str, &str)]) -> Head {
        let mut gathered = Gathered::default();
        for (name, value) in fields {
            gathered.add(name.as_bytes(), value.as_bytes());
        }
        gathered.read()
    }

    fn with(more: &[(&str, &str)]) -> Head {
        read(&[&CALL, more].concat())
    }

    #[test]
    fn the_one_call_is_known_with_its_timeout() {
        let usual = [("te", "trailers"), ("content-type", "application/grpc")];
        let Head::Ours(ours) = with(&[&usual[..], &[("grpc-timeout", "20m")]].concat()) else {
            panic!("not ours");
        };
        assert_eq!(ours.timeout, Some(Duration::from_millis(20)));
        // As with tonic: neither is asked for, and what cannot be read is as none.
        for more in [
            &[][..],
            &[("grpc-timeout", "soon")],
            &[("grpc-encoding", "identity")],
        ] {
            let head = with(more);
            assert!(
                matches!(head, Head::Ours(Ours { timeout: None, .. })),
                "{head:?}"
            );
        }
    }

    #[test]
    fn what_is_unusual_is_for_others() {
        let get = [(":method", "GET"), CALL[1], CALL[2]];
        let path = [CALL[0], CALL[1], (":path", "/grpc.health.v1.Health/Check")];
        for head in [read(&get), read(&path), with(&[("grpc-encoding", "gzip")])] {
            assert!(matches!(head, Head::Other(..)), "{head:?}");
        }
        let Head::Other(parts, _) = read(&[&path[..], &[("x-a", "1"), ("x-a", "2")]].concat())
        else {
            panic!("not another one");
        };
        assert_eq!(parts.uri, "/grpc.health.v1.Health/Check");
        assert_eq!(parts.headers.get_all("x-a").iter().count(), 2);
    }

    #[test]
    fn what_is_no_head_is_malformed() {
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
            assert!(matches!(read(fields), Head::Malformed), "{fields:?}");
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
        ] {
            assert!(matches!(with(&[field]), Head::Malformed), "{field:?}");
        }
        let two = [("content-length", "1"), ("content-length", "2")];
        assert!(matches!(with(&two), Head::Malformed));
    }

    #[test]
    fn a_head_is_bounded() {
        let value = "v".repeat(HEAD_BYTES);
        assert!(matches!(with(&[("x", &value)]), Head::TooLarge));
        let many = vec![("x", ""); 1_000];
        assert!(matches!(with(&many), Head::TooLarge));
    }
}
