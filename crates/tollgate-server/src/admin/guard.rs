//! Access to the admin listener.
//!
//! # Theory
//!
//! Every web page in a browser on the machine can reach a port on loopback. Two checks exclude pages besides the token. A
//! page of another site sends its `Origin`. A site that resolves its own name to 127.0.0.1 (DNS rebinding) sends
//! that name as `Host`, so only known names are accepted. An address as `Host` cannot be rebound, so a listener on all
//! addresses accepts any address.
//!
//! A valid token is never locked out: only failures are limited, by address.

use std::net::{IpAddr, SocketAddr};

use hyper::StatusCode;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use tollgate::{Limit, Limiter};
use tollgate_policy::address::masked;

use super::response::ProblemDetails;
use super::tokens::Tokens;

/// Failed attempts per address and minute.
const FAILURES: u64 = 10;
/// Addresses whose failures are counted.
const ADDRESSES: usize = 10_000;

/// The access checks.
#[derive(Debug)]
pub(super) struct Guard {
    tokens: Tokens,
    hosts: Vec<String>,
    /// Any address is accepted as `Host`.
    any_address: bool,
    failures: Option<Limiter>,
}

impl Guard {
    pub(super) fn new(tokens: Tokens, more_hosts: &[String], bound: Option<SocketAddr>) -> Guard {
        let mut hosts: Vec<String> = ["localhost", "127.0.0.1", "::1"].map(String::from).into();
        hosts.extend(more_hosts.iter().map(|host| name_of(host)));
        hosts.extend(bound.map(|bound| bound.ip().to_string()));
        let rate = tollgate::Rate::new(FAILURES, tollgate::Span::from_secs(60));
        let limit = rate
            .ok()
            .and_then(|rate| Limit::token_bucket(rate, FAILURES).ok());
        Guard {
            tokens,
            hosts,
            any_address: bound.is_some_and(|bound| bound.ip().is_unspecified()),
            failures: limit.and_then(|limit| Limiter::new(limit.with_max_keys(ADDRESSES)).ok()),
        }
    }

    /// Checks `Host` and `Origin`.
    pub(super) fn check_host(&self, headers: &HeaderMap) -> Result<(), ProblemDetails> {
        let Some(host) = only(headers, &header::HOST) else {
            return Err(ProblemDetails::new(
                StatusCode::MISDIRECTED_REQUEST,
                "host-missing",
                "the request has no `Host` header, or more than one",
                "send one `Host` header",
            ));
        };
        let name = name_of(host);
        let is_address = name.parse::<IpAddr>().is_ok();
        if !(self.hosts.contains(&name) || (is_address && self.any_address)) {
            return Err(ProblemDetails::new(
                StatusCode::MISDIRECTED_REQUEST,
                "host-unknown",
                "the `Host` header names an unknown host",
                "use `localhost` or the address of the listener, or start the server with `--admin-host NAME`",
            ));
        }
        if !headers.contains_key(header::ORIGIN) {
            return Ok(());
        }
        let origin = only(headers, &header::ORIGIN).unwrap_or_default();
        let from = origin.split_once("://").map(|(_, authority)| authority);
        if from.is_some_and(|from| from.eq_ignore_ascii_case(host)) {
            return Ok(());
        }
        Err(ProblemDetails::new(
            StatusCode::FORBIDDEN,
            "origin-foreign",
            "the request comes from a page of another site",
            "send it from a program, or from a page of this port",
        ))
    }

    /// Checks the token.
    pub(super) fn check_token(
        &self,
        headers: &HeaderMap,
        peer: IpAddr,
    ) -> Result<(), ProblemDetails> {
        let offered = only(headers, &header::AUTHORIZATION).and_then(bearer);
        if offered.is_some_and(|token| self.tokens.accept(token.as_bytes())) {
            return Ok(());
        }
        let address = masked(peer, 32, 64);
        let failures = self.failures.as_ref();
        let verdict = failures.map(|failures| failures.check(&address));
        if let Some(false) = verdict.map(|verdict| verdict.is_admitted()) {
            let wait = verdict.and_then(|verdict| verdict.wait());
            let seconds = wait.map_or(60, |wait| wait.as_secs_ceil());
            return Err(ProblemDetails::new(
                StatusCode::TOO_MANY_REQUESTS,
                "too-many-failures",
                "too many requests from this address had no valid token",
                "wait, and check that the token is that of this server",
            )
            .with_header(header::RETRY_AFTER, HeaderValue::from(seconds)));
        }
        tracing::warn!(
            target: "tollgate::audit", actor = %peer, action = "authenticate", has_token = offered.is_some(),
            "request without a valid token"
        );
        let challenge = HeaderValue::from_static("Bearer realm=\"tollgate admin\"");
        let (code, detail) = match offered {
            Some(_) => ("token-wrong", "the token is not valid"),
            None => ("token-missing", "the operation needs a token"),
        };
        let hint = "send `Authorization: Bearer <token>`; the token is set where the server is started, \
                    or printed when it starts";
        let problem = ProblemDetails::new(StatusCode::UNAUTHORIZED, code, detail, hint);
        Err(problem.with_header(header::WWW_AUTHENTICATE, challenge))
    }
}

/// Checks that the body is declared as JSON: a web page cannot send that without a preflight request.
pub(super) fn check_json(headers: &HeaderMap) -> Result<(), ProblemDetails> {
    let kind = only(headers, &header::CONTENT_TYPE).unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(ProblemDetails::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "not-json",
        "the media type of the body is not JSON",
        "send `Content-Type: application/json`",
    ))
}

/// Returns `true` if a request has a body, or declares the type of one.
pub(super) fn has_body(headers: &HeaderMap) -> bool {
    let length = headers.get(header::CONTENT_LENGTH);
    headers.contains_key(header::CONTENT_TYPE)
        || headers.contains_key(header::TRANSFER_ENCODING)
        || length.is_some_and(|length| length.as_bytes() != b"0")
}

/// The value of a header that occurs once.
fn only<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(first)
}

fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// A host without port and trailing dot, in lower case.
fn name_of(host: &str) -> String {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(rest),
        // More than one colon without brackets is an address.
        None if host.matches(':').count() > 1 => host,
        None => host.split(':').next().unwrap_or(host),
    };
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(bound: &str) -> Guard {
        let tokens = Tokens::new(&["0123456789abcdef0123456789abcdef"]).unwrap();
        Guard::new(tokens, &["Tolls.Example:9090".into()], bound.parse().ok())
    }

    fn status(guard: &Guard, headers: &[(&'static str, &'static str)]) -> u16 {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_static(value));
        }
        match guard.check_host(&map) {
            Ok(()) => 200,
            Err(problem) => problem.into_response().status().as_u16(),
        }
    }

    #[test]
    fn only_known_host_names_are_accepted() {
        let guard = guard("10.1.2.3:9090");
        for host in [
            "localhost:9090",
            "LOCALHOST",
            "127.0.0.1:1",
            "[::1]:9090",
            "10.1.2.3",
            "tolls.example.",
        ] {
            assert_eq!(status(&guard, &[("host", host)]), 200, "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "10.1.2.4",
            "",
            "127.0.0.1.evil.example",
            "[",
            "::",
        ] {
            assert_eq!(status(&guard, &[("host", host)]), 421, "{host}");
        }
        assert_eq!(status(&guard, &[]), 421);
        assert_eq!(
            status(&guard, &[("host", "localhost"), ("host", "evil")]),
            421
        );
    }

    #[test]
    fn a_listener_on_all_addresses_accepts_any_address_and_no_name() {
        let guard = guard("0.0.0.0:9090");
        assert_eq!(status(&guard, &[("host", "10.9.8.7:9090")]), 200);
        assert_eq!(status(&guard, &[("host", "[2001:db8::1]:9090")]), 200);
        assert_eq!(status(&guard, &[("host", "evil.example")]), 421);
    }

    #[test]
    fn pages_of_other_sites_are_rejected() {
        let guard = guard("127.0.0.1:9090");
        let from = |origin| status(&guard, &[("host", "localhost:9090"), ("origin", origin)]);
        assert_eq!(from("http://localhost:9090"), 200);
        for origin in [
            "null",
            "http://evil.example",
            "http://localhost:8080",
            "",
            "http://localhost:9090.evil",
        ] {
            assert_eq!(from(origin), 403, "{origin}");
        }
    }

    #[test]
    fn only_a_body_declared_as_json_is_accepted() {
        let check = |kind| {
            let mut map = HeaderMap::new();
            map.insert("content-type", HeaderValue::from_static(kind));
            check_json(&map).is_ok()
        };
        assert!(check("application/json") && check("Application/JSON; charset=utf-8"));
        for kind in [
            "text/plain",
            "application/x-www-form-urlencoded",
            "application/jsonx",
            "",
        ] {
            assert!(!check(kind), "{kind}");
        }
        assert!(check_json(&HeaderMap::new()).is_err());
    }
}
