//! The shape of the policy file, for the schema only: nothing is ever read into these types.
//!
//! Reading goes by the tree, because these types could not say where a value stands and would stop at
//! the first mistake. A test holds their fields and those that are read together.

#![allow(
    dead_code,
    reason = "the schema is derived from the fields, nobody fills them"
)]

use std::collections::BTreeMap;

use schemars::JsonSchema;

mod domain;
mod gateway;
mod limit;
mod pressure;
mod queue;
mod store;

use domain::Domain;
use gateway::Gateway;
use limit::{DefaultLimit, Limit};
use pressure::Pressure;
use queue::Queue;
use store::{AnyStore, OnStoreError, Sharing};

/// A policy of Tollgate: which limits there are, for whom, and what happens to everyone else.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct Policy {
    /// The version of this format.
    #[schemars(range(min = 1, max = 1))]
    version: Option<u32>,
    /// Where what was used is kept: `memory`, the address of a store that a fleet shares, or a map with it as `url`.
    store: Option<AnyStore>,
    /// What happens while a shared store gives no answer: each node goes on with its share (`local`), everything
    /// passes (`allow`), or is refused (`deny`). Needed if the store is shared, here or in every limit.
    on_store_error: Option<OnStoreError>,
    /// How nodes share the limits that they count in a shared store: the store decides every request (`exact`, unless
    /// told otherwise), it lends blocks that nodes spend by themselves (`lease`), or nodes decide by what it said last and
    /// tell it afterwards (`sync`).
    sharing: Option<Sharing>,
    /// What happens to a request that no limit matches: `pass`, `refuse`, or a limit.
    default: Option<Default>,
    /// Bits of an IPv6 address that count for `ip` keys; 64 unless told otherwise.
    #[schemars(range(min = 32, max = 64))]
    ipv6_prefix: Option<u8>,
    /// May keys be shown in logs and to operators as they are?
    key_privacy: Option<KeyPrivacy>,
    /// Networks of the proxies whose word about the client's address is taken. None unless told otherwise.
    trusted_proxies: Option<OneOrMany<String>>,
    /// The header in which these proxies name the client.
    client_address: Option<ClientAddress>,
    /// How paths are compared.
    paths: Option<Paths>,
    /// What answers to clients look like.
    headers: Option<Headers>,
    /// Classes of clients; a tier scales every limit that names where the tier is found.
    tiers: Option<BTreeMap<String, Tier>>,
    /// Who is never limited.
    allow: Option<Vec<ListEntry>>,
    /// Who is always refused. Asked before `allow`.
    deny: Option<Vec<ListEntry>>,
    /// The limits. All that match a request are charged together, or none.
    limits: Option<Vec<Limit>>,
    /// Domains of Envoy's rate limit service that are not like the others.
    domains: Option<Vec<Domain>>,
    /// Where requests that no limit refused wait for their turn. The first that matches is the one.
    queues: Option<Vec<Queue>>,
    /// When all limits shrink for a while, and how far.
    pressure: Option<Pressure>,
    /// How a gateway behaves, and where requests go.
    gateway: Option<Gateway>,
}

/// One value or a list of them.
#[derive(JsonSchema)]
#[schemars(untagged, inline)]
pub(crate) enum OneOrMany<T> {
    One(T),
    Many(Vec<T>),
}

/// A whole number; `_` may stand between digits.
#[derive(JsonSchema)]
#[schemars(untagged, inline)]
pub(super) enum Number {
    Digits(u64),
    Text(#[schemars(regex(pattern = r"^[0-9][0-9_]*$"))] String),
}

/// A number or a text.
#[derive(JsonSchema)]
#[schemars(untagged, inline)]
pub(super) enum NumberOrText {
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

/// How paths are compared.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Paths {
    /// Do upper and lower case count as the same? They do not unless told otherwise.
    ignore_case: Option<bool>,
    /// Does a slash at the end count? It does not unless told otherwise.
    trailing_slash: Option<TrailingSlash>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", inline)]
enum TrailingSlash {
    Ignore,
    Keep,
}

/// What answers to clients look like.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Headers {
    /// `Retry-After` on refusals.
    retry_after: Option<bool>,
    /// Up to this share is added to `Retry-After`, so that clients do not come back together: `20%`.
    jitter: Option<String>,
    /// `X-RateLimit-*`: with the reset in `seconds` from now or as an `epoch`, or `off`.
    x_ratelimit: Option<XRateLimit>,
    /// `RateLimit` and `RateLimit-Policy`.
    ratelimit: Option<bool>,
    /// A body that explains a refusal.
    problem: Option<bool>,
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
    Off,
}

/// A class of clients.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Tier {
    /// How many times as much it is allowed: `10` or `2.5`; once unless told otherwise.
    times: Option<Decimal>,
    /// Its share where clients wait in line, from 1 to 1000000; 1 unless told otherwise.
    weight: Option<Number>,
}

/// Someone who is let through or kept out.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct ListEntry {
    /// What it is called in answers and logs.
    #[schemars(regex(pattern = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"))]
    name: Option<String>,
    /// Whom it is for.
    r#match: Match,
    /// Which of these it is not for.
    except: Option<OneOrMany<Match>>,
    /// Why.
    reason: Option<String>,
    /// From when on it does not apply any more: `2027-01-01` or `2027-01-01T12:00:00Z`.
    expires: Option<String>,
}

/// Conditions on a request; all that are there must hold. Of several values for one thing, one must.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct Match {
    /// Methods, such as `GET`.
    method: Option<OneOrMany<String>>,
    /// Paths, such as `/api/rides/{ride}/cancel` or `/admin/**`.
    path: Option<OneOrMany<String>>,
    /// Hosts without port; `*` stands for any run of characters.
    host: Option<OneOrMany<String>>,
    /// Headers: a pattern, a list of them, `true` if it must be there, `false` if it must not.
    header: Option<BTreeMap<String, ValueTest>>,
    /// Query parameters, as headers.
    query: Option<BTreeMap<String, ValueTest>>,
    /// Client addresses and networks, such as `10.0.0.0/8`.
    ip: Option<OneOrMany<String>>,
    /// The domain of an Envoy rate limit request.
    domain: Option<String>,
    /// Entries of an Envoy descriptor, as headers.
    descriptor: Option<BTreeMap<String, ValueTest>>,
    /// All entries of an Envoy descriptor, in their order: `[{ generic_key: slow }, { remote_address: true }]`.
    entries: Option<OneOrMany<BTreeMap<String, ValueTest>>>,
}

#[derive(JsonSchema)]
#[schemars(untagged, inline)]
enum ValueTest {
    Flag(bool),
    Number(i64),
    Text(String),
    Texts(Vec<String>),
}
