//! Who is let through and who is kept out: `allow` and `deny`.

use std::sync::Arc;

use tollgate_policy::ListRule;
use tollgate_policy::path::PathRules;

use super::fields::{Fields, Listed};
use super::limit::{Spots, name};
use super::matching::{except, matches};
use super::names::LIST;
use super::scalar::prose;
use super::when::moment;
use crate::report::{Read, Report};
use crate::yaml::Node;

/// Reads a list; `which` is its name.
pub(crate) fn list(
    node: &Node,
    which: &str,
    paths: PathRules,
    report: &Report<'_>,
) -> Read<Vec<(ListRule, Spots)>> {
    let listed = Listed {
        name: which,
        is: "a list",
        hint: &format!("write `{which}: [{{ match: {{ ip: 10.0.0.0/8 }} }}]`"),
        most: None,
    };
    listed.read(node, report, |node, number| {
        entry(node, which, number, paths, report)
    })
}

fn entry(
    node: &Node,
    which: &str,
    number: usize,
    paths: PathRules,
    report: &Report<'_>,
) -> Read<(ListRule, Spots)> {
    let fields = Fields::open(node, &format!("an entry of `{which}`"), LIST, report)?;
    let name = fields.read("name", |n| name(n, report));
    let found = fields.read("match", |n| matches(n, paths, report));
    let excepted = fields.read("except", |n| except(n, paths, report));
    let reason = fields.read("reason", |n| prose(n, report));
    let expires = fields.read("expires", |n| moment(n, report));
    let Some(found) = found? else {
        return Err(report.error(
            fields.place,
            "missing-field",
            format!("this entry of `{which}` does not say whom it is for"),
            "add `match: { ip: 10.0.0.0/8 }`",
        ));
    };
    let name = name?.unwrap_or_else(|| Arc::from(format!("{which}-{number}")));
    let rule = ListRule {
        name,
        matches: found,
        except: excepted?.unwrap_or_default(),
        reason: reason?,
        expires: expires?,
    };
    Ok((rule, Spots::of(&fields)))
}
