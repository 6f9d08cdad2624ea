//! The shape of `pressure`.

use std::collections::BTreeMap;

use schemars::JsonSchema;

/// When all limits shrink for a while, and how far.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct Pressure {
    /// Answers of the backend that take longer on average are pressure: `500ms`.
    latency: Option<String>,
    /// A larger share of failed answers of the backend is pressure: `10%`.
    errors: Option<String>,
    /// A larger share of this machine's processors in use is pressure: `90%`.
    cpu: Option<String>,
    /// Limits never shrink below this part of themselves; `10%` unless told otherwise.
    floor: Option<String>,
    /// The same for single tiers: `{ free: 5%, pro: 50% }`.
    floors: Option<BTreeMap<String, String>>,
}
