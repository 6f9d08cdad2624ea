//! The schema of a limit: its fields.

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

section! {
    /// Days, weeks or months of a time zone.
    Calendar {
        /// How long a period is.
        every: Every,
        /// A name of the time zone database, such as `Europe/Berlin`. Default: `UTC`.
        zone: Option<String>,
        /// The day that a month starts with, or the weekday that a week starts with. Default: 1, `monday`.
        starts: Option<NumberOrText>,
    }
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", inline)]
enum Every {
    Day,
    Week,
    Month,
}

section! {
    /// A limit, and the requests that it applies to.
    ///
    /// It also has the fields of a `Candidate`; the schema adds them.
    Limit {
        /// Its name in responses, metrics and logs.
        #[schemars(regex(pattern = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"))]
        name: String,
        /// Which requests it applies to. Default: all.
        r#match: Option<Match>,
        /// Exceptions from `match`.
        except: Option<OneOrMany<Match>>,
        /// Names of limits that are not charged where this one is.
        replaces: Option<OneOrMany<String>>,
        /// What requests are counted by: `ip`, `header.x-rider-id`, `path.ride`, or a list. Requests with the same key share
        /// one allowance. Default: one allowance for all requests.
        key: Option<OneOrMany<String>>,
        /// What happens to a request whose key is absent, blank or repeated: it is counted by its address (`ip`), together
        /// with all such requests (`shared`), or refused (`deny`). Default: `ip`.
        missing_key: Option<MissingKey>,
        /// How many units a request takes. Default: what the caller sets, or 1.
        cost: Option<Cost>,
        /// Where a request names the client's tier, such as `header.x-plan`, or `key`: the tier that lists the first part of
        /// the limit's key among its `keys`.
        tier: Option<String>,
        /// Other quotas for single keys.
        overrides: Option<Vec<Override>>,
        /// A quota to compare with: it is counted but never enforced.
        candidate: Option<Candidate>,
        /// What is taken of a cost that is not left: nothing of a refused request (`take-nothing`), what is left (`take-rest`),
        /// or all of a reservation that is settled at more than it reserved (`owe`). Default: `take-nothing`.
        when_over: Option<WhenOver>,
        /// With `when_over: owe`: how many units a key can owe at the most.
        max_debt: Option<Number>,
        /// What happens while a shared store does not answer. Default: `on_store_error` of the file.
        on_store_error: Option<OnStoreError>,
        /// How nodes share it: `exact`, `lease` or `sync`. Default: `sharing` of the file.
        sharing: Option<Sharing>,
        /// Whether it is enforced (`enforce`), only counted (`shadow`), or neither (`off`). Default: `enforce`.
        mode: Option<Mode>,
        /// For which share of the keys it is enforced: `25%`. Default: `100%`.
        enforce: Option<String>,
        /// When it ends: `2027-01-01` or `2027-01-01T12:00:00Z`.
        expires: Option<String>,
        /// Its owner: a team or a person.
        owner: Option<String>,
        /// Why it exists.
        reason: Option<String>,
    }
}

/// The limit for requests that no other limit matches.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct DefaultLimit {}

/// The fields of a limit that [`DefaultLimit`] does not have.
pub(crate) const NOT_IN_DEFAULT: &[&str] = &["name", "match", "except", "replaces"];

section! {
    /// A quota: what its own fields do not set is taken from the limit.
    Candidate {
        /// The algorithm. Default: `token-bucket`, or `fixed-window` with `calendar`.
        algorithm: Option<Algorithm>,
        /// The rate: `5/s`, `100/min`. A plain number for `concurrency` and with `calendar`.
        allow: Option<NumberOrText>,
        /// token-bucket: the burst, in units or as a span of the rate (`30s`). Default: the units of `allow`.
        burst: Option<NumberOrText>,
        /// gcra: how much earlier than due a request may come.
        tolerance: Option<String>,
        /// leaky-bucket: how many requests may wait.
        queue: Option<Number>,
        /// leaky-bucket: a request that would wait longer is refused.
        max_wait: Option<String>,
        /// sliding-window: how the oldest part of the window is estimated. Default: `span`.
        estimate: Option<Estimate>,
        /// burst-credits: how many times faster than `allow` a burst may run.
        times: Option<Number>,
        /// burst-credits: how long a burst may last.
        r#for: Option<String>,
        /// burst-credits: how many units may come at the same moment. Default: `times` times the units of `allow`.
        slack: Option<Number>,
        /// concurrency: when a permit expires that is not returned.
        ttl: Option<String>,
        /// fixed-window: days, weeks or months of a calendar instead of a span.
        calendar: Option<Calendar>,
        /// The maximum number of keys in memory. Default: a million; with more than sixteen limits, a share of sixteen
        /// million.
        max_keys: Option<Number>,
    }
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
    Owe,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", inline)]
enum Mode {
    Enforce,
    Shadow,
    Off,
}

/// How many units a request takes: a number, a map of routes, or where the request sets it.
#[derive(JsonSchema)]
#[schemars(untagged, inline)]
pub(crate) enum Cost {
    Constant(Number),
    From(CostFrom),
    Routes(BTreeMap<String, Number>),
}

section! {
    /// A cost that the request sets.
    CostFrom {
        /// Where the cost stands, such as `header.x-cost`.
        from: String,
        /// The cost of a request that sets none. Default: 1.
        default: Option<Number>,
        /// The minimum. Default: 1.
        min: Option<Number>,
        /// The maximum; also the cost of a request whose value is not a number.
        max: Number,
    }
}

section! {
    /// A quota for one key: what its own fields do not set is taken from the limit.
    ///
    /// It also has the fields of a `Candidate`, except for those that an override cannot change; the schema adds them.
    Override {
        /// The key: one value, or one for each part.
        key: OneOrMany<NumberOrText>,
        /// Whether there is no limit for this key.
        unlimited: Option<bool>,
        /// Whether all requests of this key are refused.
        blocked: Option<bool>,
        /// When it ends: `2027-01-01` or `2027-01-01T12:00:00Z`.
        expires: Option<String>,
        /// Why it exists.
        reason: Option<String>,
    }
}

/// The fields of a quota that an override cannot change: they say how the limit counts, not how much it allows.
pub(crate) const FIXED_IN_OVERRIDES: &[&str] = &["algorithm", "estimate", "calendar", "max_keys"];
