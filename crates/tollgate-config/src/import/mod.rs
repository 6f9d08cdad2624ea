//! Converts files of other rate limiters to policies.
//!
//! The result is the text of a policy with the same meaning, with a comment and a problem for everything that a policy
//! cannot express: nothing is dropped silently. It is parsed before it is returned, so it is always valid.
//!
//! | module | of |
//! |---|---|
//! | `envoy`, `descriptors` | the reference service of Envoy's rate limit protocol |
//! | `limitador`, `conditions` | Limitador |
//! | `write` | writes the policy |

mod conditions;
mod descriptors;
mod envoy;
mod limitador;
mod write;

pub use envoy::{EnvoyOptions, ReadError, envoy, envoy_folder};
pub use limitador::limitador;

use crate::problem::Problems;

/// A converted policy.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Converted {
    /// The policy, with comments.
    pub policy: String,
    /// What the policy cannot express, or does differently, for each file with such a part.
    pub notes: Vec<Problems>,
}
