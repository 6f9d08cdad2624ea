//! The shape of a queue.

use schemars::JsonSchema;

use super::limit::Cost;
use super::{Match, Number, OneOrMany};

/// Where requests wait that no limit refused, if not all may go at once.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct Queue {
    /// Its name, by which answers, metrics and logs refer to it.
    #[schemars(regex(pattern = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"))]
    name: String,
    /// Which requests it is for; all unless told otherwise. The first queue that matches is the one.
    r#match: Option<Match>,
    /// Which of these it is not for.
    except: Option<OneOrMany<Match>>,
    /// Who is served as one: `header.x-api-key`, `ip`, `path.tenant`, or a list. Everybody, unless told otherwise.
    flow: Option<OneOrMany<String>>,
    /// As whom a request without its flow waits: as its address unless told otherwise.
    missing_key: Option<MissingFlow>,
    /// Where the name of the client's tier is found; tiers have a `weight`.
    tier: Option<String>,
    /// What a request takes of its flow's share; 1 unless told otherwise.
    cost: Option<Cost>,
    /// How many are under way at once: a number from 1 to 100000, or how it is found. Needed without `rate`.
    at_once: Option<AtOnce>,
    /// How many of one flow are under way at once, from 1 to `at_once` (to its `max` if that is found); as many
    /// as there are turns unless told otherwise. With `rate` alone it bounds as well.
    at_once_per_flow: Option<Number>,
    /// How fast they go: `3000/s`. Needed without `at_once`.
    rate: Option<String>,
    /// How many go together before `rate` counts; 1 unless told otherwise.
    burst: Option<Number>,
    /// How many wait in all, from 1 to 1000000; 1000 unless told otherwise.
    waiting: Option<Number>,
    /// How many of one flow wait; 100 unless told otherwise, and all of them without `flow`.
    waiting_per_flow: Option<Number>,
    /// How long anybody waits, from `1ms` to `1h`; `10s` unless told otherwise.
    max_wait: Option<String>,
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

/// A number of requests at once that follows what is seen of them.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Adaptive {
    /// How it is found: by latency against what is usual (`gradient2`), or by failures alone (`aimd`).
    adaptive: Estimator,
    /// Never fewer; 4 unless told otherwise.
    min: Option<Number>,
    /// Never more; 200 unless told otherwise.
    max: Option<Number>,
    /// At the start; 20 unless told otherwise.
    initial: Option<Number>,
    /// What takes longer counts as failed; `5s` unless told otherwise.
    timeout: Option<String>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", inline)]
enum Estimator {
    Gradient2,
    Aimd,
}
