//! Operations on a whole table while charges continue: count, grow, change the limit, sweep.

use std::sync::PoisonError;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::LINES;
use super::active_limit::ActiveLimit;
use super::layout::{EPOCH_BITS, ReadContext, Shape, StampAge, branch, read_slot};
use super::packed_table::{Changes, PackedTable};
use super::slot_ops::{claim, restamp};
use crate::algorithm::PackedAlgorithm;
use crate::algorithm::scale::Scale;
use crate::raw::{Line, SLOTS};
use crate::time::Moment;

/// Epochs between two sweeps: an eighth of the range of a stamp, so that stamps from before and after the sweep
/// are never confused, in either direction of the clock.
const SWEEP_EVERY: u64 = 1 << (EPOCH_BITS - 3);

/// Segments from which on the table is worth huge pages: two megabytes.
const HUGE_PAGES_FROM: usize = (2 << 20) / (LINES * size_of::<Line>());

impl<A: PackedAlgorithm> PackedTable<A> {
    /// Under the lock: slots of a segment that are not free.
    pub(super) fn live_in(&self, segment: usize, context: &ReadContext<'_, A>) -> usize {
        let lines = &self.lines[segment * LINES..(segment + 1) * LINES];
        let live = |line: &Line, slot: usize| {
            let key = line.keys[slot].load(Acquire);
            key != 0 && read_slot(key, line.words[slot].load(Relaxed), context).is_some()
        };
        lines
            .iter()
            .map(|line| (0..SLOTS).filter(|s| live(line, *s)).count())
            .sum()
    }

    /// Live keys at `now`, counted. Reads the whole table.
    pub(crate) fn live_keys(&self, now: Moment) -> usize {
        let live = |context: &ReadContext<'_, A>, segment| self.live_in(segment, context);
        self.with_each_segment(now, StampAge::Valid, live).sum()
    }

    fn with_each_segment<'a, R: 'a>(
        &'a self,
        now: Moment,
        age: StampAge,
        f: impl Fn(&ReadContext<'_, A>, usize) -> R + 'a,
    ) -> impl Iterator<Item = R> + 'a {
        let mut segment = 0;
        std::iter::from_fn(move || {
            // The shape is read again each time, so that segments added meanwhile are included.
            let more = segment < self.shape().segments;
            let _guard = more.then(|| self.segments[segment].lock())?;
            let current = self.current.read();
            let before = self.before.read();
            let context = ReadContext {
                age,
                limit: &current.limit,
                stamp: current.stamp,
                before: &before.limit,
                now,
            };
            segment += 1;
            Some(f(&context, segment - 1))
        })
    }

    /// Splits the next segment in two, if the table may still grow. If another thread splits it, waits for that
    /// thread or leaves it to it.
    pub(crate) fn grow(&self, wait: bool) {
        let _growing = match self.growing.try_lock() {
            Ok(growing) => growing,
            Err(_) if wait => self.growing.lock().unwrap_or_else(PoisonError::into_inner),
            Err(_) => return,
        };
        let shape = self.shape();
        if shape.segments >= self.extent.most {
            return;
        }
        let (from, bit) = shape.next_split(self.extent);
        let to = shape.segments;
        let _guard = self.segments[from].lock();
        for i in 0..LINES {
            let (old, new) = (&self.lines[from * LINES + i], &self.lines[to * LINES + i]);
            let reach = self.reach[from * LINES + i].load(Relaxed);
            self.reach[to * LINES + i].store(reach, Relaxed);
            for slot in 0..SLOTS {
                let key = old.keys[slot].load(Relaxed);
                if key != 0 && branch(key) & bit != 0 {
                    // Its word is claimed from here on and stays so: a charge that still looks here
                    // finds no such key, and then waits for the lock. Relaxed on the new side: it is
                    // published by the shape.
                    let word = claim(&old.words[slot]);
                    new.words[slot].store(word, Relaxed);
                    new.keys[slot].store(key, Relaxed);
                    old.keys[slot].store(0, Release);
                }
            }
        }
        if shape.segments == HUGE_PAGES_FROM {
            self.lines.advise_huge_pages();
        }
        let grown = Shape::of(shape.segments + 1, self.extent);
        // Release pairs with the Acquire in `shape`: the moved slots are seen with the new shape.
        self.shape.store(grown.to_word(), Release);
    }

    /// Activates another limit of the same kind. Usage is kept (`PackedAlgorithm::convert`).
    pub(crate) fn change(&self, limit: A, now: Moment) {
        let mut changes = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        // A stamp that is too old to be distinguished must not be converted.
        self.advance_epoch(&mut changes, now);
        let old = self.current.read();
        let limit = limit.keeping_layout_of(&old.limit);
        let epoch = limit.epoch(now);
        self.before.write(&old);
        changes.generation += 1;
        self.current.write(&ActiveLimit::new(
            limit,
            old.scale,
            changes.generation,
            epoch,
        ));
        // From here on every thread converts slots with the old stamp when it reads them. This loop converts the
        // rest, so that the next change finds none that are older.
        self.restamp_all(now, StampAge::Valid);
        changes.swept = epoch.number;
    }

    /// Scales the limit, from the next charge on. No word changes.
    pub(crate) fn set_scale(&self, scale: Scale) {
        let _changes = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut current = self.current.read();
        current.scale = scale;
        self.current.write(&current);
    }

    pub(super) fn advance_epoch_if_due(&self, now: Moment, fresh: &impl Fn() -> Moment) {
        if !self.current.read().holds_at(now) {
            let mut changes = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
            self.advance_epoch(&mut changes, fresh().max(now));
        }
    }

    /// Activates the epoch of `now` if it changed, and checks every slot before stamps repeat. For most limits an
    /// epoch is years.
    fn advance_epoch(&self, changes: &mut Changes, now: Moment) {
        let current = self.current.read();
        if current.holds_at(now) {
            return;
        }
        let epoch = current.limit.epoch(now);
        self.current.write(&ActiveLimit::new(
            current.limit,
            current.scale,
            changes.generation,
            epoch,
        ));
        // Every slot was stamped within SWEEP_EVERY of the last sweep. If now is further away than
        // that by more than an epoch, all of them are as old, or as far ahead, as can be.
        let every = SWEEP_EVERY.cast_signed();
        let age = match epoch.number.wrapping_sub(changes.swept).cast_signed() {
            away if away > every + 2 => StampAge::Expired,
            away if away < -(every + 2) => StampAge::Future,
            away if away.abs() >= every => StampAge::Valid,
            _ => return,
        };
        self.restamp_all(now, age);
        changes.swept = epoch.number;
    }

    fn restamp_all(&self, now: Moment, age: StampAge) {
        let each = self.with_each_segment(now, age, |context, segment| {
            for line in &self.lines[segment * LINES..(segment + 1) * LINES] {
                (0..SLOTS).for_each(|slot| restamp(line, slot, context));
            }
            if segment == 0 {
                self.overflow.restamp(context);
            }
        });
        each.for_each(drop);
    }
}
