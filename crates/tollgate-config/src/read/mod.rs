//! From the tree of a file to a resolved policy.
//!
//! # How
//!
//! Every part of the file has a reader of its own: it opens a map ([`Fields`](fields::Fields), which reports what does
//! not belong there), reads each field, and only then puts them together. So one wrong field does not
//! hide the next, and what is built from a wrong field is not built and not complained about again
//! ([`Reported`](crate::report::Reported)).
//!
//! It does not know what is wise; that is for [`crate::lint`].

mod cost;
mod domains;
mod fields;
mod file;
mod gateway;
mod key;
mod kind;
mod limit;
mod lists;
mod matching;
mod names;
mod one_limit;
mod overrides;
mod pressure;
mod queue;
mod quota;
pub(crate) mod scalar;
mod scale;
mod sharing;
mod store;
mod store_error;
mod taken;
mod tiers;
pub(crate) mod when;

pub(crate) use file::{Draft, file};
pub(crate) use gateway::server_address;
pub(crate) use key::spelt;
pub(crate) use limit::{Spots, dearest};
#[cfg(test)]
pub(crate) use names::field_sets;
pub(crate) use one_limit::one_limit;
pub(crate) use overrides::one_override;
