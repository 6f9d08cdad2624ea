//! `domains`: settings for single domains of Envoy's rate limit service.

use std::sync::Arc;

use tollgate_policy::{OnStoreError, OverridePolicy, REQUEST_LIMITS};

use super::fields::{Fields, Listed};
use super::item::Item;
use super::scalar::{boolean, text};
use crate::report::{Read, quoted};
use crate::shape;
use crate::yaml::Value;

/// Domains in one file.
const DOMAINS_MAX: usize = 1_000;
/// Bytes of a domain, as the service reads it.
const DOMAIN_BYTES: usize = 4 * 1024;
/// Limits of requests are counted in this many tables, one for each unit of time.
const UNITS: usize = tollgate_policy::Unit::ALL.len();
/// The maximum number of keys in each table, as for a limit.
const KEYS_MAX: usize = 1_000_000;

/// Reads the list. None if no domain follows the limits of its requests.
pub(super) fn domains(
    node: Item<'_>,
    max_keys: usize,
    on_store_error: Option<OnStoreError>,
) -> Read<Option<OverridePolicy>> {
    let listed = Listed {
        name: "domains",
        hint: "write `domains: [{ name: edge, follow_request_limits: true }]`",
        max: (DOMAINS_MAX, "list only domains that differ from the others"),
    };
    let domains: Vec<Arc<str>> = listed.read(node, domain)?.into_iter().flatten().collect();
    Ok((!domains.is_empty()).then(|| OverridePolicy {
        domains,
        max_keys: (max_keys / UNITS).clamp(1, KEYS_MAX),
        on_store_error: on_store_error.unwrap_or_default(),
    }))
}

/// Reads one; its name if it follows.
fn domain(node: Item<'_>, number: usize) -> Read<Option<Arc<str>>> {
    let fields = Fields::open_with(node, "a domain", shape::Domain::FIELDS, |name| match name {
        "domain" => Some("write `name: edge`".into()),
        "descriptors" | "limits" => {
            Some("limits are at the top of the file, each with `match: { domain: … }`".into())
        }
        _ => None,
    })?;
    let message = format!("domain {number} has no name");
    let hint = "add `name: edge`, the `domain` of the filter in Envoy";
    let name = fields.required("name", (&message, hint), domain_name);
    let follows = fields.read("follow_request_limits", boolean);
    let name = name?;
    Ok(follows?.unwrap_or(false).then_some(name))
}

fn domain_name(node: Item<'_>) -> Read<Arc<str>> {
    let name = text(node)?;
    let (message, hint) = if name.is_empty() || name.len() > DOMAIN_BYTES {
        (
            format!("a domain has 1 to {DOMAIN_BYTES} bytes"),
            "write the `domain` of the filter in Envoy",
        )
    } else if name.contains('*') {
        (
            format!("{} is not a name: `*` is not a pattern here", quoted(name)),
            "list each domain whose callers are trusted",
        )
    } else {
        return Ok(Arc::from(name));
    };
    Err(node.error("bad-domain", message, hint))
}

/// The first domain that follows limits of requests, whatever else is wrong in the tree.
pub(super) fn first_that_follows(root: Item<'_>) -> Option<Item<'_>> {
    let is_true =
        |node: Item<'_>| matches!(&node.value, Value::Scalar { text, .. } if text == "true");
    let follows = |node: &Item<'_>| node.field("follow_request_limits").is_some_and(is_true);
    root.items_of("domains").into_iter().find(follows)
}

/// The name that limits of requests are counted under, if a domain follows them.
pub(super) fn reserved_name(root: Item<'_>) -> Option<&'static str> {
    first_that_follows(root).map(|_| REQUEST_LIMITS)
}
