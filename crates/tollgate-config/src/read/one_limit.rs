//! One limit that stands alone: how much it allows, without a name, a key or a match.

use tollgate::Rate;
use tollgate_policy::Quota;

use super::fields::Fields;
use super::names::{LIMIT, QUOTA};
use super::quota::Written;
use crate::report::{Read, Report, quoted};
use crate::yaml::{Node, Value};

/// Reads a limit from a map of its fields, or from a rate alone, which is its `allow`.
pub(crate) fn one_limit(node: &Node, report: &Report<'_>) -> Read<Quota> {
    const WHAT: &str = "a limit";
    let written = if let Value::Scalar { text, .. } = &node.value {
        if text.contains(char::is_whitespace) && text.parse::<Rate>().is_err() {
            return Err(report.error(
                node.place,
                "not-a-map",
                format!(
                    "{} is neither a rate nor the fields of a limit",
                    quoted(text)
                ),
                "write a rate such as `5/s`, or the fields: `allow: 5/s, burst: 10`",
            ));
        }
        Written::from_rate(node, report)?
    } else {
        // A calendar needs a date, and a limit that stands alone has only a clock.
        let known = QUOTA.iter().copied().filter(|field| *field != "calendar");
        let known: Vec<&'static str> = known.collect();
        let fields = Fields::open_with(node, WHAT, &known, report, |field| match field {
            "calendar" => {
                Some("write a period without a calendar, such as `allow: 100/day`".into())
            }
            field if LIMIT.contains(&field) => Some(format!(
                "leave `{field}` out: it says for which requests a limit is, not how much it allows"
            )),
            _ => None,
        })?;
        Written::read(&fields, None, WHAT, report)?
    };
    written.quota("", report)
}
