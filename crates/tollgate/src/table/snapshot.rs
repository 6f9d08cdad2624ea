//! Saves a table as bytes and restores it: the slots in their places, the active limit, the overflow.
//!
//! A table is written segment by segment, each under its lock, while charges continue: every word is one that was
//! there at some moment of the writing. The table does not grow and its limit does not change meanwhile, so places
//! and stamps keep their meaning. The scale is not written, because the next process measures the pressure anew.

use std::sync::PoisonError;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use super::active_limit::ActiveLimit;
use super::layout::{ReadContext, Shape, StampAge, read_slot};
use super::packed_table::{Changes, PackedTable};
use super::{CLAIM, LINES};
use crate::algorithm::scale::Scale;
use crate::algorithm::{EncodedLimit, PackedAlgorithm};
use crate::raw::SLOTS;
use crate::snapshot::{RestoreError, SnapshotReader, SnapshotWriter};
use crate::sync::Mutex;
use crate::time::Moment;

const PLACES: usize = LINES * SLOTS;

impl<A: PackedAlgorithm> PackedTable<A> {
    pub(crate) fn save(&self, now: Moment, to: &mut SnapshotWriter) {
        let _growing = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
        let changes = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let (current, before) = (self.current.read(), self.before.read());
        save_encoded(&current.limit.encode(), to);
        save_encoded(&before.limit.encode(), to);
        to.number(changes.generation);
        to.number(changes.swept);
        to.number(current.since());
        let segments = self.shape().segments;
        to.size(segments);
        let context = ReadContext {
            age: StampAge::Valid,
            limit: &current.limit,
            stamp: current.stamp,
            before: &before.limit,
            now,
        };
        for segment in 0..segments {
            self.save_segment(segment, &context, to);
        }
        self.overflow.save(to);
    }

    fn save_segment(&self, segment: usize, context: &ReadContext<'_, A>, to: &mut SnapshotWriter) {
        let _guard = self.segments[segment].lock();
        let (lines, mut live) = (segment * LINES..(segment + 1) * LINES, 0);
        let count = to.later();
        for (at, line) in self.lines[lines.clone()].iter().enumerate() {
            for slot in 0..SLOTS {
                let (key, word) = (&line.keys[slot], &line.words[slot]);
                // Under the lock a slot with a key is not claimed. Acquire as in `charge_slot`.
                let (word, key) = (word.load(Acquire), key.load(Acquire));
                if key != 0 && word != CLAIM && read_slot(key, word, context).is_some() {
                    to.size(at * SLOTS + slot);
                    to.number(key);
                    to.number(word);
                    live += 1;
                }
            }
        }
        to.fill(&count, live);
        if live > 0 {
            for reach in &self.reach[lines] {
                to.byte(reach.load(Relaxed));
            }
        }
    }

    /// Restores a saved table, with room for `max_keys`.
    pub(crate) fn restored(
        max_keys: usize,
        from: &mut SnapshotReader<'_>,
    ) -> Result<PackedTable<A>, RestoreError> {
        let limit = A::from_encoded(&restored_encoded(from)?);
        let before = A::from_encoded(&restored_encoded(from)?);
        let (generation, swept) = (from.number()?, from.number()?);
        let since = from.number()?;
        let mut table = PackedTable::new(limit, max_keys).map_err(|_| RestoreError::NoMemory)?;
        let epoch = limit.epoch(Moment::from_nanos(since));
        let active = ActiveLimit::new(limit, Scale::ONE, generation, epoch);
        table.current.write(&active);
        table.before.write(&ActiveLimit::new(
            before,
            Scale::ONE,
            generation.wrapping_sub(1),
            before.epoch(Moment::from_nanos(since)),
        ));
        table.changing = Mutex::new(Changes { generation, swept });
        let segments = from.size_up_to(table.extent.most)?;
        if segments < table.extent.base {
            return Err(RestoreError::Malformed);
        }
        for segment in 0..segments {
            table.restore_segment(segment, from)?;
        }
        let shape = Shape::of(segments, table.extent);
        table.shape = crate::sync::AtomicU64::new(shape.to_word());
        table.overflow.restore(from)?;
        Ok(table)
    }

    fn restore_segment(
        &self,
        segment: usize,
        from: &mut SnapshotReader<'_>,
    ) -> Result<(), RestoreError> {
        let live = from.size_up_to(PLACES)?;
        for _ in 0..live {
            let place = from.size_up_to(PLACES - 1)?;
            let (key, word) = (from.number()?, from.number()?);
            if key == 0 || word == CLAIM {
                return Err(RestoreError::Malformed);
            }
            let line = &self.lines[segment * LINES + place / SLOTS];
            // No other thread has seen the table yet.
            line.keys[place % SLOTS].store(key, Relaxed);
            line.words[place % SLOTS].store(word, Relaxed);
        }
        if live > 0 {
            for reach in &self.reach[segment * LINES..(segment + 1) * LINES] {
                reach.store(from.byte()?, Relaxed);
            }
        }
        Ok(())
    }
}

fn save_encoded(params: &EncodedLimit, to: &mut SnapshotWriter) {
    params.iter().for_each(|word| to.number(*word));
}

fn restored_encoded(from: &mut SnapshotReader<'_>) -> Result<EncodedLimit, RestoreError> {
    let mut params = EncodedLimit::default();
    for word in &mut params {
        *word = from.number()?;
    }
    Ok(params)
}
