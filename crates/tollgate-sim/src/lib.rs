//! Checks of the limiters without a network: an exact oracle, golden timelines, random histories, threads, and
//! fleets on virtual time.
//!
//! [`oracle`] is an independent model in exact arithmetic, slow and obvious, that shares no code with
//! the core. [`timeline`] reads golden timelines and [`replay`] runs them against anything that can
//! answer them: the [`subject`]s, which are the oracle, the core's pure steps and the store behind the
//! public interface. [`property`] makes up histories of its own and compares core and oracle step by
//! step. [`threads`] lets real threads loose on the same keys. [`adaptive`] puts the adaptive limits in
//! front of backends that change. [`command`] is what the binary does.

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
