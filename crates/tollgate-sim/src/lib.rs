//! Checks of the limiters without a network: an oracle, golden timelines, random histories, threads and simulated
//! fleets.
//!
//! An oracle and the product answer the same questions through one trait, [`model::KeyModel`]:
//!
//! ```
//! use tollgate_sim::model::KeyModel;
//! use tollgate_sim::oracle::{OracleBucket, OracleVerdict};
//!
//! // A bucket of one token that earns two in a second.
//! let mut bucket = OracleBucket::token_bucket(1, 2, 1_000_000_000);
//! assert!(bucket.check(0, 1).passed());
//! let refused = OracleVerdict::Refuse { retry_after: 500_000_000 };
//! assert_eq!(bucket.check(0, 1).verdict, refused);
//! ```
//!
//! # Parts
//!
//! | module | content | command |
//! |---|---|---|
//! | [`oracle`], [`model`] | every limiter in exact arithmetic, slow and obvious; shares no code with the core | |
//! | [`timeline`], [`replay`], [`subject`] | golden timelines, and what answers them: oracle, pure steps, public interface | `vectors` |
//! | [`property`] | random histories; oracle and core are compared at every step | `steps` |
//! | [`threads`] | real threads on the same keys: exactly the allowance passes | `threads` |
//! | [`fleet`] | the product's nodes on virtual time, with a simulated network and store | `fleet`, `load` |
//! | [`adaptive`] | adaptive limits in front of backends that change | `adaptive` |
//! | [`command`] | the binary | |
//!
//! # Limits
//!
//! A random run proves nothing when it passes. A failure prints its seed, and the same seed is the same run.

pub mod adaptive;
pub mod command;
pub mod fleet;
pub mod model;
pub mod oracle;
pub mod parameters;
pub mod property;
pub mod replay;
pub mod rng;
pub mod subject;
pub mod threads;
pub mod timeline;
