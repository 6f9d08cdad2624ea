//! Reads the YAML tree of a file into a resolved policy.
//!
//! Each part of the file has its own reader. A reader opens a map as `Fields`, which reports unknown fields; reads every
//! field; and only then builds its result. So one wrong field does not hide the next. A result that depends on a wrong
//! field is neither built nor reported again ([`Reported`](crate::report::Reported)).
//!
//! Readers report what cannot work. What works but is probably a mistake is left to [`crate::lint`].

mod cost;
mod domains;
mod expect;
mod fields;
mod file;
mod gateway;
mod host;
mod inherit;
mod item;
mod key;
mod kind;
mod limit;
mod lists;
mod matching;
mod one_limit;
mod overrides;
mod pressure;
mod queue;
mod quota;
mod redact;
pub(crate) mod scalar;
mod scale;
mod sharing;
mod store;
mod store_error;
mod tiers;
pub(crate) mod when;

pub(crate) use fields::FieldSpans;
pub(crate) use file::{Draft, file};
pub(crate) use gateway::server_address;
pub(crate) use item::Item;
pub(crate) use key::source_text;
pub(crate) use limit::max_cost;
pub(crate) use one_limit::one_limit;
pub(crate) use overrides::one_override;
