//! The order in which keys come, and the keys themselves.
//!
//! Two steps, both outside the timed part:
//!
//! 1. An [`Order`] of key numbers is drawn once per cell and per thread. All contestants see the
//!    same one.
//! 2. A [`Stage`] turns the next [`STAGE_LEN`] numbers into keys, in a buffer small enough to stay
//!    in the cache.
//!
//! The stage is why a check finds its key warm. A server has just parsed the key it asks about; if
//! the loop fetched keys from a list of ten million instead, every contestant would pay for that
//! list's cache misses, and the differences between them would drown in it. Writing keys where they
//! are needed also means that ten million keys take no memory outside the contestant.

use crate::workload::{Kind, Spread};

/// Keys made ready at a time. A multiple of the batch length; with it, text keys take 28 kB, and
/// reading the clock twice per stage adds about 0.1 ns to each check.
pub(crate) const STAGE_LEN: usize = 512;

/// Draws per thread. Longer orders are repeated from the start.
const ORDER_LEN: usize = 1 << 22;

/// Enough digits for [`crate::workload::KEYS_MAX`] keys.
const DIGITS: usize = 8;
const PREFIX: &[u8; 5] = b"user:";
const TEXT_LEN: usize = PREFIX.len() + DIGITS;

/// Key numbers in the order in which one thread asks about them.
#[derive(Debug)]
pub(crate) struct Order {
    numbers: Vec<u32>,
    one_key: bool,
}

impl Order {
    /// Draws from the keys `first..first + count`.
    pub(crate) fn draw(spread: Spread, first: usize, count: usize, seed: u64) -> Self {
        let mut random = SplitMix(seed);
        let (first, count) = (first as u64, count.max(1) as u64);
        let len = if count == 1 { STAGE_LEN } else { ORDER_LEN };
        let zipf = Zipf::new(count);
        let numbers = (0..len)
            .map(|_| {
                let within = match spread {
                    Spread::Uniform => random.below(count),
                    Spread::Zipf => scatter(zipf.rank(&mut random) - 1, count),
                };
                // Key numbers stay below `KEYS_MAX`, which fits.
                (first + within) as u32
            })
            .collect();
        Self {
            numbers,
            one_key: count == 1,
        }
    }

    /// The numbers from `at` on, at most a stage full; `at` may be any number.
    pub(crate) fn slice(&self, at: usize) -> &[u32] {
        let start = at % self.numbers.len();
        let end = self.numbers.len().min(start + STAGE_LEN);
        &self.numbers[start..end]
    }

    pub(crate) fn len(&self) -> usize {
        self.numbers.len()
    }

    pub(crate) fn is_one_key(&self) -> bool {
        self.one_key
    }
}

/// Spreads neighbouring ranks over all of `0..count`, each to a place of its own.
///
/// Without it the popular keys would have been inserted one after the other, so that their
/// heap-allocated copies would share cache lines, which is luck that no real stream has.
fn scatter(rank: u64, count: u64) -> u64 {
    // A prime above every possible `count`, hence coprime to it, hence a permutation.
    const PRIME: u64 = 2_654_435_761;
    rank * PRIME % count
}

/// A few keys, ready to be asked about.
#[derive(Debug)]
pub(crate) enum Stage {
    /// `String`s rather than `&str`s because some contestants take nothing else.
    Str(Vec<String>),
    U64(Vec<u64>),
}

impl Stage {
    pub(crate) fn new(kind: Kind) -> Self {
        match kind {
            Kind::Str => Self::Str(Vec::with_capacity(STAGE_LEN)),
            Kind::U64 => Self::U64(Vec::with_capacity(STAGE_LEN)),
        }
    }

    /// Replaces what is on the stage by the keys with these numbers.
    pub(crate) fn fill(&mut self, numbers: impl ExactSizeIterator<Item = u32>) {
        match self {
            Self::Str(keys) => {
                // Strings are overwritten rather than replaced, so that staging does not allocate
                // between the allocations of the contestants.
                keys.resize_with(numbers.len(), || String::with_capacity(TEXT_LEN));
                for (key, number) in keys.iter_mut().zip(numbers) {
                    write_text(key, number);
                }
            }
            Self::U64(keys) => {
                keys.clear();
                keys.extend(numbers.map(id));
            }
        }
    }
}

/// Writes the key with this number: `user:` and eight digits.
fn write_text(key: &mut String, mut number: u32) {
    let mut text = [b'0'; TEXT_LEN];
    text[..PREFIX.len()].copy_from_slice(PREFIX);
    for digit in text[PREFIX.len()..].iter_mut().rev() {
        // The remainder is below ten.
        *digit += (number % 10) as u8;
        number /= 10;
    }
    key.clear();
    key.push_str(std::str::from_utf8(&text).unwrap_or_default());
}

/// The id of the key with this number.
pub(crate) fn id(number: u32) -> u64 {
    mix(u64::from(number).wrapping_add(1).wrapping_mul(GOLDEN))
}

/// Zipf's law with exponent 1.0 by rejection-inversion (Hörmann and Derflinger, 1996).
///
/// The area under `1/x` stands in for the sum of `1/k`: a point is drawn from the area, where
/// inversion is `exp`, and rejected when it lies outside the bar of its rank. Fewer than one draw in
/// ten is rejected whatever the number of ranks, and there is no table.
#[derive(Clone, Copy, Debug)]
struct Zipf {
    ranks: f64,
    /// The area is drawn between these two.
    area_low: f64,
    area_high: f64,
    /// Points no further than this below their rank need no closer look.
    squeeze: f64,
}

impl Zipf {
    fn new(ranks: u64) -> Self {
        let ranks = ranks as f64;
        Self {
            ranks,
            area_low: 1.5_f64.ln() - 1.0,
            area_high: (ranks + 0.5).ln(),
            squeeze: 2.0 - (2.5_f64.ln() - 0.5).exp(),
        }
    }

    /// A rank, 1 being the most popular.
    fn rank(&self, random: &mut SplitMix) -> u64 {
        loop {
            let area = self.area_high + random.unit() * (self.area_low - self.area_high);
            let x = area.exp();
            let rank = x.round().clamp(1.0, self.ranks);
            if rank - x <= self.squeeze || area >= (rank + 0.5).ln() - 1.0 / rank {
                return rank as u64;
            }
        }
    }
}

/// Steele, Lea and Flood's generator: small, and the same stream on every machine.
#[derive(Debug)]
pub(crate) struct SplitMix(pub(crate) u64);

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        mix(self.0)
    }

    /// Below `bound`. The bias is at most `bound / 2^64`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// In `[0, 1)`, with all 53 bits of the mantissa.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zipf_rank_comes_as_often_as_its_inverse_says() {
        const RANKS: usize = 20;
        const DRAWS: usize = 1_000_000;
        let zipf = Zipf::new(RANKS as u64);
        let mut random = SplitMix(7);
        let mut seen = [0_usize; RANKS];
        for _ in 0..DRAWS {
            seen[zipf.rank(&mut random) as usize - 1] += 1;
        }
        let harmonic: f64 = (1..=RANKS).map(|rank| 1.0 / rank as f64).sum();
        for (index, &count) in seen.iter().enumerate() {
            let chance = 1.0 / ((index + 1) as f64 * harmonic);
            let expected = DRAWS as f64 * chance;
            // Five standard deviations; the seed is fixed, so this either always holds or never.
            let slack = 5.0 * (expected * (1.0 - chance)).sqrt();
            assert!(
                (count as f64 - expected).abs() < slack,
                "rank {}: {count}",
                index + 1
            );
        }
    }

    #[test]
    fn one_rank_is_always_the_first() {
        let zipf = Zipf::new(1);
        let mut random = SplitMix(1);
        assert!((0..1000).all(|_| zipf.rank(&mut random) == 1));
    }

    #[test]
    fn scattered_ranks_never_meet() {
        for count in [1_u64, 2, 3, 10, 1000, 4096] {
            let mut places: Vec<u64> = (0..count).map(|rank| scatter(rank, count)).collect();
            places.sort_unstable();
            assert!(places.into_iter().eq(0..count));
        }
    }

    #[test]
    fn an_order_stays_within_its_share_of_the_keys() {
        for spread in Spread::ALL {
            let order = Order::draw(spread, 500, 500, 3);
            assert!(
                order
                    .numbers
                    .iter()
                    .all(|number| (500..1000).contains(number))
            );
        }
    }

    #[test]
    fn an_order_repeats_when_it_is_used_up() {
        let order = Order::draw(Spread::Uniform, 0, 1000, 3);
        assert_eq!(order.slice(0), order.slice(order.len()));
    }

    #[test]
    fn keys_are_written_with_eight_digits() {
        let mut stage = Stage::new(Kind::Str);
        stage.fill([0, 1234, 99_999_999].into_iter());
        let Stage::Str(keys) = stage else {
            unreachable!("the stage was made for text")
        };
        assert_eq!(keys, ["user:00000000", "user:00001234", "user:99999999"]);
    }
}
