//! What a front end has read of a request, and all that a policy may know of it.
//!
//! Borrowed from the request: making facts copies nothing. What is absent is empty, so that every front
//! end can say what it has and no more. Nothing here is trusted or normalised yet: the path is as it was
//! sent, and the client's address is what the front end found by [`super::address`].

use std::net::IpAddr;

use super::limit_override::LimitOverride;

/// Where header values come from; each front end has its own kind of map.
pub trait Headers {
    /// Calls `each` with every value of the header `name`, in order. Names are given in lower case and
    /// match whatever the case.
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

/// What is known of one request.
#[derive(Clone, Copy)]
pub struct Facts<'a> {
    /// The method, as sent.
    pub method: &'a str,
    /// The path, as sent, without the query. Empty for requests that have none.
    pub path: &'a str,
    /// What stands behind the `?`, as sent.
    pub query: &'a str,
    /// The host, as sent; a port is ignored.
    pub host: &'a str,
    /// Who sent it, as far as it can be believed.
    pub client: Option<IpAddr>,
    /// The headers.
    pub headers: &'a dyn Headers,
    /// The domain of an Envoy rate limit request.
    pub domain: &'a str,
    /// The entries of one Envoy descriptor.
    pub descriptor: &'a [(&'a str, &'a str)],
    /// What a caller that speaks our own protocol tells beside all this.
    pub fields: &'a [(&'a str, &'a str)],
    /// What the caller says the request costs; asked by limits that do not say so themselves.
    pub cost: Option<u64>,
    /// The limit that it brings along; followed only in domains where the policy says so.
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
