//! Reads a quota on its own: how much a limit allows, without a name, a key or a match.

use tollgate::Rate;
use tollgate_policy::Quota;

use super::fields::Fields;
use super::item::Item;
use super::quota::QuotaFields;
use crate::report::{Read, quoted};
use crate::shape;
use crate::yaml::Value;

/// Reads a quota from a map of its fields, or from a rate, which is its `allow`.
pub(crate) fn one_limit(node: Item<'_>) -> Read<Quota> {
    const WHAT: &str = "a limit";
    let written = if let Value::Scalar { text, .. } = &node.value {
        if text.contains(char::is_whitespace) && text.parse::<Rate>().is_err() {
            return Err(node.error(
                "not-a-map",
                format!(
                    "{} is neither a rate nor the fields of a limit",
                    quoted(text)
                ),
                "write a rate such as `5/s`, or the fields: `allow: 5/s, burst: 10`",
            ));
        }
        QuotaFields::from_rate(node)?
    } else {
        // A calendar needs a date, and a limit on its own has only a clock.
        let mut known = shape::Candidate::FIELDS.to_vec();
        known.retain(|field| *field != "calendar");
        let fields = Fields::open_with(node, WHAT, &known, |field| match field {
            "calendar" => {
                Some("write a period without a calendar, such as `allow: 100/day`".into())
            }
            field if shape::Limit::FIELDS.contains(&field) => Some(format!(
                "remove `{field}`: it selects requests, and does not say how much the limit allows"
            )),
            _ => None,
        })?;
        QuotaFields::read(&fields, None, WHAT)?
    };
    written.quota("", node.report)
}
