//! `queues`: fair queues of admitted requests.
//!
//! A queue needs `at_once`, `rate`, or both: without them no request would ever wait. Everything that an untrusted
//! client can make longer has a bound, written or by default: requests in all, requests of one flow, and the wait.
//!
//! Without `flow` there is one flow, whose bound is then that of the queue: the default for one flow would bound the whole
//! queue.

use std::ops::RangeInclusive;

use tollgate::Span;
use tollgate::shape::fair_queue::MAX_COST_PER_WEIGHT;
use tollgate::shape::{Adaptive, Estimator};
use tollgate_policy::{CostRule, KeyPart, MissingKey, QueueConcurrency, QueueRule, TierWeights};

use super::fields::{FieldSpans, Fields, Listed};
use super::item::Item;
use super::key::key;
use super::limit::{FileDefaults, captures, match_hint, max_cost, required_name};
use super::matching::matches;
use super::scalar::{choice, integer, rate, span_within, text};
use super::tiers::tier_finder;
use crate::report::Read;
use crate::shape;
use crate::yaml::Value;

/// Queues in one file.
const QUEUES_MAX: usize = 1000;
/// Requests of one queue that run at once.
const AT_ONCE_MAX: u64 = 100_000;
/// Requests that wait in one queue.
const WAITING_MAX: u64 = 1_000_000;
const BURST_MAX: u64 = 1_000_000;
const SPANS: RangeInclusive<Span> = Span::from_millis(1)..=Span::from_secs(3600);
/// Requests of one flow that wait, by default.
const WAITING_PER_FLOW: usize = 100;
const ADAPTIVE_DEFAULT: Adaptive = Adaptive {
    by: Estimator::Gradient2,
    min: 4,
    max: 200,
    initial: 20,
    timeout: Span::from_secs(5),
};

/// Reads the queues.
pub(super) fn queues(
    node: Item<'_>,
    defaults: &FileDefaults<'_>,
) -> Read<Vec<(QueueRule, FieldSpans)>> {
    let listed = Listed {
        name: "queues",
        hint: "begin every queue with `- name: …`",
        max: (QUEUES_MAX, "use `flow` to keep clients of one queue apart"),
    };
    listed.read(node, |node, number| queue(node, number, defaults))
}

/// Hints for names that other tools use.
fn hint(name: &str) -> Option<String> {
    let hint = match name {
        "key" | "flows" | "by" => "did you mean `flow`?",
        "allow" => "write `rate: 3000/s`",
        "concurrency" | "limit" | "parallel" | "in_flight" => "write `at_once: 64`",
        "per_flow_at_once" | "turns_per_flow" | "max_per_flow" => {
            "did you mean `at_once_per_flow`?"
        }
        "queue" | "total" | "size" | "length" => "did you mean `waiting`?",
        "per_flow" => "did you mean `waiting_per_flow`?",
        "timeout" | "deadline" => "did you mean `max_wait`?",
        "adaptive" => "it belongs to `at_once`: `at_once: { adaptive: gradient2 }`",
        "weight" | "weights" | "tiers" => {
            "tiers have weights: `tiers: { pro: { weight: 4 } }` at the top, and `tier: header.x-plan` here"
        }
        _ => return match_hint(name),
    };
    Some(hint.to_owned())
}

fn queue(
    node: Item<'_>,
    number: usize,
    defaults: &FileDefaults<'_>,
) -> Read<(QueueRule, FieldSpans)> {
    let fields = Fields::open_with(node, "a queue", shape::Queue::FIELDS, hint)?;
    let why = "add `name: api`: responses, metrics and logs refer to a queue by its name";
    let (name, what) = required_name(&fields, "queue", number, why);
    let matched = fields.read("match", |n| matches(n, defaults.paths));
    let except = fields.read_each("except", |n| matches(n, defaults.paths));
    let flow = fields.read("flow", |n| key(n, defaults.v6));
    let flow = flow.map(Option::unwrap_or_default);
    let missing_key = fields.read("missing_key", |n| missing_key(n, defaults.v6));
    let weights = fields.read("tier", |n| {
        weights(n, &what, flow.as_deref().ok(), defaults)
    });
    let cost = fields.read("cost", |n| cost(n, defaults));
    let (at_once, at_once_per_flow) = at_once_fields(&fields);
    let rate = rate_and_burst(&fields, BURST_MAX, "10");
    let total = fields.read("waiting", |n| integer(n, 1..=WAITING_MAX, "1000"));
    let per_flow = fields.read("waiting_per_flow", |n| integer(n, 1..=WAITING_MAX, "100"));
    let max_wait = fields.read("max_wait", |n| span_within(n, SPANS, "10s"));
    if let (Ok(None), Ok(None)) = (&at_once, &rate) {
        return Err(fields.error(
            "missing-field",
            format!("{what} has neither `at_once` nor `rate`"),
            "add `at_once: 64`, `rate: 3000/s`, or both",
        ));
    }
    if let (Ok(matched), Ok(flow)) = (&matched, &flow) {
        captures(&fields, "flow", &what, matched.as_ref(), flow)?;
    }
    let (name, flow) = (name?, flow?);
    let usual = QueueRule::new(&name, QueueConcurrency::Fixed(1));
    let total = total?.unwrap_or(usual.total);
    let usual_per_flow = match flow.is_empty() {
        true => total,
        false => WAITING_PER_FLOW.min(total),
    };
    let rule = QueueRule {
        matches: matched?.unwrap_or_default(),
        except: except?,
        missing_key: missing_key?.unwrap_or(MissingKey::Address { v6: defaults.v6 }),
        weights: weights?.flatten(),
        cost: cost?.unwrap_or_default(),
        at_once: at_once?,
        at_once_per_flow: at_once_per_flow?,
        rate: rate?.map(|(rate, burst)| (rate, burst.unwrap_or(1))),
        per_flow: per_flow?.unwrap_or(usual_per_flow),
        total,
        max_wait: max_wait?.unwrap_or(usual.max_wait),
        flow,
        name,
    };
    Ok((rule, fields.spans()))
}

/// Reads the flow of a request that has no `flow` of its own.
fn missing_key(node: Item<'_>, v6: u8) -> Read<MissingKey> {
    if text(node)? == "deny" {
        return Err(node.error(
            "unknown-word",
            "a queue cannot refuse a request because its flow is missing",
            "write `ip` or `shared` here, and `missing_key: deny` in a limit for the same requests",
        ));
    }
    let words = [
        ("ip", MissingKey::Address { v6 }),
        ("shared", MissingKey::Shared),
    ];
    choice(node, "a flow for requests without one", &words)
}

/// Reads where a request names its tier. None if there is an error in the tiers.
fn weights(
    node: Item<'_>,
    what: &str,
    flow: Option<&[KeyPart]>,
    defaults: &FileDefaults<'_>,
) -> Read<Option<TierWeights>> {
    let found = tier_finder(node, what, "weight: 4", defaults.v6, defaults.tiers, flow)?;
    Ok(defaults.tiers.map(|all| TierWeights {
        source: found.source,
        members: found.members,
        tiers: all
            .iter()
            .map(|tier| (tier.name.as_str().into(), tier.weight))
            .collect(),
    }))
}

/// Reads a cost that a flow of weight 1 can afford.
fn cost(node: Item<'_>, defaults: &FileDefaults<'_>) -> Read<CostRule> {
    let cost = super::cost::cost(node, defaults.v6, defaults.paths)?;
    match max_cost(&cost) {
        max if max > MAX_COST_PER_WEIGHT => Err(node.error(
            "bad-cost",
            format!("a request of cost {max} would wait for ever"),
            format!("write at most {MAX_COST_PER_WEIGHT} in a queue, or count in larger units"),
        )),
        _ => Ok(cost),
    }
}

/// Reads `rate` and the `burst` that belongs to it.
pub(super) fn rate_and_burst(
    fields: &Fields<'_>,
    burst_max: u64,
    sample: &str,
) -> Read<Option<(tollgate::Rate, Option<u64>)>> {
    let rate = fields.read("rate", rate);
    let burst = fields.read("burst", |n| integer(n, 1..=burst_max, sample));
    if let (Ok(None), Some(place)) = (&rate, fields.name_place("burst")) {
        return Err(fields.report.error(
            place,
            "field-without-effect",
            "`burst` has no effect without `rate`",
            "add `rate: 3000/s`, or remove `burst`",
        ));
    }
    let burst = burst?;
    Ok(rate?.map(|rate| (rate, burst)))
}

/// Reads how many requests run at once, in all and of one flow.
fn at_once_fields(fields: &Fields<'_>) -> (Read<Option<QueueConcurrency>>, Read<Option<u32>>) {
    let all = fields.read("at_once", at_once);
    let per_flow = fields.read("at_once_per_flow", |n| {
        let own: u32 = integer(n, 1..=AT_ONCE_MAX, "8")?;
        let (max, name) = match all {
            Ok(Some(QueueConcurrency::Fixed(all))) => (all, "`at_once`"),
            Ok(Some(QueueConcurrency::Adaptive(adaptive))) => {
                (adaptive.max, "the `max` of `at_once`")
            }
            _ => return Ok(own),
        };
        match own > max {
            true => Err(n.error(
                "bad-range",
                format!("`at_once_per_flow` {own} is above {name}, {max}"),
                format!("write less than {max}, so that one flow cannot take all of them"),
            )),
            false => Ok(own),
        }
    });
    (all, per_flow)
}

/// Reads a number, or how it is estimated.
fn at_once(node: Item<'_>) -> Read<QueueConcurrency> {
    match &node.value {
        Value::Map(_) => adaptive(node).map(QueueConcurrency::Adaptive),
        Value::Scalar { text, .. } if ESTIMATORS.iter().any(|(word, _)| word == text) => Err(node
            .error(
                "bad-number",
                format!("`{text}` is an estimator, not a number"),
                format!("write `at_once: {{ adaptive: {text} }}`"),
            )),
        _ => integer(node, 1..=AT_ONCE_MAX, "64").map(QueueConcurrency::Fixed),
    }
}

const ESTIMATORS: [(&str, Estimator); 2] = [
    ("gradient2", Estimator::Gradient2),
    ("aimd", Estimator::Aimd),
];

fn adaptive(node: Item<'_>) -> Read<Adaptive> {
    let fields = Fields::open(node, "`at_once`", shape::Adaptive::FIELDS)?;
    let message = "`at_once` has no `adaptive`, which names the estimator";
    let hint = "add `adaptive: gradient2`, or write a number: `at_once: 64`";
    let by = fields.required("adaptive", (message, hint), |n| {
        choice(n, "an estimator", &ESTIMATORS)
    });
    let number = |name: &str, sample: &str| -> Read<Option<u32>> {
        fields.read(name, |n| integer(n, 1..=AT_ONCE_MAX, sample))
    };
    let (min, max) = (number("min", "4"), number("max", "200"));
    let initial = number("initial", "20");
    let timeout = fields.read("timeout", |n| span_within(n, SPANS, "5s"));
    let usual = ADAPTIVE_DEFAULT;
    let (min, max, initial) = (min?, max?, initial?);
    let max = max.unwrap_or(usual.max.max(min.unwrap_or(0)));
    let min = min.unwrap_or(usual.min.min(max));
    let wrong = |field: &str, message: String, hint: String| {
        let place = fields.at(field);
        Err(fields.report.error(place, "bad-range", message, hint))
    };
    if min > max {
        let message = format!("`min` {min} is above `max` {max}");
        return wrong("min", message, "swap them".into());
    }
    let initial = initial.unwrap_or(usual.initial.clamp(min, max));
    if !(min..=max).contains(&initial) {
        let message = format!("`initial` {initial} is not between `min` {min} and `max` {max}");
        let hint = format!("write a number from {min} to {max}");
        return wrong("initial", message, hint);
    }
    Ok(Adaptive {
        by: by?,
        min,
        max,
        initial,
        timeout: timeout?.unwrap_or(usual.timeout),
    })
}
