//! The limit of the hardware, not a limiter: a single atomic addition at a random place in
//! memory as large as a table of 16-byte slots at three quarters load would be.
//!
//! No clock, no hash, no comparison of keys, no decision. A limiter that writes once per check and
//! comes near this has little left to gain but by batches or a smaller table.
//!
//! While the table fits the cache, `noop` measures how long a locked instruction holds back the
//! reading of the next key, so a few nanoseconds between the two kinds of key are the compiler's
//! arrangement of that loop and nothing else.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{BATCH_LEN, KeyedLimiter};
use crate::workload::Config;

/// One key at a time.
pub(crate) struct Noop(Slots);

/// As many keys at a time as fit in a batch: all cache lines are prefetched before the first is
/// needed, so that their misses overlap.
pub(crate) struct NoopBatch(Slots);

impl KeyedLimiter for Noop {
    const NAME: &'static str = "noop";
    const DECIDES: bool = false;

    fn new(config: &Config) -> Self {
        Self(Slots::new(config.keys))
    }

    fn check_str(&self, key: &String) -> bool {
        self.0.touch(self.0.place(tail(key)))
    }

    fn check_u64(&self, key: u64) -> bool {
        self.0.touch(self.0.place(key))
    }
}

impl KeyedLimiter for NoopBatch {
    const NAME: &'static str = "noop-batch";
    const DECIDES: bool = false;

    fn new(config: &Config) -> Self {
        Self(Slots::new(config.keys))
    }

    fn check_str(&self, key: &String) -> bool {
        self.0.touch(self.0.place(tail(key)))
    }

    fn check_u64(&self, key: u64) -> bool {
        self.0.touch(self.0.place(key))
    }

    #[inline]
    fn check_batch_str(&self, keys: &[&str]) -> Option<u32> {
        Some(self.0.touch_all(keys, |key| tail(key)))
    }

    #[inline]
    fn check_batch_u64(&self, keys: &[u64]) -> Option<u32> {
        Some(self.0.touch_all(keys, |&key| key))
    }
}

#[repr(align(16))]
struct Slot {
    word: AtomicU64,
}

struct Slots(Box<[Slot]>);

impl Slots {
    fn new(keys: usize) -> Self {
        let len = (keys * 4).div_ceil(3).max(1);
        Self(
            (0..len)
                .map(|_| Slot {
                    word: AtomicU64::new(0),
                })
                .collect(),
        )
    }

    /// Where a key lives: one multiplication to scatter it, one to bring it into range.
    #[inline]
    fn place(&self, key: u64) -> usize {
        const ODD: u128 = 0x9E37_79B9_7F4A_7C15;
        let product = u128::from(key) * ODD;
        let scattered = (product >> 64) as u64 ^ product as u64;
        ((u128::from(scattered) * self.0.len() as u128) >> 64) as usize
    }

    #[inline]
    fn touch(&self, place: usize) -> bool {
        // Relaxed: the count is only ever added to; nothing is read because of it.
        self.0[place].word.fetch_add(1, Ordering::Relaxed) != u64::MAX
    }

    #[inline]
    fn touch_all<K>(&self, keys: &[K], number: impl Fn(&K) -> u64) -> u32 {
        let mut places = [0; BATCH_LEN];
        for (place, key) in places.iter_mut().zip(keys) {
            *place = self.place(number(key));
            prefetch(&self.0[*place]);
        }
        places
            .iter()
            .take(keys.len())
            .map(|&place| u32::from(self.touch(place)))
            .sum()
    }
}

/// The last eight bytes of the text: its digits, which are different for all keys.
#[inline]
fn tail(key: &str) -> u64 {
    key.as_bytes()
        .last_chunk()
        .map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn prefetch(slot: &Slot) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a prefetch reads nothing that the program can see, whatever the address, and SSE is
    // part of every x86-64.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(slot).cast()) }
}

/// Elsewhere there is no stable way to ask, and the batch is merely a loop.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn prefetch(_slot: &Slot) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_floor_is_as_large_as_a_table_at_three_quarters_load() {
        let slots = Slots::new(3_000_000);
        assert_eq!(size_of_val(&*slots.0), 4_000_000 * 16);
    }

    #[test]
    fn text_keys_are_spread_over_most_of_the_slots() {
        const KEYS: usize = 30_000;
        let slots = Slots::new(KEYS);
        for number in 0..KEYS {
            slots.touch(slots.place(tail(&format!("user:{number:08}"))));
        }
        let used = slots
            .0
            .iter()
            .filter(|slot| slot.word.load(Ordering::Relaxed) > 0)
            .count();
        // 30 000 random throws at 40 000 slots leave 1/e^0.75 of them empty: 21 105 are used.
        assert!(used > 20_000, "only {used} slots are used");
    }
}
