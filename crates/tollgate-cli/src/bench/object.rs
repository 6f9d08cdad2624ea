//! The results of a run as JSON.

use serde_json::{Value, json};
use tollgate_load::{AuditFinding, LoadPlan, LoadReport, Target, TargetReport, WHOLE};

use super::table::limit_of;

/// One object, on one line. Times are nanoseconds.
pub(super) fn object(plan: &LoadPlan, report: &LoadReport) -> Value {
    let targets: Vec<String> = plan.targets.iter().map(ToString::to_string).collect();
    let by_target = plan.targets.iter().zip(&report.targets);
    let by_target: Vec<Value> = by_target
        .map(|(target, counts)| share(target, counts))
        .collect();
    let quantile = |share| report.times.quantile(share);
    json!({
        "targets": targets,
        "connections": plan.connections,
        "pipeline": plan.pipeline,
        "threads": plan.thread_count(),
        "keys": plan.keys,
        "zipf": plan.zipf,
        "cost": plan.cost,
        "rate": plan.rate.map(|rate| rate.to_string()),
        "seconds": report.elapsed.as_secs_f64(),
        "interrupted": report.is_interrupted,
        "requests_per_second": report.per_second(),
        "answers": report.responses(),
        "admitted": report.admitted,
        "refused": report.refused,
        "unjudged": report.unjudged,
        "errors": report.error_count(),
        "errors_by_kind": report.errors,
        "reconnects": report.reconnects,
        "unsent": report.unsent,
        "latency_ns": {
            "p50": quantile(WHOLE / 2),
            "p90": quantile(WHOLE / 10 * 9),
            "p99": quantile(WHOLE / 100 * 99),
            "p99.9": quantile(WHOLE / 1000 * 999),
            "max": report.times.max(),
        },
        "by_target": by_target,
        "audit": audit(plan, report),
    })
}

/// The results of one target.
fn share(target: &Target, counts: &TargetReport) -> Value {
    let given_up = counts.loss.as_ref().map(|loss| {
        json!({
            "connections": loss.connections,
            "after_seconds": loss.after.as_secs_f64(),
            "why": loss.reason,
        })
    });
    json!({
        "target": target.to_string(),
        "connections": counts.connections,
        "answers": counts.responses(),
        "admitted": counts.admitted,
        "refused": counts.refused,
        "unjudged": counts.unjudged,
        "errors": counts.errors,
        "last_answer_seconds": counts.last_response.map(|last| last.as_secs_f64()),
        "is_lost": counts.is_lost(),
        "given_up": given_up,
    })
}

fn audit(plan: &LoadPlan, report: &LoadReport) -> Value {
    let (Some(audit), Some(allowance)) = (&report.audit, &plan.allowance) else {
        return Value::Null;
    };
    let finding = |finding: &AuditFinding| {
        json!({
            "key": plan.key(finding.key),
            "admitted": finding.admitted,
            "allowed": finding.allowed,
            "over": finding.over(),
            "window_ns": finding.window.as_nanos(),
            "from_ns": finding.from.as_nanos(),
        })
    };
    json!({
        "limit": limit_of(allowance),
        "keys": audit.keys,
        "admitted": audit.admitted,
        "allowed": audit.allowed,
        "over_admitted": audit.over,
        "keys_over": audit.keys_over,
        "looked_at": audit.looked_at,
        "worst": audit.worst.iter().map(finding).collect::<Vec<Value>>(),
        "busiest": audit.busiest.as_ref().map(finding),
    })
}
