//! The shape of a domain.

use schemars::JsonSchema;

/// A domain of Envoy's rate limit service.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct Domain {
    /// The `domain` that its callers send.
    name: String,
    /// Is a limit followed that a request brings along with a descriptor? It is not unless told otherwise: whoever
    /// can ask in the domain chooses its own limits then.
    follow_request_limits: Option<bool>,
}
