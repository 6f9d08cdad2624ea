//! Converts the limits file of Limitador to a policy.
//!
//! | file | policy |
//! |---|---|
//! | `namespace` | the `domain` |
//! | `conditions` | tests of the entries of a descriptor; see [`super::conditions`] |
//! | `variables` | the `key`; the entries must be present |
//! | `max_value`, `seconds` | a fixed window; 0 is an entry of `deny` |
//!
//! Two differences remain, and the policy names them. Windows of Limitador begin with the first request, those of a policy
//! are aligned to the clock. `descriptors[0]` is the first descriptor of a request; a limit of a policy applies to every
//! descriptor that matches.

use super::Converted;
use super::conditions::{OwnLimit, Test, condition, variable};
use super::descriptors::{Known, known, listed};
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

/// Converts a limits file to a policy; `name` is the name of the file in problems.
///
/// # Errors
/// All errors in it.
pub fn limitador(name: &str, bytes: &[u8]) -> Result<Converted, Problems> {
    let file = decoded(name, bytes)?;
    let report = Report::new(file);
    let mut head = vec![
        format!("Converted by `tollgate convert limitador` from {name}."),
        "Windows are aligned to the clock; those of Limitador begin with the first request."
            .to_owned(),
    ];
    let rules =
        yaml::tree(file, &report).and_then(|root| rules(Item::new(&root, &report), &mut head));
    let failed = report.has_errors();
    let problems = report.finish(name);
    let (Ok(rules), false) = (rules, failed) else {
        return Err(problems);
    };
    let text = policy(&head, &rules);
    // The result is a valid policy, or an error.
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
    let mut names_first = None;
    for node in listed(Some(root), "the file")? {
        match rule(node, head, &mut names_first) {
            Ok(rule) => rules.extend(rule),
            Err(Reported) => done = Err(Reported),
        }
    }
    if let Some(node) = names_first {
        let message = "`descriptors[0]` is the first descriptor of a request, but the policy counts every descriptor that matches";
        node.report.note(
            node.place,
            "first-descriptor",
            message,
            "nothing has to be done if requests have one descriptor",
        );
        head.push(format!("{message}."));
    }
    done.map(|()| rules)
}

/// The test of an entry: its values, or only that it is present or absent.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Wanted {
    Present,
    Absent,
    Values(Vec<String>),
}

/// One limit. None if a policy cannot express it.
fn rule<'n>(
    node: Item<'n>,
    head: &mut Vec<String>,
    names_first: &mut Option<Item<'n>>,
) -> Read<Option<Rule>> {
    let fields = known(node, LIMIT)?;
    let namespace = required(&fields, "namespace", fields.text("namespace"))?;
    let max = required(
        &fields,
        "max_value",
        fields.number("max_value", 4_294_967_294),
    )?;
    let seconds = fields.number("seconds", 10 * 365 * 86_400);
    let seconds = required(&fields, "seconds", seconds)?;
    if seconds == 0 {
        let hint = "write the length of the window: `seconds: 60`";
        return Err(node.error("out-of-range", "a window of 0 seconds is empty", hint));
    }
    let (name, id) = (fields.text("name")?, fields.text("id")?);
    let limit = OwnLimit {
        name: name.as_deref(),
        id: id.as_deref(),
    };
    let mut entries: Vec<(String, Wanted)> = Vec::new();
    let mut except = Vec::new();
    let mut key = Vec::new();
    let mut left_out = |node: Item<'_>, written: &str, why: &str| {
        let message = format!("this limit is left out: {why}");
        let hint = "add it to the policy by hand, with `match`, `except` and `key`";
        node.warn("not-carried-over", message, hint);
        let line = node.place.line;
        head.push(format!("LEFT OUT, line {line}: {written}: {why}"));
        Ok(None)
    };
    for node in listed(fields.get("conditions"), "`conditions`")? {
        let written = text(node)?;
        let read = match condition(written, limit) {
            Ok(Some(read)) => read,
            Ok(None) => return left_out(node, written, "it never holds for this limit"),
            Err(why) => return left_out(node, written, &why),
        };
        note_first(node, written, names_first);
        for condition in read {
            let entry = condition.entry;
            let wanted = match condition.test {
                Test::Is(values) => Wanted::Values(values),
                Test::Present => Wanted::Present,
                Test::Absent => Wanted::Absent,
                Test::IsNot(value) => {
                    let test = format!("{{ {}: {} }}", quoted(&entry), quoted(&value));
                    except.push(format!("{{ descriptor: {test} }}"));
                    Wanted::Present
                }
            };
            if let Err(why) = add(&mut entries, entry, wanted) {
                return left_out(node, written, why);
            }
        }
    }
    for node in listed(fields.get("variables"), "`variables`")? {
        let written = text(node)?;
        let entry = match variable(written, limit) {
            Ok(Some(entry)) => entry,
            // It does not separate requests.
            Ok(None) => continue,
            Err(why) => return left_out(node, written, &why),
        };
        note_first(node, written, names_first);
        if let Err(why) = add(&mut entries, entry.clone(), Wanted::Present) {
            return left_out(node, written, why);
        }
        key.push(format!("descriptor.{entry}"));
    }
    Ok(Some(Rule {
        name: name.unwrap_or_else(|| namespace.clone()),
        matches: matches(&namespace, &entries),
        except,
        notes: Vec::new(),
        what: match max {
            0 => What::Refuse,
            max => What::Limit(Limit {
                key,
                allow: format!("{max}/{seconds}s"),
                ..Limit::default()
            }),
        },
    }))
}

fn required<T>(fields: &Known<'_>, name: &str, value: Read<Option<T>>) -> Read<T> {
    value?.ok_or_else(|| {
        let message = format!("this limit has no `{name}`");
        fields.error(name, "missing-field", message, format!("add `{name}: …`"))
    })
}

/// Remembers the first use of `descriptors[0]`.
fn note_first<'n>(node: Item<'n>, written: &str, names_first: &mut Option<Item<'n>>) {
    if written.contains("descriptors[0]") {
        names_first.get_or_insert(node);
    }
}

fn matches(namespace: &str, entries: &[(String, Wanted)]) -> String {
    let domain = quoted(namespace);
    if entries.is_empty() {
        return format!("{{ domain: {domain} }}");
    }
    let tests = entries.iter().map(|(name, wanted)| {
        let test = match wanted {
            Wanted::Present => "true".to_owned(),
            Wanted::Absent => "false".to_owned(),
            Wanted::Values(values) => {
                let values: Vec<String> = values.iter().map(|value| quoted(value)).collect();
                match values.as_slice() {
                    [one] => one.clone(),
                    many => format!("[{}]", many.join(", ")),
                }
            }
        };
        format!("{}: {test}", quoted(name))
    });
    let tests: Vec<String> = tests.collect();
    format!(
        "{{ domain: {domain}, descriptor: {{ {} }} }}",
        tests.join(", ")
    )
}

/// Adds the test of an entry to those that must hold as well.
fn add(
    entries: &mut Vec<(String, Wanted)>,
    name: String,
    wanted: Wanted,
) -> Result<(), &'static str> {
    const NEVER: &str = "its conditions on one entry never hold together";
    let Some((_, known)) = entries.iter_mut().find(|(known, _)| *known == name) else {
        entries.push((name, wanted));
        return Ok(());
    };
    *known = match (known.clone(), wanted) {
        (one, other) if one == other => one,
        (Wanted::Absent, _) | (_, Wanted::Absent) => return Err(NEVER),
        (Wanted::Present, other) | (other, Wanted::Present) => other,
        (Wanted::Values(one), Wanted::Values(other)) => {
            if one.iter().chain(&other).any(|value| value.contains('*')) {
                return Err("a policy has one pattern, or a list of alternatives, for an entry");
            }
            let both: Vec<String> = one.into_iter().filter(|v| other.contains(v)).collect();
            if both.is_empty() {
                return Err(NEVER);
            }
            Wanted::Values(both)
        }
    };
    Ok(())
}
