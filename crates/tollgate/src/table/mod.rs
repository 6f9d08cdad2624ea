//! State in this process: a bounded, concurrent table of keys with one word each.
//!
//! # Theory
//!
//! Every key has a *slot*: 48 bits of its hash beside its word, four slots to a cache line. The table stores no keys
//! and follows no pointer. A charge touches one line: it finds the slot in the key's home line, decides with
//! `PackedAlgorithm::charge`, and swaps the word. A refusal writes nothing, so the line stays shared between
//! processors.
//!
//! # Why it never admits too much
//!
//! 1. The key of a slot changes only while its word is `CLAIM`. A charge reads the word, then the key, then swaps the
//!    word. A successful swap proves that key and word belong together.
//! 2. Keys are added, moved and replaced only under the lock of their *segment* (128 lines), after a second look under
//!    that lock and with a fresh reading of the clock. So no key has two slots. A charge of a present key takes no lock.
//! 3. A slot is taken over only when its word says "as if never used". **A live slot is never taken**, and expired
//!    keys need no deletion.
//! 4. When no slot within reach is free, the `overflow` decides the new key: it shares the allowance of one key with
//!    all new keys of the same cell. It gets less than its own allowance, never more, and no key with a slot is
//!    affected. When it gets a slot later, it starts from what its cell has used.
//!
//! # Growth
//!
//! The region for `max_keys` is reserved at once but takes memory only where it is used. The table starts with a
//! few segments and grows by one segment at a time (`PackedTable::grow`). A split moves half of the slots of a
//! segment, under its lock, to the same places of a new one. Charges of other segments continue. A charge that
//! meets a moving slot waits for these few microseconds.
//!
//! # Words wrap, so slots have stamps
//!
//! Beside the 48 bits lies a 16-bit *stamp*: the epoch in which the word was last re-keyed or checked
//! (`PackedAlgorithm::epoch`), and the generation of the limit. A slot with another stamp than the caller expects
//! is read under the lock, where the difference of the epochs decides whether the word still has its apparent
//! meaning.
//!
//! The table is swept on two occasions, and on no others: when the limit changes, and before the epochs themselves
//! wrap, which is once in days for the shortest windows and never for the others. A sweep brings every slot to the
//! current stamp. It is not what expires keys.
//!
//! # How likely two keys share a slot
//!
//! | | |
//! |---|---|
//! | what must agree | 48 bits of the hash, the segment, and the place in it |
//! | probability for `n` live keys | about `n^2 / 2^63` |
//! | for any two of 10 million | one in 90 000 |
//!
//! The hash is keyed (`crate::key`), so a client cannot cause a collision. Two keys that collide share one allowance.

mod active_limit;
mod all_or_none;
mod fast_path;
mod key_table;
mod layout;
mod log_table;
mod op;
mod overflow;
mod packed_table;
mod resize;
mod segment;
mod slot_ops;
mod snapshot;
mod tentative;

#[cfg(all(test, loom))]
mod races;

pub use all_or_none::MAX_CHARGES;
pub(crate) use all_or_none::{ResolvedCharge, all_or_none};
pub(crate) use key_table::KeyTable;
pub(crate) use layout::Intent;
pub use op::{KeyOp, KeyOutcome};
pub(crate) use packed_table::PackedTable;

use crate::algorithm::{LimitError, RESERVED};

/// The word of a slot while its key changes.
pub(crate) const CLAIM: u64 = RESERVED;

/// Lines in a segment: 8 KiB, few enough to split in microseconds and to keep small tables small, many enough that
/// segments fill evenly.
#[cfg(not(loom))]
pub(crate) const LINES: usize = 128;
#[cfg(loom)]
pub(crate) const LINES: usize = 1;

/// Slots in a segment that are meant to be used: 45 of 64, which is less than 24 bytes for a key. The rest keeps
/// probing short: 9 of 100 keys are not in their home line.
pub(crate) const TARGET: usize = LINES * crate::raw::SLOTS * 45 / 64;

/// Lines in which a key may live: its home, the other line of that pair, then the pairs after it.
pub(crate) const WINDOW: usize = if LINES < 64 { LINES } else { 64 };

/// How many segments the table starts with and how many it may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Segments at the start.
    pub(crate) base: usize,
    /// Segments at the most: `base` doubled some times.
    pub(crate) most: usize,
}

impl Extent {
    /// Room for `max_keys` at the target.
    pub(crate) fn for_keys(max_keys: usize) -> Result<Extent, LimitError> {
        // Segment numbers and doublings are kept in 24 bits each.
        const MOST: usize = 1 << 24;
        let needed = max_keys.div_ceil(TARGET);
        if max_keys == 0 || needed > MOST {
            return Err(LimitError::MaxKeys { asked: max_keys });
        }
        // Between 32 and 63 at the start, so that doubling overshoots by 3 % at most.
        const BASE_MIN: usize = if cfg!(loom) { 1 } else { 32 };
        let doublings = (needed / BASE_MIN).checked_ilog2().unwrap_or(0);
        let base = needed.div_ceil(1 << doublings);
        Ok(Extent {
            base,
            most: base << doublings,
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_extent_has_room_and_wastes_little() {
        for keys in [
            1,
            100,
            768,
            769,
            24_576,
            100_000,
            1_000_000,
            10_000_000,
            1_000_000_000,
        ] {
            let extent = Extent::for_keys(keys).unwrap();
            assert!(extent.most * TARGET >= keys, "{keys}");
            let spare = extent.most * TARGET - keys;
            assert!(spare <= keys / 30 + TARGET, "{keys}: {spare} spare");
            assert_eq!(extent.most % extent.base, 0);
            assert!((extent.most / extent.base).is_power_of_two());
        }
    }

    #[test]
    fn no_keys_and_too_many_keys_are_errors() {
        assert!(Extent::for_keys(0).is_err());
        assert!(Extent::for_keys(usize::MAX).is_err());
    }
}
