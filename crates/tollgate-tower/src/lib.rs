//! Rate limits, fair queues and client pacing as [tower] layers, for axum, tonic, hyper and any other tower service.
//!
//! # Start here
//!
//! One limit for each client address of an axum server (feature `axum`):
//!
//! ```
//! use std::net::SocketAddr;
//! use axum::{Router, routing::get};
//! use tollgate_tower::LimitLayer;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let app: Router = Router::new()
//!     .route("/rides", get(async || "none"))
//!     .layer(LimitLayer::per_client("5/s burst 10".parse()?)?);
//! // Pass this to `axum::serve`. It makes the client's address known.
//! let service = app.into_make_service_with_connect_info::<SocketAddr>();
//! # Ok(())
//! # }
//! ```
//!
//! A policy, whose limits and queues can change while the server runs:
//!
//! ```
//! use axum::{Router, routing::get};
//! use tollgate_tower::{LimitLayer, PolicyHandle, QueueLayer};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let file = "
//! version: 1
//! default: pass
//! limits:
//!   - { name: riders, key: header.x-rider-id, allow: 5/s, burst: 10 }
//! ";
//! let policy = PolicyHandle::new(tollgate_config::parse("limits", file.as_bytes())?.policy)?;
//! let app: Router = Router::new()
//!     .route("/rides", get(async || "none"))
//!     .layer(QueueLayer::new(policy.clone()))
//!     .layer(LimitLayer::new(policy.clone()));
//! // Later, while the server runs: usage and waiting requests are kept.
//! policy.replace(tollgate_config::parse("limits", file.as_bytes())?.policy)?;
//! # Ok(())
//! # }
//! ```
//!
//! # Which layer
//!
//! | situation | use |
//! |---|---|
//! | one limit for a route | [`LimitLayer::per_client`], [`LimitLayer::per_key`] |
//! | a policy | [`LimitLayer::new`] with a [`PolicyHandle`] |
//! | more requests than the backend can bear at once | [`QueueLayer`], inside the limits |
//! | outgoing calls to a server that has limits | [`PacingLayer`] |
//! | several processes with a shared store | [`PolicyHandle::with_store`], and [`run_maintenance`] next to the service |
//! | a server that loads and reports policies itself | [`PolicySource`] |
//! | a fair queue without HTTP | [`admission::AdmissionQueue`] |
//!
//! # Request path
//!
//! ```text
//! request  --> facts: client, headers --> limit: decide --> queue: admit --> your service
//!                                              |                |                |
//! response <-- header fields, 429, 503 <-------+----------------+                |
//!     body: holds the permits until it ends <------------------------------------+
//! ```
//!
//! # Features
//!
//! | feature | effect |
//! |---|---|
//! | `axum` | the layers find the peer's address in axum's `ConnectInfo<SocketAddr>` |
//!
//! # Limits
//!
//! - A limit by client address needs that address: see [`LimitLayer::with_peer`]. A request without it is answered 500 if the
//!   policy depends on it, and the cause is logged once.
//! - The layers need tokio's timer, and its `spawn` to settle requests in a shared store. They open no
//!   sockets and no files. How a decision is made is documented in [`tollgate_policy`].
//! - Services, requests and errors must be `Send + 'static`, as axum, tonic and hyper require it.
//!
//! [tower]: https://docs.rs/tower

#![forbid(unsafe_code)]

pub mod admission;
mod body;
mod facts;
mod future;
mod grpc_status;
pub mod limit;
mod maintenance;
pub mod pacing;
mod policy_source;
pub mod queue;
mod reservation;
mod response;

#[doc(inline)]
pub use admission::ServiceTimer;
pub use body::GuardedBody;
pub use facts::{ClientAddr, CostFn, HttpHeaders, PeerAddr, PeerFn};
pub use future::LayerFuture;
#[doc(inline)]
pub use limit::{LimitLayer, LimitService, RefusalFn};
pub use maintenance::{run_maintenance, sync_leases};
#[doc(inline)]
pub use pacing::{PacingError, PacingLayer, PacingService};
pub use policy_source::{ActivationError, ActivePolicy, PolicyHandle, PolicySource, sleep_until};
#[doc(inline)]
pub use queue::{QueueLayer, QueueService};
pub use reservation::TunnelGuard;
pub use response::RejectedByLayer;
