//! The schema of the cases of `expect`: their fields.

use std::collections::BTreeMap;

use schemars::JsonSchema;

use super::{Number, NumberOrText, OneOrMany};

section! {
    /// A sequence of requests that starts with unused limits, for `tollgate test`.
    Case {
        /// Its name in reports.
        name: String,
        /// When its clock starts: `2026-01-01` or `2026-01-01T12:00:00Z`. Default: `2026-01-01`.
        start: Option<String>,
        /// The request of all steps that have none of their own.
        request: Option<CaseRequest>,
        /// The steps, in order.
        steps: Vec<Step>,
    }
}

section! {
    /// A request, sent once or several times, and the decision about it. A field that is not set is not compared.
    Step {
        /// How far the clock moves before the request. Default: not at all.
        advance: Option<String>,
        /// How the oldest request ends that passed and has not ended yet: its actual cost, `done` if it took what it was
        /// charged, or `cancel`. It ends before the request of this step.
        settle: Option<NumberOrText>,
        /// The request. Default: the request of the case.
        request: Option<CaseRequest>,
        /// How often it is sent, from 1 to 1000000. Default: 1.
        times: Option<Number>,
        /// The verdict on each of these requests.
        verdict: Verdict,
        /// The reason, as responses name it.
        reason: Option<Reason>,
        /// The limit that decided, or the entry of `allow` or `deny`.
        limit: Option<String>,
        /// When the last of these requests may come again.
        retry_after: Option<String>,
        /// How long the last of these requests waits.
        delay: Option<String>,
        /// What the last of these requests leaves of the limit.
        remaining: Option<Number>,
        /// The limits that would refuse the request if they were enforced; `[]` for none.
        shadow: Option<OneOrMany<String>>,
        /// The queue of the request.
        queue: Option<String>,
        /// The weight of the request in that queue.
        weight: Option<Number>,
    }
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", inline)]
enum Verdict {
    Pass,
    Wait,
    Refuse,
    Never,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", inline)]
enum Reason {
    Limit,
    AllowList,
    DenyList,
    Unmatched,
    OnlyCounted,
    Path,
    MissingKey,
    Blocked,
}

section! {
    /// A request of a case.
    CaseRequest {
        /// The method. Default: `GET`.
        method: Option<String>,
        /// The path, with its query if it has one. Default: `/`.
        path: Option<String>,
        /// The host.
        host: Option<String>,
        /// The client's address.
        ip: Option<String>,
        /// Headers; a list of values for a header that is repeated.
        headers: Option<BTreeMap<String, OneOrMany<NumberOrText>>>,
        /// The fields of a request to `/v1/check`.
        fields: Option<BTreeMap<String, NumberOrText>>,
        /// The domain of an Envoy rate limit request.
        domain: Option<String>,
        /// The entries of an Envoy descriptor.
        descriptor: Option<BTreeMap<String, NumberOrText>>,
        /// The cost that the caller sets.
        cost: Option<Number>,
    }
}
