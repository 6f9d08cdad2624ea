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
use http::{Extensions, Uri};
use tollgate::policy::address::{Proxies, network_text};
use tollgate::policy::{Facts, Headers};

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

impl Headers for HttpHeaders<'_> {
    fn visit<'a>(&'a self, name: &str, each: &mut dyn FnMut(&'a [u8])) {
        for value in self.0.get_all(name) {
            each(value.as_bytes());
        }
    }
}

/// Who the client is; left in the extensions for those who ask later.
pub(crate) fn recognise(parts: &mut Parts, peer: PeerOf, proxies: &Proxies) -> Option<IpAddr> {
    if let Some(known) = parts.extensions.get::<Client>() {
        return Some(known.0);
    }
    let peer = peer(&parts.extensions)?;
    let client = proxies.client(peer, &HttpHeaders(&parts.headers));
    parts.extensions.insert(Client(client));
    Some(client)
}

/// The facts of a request.
pub(crate) fn with_facts<R>(
    parts: &Parts,
    client: Option<IpAddr>,
    cost: Option<u64>,
    f: impl FnOnce(&Facts<'_>) -> R,
) -> R {
    f(&Facts {
        method: parts.method.as_str(),
        path: parts.uri.path(),
        query: parts.uri.query().unwrap_or_default(),
        host: host(&parts.uri, &parts.headers),
        client,
        headers: &HttpHeaders(&parts.headers),
        cost,
        ..Facts::default()
    })
}

/// The host that a request is for: that of its target, as HTTP/2 has it, or else the header.
pub(crate) fn host<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> &'a str {
    let told = || headers.get(HOST).map(|host| host.as_bytes());
    let told = || told().and_then(|host| std::str::from_utf8(host).ok());
    uri.host().or_else(told).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;
    use tollgate::policy::address::CidrSet;

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
