//! The limits file of Limitador, as a policy.
//!
//! | there | here |
//! |---|---|
//! | `namespace` | the `domain` |
//! | `conditions` | what entries of a descriptor must be; see `conditions` |
//! | `variables` | the `key`; the entries must be there |
//! | `max_value`, `seconds` | a fixed window; 0 is an entry of `deny` |
//!
//! A window begins there with the first request that it counts, and here with the clock. And there the entries of
//! all descriptors of a request may be named in one limit; here a limit is for one descriptor.

use super::Converted;
use super::conditions::{Condition, condition, selector};
use super::descriptors::{known, listed};
use super::write::{Limit, Rule, What, policy, quoted};
use crate::problem::Problems;
use crate::read::Item;
use crate::read::scalar::text;
use crate::report::{Read, Report, Reported};
use crate::{decoded, parse, yaml};

const LIMIT: &[&str] = &[
    "id",
    "namespace",
    "max_value",
    "seconds",
    "name",
    "conditions",
    "variables",
];

/// Makes a policy of a limits file; `name` is what it is called in problems.
///
/// # Errors
/// Everything in it that is wrong.
pub fn limitador(name: &str, bytes: &[u8]) -> Result<Converted, Problems> {
    let file = decoded(name, bytes)?;
    let report = Report::new(file);
    let mut head = vec![
        format!("Made by `tollgate convert limitador` of {name}."),
        "Windows begin with the clock here, and with the first request there.".to_owned(),
    ];
    let rules =
        yaml::tree(file, &report).and_then(|root| rules(Item::new(&root, &report), &mut head));
    let failed = report.has_errors();
    let problems = report.finish(name);
    let Ok(rules) = rules else {
        return Err(problems);
    };
    if failed {
        return Err(problems);
    }
    let text = policy(&head, &rules);
    // What comes out can be used, or nothing does.
    parse("converted policy", text.as_bytes())?;
    Ok(Converted {
        policy: text,
        notes: (!problems.is_empty())
            .then_some(problems)
            .into_iter()
            .collect(),
    })
}

fn rules(root: Item<'_>, head: &mut Vec<String>) -> Read<Vec<Rule>> {
    let mut rules = Vec::new();
    let mut done = Ok(());
    for node in listed(Some(root), "the file")? {
        match rule(node, head) {
            Ok(rule) => rules.extend(rule),
            Err(Reported) => done = Err(Reported),
        }
    }
    done.map(|()| rules)
}

/// One limit. None if it cannot be carried over.
fn rule(node: Item<'_>, head: &mut Vec<String>) -> Read<Option<Rule>> {
    let fields = known(node, LIMIT)?;
    let missing = |field: &str| {
        let message = format!("this limit has no `{field}`");
        node.report.error(
            fields.place(),
            "missing-field",
            message,
            format!("add `{field}: …`"),
        )
    };
    let namespace = fields.text("namespace")?;
    let namespace = namespace.ok_or_else(|| missing("namespace"))?;
    let most = fields.number("max_value", 4_294_967_294)?;
    let most = most.ok_or_else(|| missing("max_value"))?;
    let seconds = fields.number("seconds", 10 * 365 * 86_400)?;
    let seconds = seconds.ok_or_else(|| missing("seconds"))?;
    if seconds == 0 {
        let message = "`seconds` is 0: that is no window";
        return Err(node.report.error(
            fields.place(),
            "out-of-range",
            message,
            "write how long the window is: `seconds: 60`",
        ));
    }
    let mut entries: Vec<(String, Option<String>)> = Vec::new();
    let mut except = Vec::new();
    let mut key = Vec::new();
    for node in listed(fields.get("conditions"), "`conditions`")? {
        let written = text(node)?;
        let read = match condition(written) {
            Ok(read) => read,
            Err(why) => return Ok(left_out(node, written, &why, head)),
        };
        for condition in read {
            let (name, value) = match condition {
                Condition::Is(name, value) => (name, Some(value)),
                Condition::IsNot(name, value) => {
                    let test = format!("{{ {}: {} }}", quoted(&name), quoted(&value));
                    except.push(format!("{{ descriptor: {test} }}"));
                    (name, None)
                }
            };
            if !add(&mut entries, name, value) {
                let why = "it asks for two values of one entry, so it never holds";
                return Ok(left_out(node, written, why, head));
            }
        }
    }
    for node in listed(fields.get("variables"), "`variables`")? {
        let written = text(node)?;
        let name = match selector(written) {
            Ok(name) => name,
            Err(why) => return Ok(left_out(node, written, &why, head)),
        };
        add(&mut entries, name.clone(), None);
        key.push(format!("descriptor.{name}"));
    }
    let name = match fields.text("name")? {
        Some(name) => name,
        None => namespace.clone(),
    };
    Ok(Some(Rule {
        name,
        matches: matches(&namespace, &entries),
        except,
        notes: Vec::new(),
        what: match most {
            0 => What::Refuse,
            most => What::Limit(Limit {
                key,
                allow: format!("{most}/{seconds}s"),
                ..Limit::default()
            }),
        },
    }))
}

fn matches(namespace: &str, entries: &[(String, Option<String>)]) -> String {
    let domain = quoted(namespace);
    if entries.is_empty() {
        return format!("{{ domain: {domain} }}");
    }
    let tests = entries.iter().map(|(name, value)| {
        let value = value.as_deref().map(quoted);
        format!("{}: {}", quoted(name), value.as_deref().unwrap_or("true"))
    });
    let tests: Vec<String> = tests.collect();
    format!(
        "{{ domain: {domain}, descriptor: {{ {} }} }}",
        tests.join(", ")
    )
}

/// Asks for an entry, with a value if it must have one. False if it must have two.
fn add(entries: &mut Vec<(String, Option<String>)>, name: String, value: Option<String>) -> bool {
    match entries.iter_mut().find(|(known, _)| *known == name) {
        None => entries.push((name, value)),
        Some((_, known @ None)) => *known = value,
        Some((_, Some(known))) => return value.is_none_or(|value| value == *known),
    }
    true
}

/// Says that a limit is not carried over.
fn left_out(node: Item<'_>, written: &str, why: &str, head: &mut Vec<String>) -> Option<Rule> {
    let message = format!("this limit is not carried over: {why}");
    let hint = "write it as a limit of the policy: `match`, `except` and `key` say whom it is for";
    node.warn("not-carried-over", message, hint);
    let line = node.place.line;
    head.push(format!("NOT CARRIED OVER, line {line}: {written}: {why}"));
    None
}
