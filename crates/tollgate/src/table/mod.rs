//! State in this process: a bounded, concurrent table of one-word limiters.
//!
//! # Theory
//!
//! Every key has a *slot*: 48 bits of its hash beside its word, four slots to a cache line. Keys are
//! not stored and no pointer is followed, so a charge touches one line: it finds the slot in the
//! key's home line, decides with `PackedAlgorithm::charge` and swaps the word. A refusal writes nothing, so
//! the line stays shared between processors.
//!
//! # What makes it never admit too much
//!
//! 1. A slot's key changes only while its word is `CLAIM`. A charge reads the word, then the key,
//!    then swaps the word: that the swap succeeds proves that key and word belong together.
//! 2. Keys are added, moved and replaced only under the lock of their *segment* (256 lines), after a
//!    second look under that lock and with a fresh reading of the clock. So no key has two slots.
//!    Charging a key that is there takes no lock.
//! 3. A slot is taken over only when its word says "as if never used"; nothing is ever deleted and
//!    nothing sweeps. **A live slot is never taken.**
//! 4. When no slot within reach is free, the newcomer is answered from the `overflow`: it shares the
//!    allowance of one key with all newcomers of the same cell. It gets less than its own, never more,
//!    and nobody who has a slot notices. When it gets a slot later, it starts from what its cell has
//!    used.
//!
//! # Growth
//!
//! The region for `max_keys` is reserved at once but takes memory only where it is used. The table
//! starts with a few segments and is grown one segment at a time (`PackedTable::grow`): one is split in
//! two, under its lock, by moving half of its slots to the same places of a new one. Charges elsewhere
//! go on; those that meet a moving slot wait for these few microseconds.
//!
//! # Words wrap, so slots are stamped
//!
//! Beside the 48 bits lies a 16-bit *stamp*: the epoch in which the word was last re-keyed or checked
//! (`PackedAlgorithm::epoch`) and the generation of the limit. A slot with another stamp than the caller
//! expects is looked at under the lock, where the difference of the epochs tells whether the word is
//! still what it seems. Before the epochs themselves wrap, the table is swept: once
//! in days for the shortest windows, never for the others.
//!
//! # How likely two keys share a slot
//!
//! Two keys are one for the table if 48 bits of their hash, their segment and their place in it agree:
//! about n^2 / 2^63 for n live keys, one in 90 000 that any two of 10 million ever do. The hash is
//! keyed (`crate::key`), so it cannot be brought about. Such a pair would share one allowance.

mod active_limit;
mod all_or_none;
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

#[cfg(all(test, loom))]
mod races;

pub use all_or_none::MAX_CHARGES;
pub(crate) use all_or_none::{ResolvedCharge, all_or_none};
pub(crate) use key_table::KeyTable;
pub(crate) use layout::Intent;
pub use op::{KeyOp, KeyOutcome};
pub(crate) use packed_table::PackedTable;

use crate::algorithm::{LimitError, RESERVED};

/// The word of a slot whose key is being changed.
pub(crate) const CLAIM: u64 = RESERVED;

/// Lines in a segment: 16 KiB, few enough to split in microseconds, many enough that segments fill
/// evenly.
#[cfg(not(loom))]
pub(crate) const LINES: usize = 256;
#[cfg(loom)]
pub(crate) const LINES: usize = 1;

/// Slots in a segment that are meant to be used; the rest keeps probing short.
pub(crate) const TARGET: usize = LINES * crate::raw::SLOTS * 3 / 4;

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
    /// Room for `max_keys` at three quarters full.
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
