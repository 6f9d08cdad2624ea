//! What the layers read of a request, and who sent it.
//!
//! # Theory
//!
//! A policy knows a request as [`Facts`]: method, path, query, host, headers and the client's address, all
//! borrowed from the request. The address is not in a request; whoever accepted the connection knows it,
//! and says so in an extension: [`Peer`], or whatever the function finds that was given to the layer
//! (`with_peer`). The policy's proxies then say whether the peer is the client or speaks for one.
//!
//! # Invariant
//!
//! The client is resolved once: the outermost layer leaves [`Client`] in the request's extensions, and all
//! layers below believe it. Nothing that a client can send becomes an extension.
//!
//! # What it does not know
//!
//! Whether a request is well formed. Of several `Host` headers the first counts; a server should refuse
//! such a request before any layer sees it.

use std::net::IpAddr;

use http::header::{HOST, HeaderMap};
use http::request::Parts;
use http::{Extensions, Method, Request, Uri};
use tollgate_policy::address::{Proxies, network_text};
use tollgate_policy::{Facts, Headers};

/// The address that a connection came from. Put into a request's extensions by whoever accepted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Peer(pub IpAddr);

/// Who sent the request, as far as it can be believed. Put into a request's extensions by the layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Client(pub IpAddr);

/// Finds the address that a connection came from in a request's extensions.
pub type PeerOf = fn(&Extensions) -> Option<IpAddr>;

/// Finds what a request costs, for limits that do not say so themselves.
pub type CostOf = fn(&Parts) -> Option<u64>;

/// The address in [`Peer`].
pub fn peer(extensions: &Extensions) -> Option<IpAddr> {
    extensions.get::<Peer>().map(|peer| peer.0)
}

/// A key: the client's address, IPv6 by its first 64 bits, because who has one such address has them all.
pub fn by_client(parts: &Parts) -> Option<String> {
    let client = parts.extensions.get::<Client>()?;
    Some(network_text(client.0, 32, 64))
}

/// Headers as `http` holds them.
#[derive(Clone, Copy, Debug)]
pub struct HttpHeaders<'a>(pub &'a HeaderMap);

/// Up to so many names are looked through one by one: that is faster than to hash the one that is wanted.
const FEW: usize = 16;

impl Headers for HttpHeaders<'_> {
    fn visit<'a>(&'a self, name: &str, each: &mut dyn FnMut(&'a [u8])) {
        if self.0.keys_len() > FEW {
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

/// The head of a request, be it whole or taken apart. To take one apart is to move all of it.
pub(crate) trait Head {
    fn method(&self) -> &Method;
    fn uri(&self) -> &Uri;
    fn headers(&self) -> &HeaderMap;
    fn extensions(&self) -> &Extensions;
    fn extensions_mut(&mut self) -> &mut Extensions;
}

impl<B> Head for Request<B> {
    fn method(&self) -> &Method {
        self.method()
    }
    fn uri(&self) -> &Uri {
        self.uri()
    }
    fn headers(&self) -> &HeaderMap {
        self.headers()
    }
    fn extensions(&self) -> &Extensions {
        self.extensions()
    }
    fn extensions_mut(&mut self) -> &mut Extensions {
        self.extensions_mut()
    }
}

impl Head for Parts {
    fn method(&self) -> &Method {
        &self.method
    }
    fn uri(&self) -> &Uri {
        &self.uri
    }
    fn headers(&self) -> &HeaderMap {
        &self.headers
    }
    fn extensions(&self) -> &Extensions {
        &self.extensions
    }
    fn extensions_mut(&mut self) -> &mut Extensions {
        &mut self.extensions
    }
}

/// Shows the head of a request to a function that wants it as parts.
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

/// Who the client is; left in the extensions for those who ask later.
pub(crate) fn recognise(head: &mut impl Head, peer: PeerOf, proxies: &Proxies) -> Option<IpAddr> {
    if let Some(known) = head.extensions().get::<Client>() {
        return Some(known.0);
    }
    let peer = peer(head.extensions())?;
    let client = proxies.client(peer, &HttpHeaders(head.headers()));
    head.extensions_mut().insert(Client(client));
    Some(client)
}

/// The facts of a request.
pub(crate) fn with_facts<R>(
    head: &impl Head,
    client: Option<IpAddr>,
    cost: Option<u64>,
    f: impl FnOnce(&Facts<'_>) -> R,
) -> R {
    let (uri, headers) = (head.uri(), head.headers());
    f(&Facts {
        method: head.method().as_str(),
        path: uri.path(),
        query: uri.query().unwrap_or_default(),
        host: host(uri, headers),
        client,
        headers: &HttpHeaders(headers),
        cost,
        ..Facts::default()
    })
}

/// The host that a request is for: that of its target, as HTTP/2 has it, or else the header.
pub(crate) fn host<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> &'a str {
    let told = || {
        let host = headers.get(HOST)?;
        // Nearly all are ASCII, and that is seen faster.
        let plain = host.to_str().ok();
        plain.or_else(|| std::str::from_utf8(host.as_bytes()).ok())
    };
    uri.host().or_else(told).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;
    use tollgate_policy::address::CidrSet;

    fn parts(uri: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn the_host_of_the_target_counts_before_the_header() {
        let both = parts("http://a.example:81/x?y=1", &[("host", "b.example")]);
        assert_eq!(host(&both.uri, &both.headers), "a.example");
        let header = parts("/x", &[("host", "b.example:80")]);
        assert_eq!(host(&header.uri, &header.headers), "b.example:80");
        let neither = parts("/x", &[]);
        assert_eq!(host(&neither.uri, &neither.headers), "");
    }

    #[test]
    fn facts_are_the_parts_of_the_request() {
        let parts = parts("/a/b?c=d&e", &[("x-key", "1"), ("x-key", "2")]);
        with_facts(&parts, None, Some(7), |facts| {
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
    fn few_headers_and_many_are_looked_through_alike() {
        let names: Vec<String> = (0..2 * FEW).map(|n| format!("x-other-{n}")).collect();
        for others in [0, 1, FEW - 1, FEW, 2 * FEW] {
            let others = names.iter().take(others).map(|name| (name.as_str(), "o"));
            let own = [("x-key", "1"), ("X-Key", "2"), ("host", "h")];
            let headers: Vec<_> = own.into_iter().chain(others).collect();
            let parts = parts("/", &headers);
            let found = |name: &str| {
                let mut values = Vec::new();
                HttpHeaders(&parts.headers).visit(name, &mut |value| values.push(value.to_vec()));
                values
            };
            assert_eq!(found("x-key"), [b"1", b"2"]);
            assert_eq!(found("X-KEY"), [b"1", b"2"]);
            assert_eq!(found("host"), [b"h"]);
            assert!(found("x-ke").is_empty() && found("no name").is_empty());
        }
    }

    #[test]
    fn a_request_that_was_shown_as_parts_is_as_before() {
        let mut request = Request::builder()
            .method("PUT")
            .uri("/a?b")
            .version(http::Version::HTTP_2)
            .header("x-key", "1")
            .extension(Peer([10, 0, 0, 1].into()))
            .body(7)
            .unwrap();
        let seen = |parts: &Parts| {
            let Parts { method, uri, .. } = parts;
            let key = parts.headers.get("x-key").cloned();
            (method.clone(), uri.clone(), key, peer(&parts.extensions))
        };
        let shown = with_parts(&mut request, seen);
        let (parts, body) = request.into_parts();
        assert_eq!(seen(&parts), shown);
        assert_eq!((parts.version, body), (http::Version::HTTP_2, 7));
        assert_eq!(
            (shown.0.as_str(), shown.3),
            ("PUT", Some([10, 0, 0, 1].into()))
        );
    }

    #[test]
    fn a_trusted_peer_speaks_for_its_client_and_all_layers_agree() {
        let mut parts = parts("/", &[("x-forwarded-for", "203.0.113.7")]);
        let trusted: CidrSet = ["10.0.0.0/8".parse().unwrap()].into_iter().collect();
        let proxies = Proxies {
            trusted,
            ..Proxies::default()
        };
        assert_eq!(recognise(&mut parts, peer, &proxies), None);
        parts.extensions.insert(Peer([10, 0, 0, 1].into()));
        let client = Some([203, 0, 113, 7].into());
        assert_eq!(recognise(&mut parts, peer, &proxies), client);
        // The next layer trusts nobody, and yet believes the first one.
        assert_eq!(recognise(&mut parts, peer, &Proxies::default()), client);
        assert_eq!(by_client(&parts), Some("203.0.113.7".into()));
    }

    #[test]
    fn an_untrusted_peer_is_the_client_whatever_it_says() {
        let mut parts = parts("/", &[("x-forwarded-for", "203.0.113.7")]);
        parts.extensions.insert(Peer([192, 0, 2, 1].into()));
        let client = recognise(&mut parts, peer, &Proxies::default());
        assert_eq!(client, Some([192, 0, 2, 1].into()));
    }
}
