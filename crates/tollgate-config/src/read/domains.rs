//! Domains of Envoy's rate limit service, and what goes for each of them: `domains`.

use std::sync::Arc;

use tollgate_policy::{FollowRule, OnStoreError, REQUEST_LIMITS};

use super::fields::{Fields, Listed};
use super::file::{field, items};
use super::names::DOMAIN;
use super::scalar::{text, yes};
use crate::report::{Read, Report, quoted};
use crate::yaml::{Node, Value};

/// Domains in one file.
const DOMAINS_MAX: usize = 1_000;
/// Bytes of a domain, as the service reads it.
const DOMAIN_BYTES: usize = 4 * 1024;
/// Limits that requests bring along are counted in so many tables, one for each unit of time.
const UNITS: usize = tollgate_policy::Unit::ALL.len();

/// Keys that each of them has room for at the most, as a limit has.
const KEYS_MAX: usize = 1_000_000;

/// Reads the list. None if no domain follows the limits of its requests.
pub(super) fn domains(
    node: &Node,
    room: usize,
    on_store_error: Option<OnStoreError>,
    report: &Report<'_>,
) -> Read<Option<FollowRule>> {
    let listed = Listed {
        name: "domains",
        is: "a list",
        hint: "write `domains: [{ name: edge, follow_request_limits: true }]`",
        most: Some((DOMAINS_MAX, "name only those that are not like the others")),
    };
    let read = listed.read(node, report, |node, number| domain(node, number, report))?;
    let domains: Vec<Arc<str>> = read.into_iter().flatten().collect();
    Ok((!domains.is_empty()).then(|| FollowRule {
        domains,
        max_keys: (room / UNITS).clamp(1, KEYS_MAX),
        on_store_error: on_store_error.unwrap_or_default(),
    }))
}

/// Reads one; its name if it follows.
fn domain(node: &Node, number: usize, report: &Report<'_>) -> Read<Option<Arc<str>>> {
    let fields = Fields::open_with(node, "a domain", DOMAIN, report, |name| match name {
        "domain" => Some("write `name: edge`".into()),
        "descriptors" | "limits" => {
            Some("limits stand at the top of the file, each with `match: { domain: … }`".into())
        }
        _ => None,
    })?;
    let name = fields.read("name", |node| domain_name(node, report));
    let follows = fields.read("follow_request_limits", |node| yes(node, report));
    let Some(name) = name? else {
        return Err(report.error(
            fields.place,
            "missing-field",
            format!("domain {number} has no name"),
            "add `name: edge`, the `domain` of the filter in Envoy",
        ));
    };
    Ok(follows?.unwrap_or(false).then_some(name))
}

fn domain_name(node: &Node, report: &Report<'_>) -> Read<Arc<str>> {
    let name = text(node, report)?;
    let wrong = |message: String, hint: &str| {
        Err(report.error(node.place, "bad-domain", message, hint.to_owned()))
    };
    if name.is_empty() || name.len() > DOMAIN_BYTES {
        return wrong(
            format!("a domain has 1 to {DOMAIN_BYTES} bytes"),
            "write the `domain` of the filter in Envoy",
        );
    }
    if name.contains('*') {
        return wrong(
            format!("{} is no name: here `*` stands for itself", quoted(name)),
            "write out each domain whose callers are trusted",
        );
    }
    Ok(Arc::from(name))
}

/// Does a domain follow, as it stands in the tree?
pub(super) fn first_that_follows(root: &Node) -> Option<&Node> {
    let follows = |node: &&Node| {
        let said = field(node, "follow_request_limits").map(|node| &node.value);
        matches!(said, Some(Value::Scalar { text, .. }) if text == "true")
    };
    items(root, "domains").iter().find(follows)
}

/// The name under which limits that requests bring along are counted, if some are.
pub(super) fn taken_name(root: &Node) -> Option<&'static str> {
    first_that_follows(root).map(|_| REQUEST_LIMITS)
}
