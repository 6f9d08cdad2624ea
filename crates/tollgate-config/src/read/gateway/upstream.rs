//! `upstreams`: where the gateway sends requests.

use tollgate::Span;
use tollgate_policy::path::PathRules;

use super::super::fields::{FieldSpans, Fields, Listed, each};
use super::super::item::Item;
use super::super::limit::{match_hint, required_name};
use super::super::matching::matches;
use super::super::redact::redact_user;
use super::super::scalar::{boolean, choice_or_alias, integer, span_within, text};
use super::super::store::path;
use super::url;
use super::{SPANS, timeout};
use crate::gateway::{HealthSpec, Protocol, ServerSpec, UpstreamSpec};
use crate::report::{Read, quoted};
use crate::shape;
use crate::yaml::Value;

/// Upstreams in one file.
const UPSTREAMS_MAX: usize = 1000;
/// Servers of one upstream.
const SERVERS_MAX: usize = 100;
const RETRIES_MAX: u64 = 10;
/// Results in a row that change the state of a server.
const STREAK_MAX: u64 = 1000;
/// Bytes of the path of a health check.
const PATH_MAX: usize = 2048;
/// The name of an upstream that is written as an address.
const SHORT_NAME: &str = "default";

/// The words of other tools.
const PROTOCOL_ALIASES: &[(&str, &str)] = &[
    ("h1", "http1"),
    ("http/1.1", "http1"),
    ("http", "http1"),
    ("h2", "http2"),
    ("h2c", "http2"),
    ("http/2", "http2"),
    ("grpc", "http2"),
];

/// Reads the upstreams: a list of them, or one address.
pub(super) fn upstreams(node: Item<'_>, paths: PathRules) -> Read<Vec<(UpstreamSpec, FieldSpans)>> {
    if let Value::Scalar { .. } = node.value {
        let server = server(node)?;
        let upstream = UpstreamSpec::new(SHORT_NAME, vec![server]);
        return Ok(vec![(upstream, FieldSpans::scalar(node.place))]);
    }
    let listed = Listed {
        name: "upstreams",
        hint: "begin every upstream with `- name: …`",
        max: (
            UPSTREAMS_MAX,
            "put servers that answer the same requests into one upstream",
        ),
    };
    listed.read(node, |node, number| upstream(node, number, paths))
}

/// Hints for names that other tools use.
fn hint(name: &str) -> Option<String> {
    let hint = match name {
        "url" | "address" | "urls" | "targets" | "endpoints" | "host" => "did you mean `servers`?",
        "connect" | "answer" | "idle" | "timeout" => {
            "it belongs to `timeouts`: `timeouts: { connect: 1s, answer: 30s, idle: 60s }`"
        }
        "http2" => "write `protocol: http2`",
        "tls" | "ssl" => "the scheme sets TLS: `servers: https://app.internal:8443`",
        "health_check" | "healthcheck" => "did you mean `health`?",
        "except" => {
            "an upstream has no `except`: put another upstream before it for these requests"
        }
        _ => return match_hint(name),
    };
    Some(hint.to_owned())
}

fn upstream(node: Item<'_>, number: usize, paths: PathRules) -> Read<(UpstreamSpec, FieldSpans)> {
    if let Value::Scalar { text, .. } = &node.value {
        redact_user(node, text);
        return Err(node.error("not-a-map",
            "an upstream in a list is a map, but this is a single value",
            "write `- { name: app, servers: [http://127.0.0.1:3000] }`; several servers go into one `servers`",
        ));
    }
    let fields = Fields::open_with(node, "an upstream", shape::Upstream::FIELDS, hint)?;
    let why = "add `name: app`: metrics and logs refer to an upstream by its name";
    let (name, what) = required_name(&fields, "upstream", number, why);
    let matched = fields.read("match", |n| matches(n, paths));
    let message = format!("{what} has no servers");
    let add = "add `servers: http://127.0.0.1:3000`";
    let servers = fields.required("servers", (&message, add), |n| servers(n, &what));
    let words = [("http1", Protocol::Http1), ("http2", Protocol::Http2)];
    let protocol = fields.read("protocol", |n| {
        choice_or_alias(n, "a protocol of servers", &words, PROTOCOL_ALIASES)
    });
    let ca_file = fields.read("ca_file", path);
    let timeouts = fields.read("timeouts", timeouts);
    let keep_host = fields.read("keep_host", boolean);
    let retries = fields.read("retries", |n| integer(n, 0..=RETRIES_MAX, "1"));
    let health = fields.read("health", health);
    if let (Ok(servers), Some(place)) = (&servers, fields.name_place("ca_file"))
        && !servers.iter().any(|server| server.tls)
    {
        return Err(node.report.error(
            place,
            "field-without-effect",
            format!("`ca_file` is for TLS, which no server of {what} uses"),
            "write `https` in the address of a server, or remove it",
        ));
    }
    let usual = UpstreamSpec::new(&name?, servers?);
    let timeouts = timeouts?.unwrap_or([None; 3]);
    let [connect, answer, idle] = timeouts;
    let spec = UpstreamSpec {
        matches: matched?.unwrap_or_default(),
        protocol: protocol?.unwrap_or_default(),
        ca_file: ca_file?,
        connect: connect.unwrap_or(usual.connect),
        answer: answer.unwrap_or(usual.answer),
        idle: idle.unwrap_or(usual.idle),
        keep_host: keep_host?.unwrap_or(usual.keep_host),
        retries: retries?.unwrap_or(usual.retries),
        health: health?,
        ..usual
    };
    Ok((spec, fields.spans()))
}

/// One server or many, each of them once.
fn servers(node: Item<'_>, what: &str) -> Read<Vec<ServerSpec>> {
    let nodes = node.one_or_many();
    if nodes.is_empty() || nodes.len() > SERVERS_MAX {
        return Err(node.error(
            "bad-servers",
            format!(
                "{what} has {} servers; it can have from 1 to {SERVERS_MAX}",
                nodes.len()
            ),
            "write `servers: [http://10.0.0.5:3000, http://10.0.0.6:3000]`",
        ));
    }
    let read = each(nodes.iter().copied(), server)?;
    let mut done = Ok(());
    for (at, (server, node)) in read.iter().zip(&nodes).enumerate() {
        if read.iter().take(at).any(|earlier| earlier == server) {
            done = Err(node.error(
                "bad-servers",
                "this server is there already",
                "keep one of the two; requests go to the server with the fewest in flight",
            ));
        }
    }
    done.map(|()| read)
}

fn server(node: Item<'_>) -> Read<ServerSpec> {
    let text = text(node)?;
    url::server_address(text).map_err(|(message, hint)| {
        redact_user(node, text);
        node.error("bad-url", message, hint)
    })
}

/// Reads the timeouts: to connect, until the response, between its parts.
fn timeouts(node: Item<'_>) -> Read<[Option<Span>; 3]> {
    let fields = Fields::open(
        node,
        "`timeouts` of an upstream",
        shape::ServerTimeouts::FIELDS,
    )?;
    let [connect, answer, idle] =
        ["connect", "answer", "idle"].map(|name| fields.read(name, timeout));
    Ok([connect?, answer?, idle?])
}

/// Reads a path, or a map with it.
fn health(node: Item<'_>) -> Read<HealthSpec> {
    if !matches!(node.value, Value::Map(_)) {
        return Ok(HealthSpec::at(request_path(node)?));
    }
    let fields = Fields::open(node, "`health`", shape::Health::FIELDS)?;
    let message = "`health` has no `path`";
    let path = fields.required("path", (message, "add `path: /healthz`"), request_path);
    let every = fields.read("every", |n| span_within(n, SPANS, "5s"));
    let timeout = fields.read("timeout", |n| span_within(n, SPANS, "1s"));
    let [fails, passes] = [("fails", "3"), ("passes", "2")]
        .map(|(name, sample)| fields.read(name, |n| integer(n, 1..=STREAK_MAX, sample)));
    let usual = HealthSpec::at(path?);
    Ok(HealthSpec {
        every: every?.unwrap_or(usual.every),
        timeout: timeout?.unwrap_or(usual.timeout),
        fails: fails?.unwrap_or(usual.fails),
        passes: passes?.unwrap_or(usual.passes),
        ..usual
    })
}

/// A path and a query that can be sent as they are.
fn request_path<'n>(node: Item<'n>) -> Read<&'n str> {
    let path = text(node)?;
    let sendable = |b: u8| b.is_ascii_graphic() && b != b'#';
    if path.starts_with('/') && path.len() <= PATH_MAX && path.bytes().all(sendable) {
        return Ok(path);
    }
    redact_user(node, path);
    Err(node.error(
        "bad-path",
        format!("{} cannot be the path of a request", quoted(path)),
        "write one that begins with `/`, without host, blanks and `#`, such as `/healthz`",
    ))
}
