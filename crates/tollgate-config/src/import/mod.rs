//! Files of other rate limiters, as policies of ours.
//!
//! # Theory
//!
//! A file is read into what it means there, and written as a policy that means the same here. The policy is a text
//! for people, with a comment wherever something could not be carried over; nothing is dropped in silence. It is
//! read by our own reader before anybody sees it, so what is converted can be used.
//!
//! | file | whose |
//! |---|---|
//! | `envoy`, `descriptors` | the reference service of Envoy's rate limit protocol |
//! | `limitador`, `conditions` | Limitador |
//! | `write` | the policy that comes out |
//!
//! It does not know how either of them decides beyond what its configuration means.

mod conditions;
mod descriptors;
mod envoy;
mod limitador;
mod write;

pub use envoy::{ReadError, envoy, envoy_folder};
pub use limitador::limitador;

use crate::problem::Problems;

/// A policy that was made of something else.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Converted {
    /// The policy, with comments.
    pub policy: String,
    /// What could not be carried over, or is different: for each file that there is something to say about.
    pub notes: Vec<Problems>,
}
