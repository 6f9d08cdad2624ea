//! The schema of `gateway`: its fields.

use schemars::JsonSchema;

use super::{Match, Number, NumberOrText, OneOrMany};

section! {
    /// How a gateway behaves, and where it sends requests.
    Gateway {
        /// Bounds on client connections.
        accept: Option<Accept>,
        /// How long clients may take.
        timeouts: Option<ClientTimeouts>,
        /// The maximum size of a request body: bytes, or `10MB`, `64KiB`. Default: any size.
        max_body: Option<NumberOrText>,
        /// Whether the upstream is sent `x-tollgate-waited` with a request that waited. Default: true.
        wait_header: Option<bool>,
        /// Where requests are sent: one address, or a list. The first upstream that matches is used.
        upstreams: Option<Upstreams>,
    }
}

section! {
    /// Bounds on client connections.
    Accept {
        /// The maximum number of connections, from 1 to 1000000. Default: 10000.
        connections: Option<Number>,
        /// The maximum from one address (IPv6: from one /64). Default: 256.
        per_address: Option<Number>,
        /// The rate of new connections from one address: `50/s`. Default: any.
        rate: Option<String>,
        /// How many of these may come together. Default: the units of `rate`.
        burst: Option<Number>,
    }
}

section! {
    /// How long clients may take.
    ClientTimeouts {
        /// From the first byte of a request head to its last, and for the TLS handshake. Default: `5s`.
        head: Option<String>,
        /// Between two parts of a request's body. Default: `10s`.
        body: Option<String>,
        /// Between requests on one connection. Default: `60s`.
        idle: Option<String>,
        /// Without reading a byte of a response. Default: `10s`.
        write: Option<String>,
    }
}

#[derive(JsonSchema)]
#[schemars(untagged, inline)]
enum Upstreams {
    One(Url),
    Many(Vec<Upstream>),
}

/// `http://host:port` or `https://host:port`, without a path.
#[derive(JsonSchema)]
#[schemars(transparent, inline)]
struct Url(
    #[schemars(regex(pattern = r"^https?://[^/?#@]+$"))]
    String,
);

section! {
    /// Servers that answer the same requests.
    Upstream {
        /// Its name in metrics and logs.
        #[schemars(regex(pattern = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"))]
        name: String,
        /// Which requests are sent to it. Default: all.
        r#match: Option<Match>,
        /// The servers: `http://host:port` or `https://host:port`, one or up to 100.
        servers: OneOrMany<Url>,
        /// The HTTP version of the servers. Default: `http1`.
        protocol: Option<Protocol>,
        /// TLS: a file with the trusted CA certificates. Default: those of the system.
        ca_file: Option<String>,
        /// How long servers may take.
        timeouts: Option<ServerTimeouts>,
        /// Whether the client's `Host` is passed on. Default: true.
        keep_host: Option<bool>,
        /// How often a request that was not sent and is safe to repeat is retried, from 0 to 10. Default: 0.
        retries: Option<Number>,
        /// The path of the health check, or a map with the path as `path`. Default: no health check.
        health: Option<AnyHealth>,
    }
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", inline)]
enum Protocol {
    Http1,
    Http2,
}

section! {
    /// How long servers may take.
    ServerTimeouts {
        /// To accept a connection. Default: `1s`.
        connect: Option<String>,
        /// From the end of a request head to the head of its response. Default: `30s`.
        answer: Option<String>,
        /// Between two parts of a response's body. Default: `60s`.
        idle: Option<String>,
    }
}

#[derive(JsonSchema)]
#[schemars(untagged, inline)]
enum AnyHealth {
    Path(String),
    Long(Health),
}

section! {
    /// A health check of servers.
    Health {
        /// The path that is requested: `/healthz`.
        path: String,
        /// The interval. Default: `5s`.
        every: Option<String>,
        /// How long a response may take. Default: `1s`.
        timeout: Option<String>,
        /// How many failures in a row take a server out. Default: 3.
        fails: Option<Number>,
        /// How many successes in a row take it in again. Default: 2.
        passes: Option<Number>,
    }
}
