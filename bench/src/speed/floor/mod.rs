//! The floors: servers that read what a door reads and decide nothing.
//!
//! What a real door takes longer than its floor is what it does with a request; what the floor takes is what the sockets and the
//! protocol cost. Each is a process of its own, this program started by another name.

pub(crate) mod messages;
pub(crate) mod resp;
pub(crate) mod tonic;

use std::io;

use ::tonic::Status;

use self::messages::RateLimitRequest;
use self::tonic::Decide;

/// Says yes to everything.
#[derive(Clone)]
struct Yes;

impl Decide for Yes {
    fn decide(&self, request: RateLimitRequest) -> Result<i32, Status> {
        // All of it is wanted, whatever the compiler thinks.
        std::hint::black_box(request);
        Ok(1)
    }
}

/// Bare tonic on this port, until it is killed.
pub(crate) fn run_tonic(port: u16) -> io::Result<()> {
    tonic::serve(port, Yes)
}
