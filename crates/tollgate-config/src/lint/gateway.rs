//! What is unwise about a gateway.

use super::cover::is_everything;
use crate::gateway::UpstreamSpec;
use crate::read::{Draft, FieldSpans};
use crate::report::Report;

/// Tries of one request beside the first. Every one of them is more work for servers that are in trouble.
const RETRIES_WISE: u32 = 3;

/// Says what is unwise about the gateway of a policy.
pub(super) fn lint(draft: &Draft, report: &Report<'_>) {
    let gateway = &draft.gateway;
    let accept = &gateway.spec.accept;
    if accept.per_address > accept.connections {
        report.warn(
            gateway.accept.at("per_address"),
            "per-address-above-connections",
            format!(
                "one address can never have {} connections: there are {} in all",
                accept.per_address, accept.connections
            ),
            format!(
                "write less than {}, so that one address cannot take them all",
                accept.connections
            ),
        );
    }
    let all = &gateway.spec.upstreams;
    let first_for_all = all.iter().position(|spec| is_everything(&spec.matches));
    for (at, (spec, spans)) in all.iter().zip(&gateway.upstreams).enumerate() {
        if let Some(earlier) = first_for_all.filter(|earlier| *earlier < at) {
            let earlier = all.get(earlier).map_or("", |spec| &spec.name);
            report.warn(
                spans.at("name"),
                "unreachable",
                format!(
                    "nothing goes to upstream `{}`: `{earlier}` before it takes every request",
                    spec.name
                ),
                "put it before that one; the first upstream that matches is the one",
            );
        }
        upstream(spec, spans, report);
    }
}

fn upstream(spec: &UpstreamSpec, spans: &FieldSpans, report: &Report<'_>) {
    if spec.retries > RETRIES_WISE {
        report.warn(
            spans.at("retries"),
            "many-retries",
            format!(
                "each request may be tried {} times, when servers have least to spare",
                spec.retries.saturating_add(1)
            ),
            format!("write at most {RETRIES_WISE}"),
        );
    }
    if let Some(health) = &spec.health
        && health.timeout > health.every
    {
        report.warn(
            spans.at("health"),
            "slow-health",
            format!(
                "an answer may take {}, but health is asked every {}: a slow server is asked faster than it answers",
                health.timeout, health.every
            ),
            "write a `timeout` below `every`",
        );
    }
}
