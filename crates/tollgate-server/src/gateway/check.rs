//! What a request must be beside well framed, whichever HTTP it came in.
//!
//! Looked at before any limit: what is refused here was never admitted, is charged nothing, and reaches no
//! upstream.

use hyper::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderMap, HeaderValue, TE, TRANSFER_ENCODING,
    UPGRADE,
};
use hyper::{Method, Request, StatusCode, Version};

/// Bytes of a target, in HTTP/2 as in HTTP/1.
const TARGET_BYTES: usize = 8 * 1024;

/// Fields of a head, likewise.
const FIELDS: usize = 100;

/// What is answered to a request that is not passed on.
pub(super) type Refused = (StatusCode, &'static str);

const BAD: StatusCode = StatusCode::BAD_REQUEST;

/// May it be passed on?
pub(super) fn check<B>(request: &Request<B>, max_body: Option<u64>) -> Result<(), Refused> {
    let (method, uri, headers) = (request.method(), request.uri(), request.headers());
    let version = request.version();
    if matches!(*method, Method::CONNECT | Method::TRACE) {
        let told = "CONNECT and TRACE are not passed on; use another method";
        return Err((StatusCode::METHOD_NOT_ALLOWED, told));
    }
    if uri.path().is_empty() || !(uri.path().starts_with('/') || uri.path() == "*") {
        return Err((BAD, "the target is no path; send one that begins with `/`"));
    }
    if uri.path() == "*" && *method != Method::OPTIONS {
        return Err((BAD, "the target `*` is for OPTIONS alone; send a path"));
    }
    if uri.path_and_query().map_or(0, |path| path.as_str().len()) > TARGET_BYTES {
        let told = "the target is longer than 8 KiB; shorten it";
        return Err((StatusCode::URI_TOO_LONG, told));
    }
    if headers.len() > FIELDS {
        let told = "the head has more than 100 fields; send fewer";
        return Err((StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, told));
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
        let told = "only `Expect: 100-continue` can be met; leave it out";
        return Err((StatusCode::EXPECTATION_FAILED, told));
    }
    let length = headers
        .get(CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if let (Some(length), Some(most)) = (length, max_body)
        && length > most
    {
        return Err(TOO_LARGE);
    }
    Ok(())
}

/// Does the client ask for a WebSocket? Of all things that a connection could become, only this is passed on.
/// Whoever frames the bytes behind the request, passes it on or decides about it goes by this.
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

/// A body beyond what may be.
pub(super) const TOO_LARGE: Refused = (
    StatusCode::PAYLOAD_TOO_LARGE,
    "the body is larger than this server takes; send less",
);

/// The host must be one, and the same wherever it is told.
fn host(uri: &hyper::Uri, headers: &HeaderMap, version: Version) -> Result<(), Refused> {
    let mut hosts = headers.get_all(HOST).iter();
    let (first, second) = (hosts.next(), hosts.next());
    if second.is_some() {
        return Err((BAD, "`Host` is there more than once; send it once"));
    }
    let first = match first.map(|host| host.to_str()) {
        Some(Ok(host)) => Some(host),
        Some(Err(_)) => return Err((BAD, "`Host` is no host; send a name or an address")),
        None => None,
    };
    if let Some(authority) = uri.authority() {
        if authority.as_str().contains('@') {
            let told = "the target names a user; take it off, it is for the client alone";
            return Err((BAD, told));
        }
        if !is_host(authority.as_str()) {
            return Err((
                BAD,
                "the target's host is no host; send a name or an address",
            ));
        }
        if matches!(uri.scheme_str(), Some(scheme) if scheme != "http" && scheme != "https") {
            return Err((BAD, "the target's scheme is neither http nor https"));
        }
    }
    match (uri.authority(), first) {
        (Some(authority), Some(host)) if !authority.as_str().eq_ignore_ascii_case(host) => {
            Err((BAD, "the target and `Host` name different hosts; name one"))
        }
        (None, None) if version != Version::HTTP_10 => Err((BAD, "`Host` is missing; send it")),
        (_, Some(host)) if !is_host(host) => {
            Err((BAD, "`Host` is no host; send a name or an address"))
        }
        _ => Ok(()),
    }
}

/// Does it look like a host, perhaps with a port? Empty is not.
fn is_host(host: &str) -> bool {
    let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~%:[]!$&'()*+;=".contains(&byte);
    !host.is_empty() && host.len() <= 300 && host.bytes().all(is_fit)
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
    fn what_is_asked_of_one_host_passes() {
        assert_eq!(checked("GET", "/a?b", &[("host", "a:80")]), None);
        assert_eq!(checked("GET", "http://A/a", &[("host", "a")]), None);
        assert_eq!(checked("OPTIONS", "*", &[("host", "a")]), None);
        assert_eq!(checked("GET", "/", &[("host", "[::1]:8000")]), None);
    }

    #[test]
    fn what_names_two_hosts_none_or_a_user_does_not() {
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
    fn what_is_not_passed_on_is_told_apart() {
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
}
