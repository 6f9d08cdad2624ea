//! The cases of `expect`: requests, and what a policy decides about them.
//!
//! A case belongs to the policy of its file, but no server reads it: `tollgate test` sends its requests through the
//! policy on a clock that only the case moves.

use std::net::IpAddr;

use tollgate::{Moment, Span};

/// A sequence of requests that starts with unused limits.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExpectedCase {
    /// Its name in reports.
    pub name: String,
    /// When its clock starts.
    pub start: Moment,
    /// The steps, in order.
    pub steps: Vec<ExpectedStep>,
}

/// One request, sent once or several times, and its decision.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExpectedStep {
    /// The line of the file, from 1.
    pub line: usize,
    /// How far the clock moves before the request.
    pub advance: Span,
    /// How the oldest request ends that passed and has not ended; before this one.
    pub settle: Option<ExpectedSettlement>,
    /// The request.
    pub request: ExpectedRequest,
    /// How often it is sent.
    pub times: u32,
    /// The decision.
    pub decision: ExpectedDecision,
}

/// What every request of a step gets. What is not set is not compared.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExpectedDecision {
    /// `pass`, `wait`, `refuse` or `never`.
    pub verdict: &'static str,
    /// Why, as responses name it.
    pub reason: Option<&'static str>,
    /// The limit that decided, or the entry of `allow` or `deny`.
    pub limit: Option<String>,
    /// When a refused request may come again; compared for the last request of the step.
    pub retry_after: Option<Span>,
    /// How long an admitted request waits; compared for the last request of the step.
    pub delay: Option<Span>,
    /// What is left of the limit; compared for the last request of the step.
    pub remaining: Option<u64>,
    /// The limits that would refuse the request if they were enforced, without order.
    pub shadow: Option<Vec<String>>,
    /// The queue of the request.
    pub queue: Option<String>,
    /// The weight of the request in that queue.
    pub weight: Option<u32>,
}

/// A request as a case describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExpectedRequest {
    /// The method.
    pub method: String,
    /// The path, without its query.
    pub path: String,
    /// The query.
    pub query: String,
    /// The host.
    pub host: String,
    /// The client's address.
    pub ip: Option<IpAddr>,
    /// Headers; a repeated one has several items.
    pub headers: Vec<(String, String)>,
    /// The fields of a request to `/v1/check`.
    pub fields: Vec<(String, String)>,
    /// The domain of an Envoy rate limit request.
    pub domain: String,
    /// The entries of an Envoy descriptor.
    pub descriptor: Vec<(String, String)>,
    /// The cost that the caller sets.
    pub cost: Option<u64>,
}

/// How a request ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExpectedSettlement {
    /// It took this much.
    Actual(u64),
    /// It took what it was charged.
    Done,
    /// It was not done: its charges are refunded.
    Cancelled,
}
