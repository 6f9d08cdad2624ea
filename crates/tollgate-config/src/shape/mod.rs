//! The fields of the policy file: one description of each, for the JSON Schema and for the reader.
//!
//! A `section!` derives the schema of a map and lists the names of its fields, which are those that the reader
//! accepts. No value is ever read into these types: they could not say where a value stands, and would stop at the first
//! mistake.

#![allow(
    dead_code,
    reason = "the schema is derived from the fields; no value is stored in them"
)]

use std::collections::BTreeMap;

use schemars::JsonSchema;

/// A map of the file: a struct with a JSON Schema, and `FIELDS`, the names of its fields in their order.
macro_rules! section {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$about])*
        #[derive(schemars::JsonSchema)]
        #[schemars(deny_unknown_fields)]
        pub(crate) struct $name {
            $($(#[$doc])* $field: $type,)*
        }

        impl $name {
            pub(crate) const FIELDS: &'static [&'static str] =
                &[$(crate::shape::field_name(stringify!($field))),*];
        }
    };
}

mod expect;
mod gateway;
mod limit;
mod queue;
mod store;

pub(crate) use expect::{Case, CaseRequest, Step};
pub(crate) use gateway::{Accept, ClientTimeouts, Gateway, Health, ServerTimeouts, Upstream};
pub(crate) use limit::{
    Calendar, Candidate, CostFrom, FIXED_IN_OVERRIDES, Limit, NOT_IN_DEFAULT, Override,
};
pub(crate) use queue::{Adaptive, Pressure, Queue};
pub(crate) use store::Store;

use limit::DefaultLimit;
use store::{AnyStore, OnStoreError, Sharing};

/// The name of a field in the file: `match` for `r#match`.
const fn field_name(identifier: &'static str) -> &'static str {
    match identifier.as_bytes() {
        [b'r', b'#', ..] => identifier.split_at(2).1,
        _ => identifier,
    }
}

section! {
    /// A policy of Tollgate: the limits, which requests they apply to, and what happens to all other requests.
    Policy {
        /// The version of this format.
        #[schemars(range(min = 1, max = 1))]
        version: Option<u32>,
        /// Where usage is kept: `memory`, the address of a store that a fleet shares, or a map with the address as `url`.
        /// Default: `memory`.
        store: Option<AnyStore>,
        /// What happens while a shared store does not answer: each node enforces its share (`local`), all requests pass
        /// (`allow`), or all are refused (`deny`). Required with a shared store, here or in every limit.
        on_store_error: Option<OnStoreError>,
        /// How nodes share the limits in a shared store. `exact`: the store decides every request. `lease`: nodes borrow
        /// blocks and spend them locally. `sync`: nodes decide by a copy and push their usage. Default: `exact`.
        sharing: Option<Sharing>,
        /// What happens to a request that no limit matches: `pass`, `refuse`, or a limit.
        default: Option<Default>,
        /// Bits of an IPv6 address that `ip` keys count by. Default: 64.
        #[schemars(range(min = 32, max = 64))]
        ipv6_prefix: Option<u8>,
        /// Whether logs and the admin API show keys in plain text or hashed. Default: `plain`.
        key_privacy: Option<KeyPrivacy>,
        /// Networks of proxies that may name the client's address in a header. Default: none.
        trusted_proxies: Option<OneOrMany<String>>,
        /// The header in which these proxies name the client's address. Default: `x-forwarded-for`.
        client_address: Option<ClientAddress>,
        /// Request headers that clients cannot set, because a proxy sets or removes them. Only `tollgate check` uses them: it
        /// does not warn about keys, tiers and costs in them. Default: none.
        trusted_headers: Option<OneOrMany<String>>,
        /// How paths are compared.
        paths: Option<Paths>,
        /// What responses to clients contain.
        headers: Option<Headers>,
        /// Classes of clients. A tier scales every limit that has a `tier`.
        tiers: Option<BTreeMap<String, Tier>>,
        /// Requests that no limit applies to.
        allow: Option<Vec<ListEntry>>,
        /// Requests that are always refused; checked before `allow`.
        deny: Option<Vec<ListEntry>>,
        /// The limits. A request is charged to all that match it, or to none.
        limits: Option<Vec<Limit>>,
        /// Settings for single domains of Envoy's rate limit service.
        domains: Option<Vec<Domain>>,
        /// Fair queues of admitted requests. The first queue that matches a request is used.
        queues: Option<Vec<Queue>>,
        /// When all limits shrink under load, and how far.
        pressure: Option<Pressure>,
        /// How a gateway behaves, and where it sends requests.
        gateway: Option<Gateway>,
        /// Requests and their decisions. `tollgate test` runs them; servers ignore them.
        expect: Option<Vec<Case>>,
    }
}

/// One value or a list of them.
#[derive(JsonSchema)]
#[schemars(untagged, inline)]
pub(crate) enum OneOrMany<T> {
    One(T),
    Many(Vec<T>),
}

/// A whole number; `_` may separate digits, `k` and `M` behind them are thousands and millions.
#[derive(JsonSchema)]
#[schemars(untagged, inline)]
pub(crate) enum Number {
    Digits(u64),
    Text(#[schemars(regex(pattern = r"^[0-9][0-9_]*[kKM]?$"))] String),
}

/// A number or a text.
#[derive(JsonSchema)]
#[schemars(untagged, inline)]
pub(crate) enum NumberOrText {
    Number(u64),
    Text(String),
}

/// A number that may have decimals.
#[derive(JsonSchema)]
#[schemars(untagged, inline)]
enum Decimal {
    Number(f64),
    Text(#[schemars(regex(pattern = r"^[0-9][0-9_]*(\.[0-9]{1,6})?$"))] String),
}

#[derive(JsonSchema)]
#[schemars(untagged, inline)]
enum Default {
    Word(DefaultWord),
    Limit(Box<DefaultLimit>),
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", inline)]
enum DefaultWord {
    Pass,
    Refuse,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", inline)]
enum KeyPrivacy {
    Plain,
    Hashed,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", inline)]
enum ClientAddress {
    XForwardedFor,
    Forwarded,
    XRealIp,
}

section! {
    /// How paths are compared.
    Paths {
        /// Whether upper and lower case are the same. Default: false.
        ignore_case: Option<bool>,
        /// Whether a slash at the end is significant. Default: `ignore`.
        trailing_slash: Option<TrailingSlash>,
    }
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", inline)]
enum TrailingSlash {
    Ignore,
    Keep,
}

section! {
    /// What responses to clients contain.
    Headers {
        /// `Retry-After` on refusals. Default: true.
        retry_after: Option<bool>,
        /// Up to this share is added to `Retry-After`, so that clients do not retry together: `20%`. Default: `0%`.
        jitter: Option<String>,
        /// `X-RateLimit-*`: with the reset in `seconds` from now or as an `epoch`, or `off`; or `unprefixed`, for `RateLimit-Limit`,
        /// `-Remaining` and `-Reset` in seconds, as in older drafts. Default: `seconds`.
        x_ratelimit: Option<XRateLimit>,
        /// `RateLimit` and `RateLimit-Policy`. Default: true.
        ratelimit: Option<bool>,
        /// A problem body (RFC 9457) that explains a refusal. Default: true.
        problem: Option<bool>,
    }
}

#[derive(JsonSchema)]
#[schemars(untagged, inline)]
enum XRateLimit {
    Word(XRateLimitWord),
    Flag(bool),
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", inline)]
enum XRateLimitWord {
    Seconds,
    Epoch,
    Unprefixed,
    Off,
}

section! {
    /// A class of clients.
    Tier {
        /// By how much it multiplies a limit: `10` or `2.5`. Default: 1.
        times: Option<Decimal>,
        /// Its weight in fair queues, from 1 to 1000000. Default: 1.
        weight: Option<Number>,
        /// The keys that belong to it, for limits and queues with `tier: key`.
        keys: Option<OneOrMany<String>>,
    }
}

section! {
    /// Requests that always pass or are always refused.
    ListEntry {
        /// Its name in responses and logs.
        #[schemars(regex(pattern = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"))]
        name: Option<String>,
        /// Which requests it applies to.
        r#match: Match,
        /// Exceptions from `match`.
        except: Option<OneOrMany<Match>>,
        /// Why it exists.
        reason: Option<String>,
        /// When it ends: `2027-01-01` or `2027-01-01T12:00:00Z`.
        expires: Option<String>,
    }
}

section! {
    /// A domain of Envoy's rate limit service.
    Domain {
        /// The `domain` that its callers send.
        name: String,
        /// Whether limits that requests carry in their descriptors are enforced. Only for trusted callers: a caller in this
        /// domain can choose its own limits. Default: false.
        follow_request_limits: Option<bool>,
    }
}

section! {
    /// Conditions on a request. All of them must hold; of several values for one condition, one must.
    Match {
        /// Methods, such as `GET`.
        method: Option<OneOrMany<String>>,
        /// Paths, such as `/api/rides/{ride}/cancel` or `/admin/**`.
        path: Option<OneOrMany<String>>,
        /// Hosts without port; `*` matches any run of characters.
        host: Option<OneOrMany<String>>,
        /// Headers: a pattern, a list of patterns, `true` if the header must be present once and not blank, `false` for
        /// the opposite.
        header: Option<BTreeMap<String, ValueTest>>,
        /// Query parameters, as headers; but a parameter is also present without a value.
        query: Option<BTreeMap<String, ValueTest>>,
        /// Client addresses and networks, such as `10.0.0.0/8`.
        ip: Option<OneOrMany<String>>,
        /// The domain of an Envoy rate limit request.
        domain: Option<String>,
        /// Entries of an Envoy descriptor: patterns, `true` for any value, `false` if the entry must be absent.
        descriptor: Option<BTreeMap<String, ValueTest>>,
        /// All entries of an Envoy descriptor, in their order: `[{ generic_key: slow }, { remote_address: true }]`.
        entries: Option<OneOrMany<BTreeMap<String, ValueTest>>>,
    }
}

#[derive(JsonSchema)]
#[schemars(untagged, inline)]
enum ValueTest {
    Flag(bool),
    Number(i64),
    Text(String),
    Texts(Vec<String>),
}
