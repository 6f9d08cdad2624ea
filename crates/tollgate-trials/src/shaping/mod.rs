//! Shaping: the real `tollgate gateway` between real clients and an upstream that records its requests.
//!
//! # Set-up
//!
//! ```text
//! [schedule] open loop ----> [gateway] a process ---> [upstream] own thread, own clock
//! [testkit::http2] raw frames ^   policy, metrics,     records every head that reaches it,
//!                             |   memory               works, streams, echoes
//!                         [nginx] in the same place
//! ```
//!
//! Each trial is a module with its scenario and promises: [`constant_rate`], [`noisy_neighbor`],
//! [`weights`], [`aborts`], [`abuse`], [`clients`].
//!
//! # Invariant
//!
//! The upstream and the load read the same clock, so that a moment on one side can be compared with a moment on the
//! other. The gateway's own times are not used.
//!
//! # What it does not know
//!
//! Other machines: everything runs on this one and shares its cores, which makes every figure worse, never better.

pub(crate) mod aborts;
pub(crate) mod abuse;
pub(crate) mod clients;
pub(crate) mod constant_rate;
pub(crate) mod noisy_neighbor;
pub(crate) mod weights;

mod gateway;
mod measure;
mod nginx;
mod probe;
mod schedule;
mod upstream;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::runtime::{Builder, Runtime};

use tollgate_testkit::{Error, Result};

/// A runtime of one thread, so that no two tasks run at the same time.
fn runtime() -> Result<Runtime> {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Error::io("start a load"))
}

/// Raises the limit of open files of this process and its children to the system's; an error if that is less
/// than `needed`.
fn allow_connections(needed: usize) -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, raised)
        .map_err(|error| Error::io("raise the number of open files")(error.into()))?;
    match limit.maximum {
        Some(most) if most < number(needed) => Err(Error::Invalid(format!(
            "this trial needs {needed} open files, and the system allows {most}: raise it with `ulimit -Hn`"
        ))),
        _ => Ok(()),
    }
}

/// The error of a task that panicked.
#[expect(clippy::needless_pass_by_value, reason = "what `map_err` gives")]
fn panicked(error: tokio::task::JoinError) -> Error {
    Error::Invalid(format!("a task of the load panicked: {error}"))
}

/// A count as `u64`.
fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
