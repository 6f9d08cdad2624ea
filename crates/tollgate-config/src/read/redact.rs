//! Marks passwords in the file, so that no problem shows them.
//!
//! [`crate::redact`] finds most passwords by the look of a line. These functions mark what it cannot see.

use super::item::Item;
use crate::problem::Place;
use crate::shape;
use crate::yaml::Value;

/// Redacts an address with a user or password that a line does not show between `://` and `@`.
pub(super) fn redact_user(node: Item<'_>, text: &str) {
    let is_visible = |text: &str| {
        let rest = text.split_once("://").map(|(_, rest)| rest);
        rest.is_some_and(|rest| rest.contains('@'))
    };
    let (place, report) = (node.place, node.report);
    if !text.contains('@') {
        return;
    }
    if !(is_visible(text) && is_visible(report.line(place.line))) {
        report.redact(place);
    }
    if place.length != usize::MAX {
        return;
    }
    // An address in quotes continues in the next lines, and so does the password in it, up to its `@`.
    report.redact(place);
    let lines = text.chars().count();
    for line in place.line.saturating_add(1)..=place.line.saturating_add(lines) {
        report.redact(Place {
            line,
            column: 1,
            length: usize::MAX,
        });
        if report.line(line).contains('@') {
            return;
        }
    }
}

/// Redacts a text except for its first character. A text that is not in the line may be written with escapes: then the
/// whole value is redacted.
pub(super) fn redact_text(node: Item<'_>, secret: &str) {
    let (place, report) = (node.place, node.report);
    let line = report.line(place.line);
    let mut found = false;
    for (at, _) in line.match_indices(secret) {
        found = true;
        let before = line.get(..at).unwrap_or_default().chars().count();
        report.redact(Place {
            line: place.line,
            column: before + 2,
            length: secret.chars().count().saturating_sub(1),
        });
    }
    if !found {
        report.redact(place);
    }
}

/// Redacts the values of unknown fields of the store whose names suggest a password.
pub(super) fn redact_unknown_fields(store: Item<'_>) {
    let Value::Map(entries) = &store.value else {
        return;
    };
    for (key, value) in entries {
        let name = key.text.to_lowercase();
        let words = ["pass", "pw", "secret", "auth", "cred", "token"];
        let is_known = shape::Store::FIELDS.contains(&name.as_str());
        let is_scalar = matches!(value.value, Value::Scalar { .. });
        if is_scalar && !is_known && words.iter().any(|word| name.contains(word)) {
            store.report.redact(value.place);
        }
    }
}
