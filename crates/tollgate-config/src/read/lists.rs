//! `allow` and `deny`: requests that always pass or are always refused.

use std::sync::Arc;

use tollgate_policy::ListRule;
use tollgate_policy::path::PathRules;

use super::fields::{FieldSpans, Fields, Listed};
use super::item::Item;
use super::limit::name;
use super::matching::matches;
use super::scalar::prose;
use super::when::moment;
use crate::report::Read;
use crate::shape;

/// Entries of one list.
const ENTRIES_MAX: usize = 100_000;

/// Reads the list called `which`.
pub(crate) fn list(
    node: Item<'_>,
    which: &str,
    paths: PathRules,
) -> Read<Vec<(ListRule, FieldSpans)>> {
    let listed = Listed {
        name: which,
        hint: &format!("write `{which}: [{{ match: {{ ip: 10.0.0.0/8 }} }}]`"),
        max: (ENTRIES_MAX, "put several networks into one entry"),
    };
    listed.read(node, |node, number| entry(node, which, number, paths))
}

fn entry(
    node: Item<'_>,
    which: &str,
    number: usize,
    paths: PathRules,
) -> Read<(ListRule, FieldSpans)> {
    let what = format!("an entry of `{which}`");
    let fields = Fields::open(node, &what, shape::ListEntry::FIELDS)?;
    let name = fields.read("name", |n| name(n, "limit"));
    let message = format!("this entry of `{which}` has no `match`");
    let hint = "add `match: { ip: 10.0.0.0/8 }`";
    let matched = fields.required("match", (&message, hint), |n| matches(n, paths));
    let except = fields.read_each("except", |n| matches(n, paths));
    let reason = fields.read("reason", prose);
    let expires = fields.read("expires", moment);
    let rule = ListRule {
        matches: matched?,
        name: name?.unwrap_or_else(|| Arc::from(format!("{which}-{number}"))),
        except: except?,
        reason: reason?,
        expires: expires?,
    };
    Ok((rule, fields.spans()))
}
