//! The names of all fields, by where they stand: what the readers accept and what the schema lists.

/// The file.
pub(crate) const FILE: &[&str] = &[
    "version",
    "store",
    "on_store_error",
    "sharing",
    "default",
    "ipv6_prefix",
    "key_privacy",
    "trusted_proxies",
    "client_address",
    "paths",
    "headers",
    "tiers",
    "allow",
    "deny",
    "limits",
    "domains",
    "queues",
    "pressure",
    "gateway",
];
/// `store` as a map.
pub(crate) const STORE: &[&str] = &[
    "url",
    "username",
    "password_env",
    "password_file",
    "sentinel_username",
    "sentinel_password_env",
    "sentinel_password_file",
    "ca_file",
    "cert_file",
    "key_file",
    "deadline",
    "prefix",
    "nodes",
];
/// `paths`.
pub(crate) const PATHS: &[&str] = &["ignore_case", "trailing_slash"];
/// `headers`.
pub(crate) const HEADERS: &[&str] = &[
    "retry_after",
    "jitter",
    "x_ratelimit",
    "ratelimit",
    "problem",
];
/// A tier.
pub(crate) const TIER: &[&str] = &["times", "weight"];
/// An entry of `allow` or `deny`.
pub(crate) const LIST: &[&str] = &["name", "match", "except", "reason", "expires"];
/// An entry of `domains`.
pub(crate) const DOMAIN: &[&str] = &["name", "follow_request_limits"];
/// `match` and `except`.
pub(crate) const MATCH: &[&str] = &[
    "method",
    "path",
    "host",
    "header",
    "query",
    "ip",
    "domain",
    "descriptor",
    "entries",
];
/// How much: in a limit and in its candidate.
pub(crate) const QUOTA: &[&str] = &[
    "algorithm",
    "allow",
    "burst",
    "tolerance",
    "queue",
    "max_wait",
    "estimate",
    "times",
    "for",
    "slack",
    "ttl",
    "calendar",
    "max_keys",
];
/// `calendar`.
pub(crate) const CALENDAR: &[&str] = &["every", "zone", "starts"];
/// A limit, beside [`QUOTA`].
pub(crate) const LIMIT: &[&str] = &[
    "name",
    "match",
    "except",
    "replaces",
    "key",
    "missing_key",
    "cost",
    "tier",
    "overrides",
    "candidate",
    "when_over",
    "on_store_error",
    "sharing",
    "mode",
    "enforce",
    "expires",
    "owner",
    "reason",
];
/// The fields of a limit that its quota as `default` does not have.
pub(crate) const NOT_OF_DEFAULT: &[&str] = &["name", "match", "except", "replaces"];
/// An override: it keeps the algorithm, and so the shape, of its limit.
pub(crate) const OVERRIDE: &[&str] = &[
    "key",
    "allow",
    "burst",
    "tolerance",
    "queue",
    "max_wait",
    "times",
    "for",
    "slack",
    "ttl",
    "unlimited",
    "blocked",
    "expires",
    "reason",
];
/// `cost` that is read from the request.
pub(crate) const COST: &[&str] = &["from", "default", "min", "max"];

/// A queue.
pub(crate) const QUEUE: &[&str] = &[
    "name",
    "match",
    "except",
    "flow",
    "missing_key",
    "tier",
    "cost",
    "at_once",
    "at_once_per_flow",
    "rate",
    "burst",
    "waiting",
    "waiting_per_flow",
    "max_wait",
];
/// `at_once` that follows what is seen.
pub(crate) const ADAPTIVE: &[&str] = &["adaptive", "min", "max", "initial", "timeout"];
/// `pressure`.
pub(crate) const PRESSURE: &[&str] = &["latency", "errors", "cpu", "floor", "floors"];
/// `gateway`.
pub(crate) const GATEWAY: &[&str] = &["accept", "timeouts", "max_body", "tell_wait", "upstreams"];
/// `accept` of the gateway.
pub(crate) const ACCEPT: &[&str] = &["connections", "per_address", "rate", "burst"];
/// `timeouts` of the gateway.
pub(crate) const CLIENT_TIMEOUTS: &[&str] = &["head", "body", "idle", "write"];
/// An upstream.
pub(crate) const UPSTREAM: &[&str] = &[
    "name",
    "match",
    "servers",
    "protocol",
    "ca_file",
    "timeouts",
    "keep_host",
    "retries",
    "health",
];
/// `timeouts` of an upstream.
pub(crate) const SERVER_TIMEOUTS: &[&str] = &["connect", "answer", "idle"];
/// `health` of an upstream.
pub(crate) const HEALTH: &[&str] = &["path", "every", "timeout", "fails", "passes"];

/// Every place in the file, by the name of its type in the schema, and its fields.
#[cfg(test)]
pub(crate) fn field_sets() -> Vec<(&'static str, Vec<&'static str>)> {
    let limit = || LIMIT.iter().chain(QUOTA).copied();
    vec![
        ("Policy", FILE.to_vec()),
        ("Store", STORE.to_vec()),
        ("Paths", PATHS.to_vec()),
        ("Headers", HEADERS.to_vec()),
        ("Tier", TIER.to_vec()),
        ("ListEntry", LIST.to_vec()),
        ("Domain", DOMAIN.to_vec()),
        ("Match", MATCH.to_vec()),
        ("Calendar", CALENDAR.to_vec()),
        ("Limit", limit().collect()),
        (
            "DefaultLimit",
            limit().filter(|f| !NOT_OF_DEFAULT.contains(f)).collect(),
        ),
        ("Candidate", QUOTA.to_vec()),
        ("Override", OVERRIDE.to_vec()),
        ("CostFrom", COST.to_vec()),
        ("Queue", QUEUE.to_vec()),
        ("Adaptive", ADAPTIVE.to_vec()),
        ("Pressure", PRESSURE.to_vec()),
        ("Gateway", GATEWAY.to_vec()),
        ("Accept", ACCEPT.to_vec()),
        ("ClientTimeouts", CLIENT_TIMEOUTS.to_vec()),
        ("Upstream", UPSTREAM.to_vec()),
        ("ServerTimeouts", SERVER_TIMEOUTS.to_vec()),
        ("Health", HEALTH.to_vec()),
    ]
}
