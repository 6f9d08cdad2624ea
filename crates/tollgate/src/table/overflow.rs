//! Decides new keys when the table is full of live keys.
//!
//! A new key without a slot is charged on a *cell*, chosen by its hash, that it shares with other new keys. A cell is
//! one key's allowance. So each key of a cell gets at most its own limit, all of them together get one limit for each
//! cell, and keys with a slot are not affected. A key that finds a slot later starts from what its cell has used, so
//! that it cannot use its allowance twice.
//!
//! | alternative | why not |
//! |---|---|
//! | refuse all new keys | a flood would lock every new client out |
//! | let them pass | a flood would switch the limiter off |
//! | evict the oldest key | a flood would free a throttled key |

use std::sync::atomic::Ordering::Relaxed;

use super::layout::{ReadContext, StampAge, read_slot};
use crate::algorithm::PackedAlgorithm;
use crate::snapshot::{RestoreError, SnapshotReader, SnapshotWriter};
use crate::sync::{AtomicU64, Mutex};
use crate::time::Moment;

/// Cells: 64 KiB. More cells are fairer to new keys and let a flood collect more allowances.
const CELLS: usize = if cfg!(loom) { 16 } else { 4096 };
/// Cells under one lock.
const SHARDS: usize = if cfg!(loom) { 1 } else { 16 };

/// A cell is a slot of its own: a stamp and a word. Zero is a cell never used.
type Cell = (u64, u64);

#[derive(Debug)]
pub(super) struct Overflow {
    shards: Box<[Mutex<Box<[Cell]>>]>,
    /// Decisions on what a cell has used.
    overflowed: AtomicU64,
}

fn make(cells: &mut Box<[Cell]>) {
    if cells.is_empty() {
        *cells = vec![(0, 0); CELLS / SHARDS].into_boxed_slice();
    }
}

impl Overflow {
    pub(super) const BYTES: usize = CELLS * size_of::<Cell>();

    pub(super) fn new() -> Overflow {
        // Cells are allocated when the first new key needs one: most limits never do.
        let shard = |_| Mutex::new(Box::default());
        Overflow {
            shards: (0..SHARDS).map(shard).collect(),
            overflowed: AtomicU64::new(0),
        }
    }

    /// Whether any new key has ever been without a slot. Relaxed is enough: the thread that adds a key holds the
    /// lock of the segment that put this key into the overflow, if it ever was there.
    pub(super) fn is_in_use(&self) -> bool {
        self.overflowed.load(Relaxed) > 0
    }

    /// Counts a decision that was made on what a cell has used.
    pub(super) fn note(&self) {
        self.overflowed.fetch_add(1, Relaxed);
    }

    pub(super) fn overflowed(&self) -> u64 {
        self.overflowed.load(Relaxed)
    }

    fn with<R>(&self, hash: u64, f: impl FnOnce(&mut Cell) -> R) -> R {
        // Bits that place a key in the table neither as segment nor as line.
        let at = (hash >> 8) as usize % CELLS;
        let shard = &self.shards[at % SHARDS];
        let mut cells = shard
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        make(&mut cells);
        f(&mut cells[at / SHARDS])
    }

    /// The usage of the key's cell, as the word to start from.
    pub(super) fn inherited<A: PackedAlgorithm>(
        &self,
        hash: u64,
        context: &ReadContext<'_, A>,
    ) -> Option<u64> {
        if !self.is_in_use() {
            return None;
        }
        self.with(hash, |&mut (stamp, word)| {
            (stamp != 0)
                .then(|| read_slot(stamp, word, context))
                .flatten()
        })
    }

    /// Brings every cell to the current stamp.
    pub(super) fn restamp<A: PackedAlgorithm>(&self, context: &ReadContext<'_, A>) {
        for shard in &self.shards {
            let mut cells = shard
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            let is_old = |c: &&mut Cell| {
                c.0 != 0 && (c.0 as u16 != context.stamp || context.age != StampAge::Valid)
            };
            for cell in cells.iter_mut().filter(is_old) {
                *cell = match read_slot(cell.0, cell.1, context) {
                    Some(word) => (1 << 16 | u64::from(context.stamp), word),
                    None => (0, 0),
                };
            }
        }
    }

    /// Writes every cell that was used.
    pub(super) fn save(&self, to: &mut SnapshotWriter) {
        to.number(self.overflowed());
        let count = to.later();
        let mut used = 0;
        for (at, shard) in self.shards.iter().enumerate() {
            let cells = shard
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            for (place, (stamp, word)) in cells.iter().enumerate().filter(|(_, c)| c.0 != 0) {
                to.size(at);
                to.size(place);
                to.number(*stamp);
                to.number(*word);
                used += 1;
            }
        }
        to.fill(&count, used);
    }

    /// Reads what was written.
    pub(super) fn restore(&self, from: &mut SnapshotReader<'_>) -> Result<(), RestoreError> {
        self.overflowed.store(from.number()?, Relaxed);
        for _ in 0..from.size_up_to(CELLS)? {
            let (at, place) = (from.size()?, from.size()?);
            let cell = (from.number()?, from.number()?);
            let shard = self.shards.get(at).ok_or(RestoreError::Malformed)?;
            let mut cells = shard
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            make(&mut cells);
            *cells.get_mut(place).ok_or(RestoreError::Malformed)? = cell;
        }
        Ok(())
    }

    /// Applies a step to the key's cell.
    pub(super) fn apply<A: PackedAlgorithm, R>(
        &self,
        hash: u64,
        context: &ReadContext<'_, A>,
        step: impl Fn(&A, Option<u64>, Moment) -> (R, Option<u64>),
    ) -> (R, Option<u64>) {
        self.note();
        self.with(hash, |cell| {
            let word = (cell.0 != 0)
                .then(|| read_slot(cell.0, cell.1, context))
                .flatten();
            let (result, write) = step(context.limit, word, context.now);
            if let Some(new) = write {
                // The upper bits only have to be something.
                *cell = (1 << 16 | u64::from(context.stamp), new);
            }
            (result, write.or(word))
        })
    }
}
