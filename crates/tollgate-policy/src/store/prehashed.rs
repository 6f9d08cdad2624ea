//! The hasher of maps whose keys are hashes already.
//!
//! The hash of a key is keyed by the secret of the node, so an untrusted client cannot choose it, and a second keyed hash
//! would cost time for nothing. The order of such a map depends on its keys alone, so a simulated fleet with a given
//! secret repeats exactly.

use std::hash::{BuildHasherDefault, Hasher};

/// Builds a [`Prehashed`] hasher.
pub(super) type PrehashedState = BuildHasherDefault<Prehashed>;

/// Combines the numbers of a key.
#[derive(Debug, Default)]
pub(super) struct Prehashed(u64);

impl Hasher for Prehashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = self.0.rotate_left(29) ^ number;
    }
}
