//! What is told of queues: who waits and for how long, who was served, and who was not.
//!
//! The names of queues and tiers come from the policy, so a client adds no line. Counts go on while a queue
//! of that name is in the policy.

use tollgate_policy::QueueRule;
use tollgate_tower::QueueReport;
use tollgate_tower::turnstile::{Served, Waits};

use super::Epoch;
use crate::metrics::{Kind, Text};

/// The tier of those that have none. No tier of a policy can be named so.
const NO_TIER: &str = "";

type Told<'e> = (&'e QueueRule, QueueReport);

pub(super) fn queues(epoch: &Epoch, text: &mut Text) {
    let queues = epoch.queues.iter();
    let told: Vec<Told<'_>> = queues
        .map(|(rule, turnstile)| (rule, turnstile.report()))
        .collect();
    if told.is_empty() {
        return;
    }
    gauges(&told, text);
    waits(&told, text);
    served(
        &told,
        "tollgate_queue_served_total",
        "Requests that were given their turn, by their tier.",
        |served| served.turns,
        text,
    );
    served(
        &told,
        "tollgate_queue_served_cost_total",
        "What requests that were given their turn cost, by their tier.",
        |served| served.cost,
        text,
    );
    let name = "tollgate_queue_unserved_total";
    text.name(
        name,
        Kind::Counter,
        "Requests that were given no turn, by why.",
    );
    for (rule, report) in &told {
        for (why, count) in report.unserved.by_name() {
            text.series(name, &[("queue", &*rule.name), ("why", why)], count);
        }
    }
}

fn gauges(told: &[Told<'_>], text: &mut Text) {
    let mut gauge = |name: &str, help: &str, value: &dyn Fn(&QueueReport) -> Option<u64>| {
        text.name(name, Kind::Gauge, help);
        for (rule, report) in told {
            if let Some(value) = value(report) {
                text.series(name, &[("queue", &*rule.name)], value);
            }
        }
    };
    gauge(
        "tollgate_queue_waiting",
        "Requests that wait for their turn.",
        &|report| Some(report.waiting as u64),
    );
    gauge(
        "tollgate_queue_under_way",
        "Requests that have their turn.",
        &|report| Some(report.under_way as u64),
    );
    gauge(
        "tollgate_queue_at_once",
        "How many requests may have their turn at once.",
        &|report| report.at_once.map(u64::from),
    );
    gauge(
        "tollgate_queue_flows_at_bound",
        "Flows that have as many turns at once as one flow may.",
        &|report| report.flows_at_bound.map(|flows| flows as u64),
    );
}

fn waits(told: &[Told<'_>], text: &mut Text) {
    let name = "tollgate_queue_wait_seconds";
    text.begin_histogram(
        name,
        "How long requests waited that were given their turn; those that did not wait count as well.",
    );
    for (rule, report) in told {
        let queue = ("queue", &*rule.name);
        histogram(name, queue, &report.waits, text);
    }
}

fn histogram(name: &str, queue: (&str, &str), waits: &Waits, text: &mut Text) {
    let bucket = format!("{name}_bucket");
    let mut all = 0;
    for (bound, so_far) in waits.cumulative() {
        let bound = bound.map_or("+Inf".into(), |bound| seconds(bound.as_nanos().into()));
        text.series(&bucket, &[queue, ("le", &bound)], so_far);
        all = so_far;
    }
    let sum = seconds(waits.sum.as_nanos());
    text.series(&format!("{name}_sum"), &[queue], sum);
    text.series(&format!("{name}_count"), &[queue], all);
}

fn served(told: &[Told<'_>], name: &str, help: &str, value: fn(&Served) -> u64, text: &mut Text) {
    text.name(name, Kind::Counter, help);
    for (rule, report) in told {
        let tiers = rule.weights.iter().flat_map(|weights| &weights.tiers);
        let of_tiers = tiers.map(|(tier, _)| &**tier).zip(&report.served);
        for (tier, served) in of_tiers.chain([(NO_TIER, &report.served_of_none)]) {
            let labels = [("queue", &*rule.name), ("tier", tier)];
            text.series(name, &labels, value(served));
        }
    }
}

/// Nanoseconds as seconds, without zeros at the end.
fn seconds(nanos: u128) -> String {
    let text = format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000);
    let text = text.trim_end_matches('0');
    text.trim_end_matches('.').to_owned()
}
