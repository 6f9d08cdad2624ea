//! The no-op contestants: servers that read what a front end reads and decide nothing.
//!
//! The time of a no-op server is that of the sockets and the protocol; the rest of the time of a front end is its own. Each is a process of its
//! own, this program started with the hidden command `noop`.

mod http;
mod messages;
mod resp;
mod tonic;

use std::io;

use ::tonic::Status;

use self::messages::RateLimitRequest;
use self::tonic::Decide;
use crate::args::{Noop, NoopProtocol};

/// Admits everything.
#[derive(Clone)]
struct AdmitAll;

impl Decide for AdmitAll {
    fn decide(&self, request: RateLimitRequest) -> Result<i32, Status> {
        // The compiler must not remove the decoding.
        std::hint::black_box(request);
        Ok(1)
    }
}

/// Serves until it is killed.
pub(crate) fn run(noop: Noop) -> io::Result<()> {
    match noop.protocol {
        NoopProtocol::Http => http::run(noop.port),
        NoopProtocol::Resp => resp::run(noop.port),
        NoopProtocol::Rls => tonic::serve(noop.port, AdmitAll),
    }
}
