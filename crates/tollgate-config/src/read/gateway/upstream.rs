//! `upstreams`: where requests go.

use tollgate_policy::path::PathRules;

use super::super::fields::{Fields, Listed, each, one_or_many};
use super::super::limit::{Spots, named};
use super::super::matching::matches;
use super::super::names::{HEALTH, SERVER_TIMEOUTS, UPSTREAM};
use super::super::scalar::{choice, span_within, text, whole_u32, yes};
use super::super::store::{hide_user, path};
use super::url;
use super::{SPAN_LEAST, SPAN_MOST, timeout};
use crate::gateway::{HealthSpec, Protocol, ServerSpec, UpstreamSpec};
use crate::report::{Read, Report, quoted};
use crate::yaml::{Node, Value};

/// Upstreams in one file.
const UPSTREAMS_MAX: usize = 1000;
/// Servers of one upstream.
const SERVERS_MAX: usize = 100;
const RETRIES_MAX: u32 = 10;
/// Answers in a row that change what is thought of a server.
const STREAK_MAX: u32 = 1000;
/// Characters of a path that health is asked at.
const PATH_MAX: usize = 2048;
/// The name of an upstream that is only an address.
const SHORT_NAME: &str = "default";

/// Reads the upstreams: a list of them, or one address.
pub(super) fn upstreams(
    node: &Node,
    paths: PathRules,
    report: &Report<'_>,
) -> Read<Vec<(UpstreamSpec, Spots)>> {
    if let Value::Scalar { .. } = node.value {
        let server = server(node, report)?;
        let upstream = UpstreamSpec::new(SHORT_NAME, vec![server]);
        return Ok(vec![(upstream, Spots::whole(node.place))]);
    }
    let listed = Listed {
        name: "upstreams",
        is: "a list or one address",
        hint: "begin every upstream with `- name: …`",
        most: Some((
            UPSTREAMS_MAX,
            "put servers that answer the same requests into one upstream",
        )),
    };
    listed.read(node, report, |node, number| {
        upstream(node, number, paths, report)
    })
}

/// What is known about fields that are not there.
fn hint(name: &str) -> Option<String> {
    let hint = match name {
        "url" | "address" | "urls" | "targets" | "endpoints" | "host" => "did you mean `servers`?",
        "path" | "method" | "header" | "query" | "ip" => {
            return Some(format!(
                "it belongs under `match`: `match: {{ {name}: … }}`"
            ));
        }
        "connect" | "answer" | "idle" | "timeout" => {
            "it belongs to `timeouts`: `timeouts: { connect: 1s, answer: 30s, idle: 60s }`"
        }
        "http2" => "write `protocol: http2`",
        "tls" | "ssl" => "the scheme says so: `servers: https://app.internal:8443`",
        "health_check" | "healthcheck" => "did you mean `health`?",
        "except" => "an upstream has no `except`: put one for these requests before it",
        _ => return None,
    };
    Some(hint.to_owned())
}

fn upstream(
    node: &Node,
    number: usize,
    paths: PathRules,
    report: &Report<'_>,
) -> Read<(UpstreamSpec, Spots)> {
    if let Value::Scalar { text, .. } = &node.value {
        hide_user(node.place, text, report);
        return Err(report.error(
            node.place,
            "not-a-map",
            "an upstream in a list is a map, but this is a single value",
            "write `- { name: app, servers: [http://127.0.0.1:3000] }`; several servers go into one `servers`",
        ));
    }
    let fields = Fields::open_with(node, "an upstream", UPSTREAM, report, hint)?;
    let why = "add `name: app`: metrics and logs refer to an upstream by its name";
    let (name, what) = named(&fields, "upstream", number, why, report);
    let matched = fields.read("match", |n| matches(n, paths, report));
    let servers = fields.read("servers", |n| servers(n, &what, report));
    let servers = servers.and_then(|servers| {
        servers.ok_or_else(|| {
            report.error(
                fields.place,
                "missing-field",
                format!("{what} has no servers"),
                "add `servers: http://127.0.0.1:3000`",
            )
        })
    });
    let words = [("http1", Protocol::Http1), ("http2", Protocol::Http2)];
    let protocol = fields.read("protocol", |n| {
        let hint = match text(n, report)? {
            "h1" | "http/1.1" | "http" => "write `http1`",
            "h2" | "h2c" | "http/2" | "grpc" => "write `http2`",
            _ => return choice(n, "a protocol of servers", &words, report),
        };
        let message = format!("{} is not a protocol of servers", quoted(text(n, report)?));
        Err(report.error(n.place, "unknown-word", message, hint))
    });
    let ca_file = fields.read("ca_file", |n| path(n, report));
    let timeouts = fields.read("timeouts", |n| timeouts(n, report));
    let keep_host = fields.read("keep_host", |n| yes(n, report));
    let retries = fields.read("retries", |n| whole_u32(n, 0, RETRIES_MAX, "1", report));
    let health = fields.read("health", |n| health(n, report));
    if let (Ok(servers), Some(place)) = (&servers, fields.name_place("ca_file"))
        && !servers.iter().any(|server| server.tls)
    {
        return Err(report.error(
            place,
            "field-without-effect",
            format!("`ca_file` is for TLS, which no server of {what} speaks"),
            "write `https` in the address of a server, or leave it out",
        ));
    }
    let usual = UpstreamSpec::new(&name?, servers?);
    let (connect, answer, idle) = timeouts?.unwrap_or_default();
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
    Ok((spec, Spots::of(&fields)))
}

/// One server or many, each of them once.
fn servers(node: &Node, what: &str, report: &Report<'_>) -> Read<Vec<ServerSpec>> {
    let nodes = one_or_many(node);
    if nodes.is_empty() || nodes.len() > SERVERS_MAX {
        return Err(report.error(
            node.place,
            "bad-servers",
            format!(
                "{what} has {} servers; it can have from 1 to {SERVERS_MAX}",
                nodes.len()
            ),
            "write `servers: [http://10.0.0.5:3000, http://10.0.0.6:3000]`",
        ));
    }
    let read = each(nodes.iter().copied(), |n| server(n, report))?;
    let mut done = Ok(());
    for (at, (server, node)) in read.iter().zip(&nodes).enumerate() {
        if read.iter().take(at).any(|earlier| earlier == server) {
            done = Err(report.error(
                node.place,
                "bad-servers",
                "this server is there already",
                "keep one of the two; requests go to the server with the fewest under way",
            ));
        }
    }
    done.map(|()| read)
}

fn server(node: &Node, report: &Report<'_>) -> Read<ServerSpec> {
    let text = text(node, report)?;
    url::server_address(text).map_err(|(message, hint)| {
        hide_user(node.place, text, report);
        report.error(node.place, "bad-url", message, hint)
    })
}

/// Until there is a connection, an answer, and its next part.
type Timeouts = (
    Option<tollgate::Span>,
    Option<tollgate::Span>,
    Option<tollgate::Span>,
);

fn timeouts(node: &Node, report: &Report<'_>) -> Read<Timeouts> {
    let fields = Fields::open(node, "`timeouts` of an upstream", SERVER_TIMEOUTS, report)?;
    let [connect, answer, idle] =
        ["connect", "answer", "idle"].map(|name| fields.read(name, |n| timeout(n, report)));
    Ok((connect?, answer?, idle?))
}

/// A path that is asked, or how it is.
fn health(node: &Node, report: &Report<'_>) -> Read<HealthSpec> {
    if !matches!(node.value, Value::Map(_)) {
        return Ok(HealthSpec::at(asked_path(node, report)?));
    }
    let fields = Fields::open(node, "`health`", HEALTH, report)?;
    let path = fields.read("path", |n| asked_path(n, report));
    let path = path.and_then(|path| {
        path.ok_or_else(|| {
            report.error(
                fields.place,
                "missing-field",
                "`health` does not say what is asked for",
                "add `path: /healthz`",
            )
        })
    });
    let every = fields.read("every", |n| {
        span_within(n, SPAN_LEAST, SPAN_MOST, "5s", report)
    });
    let timeout = fields.read("timeout", |n| {
        span_within(n, SPAN_LEAST, SPAN_MOST, "1s", report)
    });
    let [fails, passes] = [("fails", "3"), ("passes", "2")]
        .map(|(name, sample)| fields.read(name, |n| whole_u32(n, 1, STREAK_MAX, sample, report)));
    let usual = HealthSpec::at(path?);
    Ok(HealthSpec {
        every: every?.unwrap_or(usual.every),
        timeout: timeout?.unwrap_or(usual.timeout),
        fails: fails?.unwrap_or(usual.fails),
        passes: passes?.unwrap_or(usual.passes),
        ..usual
    })
}

/// A path and a query that can stand in a request as they are.
fn asked_path<'n>(node: &'n Node, report: &Report<'_>) -> Read<&'n str> {
    let path = text(node, report)?;
    let sendable = |b: u8| b.is_ascii_graphic() && b != b'#';
    if path.starts_with('/') && path.len() <= PATH_MAX && path.bytes().all(sendable) {
        return Ok(path);
    }
    hide_user(node.place, path, report);
    Err(report.error(
        node.place,
        "bad-path",
        format!("{} is not a path that can be asked for", quoted(path)),
        "write one that begins with `/`, without host, blanks and `#`, such as `/healthz`",
    ))
}
