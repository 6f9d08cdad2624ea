//! Ports that nobody uses.
//!
//! # Theory
//!
//! A port can only be tried, not reserved: between the look and the server's own `bind` somebody else may take
//! it. So a server that finds its port taken is started again with another one. Two things make that rare. The
//! ports lie below the range from which the system serves outgoing connections, so that also a server that is
//! down for a while finds its port free when it comes back. And one process never hands out the same port
//! twice, until it went through all of them.

use std::hash::{BuildHasher, RandomState};
use std::net::TcpListener;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use super::HOST;
use crate::trouble::{Outcome, Trouble};

/// Linux serves outgoing connections from 32768 up.
const FIRST: u16 = 11_000;
const COUNT: u16 = 21_000;

/// Processes begin in different places.
static NEXT: LazyLock<AtomicU64> =
    LazyLock::new(|| AtomicU64::new(RandomState::new().hash_one(std::process::id()) >> 1));

/// A port at which nobody listens now.
pub(crate) fn next() -> Outcome<u16> {
    for _ in 0..COUNT {
        // Only the number itself is shared, so no order with other memory is needed.
        let turn = NEXT.fetch_add(1, Ordering::Relaxed) % u64::from(COUNT);
        let port = u16::try_from(turn).map_or(FIRST, |turn| FIRST + turn);
        if TcpListener::bind((HOST, port)).is_ok() {
            return Ok(port);
        }
    }
    Err(Trouble::Impossible(format!(
        "none of the ports from {FIRST} to {} is free",
        FIRST + COUNT - 1
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_free_and_is_not_handed_out_twice() {
        let first = next().unwrap();
        let second = next().unwrap();
        assert_ne!(first, second);
        assert!((FIRST..FIRST + COUNT).contains(&first));
    }
}
