//! Header fields on their way through: what is for one hop is taken off, what is ours is put on.
//!
//! # Theory
//!
//! Some fields are about a connection, not about a request: those that RFC 9110 (7.6.1) names, and those
//! that `Connection` names. A client may name any field there, so everything is taken off *before* anything
//! of ours is put on: what we say of a request cannot be nominated away.
//!
//! What a request says about where it came from is believed of a trusted proxy only. From anybody else it
//! is replaced.

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

/// Fields that are about a connection. The first of them names others.
static OF_ONE_HOP: [HeaderName; 10] = [
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

/// Who sent a request, as far as the fields tell it on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sender {
    /// Whoever connected.
    pub(super) peer: IpAddr,
    /// Is its word about others taken?
    pub(super) is_trusted: bool,
    /// Did it come over TLS?
    pub(super) is_tls: bool,
}

/// Takes off what is about the connection, whoever names it.
pub(super) fn strip_hop(headers: &mut HeaderMap) {
    // Most heads have one of them or none: to see which costs less than to take ten names off.
    let mut present = 0_u16;
    for name in headers.keys().filter(|name| is_as_long(name)) {
        if let Some(at) = OF_ONE_HOP.iter().position(|hop| hop == name) {
            present |= 1 << at;
        }
    }
    if present & 1 != 0 {
        let nominated: Vec<HeaderName> = headers
            .get_all(CONNECTION)
            .iter()
            .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
            .map(<[u8]>::trim_ascii)
            // The common word, which is among the names above.
            .filter(|name| !name.eq_ignore_ascii_case(b"keep-alive"))
            .filter_map(|name| HeaderName::from_bytes(name).ok())
            // What says where a request ends and for whom it is does not go by anybody's word.
            .filter(|name| !matches!(name.as_str(), "host" | "content-length"))
            .collect();
        for name in nominated {
            headers.remove(name);
        }
    }
    for (at, name) in OF_ONE_HOP.iter().enumerate() {
        if present >> at & 1 == 1 {
            headers.remove(name);
        }
    }
}

/// Is a name as long as one of [`OF_ONE_HOP`]? Most are not, which spares ten comparisons.
fn is_as_long(name: &HeaderName) -> bool {
    matches!(name.as_str().len(), 2 | 7 | 10 | 14 | 16..=19)
}

/// Makes the fields of a request those that an upstream gets.
pub(super) fn to_upstream(headers: &mut HeaderMap, sender: Sender, host: &HeaderValue) {
    let takes_trailers = headers.get_all(TE).iter().any(|value| {
        let mut words = value.as_bytes().split(|byte| *byte == b',');
        words.any(|word| word.trim_ascii().eq_ignore_ascii_case(b"trailers"))
    });
    strip_hop(headers);
    // We have met it: the body is asked for when it is passed on.
    headers.remove(EXPECT);
    let is_foreign = |name: &&HeaderName| {
        let name = name.as_str();
        name.starts_with("x-tollgate-")
            || name.contains('_')
            || (!sender.is_trusted
                && (name.starts_with("x-forwarded-")
                    || name == REAL_IP.as_str()
                    || name == FORWARDED.as_str()))
    };
    let foreign: Vec<HeaderName> = headers.keys().filter(is_foreign).cloned().collect();
    for name in foreign {
        headers.remove(name);
    }
    if takes_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    if headers.contains_key(FORWARDED_FOR) {
        append(headers, FORWARDED_FOR, |text| {
            let _ = write!(text, "{}", sender.peer);
        });
    } else {
        headers.insert(FORWARDED_FOR, text_of(sender.peer));
    }
    if !headers.contains_key(FORWARDED_PROTO) {
        let scheme = if sender.is_tls { "https" } else { "http" };
        headers.insert(FORWARDED_PROTO, HeaderValue::from_static(scheme));
    }
    if !headers.contains_key(FORWARDED_HOST) {
        headers.insert(FORWARDED_HOST, host.clone());
    }
    if headers.contains_key(VIA) {
        append(headers, VIA, |text| text.push_str(WE));
    } else {
        headers.insert(VIA, HeaderValue::from_static(WE));
    }
}

/// How we name ourselves.
const WE: &str = "1.1 tollgate";

/// An address as text. The last one of each thread is kept: requests of one peer come in rows.
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

/// Makes the fields of an answer those that a client gets.
pub(super) fn to_client(headers: &mut HeaderMap) {
    // A length beside an encoding says nothing true of what comes out of it.
    if headers.contains_key(TRANSFER_ENCODING) {
        headers.remove(CONTENT_LENGTH);
    }
    strip_hop(headers);
}

/// Puts cookies into one line. HTTP/2 may send one in each; in HTTP/1.1 there is one line only (RFC 9113,
/// 8.2.3), and servers read the first.
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

/// Adds to the end of a list, in one line.
fn append(headers: &mut HeaderMap, name: HeaderName, write: impl FnOnce(&mut String)) {
    let mut text = String::with_capacity(48);
    let mut is_readable = true;
    for value in headers.get_all(&name) {
        match value.to_str() {
            Ok(value) => {
                text.push_str(value);
                text.push_str(", ");
            }
            // What is no text is no list: ours stands alone.
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
    let told = match uri.authority() {
        Some(authority) => HeaderValue::from_str(authority.as_str()).ok(),
        None => headers
            .get(HOST)
            .filter(|host| host.to_str().is_ok())
            .cloned(),
    };
    told.unwrap_or(HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(fields: &[(&'static str, &str)], is_trusted: bool) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        let sender = Sender {
            peer: "203.0.113.7".parse().unwrap(),
            is_trusted,
            is_tls: true,
        };
        let host = HeaderValue::from_static("shop.example");
        to_upstream(&mut headers, sender, &host);
        headers
    }

    fn names(headers: &HeaderMap) -> Vec<&str> {
        let mut names: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        names
    }

    const OURS: [&str; 4] = [
        "via",
        "x-forwarded-for",
        "x-forwarded-host",
        "x-forwarded-proto",
    ];

    #[test]
    fn what_is_about_a_connection_is_taken_off_and_what_it_nominates() {
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
        assert_eq!(names(&headers), OURS);
    }

    #[test]
    fn every_name_of_one_hop_is_of_a_length_that_is_looked_at() {
        assert!(OF_ONE_HOP.iter().all(is_as_long));
        assert_eq!(OF_ONE_HOP[0], CONNECTION);
    }

    #[test]
    fn what_is_ours_cannot_be_nominated_away() {
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
        assert!(OURS.iter().all(|name| headers.contains_key(*name)));
    }

    #[test]
    fn a_stranger_does_not_say_where_a_request_came_from() {
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
        assert_eq!(names(&headers), OURS);
        assert_eq!(headers["x-forwarded-for"], "203.0.113.7");
        assert_eq!(headers["x-forwarded-proto"], "https");
        assert_eq!(headers["x-forwarded-host"], "shop.example");
    }

    #[test]
    fn a_trusted_proxy_is_believed_and_we_are_added_to_the_list() {
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
    fn that_trailers_are_taken_is_passed_on() {
        assert_eq!(
            sent(&[("te", "trailers, deflate")], false)["te"],
            "trailers"
        );
    }
}
