//! The schema of a queue and of `pressure`: their fields.

use std::collections::BTreeMap;

use schemars::JsonSchema;

use super::limit::Cost;
use super::{Match, Number, OneOrMany};

section! {
    /// A fair queue for requests that the limits admit but that may not all run at once.
    Queue {
        /// Its name in responses, metrics and logs.
        #[schemars(regex(pattern = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"))]
        name: String,
        /// Which requests it applies to. The first queue that matches is used. Default: all.
        r#match: Option<Match>,
        /// Exceptions from `match`.
        except: Option<OneOrMany<Match>>,
        /// What requests are grouped by: `header.x-api-key`, `ip`, `path.tenant`, or a list. Flows take turns. Default: one
        /// flow for all requests.
        flow: Option<OneOrMany<String>>,
        /// The flow of a request whose `flow` is missing: its address (`ip`), or one for all such requests (`shared`).
        /// Default: `ip`.
        missing_key: Option<MissingFlow>,
        /// Where a request names the client's tier, or `key`: the tier that lists the first part of `flow` among its `keys`.
        /// Tiers have a `weight`.
        tier: Option<String>,
        /// How much a request takes of its flow's share. Default: 1.
        cost: Option<Cost>,
        /// How many requests run at once: a number from 1 to 100000, or how it is estimated. Required without `rate`.
        at_once: Option<AtOnce>,
        /// How many requests of one flow run at once, from 1 to `at_once` (to its `max` if it is estimated). Default: no
        /// bound of its own.
        at_once_per_flow: Option<Number>,
        /// How fast requests leave the queue: `3000/s`. Required without `at_once`.
        rate: Option<String>,
        /// How many requests may leave together at that rate. Default: 1.
        burst: Option<Number>,
        /// How many requests may wait, from 1 to 1000000. Default: 1000.
        waiting: Option<Number>,
        /// How many requests of one flow may wait. Default: 100, or all of them without `flow`.
        waiting_per_flow: Option<Number>,
        /// The maximum wait, from `1ms` to `1h`. Default: `10s`.
        max_wait: Option<String>,
    }
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", inline)]
enum MissingFlow {
    Ip,
    Shared,
}

#[derive(JsonSchema)]
#[schemars(untagged, inline)]
enum AtOnce {
    Fixed(Number),
    Adaptive(Adaptive),
}

section! {
    /// A concurrency limit that is estimated from responses.
    Adaptive {
        /// The estimator: by latency (`gradient2`), or by failures alone (`aimd`).
        adaptive: Estimator,
        /// The minimum. Default: 4.
        min: Option<Number>,
        /// The maximum. Default: 200.
        max: Option<Number>,
        /// The value at the start. Default: 20.
        initial: Option<Number>,
        /// A response that takes longer counts as a failure. Default: `5s`.
        timeout: Option<String>,
    }
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", inline)]
enum Estimator {
    Gradient2,
    Aimd,
}

section! {
    /// When all limits shrink under load, and how far.
    Pressure {
        /// Mean latency of the backend above which limits shrink: `500ms`.
        latency: Option<String>,
        /// Share of failed responses of the backend above which limits shrink: `10%`.
        errors: Option<String>,
        /// Share of this machine's processors in use above which limits shrink: `90%`.
        cpu: Option<String>,
        /// The smallest part of a limit that is kept. Default: `10%`.
        floor: Option<String>,
        /// The same for single tiers: `{ free: 5%, pro: 50% }`.
        floors: Option<BTreeMap<String, String>>,
    }
}
