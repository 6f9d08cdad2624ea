//! The keys of a workload, and their order.
//!
//! Two steps, both outside the timed part:
//!
//! 1. A [`KeyOrder`] is drawn once per workload and thread. All contestants see the same one.
//! 2. A [`KeyBuffer`] turns the next [`BUFFER_LEN`] numbers into keys. It is small enough to stay in the cache.
//!
//! The buffer is why a check finds its key warm. A server has just parsed the key that it checks. If the loop fetched keys
//! from a list of ten million, every contestant would pay for the cache misses of that list, and the differences between
//! them would drown in it. It also means that ten million keys take no memory outside the contestant.

use tollgate_load::KeyPicker;

use crate::workload::{Distribution, KeyKind};

/// Keys in a buffer. A multiple of the batch length; with it, text keys take 28 kB, and reading the clock twice per buffer
/// adds about 0.1 ns to each check.
pub(crate) const BUFFER_LEN: usize = 512;

/// Draws per thread. Longer orders are repeated from the start.
const ORDER_LEN: usize = 1 << 22;

/// Enough digits for [`crate::workload::KEYS_MAX`] keys.
const DIGITS: usize = 8;
const PREFIX: &[u8; 5] = b"user:";
const TEXT_LEN: usize = PREFIX.len() + DIGITS;

/// Key numbers in the order in which one thread checks them.
#[derive(Debug)]
pub(crate) struct KeyOrder {
    numbers: Vec<u32>,
    one_key: bool,
}

impl KeyOrder {
    /// Draws from the keys `first..first + count`.
    pub(crate) fn draw(distribution: Distribution, first: usize, count: usize, seed: u64) -> Self {
        let (first, count) = (first as u64, count.max(1) as u64);
        let len = if count == 1 { BUFFER_LEN } else { ORDER_LEN };
        let exponent = match distribution {
            Distribution::Uniform => None,
            Distribution::Zipf => Some(1.0),
        };
        let mut keys = KeyPicker::new(count, exponent, seed);
        // Key numbers stay below `KEYS_MAX`, which fits.
        let number = |_| (first + scatter(keys.pick(), count)) as u32;
        Self {
            numbers: (0..len).map(number).collect(),
            one_key: count == 1,
        }
    }

    /// The numbers from `at` on, at most a buffer full; `at` may be any number.
    pub(crate) fn slice(&self, at: usize) -> &[u32] {
        let start = at % self.numbers.len();
        let end = self.numbers.len().min(start + BUFFER_LEN);
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
/// Without it the popular keys would have been inserted one after the other, so that their heap-allocated copies would share
/// cache lines, which no real stream does.
fn scatter(rank: u64, count: u64) -> u64 {
    // A prime above every possible `count`, hence coprime to it, hence a permutation.
    const PRIME: u64 = 2_654_435_761;
    rank * PRIME % count
}

/// A few keys, ready to be checked.
#[derive(Debug)]
pub(crate) enum KeyBuffer {
    /// `String`s rather than `&str`s because some contestants take nothing else.
    Str(Vec<String>),
    U64(Vec<u64>),
}

impl KeyBuffer {
    pub(crate) fn new(kind: KeyKind) -> Self {
        match kind {
            KeyKind::Str => Self::Str(Vec::with_capacity(BUFFER_LEN)),
            KeyKind::U64 => Self::U64(Vec::with_capacity(BUFFER_LEN)),
        }
    }

    /// Replaces the keys by those with these numbers.
    pub(crate) fn fill(&mut self, numbers: impl ExactSizeIterator<Item = u32>) {
        match self {
            Self::Str(keys) => {
                // Strings are overwritten rather than replaced, so that filling does not allocate between the allocations
                // of the contestants.
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

/// The id of the key with this number: scattered over all 64 bits, and another one for each number.
pub(crate) fn id(number: u32) -> u64 {
    let mut z = (u64::from(number) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scattered_ranks_never_collide() {
        for count in [1_u64, 2, 3, 10, 1000, 4096] {
            let mut places: Vec<u64> = (0..count).map(|rank| scatter(rank, count)).collect();
            places.sort_unstable();
            assert!(places.into_iter().eq(0..count));
        }
    }

    #[test]
    fn an_order_stays_within_its_share_of_the_keys() {
        for distribution in Distribution::ALL {
            let order = KeyOrder::draw(distribution, 500, 500, 3);
            let mut numbers = order.numbers.iter();
            assert!(numbers.all(|number| (500..1000).contains(number)));
        }
    }

    #[test]
    fn an_order_repeats_when_it_is_used_up() {
        let order = KeyOrder::draw(Distribution::Uniform, 0, 1000, 3);
        assert_eq!(order.slice(0), order.slice(order.len()));
    }

    #[test]
    fn keys_are_written_with_eight_digits() {
        let mut buffer = KeyBuffer::new(KeyKind::Str);
        buffer.fill([0, 1234, 99_999_999].into_iter());
        let KeyBuffer::Str(keys) = buffer else {
            unreachable!("the buffer was made for text")
        };
        assert_eq!(keys, ["user:00000000", "user:00001234", "user:99999999"]);
    }
}
