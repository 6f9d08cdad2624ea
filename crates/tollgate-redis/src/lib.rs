//! Limits that a fleet shares, on Redis or Valkey.
//!
//! [`RedisStore`] implements the policy engine's [`SharedStore`](tollgate_policy::shared::SharedStore). It opens at once and
//! connects in the background:
//!
//! ```no_run
//! use tollgate_redis::{OpenError, RedisStore, Settings};
//!
//! # fn open() -> Result<(), OpenError> {
//! let runtime = tokio::runtime::Handle::current();
//! let store = RedisStore::open(Settings::standalone("127.0.0.1", 6379), &runtime)?;
//! # let _ = store;
//! # Ok(())
//! # }
//! ```
//!
//! [`doctor()`] checks a deployment and reports each problem with its remedy.
//!
//! # Request path
//!
//! ```text
//! SharedRequest --> [decide] ------> [limits] ------> [send] -----> [topology] ---> [link] ---> one script on the server
//!                   all or none,     calls: names,    deadline,     the server of   one shared
//!                   refunds          numbers by slot  redirects     the slot        connection
//! SharedOutcome <-- [limits]: the core's decision on the state found <------------- reply, or [error_action]
//! ```
//!
//! A script on the server decides, because the state lives there; it does the core's integer steps. The verdict, waits and status
//! of the answer are computed here, by the core itself, from the state that the script found.
//!
//! # Invariant
//!
//! A charge is sent at most once. A command that was rejected before it ran (`NOSCRIPT`, `MOVED`, `ASK`, `TRYAGAIN`, `READONLY`)
//! may be sent again. One whose reply was lost may have run, so it is not.
//!
//! # Bounds
//!
//! | what | at most |
//! |---|---|
//! | wait for a decision | [`Settings::deadline`], 8 ms by default |
//! | requests in flight to one server | 4096; the next fails at once |
//! | redirects of one command | 5 |
//! | refunds in progress | 1024; further units stay taken until they are earned back |
//! | wait of a node that signs off | 250 ms |
//!
//! # What it does not know
//!
//! Policies, HTTP, and how a request without an answer is decided.

#![forbid(unsafe_code)]
#![deny(clippy::float_arithmetic)]

mod decide;
mod doctor;
mod error_action;
mod fleet_secret;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod heartbeat;
mod limits;
mod link;
mod node_count;
mod report;
mod reset;
mod script;
mod script_call;
mod send;
mod settings;
mod store;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod testing;
mod topology;

pub use doctor::{DoctorFinding, DoctorSeverity, doctor};
pub use link::connector::OpenError;
pub use link::{ACCESS_RULE, CLUSTER_RULE};
pub use settings::{Secret, Settings, Tls, Topology};
pub use store::RedisStore;
