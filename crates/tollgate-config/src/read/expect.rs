//! `expect`: the cases that `tollgate test` runs.

use tollgate::Moment;
use tollgate_policy::{DefaultAction, Policy};

use super::fields::{Fields, Listed};
use super::item::Item;
use super::scalar::{choice, digits, integer, prose, span, text};
use super::when::moment;
use crate::expect::{
    ExpectedCase, ExpectedDecision, ExpectedRequest, ExpectedSettlement, ExpectedStep,
};
use crate::report::{Read, quoted};
use crate::shape;
use crate::suggest::did_you_mean;

/// Requests in one step: a second or two on the slowest algorithm.
const TIMES_MAX: u64 = 1_000_000;
/// Cases in one file, and steps in one case.
const ITEMS_MAX: usize = 1000;
/// 2026-01-01T00:00:00Z. Fixed, so that a case has the same outcome every day.
const START: Moment = Moment::from_nanos(1_767_225_600_000_000_000);

const VERDICTS: [(&str, &str); 4] = [
    ("pass", "pass"),
    ("wait", "wait"),
    ("refuse", "refuse"),
    ("never", "never"),
];
const REASONS: [(&str, &str); 8] = [
    ("limit", "limit"),
    ("allow-list", "allow-list"),
    ("deny-list", "deny-list"),
    ("unmatched", "unmatched"),
    ("only-counted", "only-counted"),
    ("path", "path"),
    ("missing-key", "missing-key"),
    ("blocked", "blocked"),
];

/// Reads the cases.
pub(crate) fn expect(node: Item<'_>) -> Read<Vec<ExpectedCase>> {
    let listed = Listed {
        name: "expect",
        hint: "begin every case with `- name: …`",
        max: (ITEMS_MAX, "test what differs; one case for each is enough"),
    };
    listed.read(node, |node, _| case(node))
}

fn case(node: Item<'_>) -> Read<ExpectedCase> {
    let fields = Fields::open_with(node, "a case", shape::Case::FIELDS, |name| {
        let is_step = shape::Step::FIELDS.contains(&name);
        is_step.then(|| format!("`{name}` belongs to a step: `steps: [{{ {name}: … }}]`"))
    })?;
    let name = fields.required(
        "name",
        (
            "the case has no `name`",
            "add one that states what is expected: `name: five, then refused`",
        ),
        prose,
    );
    let start = fields.read("start", moment);
    let request = fields.read("request", request);
    let common = request.as_ref().ok().and_then(Option::as_ref);
    let has_request = request.is_err() || common.is_some();
    let steps = fields.required(
        "steps",
        (
            "the case has no `steps`",
            "add them: `steps: [{ times: 5, verdict: pass }, { verdict: refuse }]`",
        ),
        |node| {
            let listed = Listed {
                name: "steps",
                hint: "begin every step with `- verdict: …` or `- { verdict: … }`",
                max: (ITEMS_MAX, "use `times` for requests that are the same"),
            };
            listed.read(node, |node, _| step(node, common, has_request))
        },
    );
    request?;
    Ok(ExpectedCase {
        name: name?,
        start: start?.unwrap_or(START),
        steps: steps?,
    })
}

fn step(node: Item<'_>, common: Option<&ExpectedRequest>, has_request: bool) -> Read<ExpectedStep> {
    let fields = Fields::open_with(node, "a step", shape::Step::FIELDS, |name| {
        let is_request = shape::CaseRequest::FIELDS.contains(&name);
        is_request.then(|| format!("`{name}` belongs to a request: `request: {{ {name}: … }}`"))
    })?;
    let advance = fields.read("advance", span);
    let settle = fields.read("settle", settlement);
    let own = fields.read("request", request);
    let times = fields.read("times", |n| integer(n, 1..=TIMES_MAX, "5"));
    let verdict = fields.required(
        "verdict",
        (
            "the step has no `verdict`",
            "add `verdict: pass`, `verdict: wait`, `verdict: refuse` or `verdict: never`",
        ),
        |n| choice(n, "a verdict", &VERDICTS),
    );
    let reason = fields.read("reason", |n| choice(n, "a reason", &REASONS));
    let limit = fields.read("limit", owned);
    let retry_after = fields.read("retry_after", span);
    let delay = fields.read("delay", span);
    let remaining = fields.read("remaining", |n| integer(n, 0..=u64::MAX, "9"));
    let shadow = fields.get("shadow").map(|node| {
        let names: Read<Vec<_>> = node.one_or_many().into_iter().map(owned).collect();
        names
    });
    let queue = fields.read("queue", owned);
    let weight = fields.read("weight", |n| integer(n, 1..=u64::from(u32::MAX), "4"));
    let verdict = verdict?;
    for (name, needed) in [("retry_after", "refuse"), ("delay", "wait")] {
        if let Some(place) = fields.name_place(name).filter(|_| verdict != needed) {
            return Err(node.report.error(
                place,
                "misplaced-field",
                format!("`{name}` needs `verdict: {needed}`"),
                format!("remove it, or write `verdict: {needed}`"),
            ));
        }
    }
    let request = match (own?, common) {
        (Some(own), _) => own,
        (None, Some(common)) => common.clone(),
        (None, None) if has_request => return Err(crate::report::Reported),
        (None, None) => {
            return Err(fields.error(
                "missing-field",
                "the step has no `request`, and neither has its case",
                "add one to the case: `request: { path: /api/rides, ip: 203.0.113.7 }`",
            ));
        }
    };
    Ok(ExpectedStep {
        line: node.place.line,
        advance: advance?.unwrap_or_default(),
        settle: settle?,
        request,
        times: times?.unwrap_or(1),
        decision: ExpectedDecision {
            verdict,
            reason: reason?,
            limit: limit?,
            retry_after: retry_after?,
            delay: delay?,
            remaining: remaining?,
            shadow: shadow.transpose()?,
            queue: queue?,
            weight: weight?,
        },
    })
}

fn owned(node: Item<'_>) -> Read<String> {
    text(node).map(str::to_owned)
}

/// `1200`, `done` or `cancel`.
fn settlement(node: Item<'_>) -> Read<ExpectedSettlement> {
    let text = text(node)?;
    match (text, digits(text)) {
        ("done", _) => Ok(ExpectedSettlement::Done),
        ("cancel", _) => Ok(ExpectedSettlement::Cancelled),
        (_, Ok(actual)) => Ok(ExpectedSettlement::Actual(actual)),
        _ => Err(node.error(
            "unknown-word",
            format!("{} is not how a request ends", quoted(text)),
            "write its actual cost such as `1200`, `done` or `cancel`",
        )),
    }
}

fn request(node: Item<'_>) -> Read<ExpectedRequest> {
    let fields = Fields::open_with(node, "a request", shape::CaseRequest::FIELDS, |name| {
        (name == "header").then(|| "write `headers: { x-api-key: acme }`".to_owned())
    })?;
    let method = fields.read("method", owned);
    let path = fields.read("path", |node| {
        let path = text(node)?;
        match path.starts_with('/') {
            true => Ok(path.to_owned()),
            false => Err(node.error(
                "bad-path",
                format!("{} does not start with `/`", quoted(path)),
                format!("write `/{path}`"),
            )),
        }
    });
    let host = fields.read("host", owned);
    let ip = fields.read("ip", |node| {
        let address = text(node)?;
        address.parse().map_err(|_| {
            let message = format!("{} is not an address", quoted(address));
            node.error("bad-address", message, "write one such as `203.0.113.7`")
        })
    });
    let headers = fields.read("headers", |n| pairs(n, "`headers`"));
    let own_fields = fields.read("fields", |n| pairs(n, "`fields`"));
    let domain = fields.read("domain", owned);
    let descriptor = fields.read("descriptor", |n| pairs(n, "`descriptor`"));
    let cost = fields.read("cost", |n| integer(n, 0..=u64::MAX, "5"));
    let path = path?.unwrap_or_else(|| "/".to_owned());
    let (path, query) = path.split_once('?').unwrap_or((&path, ""));
    Ok(ExpectedRequest {
        method: method?.unwrap_or_else(|| "GET".to_owned()),
        path: path.to_owned(),
        query: query.to_owned(),
        host: host?.unwrap_or_default(),
        ip: ip?,
        headers: headers?.unwrap_or_default(),
        fields: own_fields?.unwrap_or_default(),
        domain: domain?.unwrap_or_default(),
        descriptor: descriptor?.unwrap_or_default(),
        cost: cost?,
    })
}

/// Names and values; a name with a list of values has each of them.
fn pairs(node: Item<'_>, what: &str) -> Read<Vec<(String, String)>> {
    let mut pairs = Vec::new();
    for (name, place, value) in node.entries(what)? {
        for value in value.present(name, place)?.one_or_many() {
            pairs.push((name.to_owned(), owned(value)?));
        }
    }
    Ok(pairs)
}

/// Checks that the limits and queues that the cases name exist: a misspelt name in `shadow: []` would be found by no run.
pub(crate) fn check_names(node: Item<'_>, policy: &Policy) -> Read<()> {
    let limits = policy.limits.iter().map(|rule| &*rule.name);
    let listed = policy.allow.iter().chain(&policy.deny);
    let default = matches!(policy.default, DefaultAction::Limit(_)).then_some("default");
    let limits: Vec<&str> = limits
        .chain(listed.map(|rule| &*rule.name))
        .chain(default)
        .collect();
    let queues: Vec<&str> = policy.queues.iter().map(|rule| &*rule.name).collect();
    let mut done = Ok(());
    for case in node.items_of("expect") {
        for step in case.items_of("steps") {
            for (field, what, known) in [
                ("limit", "limit", &limits),
                ("shadow", "limit", &limits),
                ("queue", "queue", &queues),
            ] {
                for named in step.field(field).map_or(Vec::new(), Item::one_or_many) {
                    let name = text(named)?;
                    if known.contains(&name) {
                        continue;
                    }
                    let hint = did_you_mean(name, known.iter().copied());
                    let hint = hint.unwrap_or_else(|| format!("name a {what} of this file"));
                    let message = format!("there is no {what} {}", quoted(name));
                    done = Err(named.error("unknown-limit", message, hint));
                }
            }
        }
    }
    done
}
