//! `gateway`: who may connect, how long anything may take, and where requests go.
//!
//! Everything has a bound, said or not. The only thing without one is the size of a body: it is passed on as
//! it comes and never held, so what is too large is for the application to know.
//!
//! It does not know what is wise; that is for [`crate::lint`]. It asks no name server and opens no file: a
//! policy is checked on machines that have neither.

mod size;
mod upstream;
mod url;

use tollgate::Span;
use tollgate_policy::path::PathRules;

use self::size::size;
use self::upstream::upstreams;
pub(crate) use self::url::server_address;
use super::fields::Fields;
use super::limit::Spots;
use super::names::{ACCEPT, CLIENT_TIMEOUTS, GATEWAY};
use super::queue::burst_alone;
use super::scalar::{count, rate, span_within, whole, yes};
use crate::gateway::{AcceptSpec, ClientTimeouts, GatewaySpec};
use crate::report::{Read, Report};
use crate::yaml::Node;

/// Connections at once.
const CONNECTIONS_MAX: u32 = 1_000_000;
const BURST_MAX: u64 = 1_000_000;
const SPAN_LEAST: Span = Span::from_millis(1);
const SPAN_MOST: Span = Span::from_secs(86_400);

/// A gateway and where its parts stand.
#[derive(Default)]
pub(crate) struct Gateway {
    pub(crate) spec: GatewaySpec,
    pub(crate) accept: Spots,
    /// One for each upstream.
    pub(crate) upstreams: Vec<Spots>,
}

/// What is known about fields that are not there.
fn hint(name: &str) -> Option<String> {
    let hint = match name {
        "upstream" | "backend" | "backends" | "servers" | "server" | "proxy_pass" => {
            "write `upstreams: http://127.0.0.1:3000`, or a list of upstreams"
        }
        "connections" | "per_address" | "rate" | "burst" => {
            "it belongs to `accept`: `accept: { connections: 10_000, per_address: 256 }`"
        }
        "body_limit" | "client_max_body_size" | "max_body_size" => "did you mean `max_body`?",
        "listen" | "tls" | "tls_cert" | "tls_key" | "admin" => {
            "where a gateway listens is told on its command line; see `tollgate gateway --help`"
        }
        _ => return None,
    };
    Some(hint.to_owned())
}

/// Reads the gateway.
pub(super) fn gateway(node: &Node, paths: PathRules, report: &Report<'_>) -> Read<Gateway> {
    let fields = Fields::open_with(node, "the gateway", GATEWAY, report, hint)?;
    let accept = fields.read("accept", |n| accept(n, report));
    let timeouts = fields.read("timeouts", |n| timeouts(n, report));
    let max_body = fields.read("max_body", |n| size(n, report));
    let tell_wait = fields.read("tell_wait", |n| yes(n, report));
    let upstreams = fields.read("upstreams", |n| upstreams(n, paths, report));
    let usual = GatewaySpec::default();
    let (accept, accept_spots) = accept?.unwrap_or_default();
    let (upstreams, upstream_spots) = upstreams?.unwrap_or_default().into_iter().unzip();
    Ok(Gateway {
        spec: GatewaySpec {
            upstreams,
            accept,
            timeouts: timeouts?.unwrap_or_default(),
            max_body: max_body?.or(usual.max_body),
            tell_wait: tell_wait?.unwrap_or(usual.tell_wait),
        },
        accept: accept_spots,
        upstreams: upstream_spots,
    })
}

fn accept(node: &Node, report: &Report<'_>) -> Read<(AcceptSpec, Spots)> {
    let fields = Fields::open(node, "`accept`", ACCEPT, report)?;
    let number =
        |name: &str, sample: &str| fields.read(name, |n| count(n, CONNECTIONS_MAX, sample, report));
    let connections = number("connections", "10_000");
    let per_address = number("per_address", "256");
    let rate = fields.read("rate", |n| rate(n, report));
    let burst = fields.read("burst", |n| whole(n, 1, BURST_MAX, "100", report));
    if let (Ok(None), Some(place)) = (&rate, fields.name_place("burst")) {
        return Err(burst_alone(place, report));
    }
    let usual = AcceptSpec::default();
    let (rate, burst) = (rate?, burst?);
    let connections = connections?.unwrap_or(usual.connections);
    let spec = AcceptSpec {
        connections,
        per_address: per_address?.unwrap_or(usual.per_address.min(connections)),
        // A browser opens several connections at once, so a burst of one would be wrong for everybody.
        rate: rate.map(|rate| {
            let usual = rate.units().clamp(1, BURST_MAX);
            (rate, burst.unwrap_or(usual))
        }),
    };
    Ok((spec, Spots::of(&fields)))
}

fn timeouts(node: &Node, report: &Report<'_>) -> Read<ClientTimeouts> {
    let fields = Fields::open(node, "`timeouts`", CLIENT_TIMEOUTS, report)?;
    let [head, body, idle, write] =
        ["head", "body", "idle", "write"].map(|name| fields.read(name, |n| timeout(n, report)));
    let usual = ClientTimeouts::default();
    Ok(ClientTimeouts {
        head: head?.unwrap_or(usual.head),
        body: body?.unwrap_or(usual.body),
        idle: idle?.unwrap_or(usual.idle),
        write: write?.unwrap_or(usual.write),
    })
}

/// How long something may take: never for ever, and never no time at all.
fn timeout(node: &Node, report: &Report<'_>) -> Read<Span> {
    span_within(node, SPAN_LEAST, SPAN_MOST, "10s", report)
}
