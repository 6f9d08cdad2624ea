//! Load for rate limiters, and an audit of what they admit.
//!
//! A [`Plan`] says where the load goes, what is asked and how hard; [`run()`] does it and gives a [`Report`]. It speaks
//! the Redis protocol, HTTP/1.1 and Envoy's rate limit service, so that it can try any limiter, ours or anyone's.
//!
//! ```no_run
//! use tollgate_load::{Plan, Target, run};
//!
//! let plan = Plan::new(vec![Target::parse("resp://127.0.0.1:6379")?]);
//! let report = run(plan, &mut |answers, passed| eprintln!("{answers} after {passed:?}"))?;
//! println!("{:.0} a second, {} refused", report.per_second(), report.refused);
//! # Ok::<(), tollgate_load::Wrong>(())
//! ```
//!
//! # Layout
//!
//! `target` and `plan` say what is to be done; `words` and `template` make requests of it, `keys` and `pace` say which
//! and when. `resp`, `http` and `grpc` are what is spoken, each a `codec`, and `rule` how a reply of Redis says yes; `connection` speaks it, over `tls` if it should,
//! `run` puts connections on threads; `speaker` is a codec for a loop that is not ours. `tally` counts, `histogram` keeps times,
//! `audit` holds what was admitted against what was allowed, `report` puts it together.
//!
//! # What it does not know
//!
//! How any limiter decides, ours included: it sees them from outside.

#![forbid(unsafe_code)]

mod audit;
mod clock;
mod codec;
mod connection;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod grpc;
mod histogram;
mod http;
mod keys;
mod pace;
mod plan;
mod report;
mod resp;
mod rule;
mod run;
mod speaker;
mod tally;
mod target;
mod template;
mod tls;
mod words;
mod wrong;

pub use audit::{Allowance, Audit, Finding};
pub use grpc::GrpcAsk;
pub use histogram::{Histogram, WHOLE};
pub use http::HttpAsk;
pub use keys::Keys;
pub use plan::{DEFAULT_COMMAND, Plan};
pub use report::{Loss, Report, TargetReport};
pub use resp::Login;
pub use rule::Rule;
pub use run::{run, run_while};
pub use speaker::{Heard, Speaker, UnaryCall};
pub use target::{Protocol, Target};
pub use wrong::Wrong;
