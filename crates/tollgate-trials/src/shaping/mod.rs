//! That shaping works: the real `tollgate gateway` between real clients and an upstream that writes down what it sees.
//!
//! # The road
//!
//! ```text
//! [load] open loop ---> [gateway] a process ---> [upstream] own thread, own clock
//! [connection] one client        ^   policy, metrics,     records every head that reaches it,
//! [frames] raw HTTP/2      |   memory               works, streams, echoes
//!                      [nginx] nginx in the same place
//! ```
//!
//! Each trial is a file of its own that says what it does and what it promises: [`constant_rate`], [`neighbour`],
//! [`weights`], [`aborts`], [`abuse`], [`clients`].
//!
//! # Invariant
//!
//! The upstream and the load read the same clock, so that a moment on one side can be compared with a moment on the
//! other. Nobody asks the gateway when something happened.
//!
//! # What it does not know
//!
//! Other machines: everything runs on this one and shares its cores, which makes every figure worse, never better.

pub(crate) mod aborts;
pub(crate) mod abuse;
pub(crate) mod clients;
pub(crate) mod constant_rate;
pub(crate) mod neighbour;
pub(crate) mod weights;

mod gateway;
mod http2_frames;
mod measure;
mod nginx;
mod probe;
mod schedule;
mod upstream;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::runtime::{Builder, Runtime};

use tollgate_testkit::{Error, Result};

/// What a load lives in: one thread, so that nothing in it runs at the same time as something else.
fn runtime() -> Result<Runtime> {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Error::io("start a load"))
}

/// Lets this process and its children have as many connections as the system lets them; an error if those are fewer
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

/// A task that panicked is told as error, not passed on.
#[expect(clippy::needless_pass_by_value, reason = "what `map_err` gives")]
fn panicked(error: tokio::task::JoinError) -> Error {
    Error::Invalid(format!("a part of the load panicked: {error}"))
}

/// A count as a number that counts are compared as.
fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
