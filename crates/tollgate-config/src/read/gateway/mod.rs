//! `gateway`: bounds on connections, timeouts, and upstreams.
//!
//! Every quantity has a bound, written or by default, except for the size of a body: the gateway streams bodies and never
//! holds one.
//!
//! Reading a policy resolves no name and opens no file: a policy can be checked on any machine.

mod size;
mod upstream;
mod url;

use std::ops::RangeInclusive;

use tollgate::Span;
use tollgate_policy::path::PathRules;

use self::size::size;
use self::upstream::upstreams;
pub(crate) use self::url::server_address;
use super::fields::{FieldSpans, Fields};
use super::item::Item;
use super::queue::rate_and_burst;
use super::scalar::{boolean, integer, span_within};
use crate::gateway::{AcceptSpec, ClientTimeouts, GatewaySpec};
use crate::report::Read;
use crate::shape;

/// Open connections.
const CONNECTIONS_MAX: u64 = 1_000_000;
const BURST_MAX: u64 = 1_000_000;
const SPANS: RangeInclusive<Span> = Span::from_millis(1)..=Span::from_secs(86_400);

/// A gateway and where its parts stand.
#[derive(Default)]
pub(crate) struct Gateway {
    pub(crate) spec: GatewaySpec,
    pub(crate) accept: FieldSpans,
    /// One for each upstream.
    pub(crate) upstreams: Vec<FieldSpans>,
}

/// Hints for names that other tools use.
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
            "the addresses of a gateway are flags; see `tollgate gateway --help`"
        }
        _ => return None,
    };
    Some(hint.to_owned())
}

/// Reads the gateway.
pub(super) fn gateway(node: Item<'_>, paths: PathRules) -> Read<Gateway> {
    let fields = Fields::open_with(node, "the gateway", shape::Gateway::FIELDS, hint)?;
    let accept = fields.read("accept", accept);
    let timeouts = fields.read("timeouts", timeouts);
    let max_body = fields.read("max_body", size);
    let wait_header = fields.read("wait_header", boolean);
    let upstreams = fields.read("upstreams", |n| upstreams(n, paths));
    let usual = GatewaySpec::default();
    let (accept, accept_spans) = accept?.unwrap_or_default();
    let (upstreams, upstream_spans) = upstreams?.unwrap_or_default().into_iter().unzip();
    Ok(Gateway {
        spec: GatewaySpec {
            upstreams,
            accept,
            timeouts: timeouts?.unwrap_or_default(),
            max_body: max_body?.or(usual.max_body),
            wait_header: wait_header?.unwrap_or(usual.wait_header),
        },
        accept: accept_spans,
        upstreams: upstream_spans,
    })
}

fn accept(node: Item<'_>) -> Read<(AcceptSpec, FieldSpans)> {
    let fields = Fields::open(node, "`accept`", shape::Accept::FIELDS)?;
    let number =
        |name: &str, sample: &str| fields.read(name, |n| integer(n, 1..=CONNECTIONS_MAX, sample));
    let connections = number("connections", "10_000");
    let per_address = number("per_address", "256");
    let rate = rate_and_burst(&fields, BURST_MAX, "100");
    let usual = AcceptSpec::default();
    let connections = connections?.unwrap_or(usual.connections);
    let spec = AcceptSpec {
        connections,
        per_address: per_address?.unwrap_or(usual.per_address.min(connections)),
        // A browser opens several connections at once, so a default burst of 1 would refuse most clients.
        rate: rate?.map(|(rate, burst)| {
            let usual = rate.units().clamp(1, BURST_MAX);
            (rate, burst.unwrap_or(usual))
        }),
    };
    Ok((spec, fields.spans()))
}

fn timeouts(node: Item<'_>) -> Read<ClientTimeouts> {
    let fields = Fields::open(node, "`timeouts`", shape::ClientTimeouts::FIELDS)?;
    let [head, body, idle, write] =
        ["head", "body", "idle", "write"].map(|name| fields.read(name, timeout));
    let usual = ClientTimeouts::default();
    Ok(ClientTimeouts {
        head: head?.unwrap_or(usual.head),
        body: body?.unwrap_or(usual.body),
        idle: idle?.unwrap_or(usual.idle),
        write: write?.unwrap_or(usual.write),
    })
}

/// Reads a timeout: above zero, and finite.
fn timeout(node: Item<'_>) -> Read<Span> {
    span_within(node, SPANS, "10s")
}
