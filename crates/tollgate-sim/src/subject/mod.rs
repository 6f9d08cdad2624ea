//! Who answers timelines: the oracle, the core's pure steps, and the store behind the public
//! interface.
//!
//! * [`OracleFactory`] answers from the independent models of [`crate::oracle`].
//! * [`CoreFactory`] answers from the step functions of the product, without store, threads or clock.
//! * [`StoreFactory`] answers through the interface that users call, as far as that can express a
//!   case: the same steps behind a table of keys.
//!
//! [`keyed`] and [`leases`] turn what a timeline says into calls on a model, for the first two.

pub mod core;
pub mod given;
pub mod keyed;
pub mod leases;
pub mod oracle;
pub mod store;
pub mod together;

pub use self::core::CoreFactory;
pub use self::oracle::OracleFactory;
pub use self::store::StoreFactory;

use crate::timeline::Step;

/// The moment of a step that has to have one.
pub(crate) fn time(step: &Step) -> Result<u64, String> {
    step.t_ns
        .ok_or_else(|| format!("`{}` needs a time", step.op))
}

/// The error of an operation that the subject does not have.
pub(crate) fn unsupported(step: &Step) -> String {
    format!("there is no `{}` for this algorithm", step.op)
}
