//! `on_store_error`: what happens to a request while a shared store does not answer.
//!
//! The right choice depends on what a limit protects. So a file with a shared store has to make it, once for all limits
//! or in each of them: a default would be noticed for the first time in an outage.

use tollgate_policy::OnStoreError;

use super::domains::first_that_follows;
use super::fields::Fields;
use super::item::Item;
use super::scalar::choice_or_alias;
use super::store::is_shared;
use crate::report::{Read, quoted};
use crate::suggest::suggest;
use crate::yaml::{MERGE, Value};

const NAME: &str = "on_store_error";
/// The words of other tools.
const ALIASES: &[(&str, &str)] = &[
    ("fail-open", "allow"),
    ("open", "allow"),
    ("pass", "allow"),
    ("fail-closed", "deny"),
    ("closed", "deny"),
    ("refuse", "deny"),
    ("reject", "deny"),
    ("fallback", "local"),
    ("memory", "local"),
];
const CHOICES: &str = "add `on_store_error: local` at the top of the file: each node enforces its share of the limits \
    (recommended); `allow` admits all requests meanwhile, `deny` refuses them";

/// Reads the field of the file or of a limit.
pub(super) fn on_store_error(fields: &Fields<'_>) -> Read<Option<OnStoreError>> {
    let words = [
        ("local", OnStoreError::Local),
        ("allow", OnStoreError::Allow),
        ("deny", OnStoreError::Deny),
    ];
    let what = "what can happen while the store does not answer";
    fields.read(NAME, |node| choice_or_alias(node, what, &words, ALIASES))
}

/// Checks that the field is set for every limit if the store is shared.
///
/// It checks the tree, so that a limit with another error counts as well.
pub(super) fn check(root: Item<'_>, of_file: &Read<Option<OnStoreError>>) -> Read<()> {
    let store = root.field("store").filter(|store| is_shared(*store));
    let (Some(store), Ok(None)) = (store, of_file) else {
        return Ok(());
    };
    if let Some(domain) = first_that_follows(root) {
        let message = "this domain follows limits of requests, and the file does not say what happens to them while the \
            store does not answer";
        return Err(domain.error("missing-field", message, CHOICES));
    }
    let default = root.field("default");
    let default = default.filter(|node| matches!(node.value, Value::Map(_)));
    let limits: Vec<Item<'_>> = root.items_of("limits").into_iter().chain(default).collect();
    let without: Vec<&Item<'_>> = limits.iter().filter(|limit| !is_set(**limit)).collect();
    let Some(first) = without.first() else {
        return Ok(());
    };
    if without.len() == limits.len() {
        let message =
            "the file does not say what happens to requests while the store does not answer";
        return Err(store.error("missing-field", message, CHOICES));
    }
    let name = match first.field("name").map(|node| &node.node.value) {
        Some(Value::Scalar { text, .. }) => format!("limit {}", quoted(text)),
        _ => "a limit".to_owned(),
    };
    let message = format!(
        "{name} does not say what happens while the store does not answer, nor does the file"
    );
    Err(first.error("missing-field", message, CHOICES))
}

/// Is the field set, or misspelt? What is not a map, or misspelt, is reported elsewhere.
fn is_set(limit: Item<'_>) -> bool {
    let Value::Map(entries) = &limit.value else {
        return true;
    };
    let is_meant = |name: &str| suggest(&name.replace('-', "_"), [NAME]).is_some();
    let mut names = entries.iter().map(|(key, _)| key.text.as_str());
    names.any(|name| name == MERGE || is_meant(name))
}
