//! A fast hasher for flows that are one number.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

/// Hashes numbers with a secret of this process: one multiplication to 128 bits, folded.
///
/// About ten times as fast as the standard hasher. Which numbers collide depends on 128 secret bits, so a client
/// that chooses the numbers beforehand cannot choose colliding ones. It is not cryptography: a client that can
/// measure single look-ups could learn the secret. Use it for numbers that untrusted clients do not choose freely,
/// such as the keyed hashes by which a policy names its flows. For names that untrusted clients choose, keep the
/// standard hasher, which is the default of the queue.
#[derive(Clone, Debug)]
pub struct NumberHasher {
    secret: [u64; 2],
}

impl NumberHasher {
    /// With a secret drawn from the system's randomness.
    pub fn new() -> NumberHasher {
        let draw = |salt: u64| RandomState::new().hash_one(salt);
        NumberHasher {
            // An even factor would lose the upper bits of the number.
            secret: [draw(0), draw(1) | 1],
        }
    }
}

impl Default for NumberHasher {
    fn default() -> NumberHasher {
        NumberHasher::new()
    }
}

impl BuildHasher for NumberHasher {
    type Hasher = Folded;

    fn build_hasher(&self) -> Folded {
        let [state, factor] = self.secret;
        Folded { state, factor }
    }
}

/// 2^64 over the golden ratio: odd, and without a pattern in its bits.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// A hash in progress. See [`NumberHasher`].
#[derive(Clone, Debug)]
pub struct Folded {
    state: u64,
    factor: u64,
}

impl Hasher for Folded {
    fn finish(&self) -> u64 {
        // With some secrets the lower bits of the folded product repeat where the middle ones do not.
        let mixed = (self.state ^ (self.state >> 32)).wrapping_mul(MIX);
        mixed ^ (mixed >> 29)
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word.iter_mut()
                .zip(chunk)
                .for_each(|(to, from)| *to = *from);
            self.write_u64(u64::from_le_bytes(word));
        }
        self.write_u64(bytes.len() as u64);
    }

    fn write_u64(&mut self, number: u64) {
        let product = u128::from(self.state ^ number) * u128::from(self.factor);
        self.state = (product as u64) ^ ((product >> 64) as u64);
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn neighbours_and_multiples_spread_over_both_ends_of_the_hash() {
        let strides = [1, 2, 1 << 16, 1 << 32, 1 << 50];
        for stride in strides.into_iter().cycle().take(500) {
            let hasher = NumberHasher::new();
            let hashes = (0..4096_u64).map(|i| hasher.hash_one(i.wrapping_mul(stride)));
            let hashes: Vec<u64> = hashes.collect();
            let low: HashSet<u64> = hashes.iter().map(|hash| hash & 4095).collect();
            let high: HashSet<u64> = hashes.iter().map(|hash| hash >> 57).collect();
            // At random, 4096 numbers would hit about 2589 of 4096 places. Some strides do better, so only a lower
            // count is an error.
            assert!(low.len() > 1200, "stride {stride}: {}", low.len());
            assert!(high.len() > 60, "stride {stride}: {}", high.len());
        }
    }

    #[test]
    fn two_queues_hash_differently_and_lengths_count() {
        let (one, other) = (NumberHasher::new(), NumberHasher::new());
        assert_ne!(one.hash_one(7_u64), other.hash_one(7_u64));
        assert_ne!(one.hash_one("a"), one.hash_one("a\0"));
    }
}
