//! Free ports.
//!
//! # Theory
//!
//! A port can be tried, not reserved: another process may take it before the server's own `bind`. So a server that
//! finds its port taken is started again with another one. Two things make that rare. The ports lie below the range of
//! outgoing connections, so a server that is down for a while finds its port free when it comes back. And one process
//! hands out no port twice until it has used all of them.

use std::hash::{BuildHasher, RandomState};
use std::net::TcpListener;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::HOST;
use crate::error::{Error, Result};

/// Linux takes outgoing connections from 32768 up.
const FIRST: u16 = 11_000;
const COUNT: u16 = 21_000;

/// Each process begins at another place.
static NEXT: LazyLock<AtomicU64> =
    LazyLock::new(|| AtomicU64::new(RandomState::new().hash_one(std::process::id()) >> 1));

/// A port that nothing listens on now.
pub fn free_port() -> Result<u16> {
    for _ in 0..COUNT {
        // Only the number itself is shared, so no order with other memory is needed.
        let offset = NEXT.fetch_add(1, Ordering::Relaxed) % u64::from(COUNT);
        let port = u16::try_from(offset).map_or(FIRST, |offset| FIRST + offset);
        if TcpListener::bind((HOST, port)).is_ok() {
            return Ok(port);
        }
    }
    Err(Error::Invalid(format!(
        "none of the ports from {FIRST} to {} is free",
        FIRST + COUNT - 1
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_free_and_is_not_handed_out_twice() {
        let first = free_port().unwrap();
        let second = free_port().unwrap();
        assert_ne!(first, second);
        assert!((FIRST..FIRST + COUNT).contains(&first));
    }
}
