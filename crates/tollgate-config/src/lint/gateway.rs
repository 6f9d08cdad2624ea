//! Warnings about a gateway.

use super::cover::is_everything;
use crate::gateway::UpstreamSpec;
use crate::read::{Draft, FieldSpans};
use crate::report::Report;

/// Retries of one request before a warning. Each is more work for servers that fail already.
const RETRIES_WISE: u32 = 3;

/// Reports on the gateway of a policy.
pub(super) fn lint(draft: &Draft, report: &Report<'_>) {
    let gateway = &draft.gateway;
    let accept = &gateway.spec.accept;
    if accept.per_address > accept.connections {
        report.warn(
            gateway.accept.at("per_address"),
            "per-address-above-connections",
            format!(
                "one address can never have {} connections: the maximum is {}",
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
                    "no request is sent to upstream `{}`: `{earlier}` before it matches every request",
                    spec.name
                ),
                "move it before that one; the first upstream that matches is used",
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
                "each request may be sent {} times, when servers are already overloaded",
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
                "a response may take {}, but the health check runs every {}: checks of a slow server overlap",
                health.timeout, health.every
            ),
            "write a `timeout` below `every`",
        );
    }
}
