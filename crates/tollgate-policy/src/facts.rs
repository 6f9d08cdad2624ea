//! Facts of a request that a front end passes to the policy.
//!
//! Facts are borrowed from the request: making them copies nothing. What is absent is empty, so that every front
//! end passes exactly what it has. Nothing here is trusted or normalised yet: the path is as it was sent, and the
//! client's address is what the front end found by [`super::address`].

use std::net::IpAddr;

use super::limit_override::LimitOverride;

/// A source of header values; each front end has its own map type.
pub trait Headers {
    /// Calls `each` with every value of the header `name`, in order. `name` is in lower case; the comparison
    /// ignores case.
    fn visit<'a>(&'a self, name: &str, each: &mut dyn FnMut(&'a [u8]));
}

/// A list of names and values.
impl Headers for [(&str, &str)] {
    fn visit<'a>(&'a self, name: &str, each: &mut dyn FnMut(&'a [u8])) {
        for (n, value) in self {
            if n.eq_ignore_ascii_case(name) {
                each(value.as_bytes());
            }
        }
    }
}

impl<const N: usize> Headers for [(&str, &str); N] {
    fn visit<'a>(&'a self, name: &str, each: &mut dyn FnMut(&'a [u8])) {
        self.as_slice().visit(name, each);
    }
}

impl Headers for Vec<(&str, &str)> {
    fn visit<'a>(&'a self, name: &str, each: &mut dyn FnMut(&'a [u8])) {
        self.as_slice().visit(name, each);
    }
}

/// A request without headers.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoHeaders;

impl Headers for NoHeaders {
    fn visit<'a>(&'a self, _name: &str, _each: &mut dyn FnMut(&'a [u8])) {}
}

/// Facts of one request.
#[derive(Clone, Copy)]
pub struct Facts<'a> {
    /// The method, as sent.
    pub method: &'a str,
    /// The path, as sent, without the query. Empty for requests without a path.
    pub path: &'a str,
    /// The query after the `?`, as sent.
    pub query: &'a str,
    /// The host, as sent; a port is ignored.
    pub host: &'a str,
    /// The client's address, as far as it can be trusted.
    pub client: Option<IpAddr>,
    /// The headers.
    pub headers: &'a dyn Headers,
    /// The domain of an Envoy rate limit request.
    pub domain: &'a str,
    /// The entries of one Envoy descriptor.
    pub descriptor: &'a [(&'a str, &'a str)],
    /// Fields of a request in Tollgate's own protocol.
    pub fields: &'a [(&'a str, &'a str)],
    /// The cost that the caller states; used by limits without a cost rule.
    pub cost: Option<u64>,
    /// The limit that the request brings along; applied only in domains that the policy names.
    pub limit_override: Option<LimitOverride>,
}

impl Default for Facts<'_> {
    fn default() -> Self {
        Facts {
            method: "",
            path: "",
            query: "",
            host: "",
            client: None,
            headers: &NoHeaders,
            domain: "",
            descriptor: &[],
            fields: &[],
            cost: None,
            limit_override: None,
        }
    }
}

impl std::fmt::Debug for Facts<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Facts")
            .field("method", &self.method)
            .field("path", &self.path)
            .field("host", &self.host)
            .field("client", &self.client)
            .finish_non_exhaustive()
    }
}
