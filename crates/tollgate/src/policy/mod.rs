//! From the facts of a request to its answer: which limits, for which key, how much, and what then.
//!
//! # The road
//!
//! ```text
//! Facts --> [path] --> [lists] --> [router] --> [extract] --> [gate] --> Answer --> [fields]
//!           one form   allow/deny   candidates   key, cost     charge               what clients read
//! ```
//!
//! A [`Policy`] is a value: read from a file by the crate `tollgate-config`, or put together by a program.
//! A [`PolicyGate`] is a policy in force, with its state; it is replaced whole by
//! [`PolicyGate::succeed`], and what was counted goes on.
//!
//! ```
//! use tollgate::policy::{Facts, KeyPart, LimitRule, Policy, PolicyGate, Quota, Source};
//! use tollgate::{Limit, MonotonicClock};
//!
//! let quota = Quota::plain(Limit::token_bucket("5/s".parse()?, 10)?);
//! let mut rule = LimitRule::new("per-rider", quota);
//! rule.key = vec![KeyPart::of(Source::Header("x-rider-id".into()))];
//! let policy = Policy { limits: vec![rule], ..Policy::default() };
//!
//! let gate = PolicyGate::new(policy, MonotonicClock::since_1970())?;
//! let facts = Facts { method: "GET", path: "/rides", headers: &[("x-rider-id", "42")], ..Facts::default() };
//! let answer = gate.admit(&facts);
//! assert!(answer.is_admitted());
//! assert_eq!(answer.standing.remaining, 9);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Nothing here knows HTTP, files or sockets.

pub mod address;
pub mod answer;
mod bound;
mod brought;
mod build;
mod burst_credits;
pub mod calendar;
mod charge;
mod charge_remaining;
pub mod decide;
mod decision;
mod engine;
pub mod explain;
mod extract;
pub mod facts;
pub mod fields;
mod gate;
pub mod path;
pub mod pattern;
pub mod pressure;
pub mod queue;
mod router;
pub mod rule;
mod saved;
mod settle;
mod share;
mod store;
mod together;
mod under_pressure;

pub use answer::{Answer, Basis};
pub use brought::{Brought, FollowRule, REQUEST_LIMITS, Unit};
pub use build::{PolicyError, PriorState};
pub use burst_credits::BurstCredits;
pub use charge::{Charge, Role};
pub use decide::{
    Decide, DecisionHost, DecisionRequest, Observed, Op, PendingDecision, RefundOnDrop, Subject,
};
pub use engine::{Asking, Begun};
pub use explain::{
    ExplainedKey, ExplainedKeyKind, Explanation, QueueExplanation, RuleExplanation, WhyNot,
};
pub use extract::KEY_PARTS_MAX;
pub use facts::{Facts, Headers, NoHeaders};
pub use gate::{LiveOverride, PolicyGate};
pub use pressure::PressureRule;
pub use queue::{Adaptive, AtOnce, Estimator, Place, QueueRule, Weights};
pub use rule::*;
pub use settle::{Reservation, Settlement};
pub use store::lease::report::LendingReport;
pub use together::Part;
