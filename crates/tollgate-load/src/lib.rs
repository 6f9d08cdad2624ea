//! Load for rate limiters, and an audit of what they admit.
//!
//! A [`LoadPlan`] states the targets, the requests and the rate; [`run()`] executes it and returns a [`LoadReport`]. It uses the Redis
//! protocol, HTTP/1.1 and Envoy's rate limit service, so it can load any limiter.
//!
//! ```no_run
//! use tollgate_load::{LoadPlan, Target, run};
//!
//! let plan = LoadPlan::new(vec![Target::parse("resp://127.0.0.1:6379")?]);
//! let report = run(plan, &mut |responses, elapsed| eprintln!("{responses} after {elapsed:?}"))?;
//! println!("{:.0} per second, {} refused", report.per_second(), report.refused);
//! # Ok::<(), tollgate_load::LoadError>(())
//! ```
//!
//! # Parts
//!
//! | module | content |
//! |---|---|
//! | `target`, `plan` | what is to be done, validated before the first request |
//! | `template`, `keys`, `schedule` | requests, the order of keys, and when to send |
//! | `codec`: `resp`, `http`, `grpc` | the protocols; `admit_rule` judges replies of the Redis protocol |
//! | `run`, `connection`, `tls` | threads, connections and their reconnects |
//! | `counters`, `histogram`, `report` | the results |
//! | `audit` | what was admitted against the most that was allowed |
//!
//! A benchmark that needs a loop of its own takes a [`Codec`] from [`LoadPlan::codec`].
//!
//! # Limits
//!
//! It sees every limiter from outside, Tollgate's included, and knows nothing of how one decides.

#![forbid(unsafe_code)]

mod admit_rule;
mod audit;
mod codec;
mod command_line;
mod connection;
mod counters;
mod error;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod grpc;
mod histogram;
mod http;
mod keys;
mod plan;
mod report;
mod resp;
mod run;
mod schedule;
mod stopwatch;
mod target;
mod template;
mod tls;

pub use admit_rule::AdmitRule;
pub use audit::{Allowance, Audit, AuditFinding};
pub use codec::{Codec, Event, Failure, Judgement, Response};
pub use error::LoadError;
pub use grpc::{GrpcTemplate, UnaryCall};
pub use histogram::{Histogram, WHOLE};
pub use http::HttpTemplate;
pub use keys::KeyPicker;
pub use plan::{DEFAULT_COMMAND, LoadPlan};
pub use report::{LoadReport, Loss, TargetReport};
pub use resp::Credentials;
pub use run::{run, run_while};
pub use target::{Target, TargetProtocol};
