//! `on_store_error`: what happens to a request while a shared store gives no answer.
//!
//! The right answer depends on what a limit protects, so a file with a shared store has to give one, once
//! for all limits or in each of them. A choice that nobody made would be noticed for the first time in an outage.

use tollgate_policy::OnStoreError;

use super::domains::first_that_follows;
use super::fields::Fields;
use super::file::{field, items};
use super::scalar::{choice, text};
use super::store::is_shared;
use crate::near::nearest;
use crate::report::{Read, Report, quoted};
use crate::yaml::{MERGE, Node, Value};

const NAME: &str = "on_store_error";
const CHOICES: &str = "add `on_store_error: local` at the top of the file: each node goes on with its share of the limits \
    (advised); `allow` lets everything pass meanwhile, `deny` refuses everything";

/// What the fields of the file or of a limit say, if anything.
pub(super) fn on_store_error(
    fields: &Fields<'_>,
    report: &Report<'_>,
) -> Read<Option<OnStoreError>> {
    let words = [
        ("local", OnStoreError::Local),
        ("allow", OnStoreError::Allow),
        ("deny", OnStoreError::Deny),
    ];
    let what = "what can happen while the store gives no answer";
    fields.read(NAME, |node| {
        // As other tools call them.
        let meant = match text(node, report)? {
            "fail_open" | "fail-open" | "open" | "pass" => "allow",
            "fail_closed" | "fail-closed" | "closed" | "refuse" | "reject" => "deny",
            "fallback" | "memory" => "local",
            _ => return choice(node, what, &words, report),
        };
        let said = quoted(text(node, report)?);
        let message = format!("{said} is not {what}");
        Err(report.error(
            node.place,
            "unknown-word",
            message,
            format!("did you mean `{meant}`?"),
        ))
    })
}

/// Is it said for every limit, if the store is shared? Asked of the tree, so that a limit that is wrong
/// in another way counts as well.
pub(super) fn check(
    root: &Node,
    of_file: &Read<Option<OnStoreError>>,
    report: &Report<'_>,
) -> Read<()> {
    let Some(store) = field(root, "store").filter(|store| is_shared(store)) else {
        return Ok(());
    };
    // Said, or tried.
    if !matches!(of_file, Ok(None)) {
        return Ok(());
    }
    if let Some(domain) = first_that_follows(root) {
        let message = "this domain follows limits of requests, and the file does not say what happens to them while the store gives no answer";
        return Err(report.error(domain.place, "missing-field", message, CHOICES));
    }
    let limits = items(root, "limits");
    let default = field(root, "default").filter(|node| matches!(node.value, Value::Map(_)));
    let silent: Vec<&Node> = limits.iter().chain(default).filter(|n| !says(n)).collect();
    let Some(first) = silent.first() else {
        return Ok(());
    };
    let everybody = silent.len() == limits.len() + usize::from(default.is_some());
    let (place, message) = if everybody {
        let message = "nothing says what happens to requests while the store gives no answer";
        (store.place, message.to_owned())
    } else {
        let name = match field(first, "name").map(|node| &node.value) {
            Some(Value::Scalar { text, .. }) => format!("limit {}", quoted(text)),
            _ if default.is_some_and(|default| std::ptr::eq(default, *first)) => {
                "the default limit".to_owned()
            }
            _ => "a limit".to_owned(),
        };
        let message = format!(
            "{name} does not say what happens while the store gives no answer, and neither does the file"
        );
        (first.place, message)
    };
    Err(report.error(place, "missing-field", message, CHOICES))
}

/// Does a limit say it, or was it meant to? What is no map or was misspelt is complained about elsewhere.
fn says(limit: &Node) -> bool {
    let Value::Map(entries) = &limit.value else {
        return true;
    };
    let tried = |name: &str| nearest(&name.replace('-', "_"), [NAME]).is_some();
    entries
        .iter()
        .any(|(key, _)| key.text == MERGE || tried(&key.text))
}
