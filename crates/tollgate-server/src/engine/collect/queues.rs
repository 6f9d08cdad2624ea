//! Metrics of queues: their requests, waits, and rejections.
//!
//! The names of queues and tiers come from the policy, so a client adds no series. Counts continue while a queue of that name
//! is in the policy.

use tollgate_policy::QueueRule;
use tollgate_tower::admission::{QueueStats, ServedCounts};

use super::ActivePolicy;
use crate::metrics::{Exposition, Kind};

/// The label of requests without a tier. No tier of a policy can be named so.
const NO_TIER: &str = "";

type NamedStats<'p> = (&'p QueueRule, QueueStats);

pub(super) fn queues(policy: &ActivePolicy, out: &mut Exposition) {
    let queues = policy.queues.iter();
    let queues: Vec<NamedStats<'_>> = queues.map(|(rule, queue)| (rule, queue.stats())).collect();
    if queues.is_empty() {
        return;
    }
    let mut gauge = |name: &str, help: &str, value: &dyn Fn(&QueueStats) -> Option<u64>| {
        let series = queues
            .iter()
            .filter_map(|(rule, report)| Some(([("queue", &*rule.name)], value(report)?)));
        out.family(name, Kind::Gauge, help, series);
    };
    gauge(
        "tollgate_queue_waiting_requests",
        "Requests waiting in the queue.",
        &|report| Some(report.waiting as u64),
    );
    gauge(
        "tollgate_queue_in_flight_requests",
        "Requests admitted by the queue and not finished.",
        &|report| Some(report.in_flight as u64),
    );
    gauge(
        "tollgate_queue_concurrency_limit",
        "Most requests in flight at present.",
        &|report| report.concurrency_limit.map(u64::from),
    );
    gauge(
        "tollgate_queue_saturated_flows",
        "Flows with as many requests in flight as one flow may have.",
        &|report| report.saturated_flows.map(|flows| flows as u64),
    );
    let name = "tollgate_queue_wait_seconds";
    out.begin_histogram(
        name,
        "Time that admitted requests waited, including those that did not wait.",
    );
    for (rule, report) in &queues {
        let buckets = report.waits.cumulative();
        let buckets = buckets.map(|(bound, count)| (bound.map(|b| b.as_nanos()), count));
        let sum = report.waits.sum.as_nanos();
        out.buckets(name, Some(("queue", &*rule.name)), buckets, sum);
    }
    let mut served = |name: &str, help: &str, value: fn(&ServedCounts) -> u64| {
        let series = queues.iter().flat_map(|(rule, report)| {
            let tiers = rule.weights.iter().flat_map(|weights| &weights.tiers);
            let tiers = tiers.map(|(tier, _)| &**tier).zip(&report.served);
            let all = tiers.chain([(NO_TIER, &report.served_without_tier)]);
            all.map(move |(tier, served)| ([("queue", &*rule.name), ("tier", tier)], value(served)))
        });
        out.family(name, Kind::Counter, help, series);
    };
    served(
        "tollgate_queue_served_total",
        "Requests admitted by the queue, by tier.",
        |served| served.requests,
    );
    served(
        "tollgate_queue_served_cost_total",
        "Cost of the requests admitted by the queue, by tier.",
        |served| served.cost,
    );
    let rejected = queues.iter().flat_map(|(rule, report)| {
        let reasons = report.unserved.by_reason().into_iter();
        reasons.map(|(reason, count)| ([("queue", &*rule.name), ("reason", reason)], count))
    });
    out.family(
        "tollgate_queue_rejected_total",
        Kind::Counter,
        "Requests not admitted by the queue, by reason.",
        rejected,
    );
}
