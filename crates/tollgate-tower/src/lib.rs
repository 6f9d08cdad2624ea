//! The front end that you embed: limits, queues and pacing as layers for any tower service.
//!
//! ```
//! use axum::{Router, routing::get};
//! use tollgate_tower::{InForce, LimitLayer, QueueLayer};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let file = "
//! version: 1
//! default: pass
//! limits:
//!   - { name: riders, key: header.x-rider-id, allow: 5/s, burst: 10 }
//! ";
//! let policy = tollgate_config::parse("limits", file.as_bytes())?.policy;
//! let in_force = InForce::new(policy)?;
//! let app: Router = Router::new()
//!     .route("/rides", get(async || "none"))
//!     .layer(QueueLayer::new(in_force.clone()))
//!     .layer(LimitLayer::new(in_force.clone()));
//! // Later, while it runs: what was used and who waits stays.
//! in_force.replace(tollgate_config::parse("limits", file.as_bytes())?.policy)?;
//! # Ok(())
//! # }
//! ```
//!
//! # What to reach for
//!
//! | you have | use |
//! |---|---|
//! | a policy | [`LimitLayer`] over an [`InForce`] |
//! | one limit for a route, without a policy | [`LimitLayer::single`] |
//! | more requests than the backend bears at once | [`QueueLayer`], inside of the limits |
//! | calls that go out to somebody who has limits | [`PaceLayer`] |
//! | several processes that share a store | [`InForce::shared`], and [`look_after`] beside the service |
//! | a server with a policy of its own making | your own [`Authority`] |
//!
//! # The road
//!
//! ```text
//! Request --> [facts: client, Facts] --> [limit: gate] --> [queue: turnstile] --> your service
//!                                            |                   |                     |
//! Response <-- [reply: fields, refusal] <----+------ 429 --------+-- 503               |
//!     body: holds places and the turn until it ends <----------------------------------+
//! ```
//!
//! # Layout
//!
//! [`authority`] says which policy is in force. [`facts`] reads requests and finds clients. [`limit`] and
//! [`queue`] are the layers in front of a service, [`client`] the one for calls that go out; each tells in
//! its module what is charged when, and what is given back to whoever leaves. [`held`] is what a request
//! holds while it is under way, [`body`] carries it to the response's end. `reply` and `grpc` write what
//! clients read, `reached` is how far a request has come behind its limits. [`turnstile`] is the async side of the fair queue: who waits, whose
//! turn it is, and how many are under way. [`upkeep`] is what a node of a fleet does beside answering.
//!
//! Nothing here needs more of a runtime than tokio's timer, and `spawn` where a shared store has to be told
//! that a request has ended.

#![forbid(unsafe_code)]

pub mod authority;
pub mod body;
pub mod client;
pub mod facts;
mod grpc;
pub mod held;
pub mod limit;
pub mod queue;
mod reached;
mod reply;
pub mod turnstile;
pub mod upkeep;

pub use authority::{Authority, Epoch, InForce, sleep_until};
pub use body::{LimitBody, QueueBody};
pub use client::{PaceError, PaceLayer, PaceService};
pub use facts::{Client, Peer};
pub use held::{Held, Kept, Permit};
pub use limit::{LimitLayer, LimitService};
pub use queue::{QueueLayer, QueueService};
pub use reply::Refused;
pub use turnstile::{Outcome, QueueReport, QueueSet, SentWhole, Turn, Turned, Turnstile, Why};
pub use upkeep::{look_after, tend};
