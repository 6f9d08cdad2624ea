//! The shape of `gateway`.

use schemars::JsonSchema;

use super::{Match, Number, NumberOrText, OneOrMany};

/// How a gateway behaves, and where requests go.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct Gateway {
    /// Who may connect, and how often.
    accept: Option<Accept>,
    /// How long clients may take.
    timeouts: Option<ClientTimeouts>,
    /// The largest body that is passed on: bytes, or `10MB`, `64KiB`; any unless told otherwise.
    max_body: Option<NumberOrText>,
    /// Is `x-tollgate-waited` told to requests that waited? It is unless told otherwise.
    tell_wait: Option<bool>,
    /// Where requests go: one address, or a list. The first that matches is the one.
    upstreams: Option<Upstreams>,
}

/// Who may connect, and how often.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Accept {
    /// Connections at once, from 1 to 1000000; 10000 unless told otherwise.
    connections: Option<Number>,
    /// Of these, from one address (IPv6: from one /64); 256 unless told otherwise.
    per_address: Option<Number>,
    /// New connections from one address: `50/s`; any number unless told otherwise.
    rate: Option<String>,
    /// How many of these come together; the units of `rate` unless told otherwise.
    burst: Option<Number>,
}

/// How long clients may take.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct ClientTimeouts {
    /// From the first byte of a head to its last, and for the TLS handshake; `5s` unless told otherwise.
    head: Option<String>,
    /// Between two parts of a request's body; `10s` unless told otherwise.
    body: Option<String>,
    /// Between requests on one connection; `60s` unless told otherwise.
    idle: Option<String>,
    /// Without taking a byte of an answer; `10s` unless told otherwise.
    write: Option<String>,
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

/// Servers that answer the same requests.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Upstream {
    /// Its name, by which metrics and logs refer to it.
    #[schemars(regex(pattern = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"))]
    name: String,
    /// Which requests go there; all unless told otherwise.
    r#match: Option<Match>,
    /// The servers: `http://host:port` or `https://host:port`, one or up to 100.
    servers: OneOrMany<Url>,
    /// Which HTTP the servers speak; `http1` unless told otherwise.
    protocol: Option<Protocol>,
    /// TLS: certificates of whom to trust; those that the system trusts unless told otherwise.
    ca_file: Option<String>,
    /// How long servers may take.
    timeouts: Option<ServerTimeouts>,
    /// Is the `Host` that the client named passed on? It is unless told otherwise.
    keep_host: Option<bool>,
    /// How often a request that is safe to repeat and was never sent is tried again, from 0 to 10; 0 unless told
    /// otherwise.
    retries: Option<Number>,
    /// The path that tells whether a server is well, or a map with it as `path`.
    health: Option<AnyHealth>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", inline)]
enum Protocol {
    Http1,
    Http2,
}

/// How long servers may take.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct ServerTimeouts {
    /// Until a connection is made; `1s` unless told otherwise.
    connect: Option<String>,
    /// From a whole request head to the head of its answer; `30s` unless told otherwise.
    answer: Option<String>,
    /// Between two parts of an answer's body; `60s` unless told otherwise.
    idle: Option<String>,
}

#[derive(JsonSchema)]
#[schemars(untagged, inline)]
enum AnyHealth {
    Path(String),
    Long(Health),
}

/// How servers are looked after.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Health {
    /// What is asked for: `/healthz`.
    path: String,
    /// How often; `5s` unless told otherwise.
    every: Option<String>,
    /// How long an answer may take; `1s` unless told otherwise.
    timeout: Option<String>,
    /// So many failures in a row take a server out; 3 unless told otherwise.
    fails: Option<Number>,
    /// So many good answers in a row bring it back; 2 unless told otherwise.
    passes: Option<Number>,
}
