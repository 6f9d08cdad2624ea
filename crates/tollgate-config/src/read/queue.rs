//! `queues`: where requests that may pass wait for their turn.
//!
//! # What is read
//!
//! A queue without a bound on what goes at once or in a second would hold nobody back, so one of both is
//! needed. Everything that a stranger can make longer has a bound, said or not: how many wait, how many of
//! one flow, and for how long.
//!
//! A flow that is left out is one for everybody. Its share of the waiting room is then all of it: the usual
//! bound for one flow would be a bound for the queue that nobody wrote.
//!
//! It does not know what is wise; that is for [`crate::lint`].

use tollgate::Span;
use tollgate::shape::fair_queue::MAX_COST_PER_WEIGHT;
use tollgate::shape::{Adaptive, Estimator};
use tollgate_policy::{AtOnce, CostRule, KeyPart, MissingKey, QueueRule, Weights};

use super::fields::{Fields, Listed};
use super::key::key;
use super::limit::{Common, Spots, captures, dearest, named, tier_source};
use super::matching::{except, matches};
use super::names::{ADAPTIVE, QUEUE};
use super::scalar::{choice, count, rate, span_within, text, whole, whole_u32};
use crate::problem::Place;
use crate::report::{Read, Report, Reported};
use crate::yaml::{Node, Value};

/// Queues in one file.
const QUEUES_MAX: usize = 1000;
/// Requests of one queue that are under way at once.
const AT_ONCE_MAX: u32 = 100_000;
/// Requests that wait in one queue.
const WAITING_MAX: u32 = 1_000_000;
const BURST_MAX: u64 = 1_000_000;
const SPAN_LEAST: Span = Span::from_millis(1);
const SPAN_MOST: Span = Span::from_secs(3600);
/// How many of one flow wait if nobody says.
const PER_FLOW: usize = 100;
/// Who watches a backend without saying more starts with these.
const ADAPTIVE_USUAL: Adaptive = Adaptive {
    by: Estimator::Gradient2,
    min: 4,
    max: 200,
    initial: 20,
    timeout: Span::from_secs(5),
};

/// Reads the queues.
pub(super) fn queues(
    node: &Node,
    common: &Common<'_>,
    report: &Report<'_>,
) -> Read<Vec<(QueueRule, Spots)>> {
    let listed = Listed {
        name: "queues",
        is: "a list",
        hint: "begin every queue with `- name: …`",
        most: Some((
            QUEUES_MAX,
            "use `flow` where queues differ only in who waits in them",
        )),
    };
    listed.read(node, report, |node, number| {
        queue(node, number, common, report)
    })
}

/// What is known about fields that are not there.
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
            "weights are those of the tiers: `tiers: { pro: { weight: 4 } }` at the top, and `tier: header.x-plan` here"
        }
        "path" | "method" | "host" | "header" | "query" | "ip" | "domain" | "descriptor" => {
            return Some(format!(
                "it belongs under `match`: `match: {{ {name}: … }}`"
            ));
        }
        _ => return None,
    };
    Some(hint.to_owned())
}

fn queue(
    node: &Node,
    number: usize,
    common: &Common<'_>,
    report: &Report<'_>,
) -> Read<(QueueRule, Spots)> {
    let fields = Fields::open_with(node, "a queue", QUEUE, report, hint)?;
    let why = "add `name: api`: answers, metrics and logs refer to a queue by its name";
    let (name, what) = named(&fields, "queue", number, why, report);
    let matched = fields.read("match", |n| matches(n, common.paths, report));
    let excepted = fields.read("except", |n| except(n, common.paths, report));
    let flow = fields
        .read("flow", |n| key(n, common.v6, report))
        .map(Option::unwrap_or_default);
    let missing_key = fields.read("missing_key", |n| missing_key(n, common.v6, report));
    let weights = fields.read("tier", |n| weights(n, &what, common, report));
    let cost = fields.read("cost", |n| cost(n, common, report));
    let capacity = capacity(&fields, &what, report);
    let total = fields.read("waiting", |n| count(n, WAITING_MAX, "1000", report));
    let per_flow = fields.read("waiting_per_flow", |n| count(n, WAITING_MAX, "100", report));
    let max_wait = fields.read("max_wait", |n| {
        span_within(n, SPAN_LEAST, SPAN_MOST, "10s", report)
    });
    let captured = match (&matched, &flow) {
        (Ok(matched), Ok(flow)) => captures(&fields, "flow", &what, matched.as_ref(), flow, report),
        _ => Ok(()),
    };
    captured?;
    let (name, flow, total) = (name?, flow?, total?);
    let Capacity {
        at_once,
        at_once_per_flow,
        rate,
    } = capacity?;
    let usual = QueueRule::new(&name, AtOnce::Fixed(1));
    let total = total.unwrap_or(usual.total);
    let rule = QueueRule {
        matches: matched?.unwrap_or_default(),
        except: excepted?.unwrap_or_default(),
        missing_key: missing_key?.unwrap_or(MissingKey::Address { v6: common.v6 }),
        weights: weights?.flatten(),
        cost: cost?.unwrap_or_default(),
        at_once,
        at_once_per_flow,
        rate,
        per_flow: per_flow?.unwrap_or_else(|| usual_per_flow(&flow, total)),
        total,
        max_wait: max_wait?.unwrap_or(usual.max_wait),
        flow,
        name,
    };
    Ok((rule, Spots::of(&fields)))
}

/// How many of one flow wait if nobody says: all, where there is only one.
fn usual_per_flow(flow: &[KeyPart], total: usize) -> usize {
    if flow.is_empty() {
        total
    } else {
        PER_FLOW.min(total)
    }
}

/// As whom a request waits that lacks a part of its flow.
fn missing_key(node: &Node, v6: u8, report: &Report<'_>) -> Read<MissingKey> {
    if text(node, report)? == "deny" {
        return Err(report.error(
            node.place,
            "unknown-word",
            "a queue refuses nobody for what is missing",
            "write `ip` or `shared` here, and `missing_key: deny` in a limit for the same requests",
        ));
    }
    let words = [
        ("ip", MissingKey::Address { v6 }),
        ("shared", MissingKey::Shared),
    ];
    choice(node, "as whom a request can wait", &words, report)
}

/// The shares of the tiers. None if those are wrong.
fn weights(
    node: &Node,
    what: &str,
    common: &Common<'_>,
    report: &Report<'_>,
) -> Read<Option<Weights>> {
    let source = tier_source(node, what, "weight: 4", common, report)?;
    Ok(common.tiers.map(|all| Weights {
        source,
        tiers: all
            .iter()
            .map(|tier| (tier.name.as_str().into(), tier.weight))
            .collect(),
    }))
}

/// A cost that a flow of weight 1 can wait with.
fn cost(node: &Node, common: &Common<'_>, report: &Report<'_>) -> Read<CostRule> {
    let found = super::cost::cost(node, common.v6, common.paths, report)?;
    let dearest = dearest(&found);
    if dearest > MAX_COST_PER_WEIGHT {
        return Err(report.error(
            node.place,
            "bad-cost",
            format!("a request of cost {dearest} would wait for ever"),
            format!("write at most {MAX_COST_PER_WEIGHT} in a queue, or count in larger units"),
        ));
    }
    Ok(found)
}

/// How many at once, in all and of one flow, and how fast.
struct Capacity {
    at_once: Option<AtOnce>,
    at_once_per_flow: Option<u32>,
    rate: Option<(tollgate::Rate, u64)>,
}

fn capacity(fields: &Fields<'_>, what: &str, report: &Report<'_>) -> Read<Capacity> {
    let at_once = fields.read("at_once", |n| at_once(n, report));
    let per_flow = fields.read("at_once_per_flow", |n| {
        whole_u32(n, 1, AT_ONCE_MAX, "8", report)
    });
    let rate = fields.read("rate", |n| rate(n, report));
    let burst = fields.read("burst", |n| whole(n, 1, BURST_MAX, "10", report));
    if let (Ok(None), Ok(None)) = (&at_once, &rate) {
        return Err(report.error(
            fields.place,
            "missing-field",
            format!("{what} says neither how many go at once nor how fast"),
            "add `at_once: 64`, `rate: 3000/s`, or both",
        ));
    }
    if let (Ok(None), Some(place)) = (&rate, fields.name_place("burst")) {
        return Err(burst_alone(place, report));
    }
    let (at_once, per_flow, rate, burst) = (at_once?, per_flow?, rate?, burst?);
    if let (Some(at_once), Some(own)) = (at_once, per_flow) {
        let at = fields.get("at_once_per_flow");
        let at = at.map_or(fields.place, |n| n.place);
        own_of_all(own, at_once, at, report)?;
    }
    Ok(Capacity {
        at_once,
        at_once_per_flow: per_flow,
        rate: rate.map(|rate| (rate, burst.unwrap_or(1))),
    })
}

/// One flow can have at most all the turns there are.
fn own_of_all(own: u32, at_once: AtOnce, at: Place, report: &Report<'_>) -> Read<()> {
    let (all, name) = match at_once {
        AtOnce::Fixed(all) => (all, "`at_once`"),
        AtOnce::Adaptive(adaptive) => (adaptive.max, "the `max` of `at_once`"),
    };
    if own <= all {
        return Ok(());
    }
    Err(report.error(
        at,
        "bad-range",
        format!("`at_once_per_flow` {own} is above {name}, {all}"),
        format!("write less than {all}, so that one flow cannot hold every turn"),
    ))
}

/// There is a burst, but no rate that it is an exception to.
pub(super) fn burst_alone(place: Place, report: &Report<'_>) -> Reported {
    report.error(
        place,
        "field-without-effect",
        "`burst` is how many go together before `rate` counts, and there is no `rate`",
        "add `rate: 3000/s`, or leave `burst` out",
    )
}

/// A number, or one that follows what is seen.
fn at_once(node: &Node, report: &Report<'_>) -> Read<AtOnce> {
    match &node.value {
        Value::Map(_) => adaptive(node, report).map(AtOnce::Adaptive),
        Value::Scalar { text, .. } if ESTIMATORS.iter().any(|(word, _)| word == text) => {
            Err(report.error(
                node.place,
                "bad-number",
                format!("`{text}` is a way to find the number, not one"),
                format!("write `at_once: {{ adaptive: {text} }}`"),
            ))
        }
        _ => whole_u32(node, 1, AT_ONCE_MAX, "64", report).map(AtOnce::Fixed),
    }
}

const ESTIMATORS: [(&str, Estimator); 2] = [
    ("gradient2", Estimator::Gradient2),
    ("aimd", Estimator::Aimd),
];

fn adaptive(node: &Node, report: &Report<'_>) -> Read<Adaptive> {
    let fields = Fields::open(node, "`at_once`", ADAPTIVE, report)?;
    let by = fields.read("adaptive", |n| {
        choice(n, "a way to find how many go at once", &ESTIMATORS, report)
    });
    let by = by.and_then(|by| {
        by.ok_or_else(|| {
            report.error(
                fields.place,
                "missing-field",
                "`at_once` does not say how the number is found",
                "add `adaptive: gradient2`, or write a number: `at_once: 64`",
            )
        })
    });
    let number = |name: &str, sample: &str| {
        fields.read(name, |n| whole_u32(n, 1, AT_ONCE_MAX, sample, report))
    };
    let (min, max, initial) = (
        number("min", "4"),
        number("max", "200"),
        number("initial", "20"),
    );
    let timeout = fields.read("timeout", |n| {
        span_within(n, SPAN_LEAST, SPAN_MOST, "5s", report)
    });
    let usual = ADAPTIVE_USUAL;
    let (said_min, said_max, said_initial) = (min?, max?, initial?);
    let max = said_max.unwrap_or(said_min.map_or(usual.max, |min| min.max(usual.max)));
    let min = said_min.unwrap_or(usual.min.min(max));
    let at = |name: &str| fields.get(name).map_or(fields.place, |n| n.place);
    if min > max {
        return Err(report.error(
            at("min"),
            "bad-range",
            format!("`min` {min} is above `max` {max}"),
            "swap them",
        ));
    }
    let initial = said_initial.unwrap_or(usual.initial.clamp(min, max));
    if !(min..=max).contains(&initial) {
        return Err(report.error(
            at("initial"),
            "bad-range",
            format!("`initial` {initial} is not between `min` {min} and `max` {max}"),
            format!("write a number from {min} to {max}"),
        ));
    }
    Ok(Adaptive {
        by: by?,
        min,
        max,
        initial,
        timeout: timeout?.unwrap_or(usual.timeout),
    })
}
