//! The gateway section of a policy file, as plain data: client bounds, timeouts and upstreams.
//!
//! It resolves no name and opens no connection. `tollgate-server` runs a gateway from it.

use std::path::PathBuf;

use tollgate::{Rate, Span};
use tollgate_policy::Match;

/// Settings of a gateway.
#[derive(Clone, Debug)]
pub struct GatewaySpec {
    /// The upstreams. The first that matches a request is used. Empty if the file has none.
    pub upstreams: Vec<UpstreamSpec>,
    /// Bounds on client connections.
    pub accept: AcceptSpec,
    /// Client timeouts.
    pub timeouts: ClientTimeouts,
    /// The maximum size of a request body in bytes. None: no bound.
    pub max_body: Option<u64>,
    /// Whether a request that waited is forwarded with `x-tollgate-waited`, its wait in milliseconds.
    pub wait_header: bool,
}

impl Default for GatewaySpec {
    fn default() -> GatewaySpec {
        GatewaySpec {
            upstreams: Vec::new(),
            accept: AcceptSpec::default(),
            timeouts: ClientTimeouts::default(),
            max_body: None,
            wait_header: true,
        }
    }
}

/// Bounds on client connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptSpec {
    /// The maximum number of connections.
    pub connections: usize,
    /// The maximum from one address (IPv6: from one /64). Trusted proxies are not counted.
    pub per_address: usize,
    /// The rate of new connections from one address, and the burst. None: no bound.
    pub rate: Option<(Rate, u64)>,
}

impl Default for AcceptSpec {
    fn default() -> AcceptSpec {
        AcceptSpec {
            connections: 10_000,
            per_address: 256,
            rate: None,
        }
    }
}

/// Client timeouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientTimeouts {
    /// From the first byte of a request head to its last; also for the TLS handshake.
    pub head: Span,
    /// Between two parts of a request body.
    pub body: Span,
    /// Between requests on one connection.
    pub idle: Span,
    /// Without the client reading a byte of a response.
    pub write: Span,
}

impl Default for ClientTimeouts {
    fn default() -> ClientTimeouts {
        ClientTimeouts {
            head: Span::from_secs(5),
            body: Span::from_secs(10),
            idle: Span::from_secs(60),
            write: Span::from_secs(10),
        }
    }
}

/// Servers that answer the same requests.
#[derive(Clone, Debug)]
pub struct UpstreamSpec {
    /// The name: unique among upstreams; letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// The requests that are sent to it.
    pub matches: Match,
    /// The servers, at least one.
    pub servers: Vec<ServerSpec>,
    /// The HTTP version of the servers.
    pub protocol: Protocol,
    /// A file with the trusted CA certificates. None: those of the system.
    pub ca_file: Option<PathBuf>,
    /// The timeout of a connection attempt.
    pub connect: Span,
    /// From the end of a request head to the head of its response. A request body in transit counts as progress.
    pub answer: Span,
    /// Between two parts of a response body.
    pub idle: Span,
    /// Whether the client's `Host` is forwarded. Otherwise the server's own name is sent.
    pub keep_host: bool,
    /// How often a request that was not sent and is safe to repeat is retried on another server.
    pub retries: u32,
    /// The active health check. None: servers are judged by the results of requests alone.
    pub health: Option<HealthSpec>,
}

impl UpstreamSpec {
    /// An upstream for all requests, with default settings.
    pub fn new(name: &str, servers: Vec<ServerSpec>) -> UpstreamSpec {
        UpstreamSpec {
            name: name.to_owned(),
            matches: Match::default(),
            servers,
            protocol: Protocol::default(),
            ca_file: None,
            connect: Span::from_secs(1),
            answer: Span::from_secs(30),
            idle: Span::from_secs(60),
            keep_host: true,
            retries: 0,
            health: None,
        }
    }
}

/// One server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSpec {
    /// Whether TLS is used.
    pub tls: bool,
    /// A name or an address; IPv6 without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

/// HTTP version of the servers of an upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2, over TLS or with prior knowledge.
    Http2,
}

/// An active health check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthSpec {
    /// The path that is requested.
    pub path: String,
    /// The interval.
    pub every: Span,
    /// The timeout of a response.
    pub timeout: Span,
    /// Consecutive failures that eject a server.
    pub fails: u32,
    /// Consecutive successes that restore it.
    pub passes: u32,
}

impl HealthSpec {
    /// Checks `path` every five seconds.
    pub fn at(path: &str) -> HealthSpec {
        HealthSpec {
            path: path.to_owned(),
            every: Span::from_secs(5),
            timeout: Span::from_secs(1),
            fails: 3,
            passes: 2,
        }
    }
}
