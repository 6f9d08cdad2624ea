//! Header fields that pass through: fields of one hop are removed, fields of the gateway are added.
//!
//! # Theory
//!
//! Some fields describe a connection, not a request: those of RFC 9110, 7.6.1, and those that `Connection` names. A client
//! may name any field there. So everything is removed *before* the fields of the gateway are added: a client cannot have
//! them removed.
//!
//! Statements about the origin of a request are accepted from a trusted proxy only, and otherwise replaced.

use std::cell::RefCell;
use std::fmt::Write;
use std::net::IpAddr;

use hyper::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, FORWARDED, HOST, HeaderMap, HeaderName, HeaderValue,
    PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE, VIA,
};

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");

/// Fields of one hop. The first of them names others.
static HOP_BY_HOP: [HeaderName; 10] = [
    CONNECTION,
    KEEP_ALIVE,
    PROXY_CONNECTION,
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    HTTP2_SETTINGS,
];

/// The client, for the fields that describe it.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClientInfo {
    /// The address that connected.
    pub(super) peer: IpAddr,
    /// Is it a trusted proxy?
    pub(super) is_trusted: bool,
    /// Did the request arrive over TLS?
    pub(super) is_tls: bool,
}

/// Removes the fields of one hop.
pub(super) fn strip_hop(headers: &mut HeaderMap) {
    // Most heads have one of them or none: looking is cheaper than removing ten names.
    let mut present = 0_u16;
    for name in headers.keys().filter(|name| has_hop_length(name)) {
        if let Some(at) = HOP_BY_HOP.iter().position(|hop| hop == name) {
            present |= 1 << at;
        }
    }
    if present & 1 != 0 {
        let named: Vec<HeaderName> = headers
            .get_all(CONNECTION)
            .iter()
            .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
            .map(<[u8]>::trim_ascii)
            // The common value, which is among the names above.
            .filter(|name| !name.eq_ignore_ascii_case(b"keep-alive"))
            .filter_map(|name| HeaderName::from_bytes(name).ok())
            // `Connection` cannot remove fields that decide the framing and the host.
            .filter(|name| !matches!(name.as_str(), "host" | "content-length"))
            .collect();
        for name in named {
            headers.remove(name);
        }
    }
    for (at, name) in HOP_BY_HOP.iter().enumerate() {
        if present >> at & 1 == 1 {
            headers.remove(name);
        }
    }
}

/// Is the name as long as one of [`HOP_BY_HOP`]? Most are not, which saves ten comparisons.
fn has_hop_length(name: &HeaderName) -> bool {
    matches!(name.as_str().len(), 2 | 7 | 10 | 14 | 16..=19)
}

/// Turns the fields of a request into those that an upstream gets.
pub(super) fn to_upstream(headers: &mut HeaderMap, client: ClientInfo, host: &HeaderValue) {
    let takes_trailers = headers.get_all(TE).iter().any(|value| {
        let mut words = value.as_bytes().split(|byte| *byte == b',');
        words.any(|word| word.trim_ascii().eq_ignore_ascii_case(b"trailers"))
    });
    strip_hop(headers);
    // The gateway meets the expectation: it asks for the body when it passes it on.
    headers.remove(EXPECT);
    let is_removed = |name: &&HeaderName| {
        let name = name.as_str();
        name.starts_with("x-tollgate-")
            || name.contains('_')
            || (!client.is_trusted
                && (name.starts_with("x-forwarded-")
                    || name == REAL_IP.as_str()
                    || name == FORWARDED.as_str()))
    };
    let removed: Vec<HeaderName> = headers.keys().filter(is_removed).cloned().collect();
    for name in removed {
        headers.remove(name);
    }
    if takes_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    if headers.contains_key(FORWARDED_FOR) {
        append(headers, FORWARDED_FOR, |text| {
            let _ = write!(text, "{}", client.peer);
        });
    } else {
        headers.insert(FORWARDED_FOR, text_of(client.peer));
    }
    if !headers.contains_key(FORWARDED_PROTO) {
        let scheme = if client.is_tls { "https" } else { "http" };
        headers.insert(FORWARDED_PROTO, HeaderValue::from_static(scheme));
    }
    if !headers.contains_key(FORWARDED_HOST) {
        headers.insert(FORWARDED_HOST, host.clone());
    }
    if headers.contains_key(VIA) {
        append(headers, VIA, |text| text.push_str(VIA_NAME));
    } else {
        headers.insert(VIA, HeaderValue::from_static(VIA_NAME));
    }
}

/// The gateway in `Via`.
const VIA_NAME: &str = "1.1 tollgate";

/// An address as text. Each thread caches the last one, because requests of one peer arrive in series.
fn text_of(peer: IpAddr) -> HeaderValue {
    thread_local! {
        static LAST: RefCell<Option<(IpAddr, HeaderValue)>> = const { RefCell::new(None) };
    }
    LAST.with_borrow_mut(|last| match last {
        Some((of, text)) if *of == peer => text.clone(),
        _ => {
            // An address is digits, letters, dots and colons.
            let text = HeaderValue::try_from(peer.to_string());
            let text = text.unwrap_or(HeaderValue::from_static("unknown"));
            *last = Some((peer, text.clone()));
            text
        }
    })
}

/// Turns the fields of a response into those that a client gets.
pub(super) fn to_client(headers: &mut HeaderMap) {
    // A length beside an encoding is not that of the decoded body.
    if headers.contains_key(TRANSFER_ENCODING) {
        headers.remove(CONTENT_LENGTH);
    }
    strip_hop(headers);
}

/// Joins cookies into one field. HTTP/2 may send several fields; HTTP/1.1 has one (RFC 9113, 8.2.3), and servers read the
/// first.
pub(super) fn join_cookies(headers: &mut HeaderMap) {
    use hyper::header::COOKIE;
    let mut lines = headers.get_all(COOKIE).iter();
    let (Some(first), Some(second)) = (lines.next(), lines.next()) else {
        return;
    };
    let mut all = first.as_bytes().to_vec();
    for line in std::iter::once(second).chain(lines) {
        all.extend_from_slice(b"; ");
        all.extend_from_slice(line.as_bytes());
    }
    if let Ok(all) = HeaderValue::from_maybe_shared(bytes::Bytes::from(all)) {
        headers.insert(COOKIE, all);
    }
}

/// Appends to a list, as one field.
fn append(headers: &mut HeaderMap, name: HeaderName, write: impl FnOnce(&mut String)) {
    let mut text = String::with_capacity(48);
    let mut is_readable = true;
    for value in headers.get_all(&name) {
        match value.to_str() {
            Ok(value) => {
                text.push_str(value);
                text.push_str(", ");
            }
            // A value that is not text is no list; the new value stands alone.
            Err(_) => is_readable = false,
        }
    }
    if !is_readable {
        text.clear();
    }
    write(&mut text);
    if let Ok(value) = HeaderValue::try_from(text) {
        headers.insert(name, value);
    }
}

/// The host that a request is for: the authority of its target, or its `Host`.
pub(super) fn host_of<'r>(uri: &'r hyper::Uri, headers: &'r HeaderMap) -> &'r str {
    match uri.authority() {
        Some(authority) => authority.as_str(),
        None => headers
            .get(HOST)
            .and_then(|host| host.to_str().ok())
            .unwrap_or_default(),
    }
}

/// The same as it is written in a field; shared with the request's own, if it has it there.
pub(super) fn host_field(uri: &hyper::Uri, headers: &HeaderMap) -> HeaderValue {
    let host = match uri.authority() {
        Some(authority) => HeaderValue::from_str(authority.as_str()).ok(),
        None => headers
            .get(HOST)
            .filter(|host| host.to_str().is_ok())
            .cloned(),
    };
    host.unwrap_or(HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(fields: &[(&'static str, &str)], is_trusted: bool) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        let client = ClientInfo {
            peer: "203.0.113.7".parse().unwrap(),
            is_trusted,
            is_tls: true,
        };
        let host = HeaderValue::from_static("shop.example");
        to_upstream(&mut headers, client, &host);
        headers
    }

    fn names(headers: &HeaderMap) -> Vec<&str> {
        let mut names: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        names
    }

    const ADDED: [&str; 4] = [
        "via",
        "x-forwarded-for",
        "x-forwarded-host",
        "x-forwarded-proto",
    ];

    #[test]
    fn fields_of_one_hop_and_those_they_name_are_removed() {
        let headers = sent(
            &[
                ("connection", "close, X-Secret"),
                ("connection", "x-other"),
                ("x-secret", "1"),
                ("x-other", "1"),
                ("keep-alive", "timeout=5"),
                ("proxy-authorization", "Basic x"),
                ("proxy-connection", "keep-alive"),
                ("te", "gzip"),
                ("trailer", "x"),
                ("transfer-encoding", "chunked"),
                ("upgrade", "h2c"),
                ("expect", "100-continue"),
            ],
            false,
        );
        assert_eq!(names(&headers), ADDED);
    }

    #[test]
    fn every_hop_by_hop_name_has_a_checked_length() {
        assert!(HOP_BY_HOP.iter().all(has_hop_length));
        assert_eq!(HOP_BY_HOP[0], CONNECTION);
    }

    #[test]
    fn added_fields_cannot_be_removed_by_the_client() {
        let nominated =
            "x-forwarded-for, via, x-forwarded-proto, x-forwarded-host, content-length, host";
        let headers = sent(
            &[
                ("connection", nominated),
                ("content-length", "5"),
                ("host", "a"),
            ],
            false,
        );
        assert_eq!(headers["x-forwarded-for"], "203.0.113.7");
        assert_eq!(headers["content-length"], "5");
        assert_eq!(headers["host"], "a");
        assert!(ADDED.iter().all(|name| headers.contains_key(*name)));
    }

    #[test]
    fn an_untrusted_client_does_not_state_its_origin() {
        let said = [
            ("x-forwarded-for", "6.6.6.6"),
            ("x-forwarded-proto", "gopher"),
            ("x-forwarded-host", "evil"),
            ("x-forwarded-prefix", "/admin"),
            ("forwarded", "for=6.6.6.6"),
            ("x-real-ip", "6.6.6.6"),
            ("x-tollgate-client", "root"),
            ("x_forwarded_for", "6.6.6.6"),
        ];
        let headers = sent(&said, false);
        assert_eq!(names(&headers), ADDED);
        assert_eq!(headers["x-forwarded-for"], "203.0.113.7");
        assert_eq!(headers["x-forwarded-proto"], "https");
        assert_eq!(headers["x-forwarded-host"], "shop.example");
    }

    #[test]
    fn a_trusted_proxy_is_accepted_and_the_gateway_added_to_the_list() {
        let headers = sent(
            &[
                ("x-forwarded-for", "198.51.100.1"),
                ("x-forwarded-for", "10.0.0.1"),
                ("x-forwarded-proto", "http"),
                ("x-tollgate-client", "root"),
                ("via", "2 edge"),
            ],
            true,
        );
        let list = "198.51.100.1, 10.0.0.1, 203.0.113.7";
        assert_eq!(headers["x-forwarded-for"], list);
        assert_eq!(headers.get_all("x-forwarded-for").iter().count(), 1);
        assert_eq!(headers["x-forwarded-proto"], "http");
        assert_eq!(headers["via"], "2 edge, 1.1 tollgate");
        assert!(!headers.contains_key("x-tollgate-client"));
    }

    #[test]
    fn te_trailers_is_passed_on() {
        assert_eq!(
            sent(&[("te", "trailers, deflate")], false)["te"],
            "trailers"
        );
    }
}
