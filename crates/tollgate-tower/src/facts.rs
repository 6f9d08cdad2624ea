//! The facts that the layers read from a request, and the client's address.
//!
//! # Theory
//!
//! A policy sees a request as [`Facts`]: method, path, query, host, headers and the client's address, all borrowed from
//! the request. The address is not part of a request. The server that accepted the connection puts the peer's address into
//! an extension: [`PeerAddr`], axum's `ConnectInfo<SocketAddr>` (feature `axum`), or one that a function finds
//! (`with_peer`). The policy's trusted proxies then decide whether the peer is the client or forwards for one.
//!
//! # Invariant
//!
//! - The client is resolved once: the outermost layer puts [`ClientAddr`] into the request's extensions, and all inner
//!   layers use it. No extension comes from bytes of the client.
//! - A request without a client's address never meets a policy that depends on it. Without this check all clients would
//!   silently share one bucket and address lists would match nothing. The layers answer 500 and log the cause once.
//!
//! # Limits
//!
//! The first of several `Host` headers counts; a server should reject such a request before any layer sees it.

use std::net::IpAddr;
use std::sync::Once;

use http::header::{HOST, HeaderMap};
use http::request::Parts;
use http::{Extensions, Request, Uri};
use tollgate_policy::{DefaultAction, Facts, Headers, KeyPart, LimitRule, Match, Policy, Source};

/// The address of the connection's peer. The server puts it into a request's extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PeerAddr(pub IpAddr);

/// The address of the client: the peer's, or the one that a trusted proxy forwards for. The layers put it into a
/// request's extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientAddr(pub IpAddr);

/// Finds the peer's address in a request's extensions.
pub type PeerFn = fn(&Extensions) -> Option<IpAddr>;

/// Finds the cost of a request, for limits whose rule does not state one.
pub type CostFn = fn(&Parts) -> Option<u64>;

/// The address in [`PeerAddr`], or with the feature `axum` in `ConnectInfo<SocketAddr>`.
pub(crate) fn peer(extensions: &Extensions) -> Option<IpAddr> {
    if let Some(peer) = extensions.get::<PeerAddr>() {
        return Some(peer.0);
    }
    #[cfg(feature = "axum")]
    if let Some(peer) = extensions.get::<axum::extract::ConnectInfo<std::net::SocketAddr>>() {
        return Some(peer.0.ip());
    }
    None
}

/// The headers of a request as a policy reads them.
#[derive(Clone, Copy, Debug)]
pub struct HttpHeaders<'a>(pub &'a HeaderMap);

/// Up to this many names a linear scan is faster than hashing the name.
const MAX_SCANNED_NAMES: usize = 16;

impl Headers for HttpHeaders<'_> {
    fn visit<'a>(&'a self, name: &str, each: &mut dyn FnMut(&'a [u8])) {
        if self.0.keys_len() > MAX_SCANNED_NAMES {
            for value in self.0.get_all(name) {
                each(value.as_bytes());
            }
            return;
        }
        for (other, value) in self.0 {
            let other = other.as_str();
            if other == name || other.eq_ignore_ascii_case(name) {
                each(value.as_bytes());
            }
        }
    }
}

/// Lends the head of a request to a function that takes it as parts.
pub(crate) fn with_parts<B, R>(request: &mut Request<B>, f: impl FnOnce(&Parts) -> R) -> R {
    let (mut parts, ()) = Request::new(()).into_parts();
    swap(request, &mut parts);
    let found = f(&parts);
    swap(request, &mut parts);
    found
}

fn swap<B>(request: &mut Request<B>, parts: &mut Parts) {
    std::mem::swap(request.method_mut(), &mut parts.method);
    std::mem::swap(request.uri_mut(), &mut parts.uri);
    std::mem::swap(request.version_mut(), &mut parts.version);
    std::mem::swap(request.headers_mut(), &mut parts.headers);
    std::mem::swap(request.extensions_mut(), &mut parts.extensions);
}

/// The policy depends on the client's address, and no layer has found it.
#[derive(Debug)]
pub(crate) struct MissingClient;

/// The client's address, if it is known. It stays in the request's extensions for inner layers.
pub(crate) fn resolve_client<B>(
    request: &mut Request<B>,
    peer: PeerFn,
    policy: &Policy,
) -> Result<Option<IpAddr>, MissingClient> {
    if let Some(client) = request.extensions().get::<ClientAddr>() {
        return Ok(Some(client.0));
    }
    let Some(peer) = peer(request.extensions()) else {
        return match depends_on_client(policy) {
            false => Ok(None),
            true => {
                log_missing_client();
                Err(MissingClient)
            }
        };
    };
    let client = policy.proxies.client(peer, &HttpHeaders(request.headers()));
    request.extensions_mut().insert(ClientAddr(client));
    Ok(Some(client))
}

/// How to make the client's address known.
pub(crate) const MISSING_CLIENT_HINT: &str = "put `PeerAddr` into the request's extensions, call `with_peer` on the layer, or \
     enable the feature `axum` and serve with `into_make_service_with_connect_info::<SocketAddr>()`";

#[cold]
fn log_missing_client() {
    static LOGGED: Once = Once::new();
    LOGGED.call_once(|| {
        tracing::error!(
            "requests are answered 500: the policy depends on the client's address, and the requests carry none; \
             {MISSING_CLIENT_HINT}"
        );
    });
}

/// Whether a key, a tier, a condition or a list of the policy is an address. The fallback of a missing key is not: without
/// an address such requests share one bucket, as they do with `missing_key: shared`.
#[cold]
fn depends_on_client(policy: &Policy) -> bool {
    let is_address = |source: &Source| matches!(source, Source::Address { .. });
    let in_key = |key: &[KeyPart]| key.iter().any(|part| is_address(&part.source));
    let in_conditions = |matches: &Match, except: &[Match]| {
        let mut all = [matches].into_iter().chain(except);
        all.any(|condition| !condition.addresses.is_empty())
    };
    let in_limit = |rule: &LimitRule| {
        let tiers = rule.tiers.as_ref();
        in_key(&rule.key)
            || in_conditions(&rule.matches, &rule.except)
            || tiers.is_some_and(|tiers| is_address(&tiers.source))
    };
    let fallback = match &policy.default {
        DefaultAction::Limit(rule) => Some(&**rule),
        _ => None,
    };
    let mut lists = policy.allow.iter().chain(&policy.deny);
    policy.limits.iter().chain(fallback).any(in_limit)
        || lists.any(|list| in_conditions(&list.matches, &list.except))
        || policy.queues.iter().any(|queue| {
            let weights = queue.weights.as_ref();
            in_key(&queue.flow)
                || in_conditions(&queue.matches, &queue.except)
                || weights.is_some_and(|weights| is_address(&weights.source))
        })
}

/// Calls a function with the facts of a request.
pub(crate) fn with_facts<B, R>(
    request: &Request<B>,
    client: Option<IpAddr>,
    cost: Option<u64>,
    f: impl FnOnce(&Facts<'_>) -> R,
) -> R {
    let (uri, headers) = (request.uri(), request.headers());
    f(&Facts {
        method: request.method().as_str(),
        path: uri.path(),
        query: uri.query().unwrap_or_default(),
        host: host(uri, headers),
        client,
        headers: &HttpHeaders(headers),
        cost,
        ..Facts::default()
    })
}

/// The host of a request: that of its target, as in HTTP/2, or else the header.
pub(crate) fn host<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> &'a str {
    let in_header = || {
        let host = headers.get(HOST)?;
        // Nearly all are ASCII, which is checked faster.
        let ascii = host.to_str().ok();
        ascii.or_else(|| std::str::from_utf8(host.as_bytes()).ok())
    };
    uri.host().or_else(in_header).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;
    use tollgate_policy::address::{CidrSet, Proxies};

    fn request(uri: &str, headers: &[(&str, &str)]) -> Request<()> {
        let mut request = Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap()
    }

    #[test]
    fn the_host_of_the_target_takes_precedence_over_the_header() {
        let both = request("http://a.example:81/x?y=1", &[("host", "b.example")]);
        assert_eq!(host(both.uri(), both.headers()), "a.example");
        let header = request("/x", &[("host", "b.example:80")]);
        assert_eq!(host(header.uri(), header.headers()), "b.example:80");
        let neither = request("/x", &[]);
        assert_eq!(host(neither.uri(), neither.headers()), "");
    }

    #[test]
    fn facts_are_the_parts_of_the_request() {
        let request = request("/a/b?c=d&e", &[("x-key", "1"), ("x-key", "2")]);
        with_facts(&request, None, Some(7), |facts| {
            assert_eq!(
                (facts.method, facts.path, facts.query),
                ("GET", "/a/b", "c=d&e")
            );
            let mut values = Vec::new();
            facts
                .headers
                .visit("x-key", &mut |value| values.push(value.to_vec()));
            assert_eq!(values, [b"1", b"2"]);
            assert_eq!(facts.cost, Some(7));
        });
    }

    #[test]
    fn few_headers_and_many_are_found_alike() {
        let names: Vec<String> = (0..2 * MAX_SCANNED_NAMES)
            .map(|n| format!("x-other-{n}"))
            .collect();
        for others in [
            0,
            1,
            MAX_SCANNED_NAMES - 1,
            MAX_SCANNED_NAMES,
            2 * MAX_SCANNED_NAMES,
        ] {
            let others = names.iter().take(others).map(|name| (name.as_str(), "o"));
            let own = [("x-key", "1"), ("X-Key", "2"), ("host", "h")];
            let headers: Vec<_> = own.into_iter().chain(others).collect();
            let request = request("/", &headers);
            let found = |name: &str| {
                let mut values = Vec::new();
                HttpHeaders(request.headers())
                    .visit(name, &mut |value| values.push(value.to_vec()));
                values
            };
            assert_eq!(found("x-key"), [b"1", b"2"]);
            assert_eq!(found("X-KEY"), [b"1", b"2"]);
            assert_eq!(found("host"), [b"h"]);
            assert!(found("x-ke").is_empty() && found("no name").is_empty());
        }
    }

    #[test]
    fn a_request_borrowed_as_parts_is_unchanged() {
        let mut request = Request::builder()
            .method("PUT")
            .uri("/a?b")
            .version(http::Version::HTTP_2)
            .header("x-key", "1")
            .extension(PeerAddr([10, 0, 0, 1].into()))
            .body(7)
            .unwrap();
        let seen = |parts: &Parts| {
            let Parts { method, uri, .. } = parts;
            let key = parts.headers.get("x-key").cloned();
            (method.clone(), uri.clone(), key, peer(&parts.extensions))
        };
        let borrowed = with_parts(&mut request, seen);
        let (parts, body) = request.into_parts();
        assert_eq!(seen(&parts), borrowed);
        assert_eq!((parts.version, body), (http::Version::HTTP_2, 7));
        assert_eq!(
            (borrowed.0.as_str(), borrowed.3),
            ("PUT", Some([10, 0, 0, 1].into()))
        );
    }

    fn policy(trusted: &str) -> Policy {
        let trusted: CidrSet = [trusted.parse().unwrap()].into_iter().collect();
        Policy {
            proxies: Proxies {
                trusted,
                ..Proxies::default()
            },
            ..Policy::default()
        }
    }

    #[test]
    fn a_trusted_peer_forwards_for_its_client_and_all_layers_agree() {
        let mut request = request("/", &[("x-forwarded-for", "203.0.113.7")]);
        let policy = policy("10.0.0.0/8");
        assert_eq!(resolve_client(&mut request, peer, &policy).unwrap(), None);
        request
            .extensions_mut()
            .insert(PeerAddr([10, 0, 0, 1].into()));
        let client = Some([203, 0, 113, 7].into());
        assert_eq!(resolve_client(&mut request, peer, &policy).unwrap(), client);
        // An inner layer that trusts no proxy uses what the outer one has found.
        let untrusting = Policy::default();
        assert_eq!(
            resolve_client(&mut request, peer, &untrusting).unwrap(),
            client
        );
    }

    #[test]
    fn an_untrusted_peer_is_the_client() {
        let mut request = request("/", &[("x-forwarded-for", "203.0.113.7")]);
        request
            .extensions_mut()
            .insert(PeerAddr([192, 0, 2, 1].into()));
        let client = resolve_client(&mut request, peer, &Policy::default()).unwrap();
        assert_eq!(client, Some([192, 0, 2, 1].into()));
    }
}
