//! A deterministic random number generator: one seed, one sequence.

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};

/// Draws from SplitMix64: one seed, one sequence, on every machine and with every version.
///
/// The sequence is a published one, so that a seed that a document or a failure names stays what it was.
#[derive(Clone, Debug)]
pub struct Rng(SplitMix64);

impl Rng {
    /// The sequence of `seed`. Neighbouring seeds give unrelated sequences.
    pub fn new(seed: u64) -> Self {
        let first = SplitMix64::seed_from_u64(seed).next_u64();
        // Neighbouring states would give sequences that are shifted copies of each other.
        Self(SplitMix64::seed_from_u64(first ^ seed.rotate_left(32)))
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Returns a number below `sides`, or zero if `sides` is zero.
    pub fn below(&mut self, sides: u64) -> u64 {
        // The upper half of the product: evenly spread, without a division.
        ((u128::from(self.bits()) * u128::from(sides)) >> 64) as u64
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low.saturating_add(self.below(high.saturating_sub(low).saturating_add(1)))
    }

    /// Returns `true` with a probability of one in `times`.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// A number up to about `high` of every magnitude alike: small ones are as likely as large ones.
    pub fn magnitude(&mut self, high: u64) -> u64 {
        let bits = self.between(0, u64::from(high.max(1).ilog2()) + 1);
        let top = 1u64
            .checked_shl(bits as u32)
            .map_or(u64::MAX, |top| top - 1);
        self.between(top / 2, top).clamp(1, high.max(1))
    }

    /// Returns one of `choices`, or the default of `T` if there are none.
    pub fn pick<T: Copy + Default>(&mut self, choices: &[T]) -> T {
        let at = self.below(choices.len() as u64) as usize;
        choices.get(at).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_sequence_and_its_neighbour_another() {
        let first = |seed| (0..4).map(|_| Rng::new(seed).bits()).next();
        assert_eq!(first(7), first(7));
        assert_ne!(first(7), first(8));
    }

    #[test]
    fn a_seed_stays_what_it_was() {
        let mut rng = Rng::new(7);
        assert_eq!(
            [rng.bits(), rng.bits()],
            [0x57b9_bdd3_5daa_b8cc, 0x2d99_3481_c339_9a4e]
        );
    }

    #[test]
    fn numbers_stay_in_their_range_and_reach_its_ends() {
        let mut rng = Rng::new(1);
        let mut seen = [0; 4];
        for _ in 0..1000 {
            seen[usize::try_from(rng.between(3, 6) - 3).unwrap()] += 1;
            assert!((1..=1000).contains(&rng.magnitude(1000)));
            assert!(rng.magnitude(u64::MAX) >= 1);
        }
        assert!(seen.iter().all(|&times| times > 200), "{seen:?}");
        assert_eq!(rng.below(0), 0);
    }
}
