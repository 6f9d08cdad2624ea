//! The floors: servers that read what a front end reads and decide nothing.
//!
//! A floor's time is that of the sockets and the protocol; the rest of the time of a front end is its own. Each is a process of its
//! own, this program started with the hidden command `floor`.

mod http;
mod messages;
mod resp;
mod tonic;

use std::io;

use ::tonic::Status;

use self::messages::RateLimitRequest;
use self::tonic::Decide;
use crate::args::{Floor, FloorProtocol};

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
pub(crate) fn run(floor: Floor) -> io::Result<()> {
    match floor.protocol {
        FloorProtocol::Http => http::run(floor.port),
        FloorProtocol::Resp => resp::run(floor.port),
        FloorProtocol::Rls => tonic::serve(floor.port, AdmitAll),
    }
}
