//! What a gateway needs to know beside limits and queues, as the file says it: plain data for whoever runs
//! one.
//!
//! It does not know whether anybody answers at an upstream, nor how to ask.

use std::path::PathBuf;

use tollgate::{Rate, Span};
use tollgate_policy::Match;

/// How a gateway behaves, and where requests go.
#[derive(Clone, Debug)]
pub struct GatewaySpec {
    /// Where requests go. The first that matches is the one. None: the file names none.
    pub upstreams: Vec<UpstreamSpec>,
    /// Who may connect, and how often.
    pub accept: AcceptSpec,
    /// How long clients may take.
    pub timeouts: ClientTimeouts,
    /// The largest body that is passed on, in bytes. None: any.
    pub max_body: Option<u64>,
    /// Is `x-tollgate-waited` told, in milliseconds, to requests that waited?
    pub tell_wait: bool,
}

impl Default for GatewaySpec {
    fn default() -> GatewaySpec {
        GatewaySpec {
            upstreams: Vec::new(),
            accept: AcceptSpec::default(),
            timeouts: ClientTimeouts::default(),
            max_body: None,
            tell_wait: true,
        }
    }
}

/// Who may connect, and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptSpec {
    /// Connections at once.
    pub connections: usize,
    /// Of these, from one address (IPv6: from one /64). Trusted proxies are not counted.
    pub per_address: usize,
    /// New connections from one address: how fast, and how many together. None: any number.
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

/// How long clients may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientTimeouts {
    /// From the first byte of a head to its last; also for the TLS handshake.
    pub head: Span,
    /// Between two parts of a request's body.
    pub body: Span,
    /// Between requests on one connection.
    pub idle: Span,
    /// Without taking a byte of an answer.
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
    /// Its name: unique among upstreams, letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// Which requests go there.
    pub matches: Match,
    /// The servers. There is at least one.
    pub servers: Vec<ServerSpec>,
    /// Which HTTP the servers speak.
    pub protocol: Protocol,
    /// Certificates of whom to trust; none for those that the system trusts.
    pub ca_file: Option<PathBuf>,
    /// Until a connection is made.
    pub connect: Span,
    /// From a whole request head to the head of its answer. A body that is still being sent counts as
    /// progress.
    pub answer: Span,
    /// Between two parts of an answer's body.
    pub idle: Span,
    /// Is the `Host` that the client named passed on? Otherwise the server's own name is.
    pub keep_host: bool,
    /// How often a request that is safe to repeat is tried again on another server if it was never sent. 0
    /// unless told otherwise.
    pub retries: u32,
    /// How servers are looked after. None: only by what becomes of requests.
    pub health: Option<HealthSpec>,
}

impl UpstreamSpec {
    /// All requests go to these servers; the rest is as if nothing was said.
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
    /// Is TLS spoken?
    pub tls: bool,
    /// A name or an address, IPv6 without brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
}

/// Which HTTP the servers of an upstream speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2, over TLS or with prior knowledge.
    Http2,
}

/// How servers are looked after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthSpec {
    /// What is asked for.
    pub path: String,
    /// How often.
    pub every: Span,
    /// How long an answer may take.
    pub timeout: Span,
    /// So many failures in a row take a server out.
    pub fails: u32,
    /// So many good answers in a row bring it back.
    pub passes: u32,
}

impl HealthSpec {
    /// Looks at `path` every five seconds.
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
