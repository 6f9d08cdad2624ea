//! The policy engine of Tollgate: matches a request to the limits of a policy, charges all or none, and decides.
//!
//! ```text
//! Facts --> path --> lists --> router --> extract --> Store --> Decision --> header fields
//!           normal   allow,    candidate  key, tier,  memory | leased | synced | remote
//!           form     deny      limits     cost
//! ```
//!
//! A [`Policy`] is a value: the crate `tollgate-config` reads it from a file, or a program builds it. A [`PolicyGate`] is
//! a policy with live state. [`PolicyGate::reload`] replaces it as a whole and keeps what was counted.
//!
//! ```
//! use tollgate::{Limit, MonotonicClock};
//! use tollgate_policy::{Facts, KeyPart, LimitRule, Policy, PolicyGate, Quota, Source};
//!
//! let quota = Quota::plain(Limit::token_bucket("5/s".parse()?, 10)?);
//! let mut rule = LimitRule::new("per-rider", quota);
//! rule.key = vec![KeyPart::new(Source::Header("x-rider-id".into()))];
//! let policy = Policy { limits: vec![rule], ..Policy::default() };
//!
//! let gate = PolicyGate::new(policy, MonotonicClock::with_unix_time())?;
//! let facts = Facts { method: "GET", path: "/rides", headers: &[("x-rider-id", "42")], ..Facts::default() };
//! let answer = gate.admit(&facts);
//! assert!(answer.is_admitted());
//! assert_eq!(answer.status.remaining, 9);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The crate contains no I/O: it knows no HTTP library, file or socket. A remote store implements the traits of [`shared`].
//! Decisions are integer arithmetic.

#![forbid(unsafe_code)]
#![deny(clippy::float_arithmetic)]

pub mod address;
mod batch;
mod build;
mod burst_credits;
mod charge;
mod charge_remaining;
mod decide;
mod engine;
mod explain;
mod extract;
mod facts;
pub mod fields;
mod gate;
mod holding_time;
mod limit_override;
mod outcome;
mod overshoot;
pub mod path;
pub mod pattern;
mod policy_decision;
pub mod pressure;
mod queue;
mod reservation;
mod reset;
mod router;
mod rule;
mod scaling;
mod share;
pub mod shared;
mod snapshot;
mod store;
mod wall_clock;

pub use batch::BatchPart;
pub use build::{PolicyError, PriorState};
pub use burst_credits::BurstCredits;
pub use charge::{Charge, Role};
pub use decide::{
    Decide, DecisionHost, DecisionRequest, DescribedRequest, HostFuture, NoHost, Observed, Op,
    PendingDecision, RefundOnDrop, Subject, decide, decide_batch,
};
pub use explain::{
    ExplainedKey, ExplainedKeyKind, Explanation, QueueExplanation, RuleExplanation, WhyNot,
};
pub use extract::KEY_PARTS_MAX;
pub use facts::{Facts, Headers, NoHeaders};
pub use gate::{PolicyGate, RuntimeOverride};
pub use limit_override::{LimitOverride, OverridePolicy, REQUEST_LIMITS, Unit};
pub use policy_decision::{PolicyDecision, Reason};
#[doc(inline)]
pub use pressure::PressureRule;
pub use queue::{QueueConcurrency, QueuePlace, QueueRule, TierWeights};
pub use reservation::portable::TakenUnits;
pub use reservation::{Reservation, Settlement};
pub use reset::KeyReset;
pub use rule::*;
pub use store::lease::report::LeaseReport;
