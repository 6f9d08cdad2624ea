//! The shape of a limit.

use std::collections::BTreeMap;

use schemars::JsonSchema;

use super::{Match, Number, NumberOrText, OnStoreError, OneOrMany, Sharing};

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", inline)]
enum Algorithm {
    TokenBucket,
    Gcra,
    LeakyBucket,
    FixedWindow,
    SlidingLog,
    SlidingWindow,
    BurstCredits,
    Concurrency,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", inline)]
enum Estimate {
    Span,
    Strict,
}

/// Days, weeks or months as people see them.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Calendar {
    /// How long a period is.
    every: Every,
    /// A name of the time zone database, such as `Europe/Berlin`; UTC unless told otherwise.
    zone: Option<String>,
    /// The day that a month starts with, or the weekday that a week starts with.
    starts: Option<NumberOrText>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", inline)]
enum Every {
    Day,
    Week,
    Month,
}

/// The fields that say how much, and those beside them that a limit has with or without a name.
macro_rules! limit_like {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$about])*
        #[derive(JsonSchema)]
        #[schemars(deny_unknown_fields)]
        pub(super) struct $name {
            $($(#[$doc])* $field: $type,)*
            /// How it decides; a token bucket unless told otherwise.
            algorithm: Option<Algorithm>,
            /// How many in how long: `5/s`, `100/min`. A plain number for concurrency and with `calendar`.
            allow: Option<NumberOrText>,
            /// token-bucket: what may come at once, in units or as a span of credit (`30s`).
            burst: Option<NumberOrText>,
            /// gcra: how much earlier than due still conforms.
            tolerance: Option<String>,
            /// leaky-bucket: how many may wait.
            queue: Option<Number>,
            /// leaky-bucket: the longest wait that is still worth queueing for.
            max_wait: Option<String>,
            /// sliding-window: how the oldest part of the window is counted.
            estimate: Option<Estimate>,
            /// burst-credits: how many times faster a burst may run.
            times: Option<Number>,
            /// burst-credits: for how long.
            r#for: Option<String>,
            /// burst-credits: what may come at once.
            slack: Option<Number>,
            /// concurrency: how long a permit counts if nobody gives it back.
            ttl: Option<String>,
            /// fixed-window: days, weeks or months of a calendar instead of a span.
            calendar: Option<Calendar>,
            /// How many keys there is room for. A million if left out; with more than sixteen limits they
            /// share room for sixteen million.
            max_keys: Option<Number>,
        }
    };
}

limit_like! {
    /// A limit and whom it is for.
    Limit {
        /// Its name, by which answers, metrics and logs refer to it.
        #[schemars(regex(pattern = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"))]
        name: String,
        /// Which requests it is for; all unless told otherwise.
        r#match: Option<Match>,
        /// Which of these it is not for.
        except: Option<OneOrMany<Match>>,
        /// Limits, by their names, that are not charged where this one is.
        replaces: Option<OneOrMany<String>>,
        /// Who shares one allowance: `ip`, `header.x-rider-id`, `path.ride`, or a list. Everybody, unless told otherwise.
        key: Option<OneOrMany<String>>,
        /// What happens to a request without its key.
        missing_key: Option<MissingKey>,
        /// What a request takes; what the caller says, or 1, unless told otherwise.
        cost: Option<Cost>,
        /// Where the name of the client's tier is found.
        tier: Option<String>,
        /// Other quotas for single keys.
        overrides: Option<Vec<Override>>,
        /// How much it would be: counted beside, never enforced.
        candidate: Option<Candidate>,
        /// What a request takes that does not pass: nothing, unless told otherwise; or what it costs, as far as that
        /// is left, for costs that are told when the work is done.
        when_over: Option<WhenOver>,
        /// What happens while a shared store gives no answer; what the file says unless told otherwise.
        on_store_error: Option<OnStoreError>,
        /// How nodes share it: `exact`, `lease` or `sync`; what the file says unless told otherwise.
        sharing: Option<Sharing>,
        /// Is it enforced?
        mode: Option<Mode>,
        /// For which share of the keys it is enforced: `25%`.
        enforce: Option<String>,
        /// From when on it does not apply any more: `2027-01-01` or `2027-01-01T12:00:00Z`.
        expires: Option<String>,
        /// Who answers for it.
        owner: Option<String>,
        /// Why it is there.
        reason: Option<String>,
    }
}

limit_like! {
    /// The limit for requests that no other matches.
    DefaultLimit {
        /// Who shares one allowance: `ip`, `header.x-rider-id`, `path.ride`, or a list. Everybody, unless told otherwise.
        key: Option<OneOrMany<String>>,
        /// What happens to a request without its key.
        missing_key: Option<MissingKey>,
        /// What a request takes; what the caller says, or 1, unless told otherwise.
        cost: Option<Cost>,
        /// Where the name of the client's tier is found.
        tier: Option<String>,
        /// Other quotas for single keys.
        overrides: Option<Vec<Override>>,
        /// How much it would be: counted beside, never enforced.
        candidate: Option<Candidate>,
        /// What a request takes that does not pass: nothing, unless told otherwise; or what it costs, as far as that
        /// is left, for costs that are told when the work is done.
        when_over: Option<WhenOver>,
        /// What happens while a shared store gives no answer; what the file says unless told otherwise.
        on_store_error: Option<OnStoreError>,
        /// How nodes share it: `exact`, `lease` or `sync`; what the file says unless told otherwise.
        sharing: Option<Sharing>,
        /// Is it enforced?
        mode: Option<Mode>,
        /// For which share of the keys it is enforced: `25%`.
        enforce: Option<String>,
        /// From when on it does not apply any more: `2027-01-01` or `2027-01-01T12:00:00Z`.
        expires: Option<String>,
        /// Who answers for it.
        owner: Option<String>,
        /// Why it is there.
        reason: Option<String>,
    }
}

limit_like! {
    /// A quota that is tried beside the limit's own; what it does not say is taken from the limit.
    Candidate {}
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", inline)]
enum MissingKey {
    Ip,
    Shared,
    Deny,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", inline)]
enum WhenOver {
    TakeNothing,
    TakeRest,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", inline)]
enum Mode {
    Enforce,
    Shadow,
    Off,
}

/// What a request takes: a number, a map of routes, or where the request says it.
#[derive(JsonSchema)]
#[schemars(untagged, inline)]
pub(super) enum Cost {
    Constant(Number),
    From(CostFrom),
    Routes(BTreeMap<String, Number>),
}

/// A cost that the request names.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct CostFrom {
    /// Where it stands, such as `header.x-cost`.
    from: String,
    /// If the request does not say; 1 unless told otherwise.
    default: Option<Number>,
    /// It never takes less; 1 unless told otherwise.
    min: Option<Number>,
    /// It never takes more, and this much if what it says is no number.
    max: Number,
}

/// A quota for one key; what it does not say is taken from the limit.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Override {
    /// The key: one value, or one for each part.
    key: OneOrMany<NumberOrText>,
    /// How many in how long: `5/s`. A plain number for concurrency and with `calendar`.
    allow: Option<NumberOrText>,
    /// token-bucket: what may come at once, in units or as a span of credit (`30s`).
    burst: Option<NumberOrText>,
    /// gcra: how much earlier than due still conforms.
    tolerance: Option<String>,
    /// leaky-bucket: how many may wait.
    queue: Option<Number>,
    /// leaky-bucket: the longest wait that is still worth queueing for.
    max_wait: Option<String>,
    /// burst-credits: how many times faster a burst may run.
    times: Option<Number>,
    /// burst-credits: for how long.
    r#for: Option<String>,
    /// burst-credits: what may come at once.
    slack: Option<Number>,
    /// concurrency: how long a permit counts if nobody gives it back.
    ttl: Option<String>,
    /// No limit at all.
    unlimited: Option<bool>,
    /// Nothing passes.
    blocked: Option<bool>,
    /// From when on it does not apply any more: `2027-01-01` or `2027-01-01T12:00:00Z`.
    expires: Option<String>,
    /// Why.
    reason: Option<String>,
}
