//! Checks a parsed request of either version of HTTP.
//!
//! A request that is refused here was not admitted: it is charged nothing and reaches no upstream.

use hyper::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderMap, HeaderValue, TE, TRANSFER_ENCODING,
    UPGRADE,
};
use hyper::{Method, Request, StatusCode, Version};

use crate::net::http1::head::{FIELDS, HeadError, TARGET_BYTES, content_length};

/// Status and detail of a refusal.
pub(super) type Refusal = (StatusCode, &'static str);

const BAD: StatusCode = StatusCode::BAD_REQUEST;

/// Refuses what must not be passed on.
pub(super) fn check<B>(request: &Request<B>, max_body: Option<u64>) -> Result<(), Refusal> {
    let (method, uri, headers) = (request.method(), request.uri(), request.headers());
    let version = request.version();
    if matches!(*method, Method::CONNECT | Method::TRACE) {
        let detail = "CONNECT and TRACE are not passed on; use another method";
        return Err((StatusCode::METHOD_NOT_ALLOWED, detail));
    }
    if uri.path().is_empty() || !(uri.path().starts_with('/') || uri.path() == "*") {
        return Err((
            BAD,
            "the target is not a path; send one that begins with `/`",
        ));
    }
    if uri.path() == "*" && *method != Method::OPTIONS {
        return Err((BAD, "the target `*` is for OPTIONS alone; send a path"));
    }
    if uri.path_and_query().map_or(0, |path| path.as_str().len()) > TARGET_BYTES {
        let detail = "the target is longer than 8 KiB; shorten it";
        return Err((StatusCode::URI_TOO_LONG, detail));
    }
    if headers.len() > FIELDS {
        let detail = "the head has more than 100 fields; send fewer";
        return Err((StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, detail));
    }
    host(uri, headers, version)?;
    if version == Version::HTTP_2 {
        if headers.contains_key(TRANSFER_ENCODING) {
            return Err((BAD, "HTTP/2 has no `Transfer-Encoding`; leave it out"));
        }
        if headers.get_all(TE).iter().any(|te| te != "trailers") {
            return Err((BAD, "in HTTP/2 `TE` is `trailers` or absent; send that"));
        }
    }
    if let Some(expected) = headers.get(EXPECT)
        && !expected.as_bytes().eq_ignore_ascii_case(b"100-continue")
    {
        let detail = "only `Expect: 100-continue` can be met; leave it out";
        return Err((StatusCode::EXPECTATION_FAILED, detail));
    }
    // The framer holds HTTP/1 to this already. Passed on, two lengths would be ambiguous for an upstream.
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    if let Some(length) = lengths.next() {
        if lengths.next().is_some() {
            return Err(HeadError::LengthTwice.refusal());
        }
        let length = content_length(length.as_bytes());
        let length = length.ok_or(HeadError::BadLength.refusal())?;
        if max_body.is_some_and(|max| length > max) {
            return Err(TOO_LARGE);
        }
    }
    Ok(())
}

/// Does the client ask for a WebSocket? That is the only protocol that a connection can switch to.
///
/// The framer decides the same from the bytes of the head ([`crate::net::http1::head`]).
pub(super) fn asks_for_tunnel<B>(request: &Request<B>) -> bool {
    let is_websocket = |value: &HeaderValue| {
        let value = value.as_bytes().trim_ascii();
        value.eq_ignore_ascii_case(b"websocket")
    };
    let names_upgrade = |value: &HeaderValue| {
        let mut words = value.as_bytes().split(|byte| *byte == b',');
        words.any(|word| word.trim_ascii().eq_ignore_ascii_case(b"upgrade"))
    };
    let headers = request.headers();
    request.version() == Version::HTTP_11
        && *request.method() == Method::GET
        && headers.get(UPGRADE).is_some_and(is_websocket)
        && headers.get_all(CONNECTION).iter().any(names_upgrade)
}

/// The body exceeds `max_body`.
pub(super) const TOO_LARGE: Refusal = (
    StatusCode::PAYLOAD_TOO_LARGE,
    "the body is larger than this server takes; send less",
);

/// The host must be stated, and be the same in the target and in `Host`.
fn host(uri: &hyper::Uri, headers: &HeaderMap, version: Version) -> Result<(), Refusal> {
    let mut hosts = headers.get_all(HOST).iter();
    let (first, second) = (hosts.next(), hosts.next());
    if second.is_some() {
        return Err((BAD, "`Host` is repeated; send it once"));
    }
    let first = match first.map(|host| host.to_str()) {
        Some(Ok(host)) => Some(host),
        Some(Err(_)) => return Err((BAD, "`Host` is not a host; send a name or an address")),
        None => None,
    };
    if let Some(authority) = uri.authority() {
        if authority.as_str().contains('@') {
            let detail = "the target has a user name; remove it";
            return Err((BAD, detail));
        }
        if !is_host(authority.as_str()) {
            return Err((
                BAD,
                "the host of the target is not a host; send a name or an address",
            ));
        }
        if matches!(uri.scheme_str(), Some(scheme) if scheme != "http" && scheme != "https") {
            return Err((BAD, "the scheme of the target is neither http nor https"));
        }
    }
    match (uri.authority(), first) {
        (Some(authority), Some(host)) if !authority.as_str().eq_ignore_ascii_case(host) => {
            Err((BAD, "the target and `Host` name different hosts; name one"))
        }
        (None, None) if version != Version::HTTP_10 => Err((BAD, "`Host` is missing; send it")),
        (_, Some(host)) if !is_host(host) => {
            Err((BAD, "`Host` is not a host; send a name or an address"))
        }
        _ => Ok(()),
    }
}

/// Is it like a host, with or without a port?
fn is_host(host: &str) -> bool {
    let is_allowed =
        |byte: u8| byte.is_ascii_alphanumeric() || b"-._~%:[]!$&'()*+;=".contains(&byte);
    !host.is_empty() && host.len() <= 300 && host.bytes().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(method: &str, uri: &str, fields: &[(&str, &str)]) -> Option<u16> {
        let mut request = hyper::Request::builder().method(method).uri(uri);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        check(&request.body(()).unwrap(), Some(10))
            .err()
            .map(|(status, _)| status.as_u16())
    }

    #[test]
    fn requests_for_one_host_pass() {
        assert_eq!(checked("GET", "/a?b", &[("host", "a:80")]), None);
        assert_eq!(checked("GET", "http://A/a", &[("host", "a")]), None);
        assert_eq!(checked("OPTIONS", "*", &[("host", "a")]), None);
        assert_eq!(checked("GET", "/", &[("host", "[::1]:8000")]), None);
    }

    #[test]
    fn two_hosts_no_host_or_a_user_are_refused() {
        assert_eq!(checked("GET", "http://b/a", &[("host", "a")]), Some(400));
        assert_eq!(checked("GET", "/", &[]), Some(400));
        assert_eq!(checked("GET", "/", &[("host", "")]), Some(400));
        assert_eq!(checked("GET", "/", &[("host", "a,b")]), Some(400));
        assert_eq!(checked("GET", "/", &[("host", "a/b")]), Some(400));
        assert_eq!(checked("GET", "/", &[("host", "u@a")]), Some(400));
        assert_eq!(checked("GET", "http://u:p@a/", &[("host", "a")]), Some(400));
        assert_eq!(
            checked("GET", "/", &[("host", "a"), ("host", "a")]),
            Some(400)
        );
        assert_eq!(checked("GET", "ftp://a/", &[("host", "a")]), Some(400));
    }

    #[test]
    fn refusals_have_different_statuses() {
        assert_eq!(checked("TRACE", "/", &[("host", "a")]), Some(405));
        assert_eq!(checked("CONNECT", "a:1", &[("host", "a:1")]), Some(405));
        assert_eq!(checked("GET", "*", &[("host", "a")]), Some(400));
        assert_eq!(
            checked("PUT", "/", &[("host", "a"), ("expect", "x")]),
            Some(417)
        );
        let long = [("host", "a"), ("content-length", "11")];
        assert_eq!(checked("PUT", "/", &long), Some(413));
        let long = format!("/{}", "a".repeat(TARGET_BYTES));
        assert_eq!(checked("GET", &long, &[("host", "a")]), Some(414));
    }

    #[test]
    fn a_length_is_stated_once_in_digits() {
        for lengths in [
            &["5", "5"][..],
            &[""],
            &["0", ""],
            &["+5"],
            &["5, 5"],
            &["0x5"],
        ] {
            let fields = lengths.iter().map(|length| ("content-length", *length));
            let fields: Vec<_> = fields.chain([("host", "a")]).collect();
            assert_eq!(checked("PUT", "/", &fields), Some(400), "{lengths:?}");
        }
        let one = [("host", "a"), ("content-length", "5")];
        assert_eq!(checked("PUT", "/", &one), None);
    }
}
