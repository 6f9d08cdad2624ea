//! The table: find, charge, add. The parent module has the theory; operations on the whole table are in `resize`.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::active_limit::{ActiveLimit, ActiveLimitCell};
use super::layout::{Intent, ReadContext, Shape, StampAge, home_line, line_at, read_slot, tag};
use super::op::{KeyOp, KeyOutcome, OpStep, op_step, usage, with_max};
use super::overflow::Overflow;
use super::segment::{Segment, SegmentGuard};
use super::slot_ops::{apply_locked, charge_slot, claim, find, take_over};
use super::tentative::{PendingWrite, Tentative};
use super::{CLAIM, Extent, LINES, TARGET, WINDOW};
use crate::algorithm::scale::Scale;
use crate::algorithm::{LimitError, PackedAlgorithm};
use crate::decision::{Decision, Origin, Verdict};
use crate::raw::{Line, Lines, SLOTS};
use crate::sync::{AtomicU8, AtomicU64, Mutex};
use crate::time::Moment;

/// Keys added to a segment between two counts of it. A count reads 16 KiB, so it is not done for each;
/// a segment has room for many times this many beyond its target.
const COUNT_EVERY: u32 = if LINES < 32 { 1 } else { 32 };

/// Lines from home on that are looked at before asking how far a key may be: few keys are further away,
/// even in a table that is as full as it gets.
const NEAR: usize = 4;
/// Splits for each segment that is found to be full: more than one, so that splitting is done long
/// before the last segment is in need of it.
const SPLITS_AT_ONCE: usize = 2;
/// Splits to wait for before a new key without a slot joins the overflow: half a millisecond of them.
const GROW_TRIES: u32 = 64;

/// A table of keys that share one limit.
// In this order: what each charge reads lies on the first two cache lines.
#[repr(C)]
pub(crate) struct PackedTable<A> {
    /// The active limit and epoch.
    pub(super) current: ActiveLimitCell<A>,
    /// The segments in use, as [`Shape::to_word`].
    pub(super) shape: AtomicU64,
    pub(super) extent: Extent,
    pub(super) lines: Lines,
    /// For each line: how far from its home a key at home there may be found. Only grows.
    pub(super) reach: Reach,
    pub(super) segments: Box<[Segment]>,
    pub(super) overflow: Overflow,
    /// Held while the active limit or epoch changes.
    pub(super) changing: Mutex<Changes>,
    /// The previous limit, whose stamp slots may have that were not read since.
    pub(super) before: ActiveLimitCell<A>,
    /// Held while a segment is split; a thread that does not get it continues without.
    pub(super) growing: Mutex<()>,
}

/// The state of changes.
#[derive(Debug)]
pub(super) struct Changes {
    /// Counts the limits that were active.
    pub(super) generation: u64,
    /// The epoch of the last sweep.
    pub(super) swept: u64,
}

/// The result of a step on a key.
pub(crate) struct Applied<A, R> {
    pub(crate) result: R,
    /// The state afterwards, or as it would be.
    pub(crate) word: Option<u64>,
    /// The limit that decided.
    pub(crate) limit: A,
    /// The moment it was decided at.
    pub(crate) now: Moment,
    pub(crate) origin: Origin,
}

/// How far from home keys may be: nothing at first.
#[cfg(not(loom))]
pub(super) type Reach = crate::raw::Zeroed<AtomicU8>;
#[cfg(loom)]
pub(super) type Reach = Box<[AtomicU8]>;

#[cfg(not(loom))]
fn no_reach(lines: usize) -> Option<Reach> {
    Reach::new(lines)
}

#[cfg(loom)]
fn no_reach(lines: usize) -> Option<Reach> {
    Some((0..lines).map(|_| AtomicU8::new(0)).collect())
}

impl<A: PackedAlgorithm> PackedTable<A> {
    pub(crate) fn new(limit: A, max_keys: usize) -> Result<PackedTable<A>, LimitError> {
        let extent = Extent::for_keys(max_keys)?;
        let lines = extent.most * LINES;
        let no_memory = || LimitError::NoMemory {
            bytes: lines.saturating_mul(size_of::<Line>()),
        };
        let first = ActiveLimit::new(limit, Scale::ONE, 0, limit.epoch(Moment::ORIGIN));
        Ok(PackedTable {
            current: ActiveLimitCell::new(&first),
            shape: AtomicU64::new(Shape::of(extent.base, extent).to_word()),
            extent,
            lines: Lines::zeroed(lines).ok_or_else(no_memory)?,
            segments: (0..extent.most).map(|_| Segment::default()).collect(),
            reach: no_reach(lines).ok_or_else(no_memory)?,
            overflow: Overflow::new(),
            changing: Mutex::new(Changes {
                generation: 0,
                swept: 0,
            }),
            before: ActiveLimitCell::new(&first),
            growing: Mutex::new(()),
        })
    }

    /// The active limit, without pressure.
    pub(crate) fn limit(&self) -> A {
        self.current.read().limit
    }

    /// The scale of the limit.
    pub(crate) fn scale(&self) -> Scale {
        self.current.read().scale
    }

    /// The most memory that the table can take, in bytes.
    pub(crate) fn memory_cap(&self) -> usize {
        let lines = self.extent.most * LINES;
        lines * (size_of::<Line>() + 1) + self.extent.most * size_of::<Segment>() + Overflow::BYTES
    }

    /// Decisions on new keys by a shared allowance, because no slot was free.
    pub(crate) fn overflowed(&self) -> u64 {
        self.overflow.overflowed()
    }

    #[inline(always)]
    pub(super) fn shape(&self) -> Shape {
        // Acquire pairs with the Release in `grow`: a thread that sees the new shape sees the moved slots.
        Shape::from_word(self.shape.load(Acquire))
    }

    /// The home line of a key. Good for as long as the table does not grow; after that a key is found on the slow
    /// path.
    #[inline(always)]
    pub(crate) fn home(&self, hash: u64) -> usize {
        // At most 2^24 segments: the product does not overflow.
        self.shape().segment(hash, self.extent).wrapping_mul(LINES) | home_line(hash)
    }

    /// Asks the processor for a line that is about to be charged.
    #[inline(always)]
    pub(crate) fn prefetch(&self, home: usize) {
        self.lines.prefetch(home);
    }

    /// Charges `cost` and reports only the verdict. `fresh` reads the clock again and is called only where a key may be
    /// added.
    #[inline(never)]
    pub(crate) fn check_general(
        &self,
        hash: u64,
        now: Moment,
        fresh: impl Fn() -> Moment,
        cost: u64,
    ) -> Verdict {
        let charge = |limit: &A, word, now| {
            let step = limit.charge(word, now, cost);
            (step.verdict, step.write)
        };
        self.apply_step(hash, Intent::Charge(cost), now, fresh, charge)
            .result
    }

    /// Asks for the lines in which a key may be that is not at home.
    #[inline(always)]
    pub(crate) fn prefetch_elsewhere(&self, hash: u64) {
        let segment = self.home(hash) / LINES * LINES;
        for d in 1..NEAR {
            self.lines.prefetch(segment + line_at(hash, d));
        }
    }

    /// Asks for the lines in which a key may be that is not in its home line, which was asked for before.
    #[inline]
    pub(crate) fn prefetch_unless_home(&self, hash: u64) {
        let home = self.home(hash);
        let key = tag(hash) | u64::from(self.current.read().stamp);
        if let Some(line) = self.lines.get(home)
            && find(line, key).is_none()
        {
            self.prefetch_elsewhere(hash);
        }
    }

    /// Charges `cost` and reports the status.
    pub(super) fn charge(
        &self,
        hash: u64,
        now: Moment,
        fresh: impl Fn() -> Moment,
        cost: u64,
        max: Option<u32>,
    ) -> Decision {
        let applied = self.apply_step(
            hash,
            Intent::Charge(cost),
            now,
            fresh,
            |limit, word, now| {
                let step = with_max(limit, max).charge(word, now, cost);
                (step.verdict, step.write)
            },
        );
        Decision {
            verdict: applied.result,
            status: with_max(&applied.limit, max).status(applied.word, applied.now),
            issued: applied.now,
            origin: applied.origin,
        }
    }

    /// Applies an operation to the key with this hash.
    #[inline(never)]
    pub(super) fn apply(
        &self,
        op: &KeyOp,
        hash: u64,
        now: Moment,
        fresh: impl Fn() -> Moment,
    ) -> KeyOutcome {
        let applied = match op {
            KeyOp::RemoveUsage => self.remove(hash, now),
            _ => self.apply_step(hash, op.intent(), now, fresh, |limit, word, now| {
                op_step(op, limit, word, now)
            }),
        };
        let max = match *op {
            KeyOp::Charge { max, .. } | KeyOp::Peek { max, .. } => max,
            _ => None,
        };
        let step = applied.result;
        let decision = Decision {
            verdict: step.verdict,
            status: with_max(&applied.limit, max).status(step.word, applied.now),
            issued: applied.now,
            origin: applied.origin,
        };
        KeyOutcome {
            decision,
            units: step.units,
        }
    }

    /// Applies `step` to the key with this hash: `step` gets the limit, the word and the moment, and
    /// returns its result and the word to write, if any.
    pub(crate) fn apply_step<R>(
        &self,
        hash: u64,
        intent: Intent,
        now: Moment,
        fresh: impl Fn() -> Moment,
        step: impl Fn(&A, Option<u64>, Moment) -> (R, Option<u64>),
    ) -> Applied<A, R> {
        let current = self.current.read();
        if current.holds_at(now) {
            let key = tag(hash) | u64::from(current.stamp);
            let limit = current.effective();
            if let Some((line, slot)) = self.find_any(hash, key)
                && let Some((result, word)) =
                    charge_slot(line, slot, key, |w| step(&limit, Some(w), now))
            {
                return Applied {
                    result,
                    word: Some(word),
                    limit,
                    now,
                    origin: Origin::Fresh,
                };
            }
        }
        self.apply_slow(hash, intent, now, fresh, step)
    }

    /// The apparent slot of a key with the current stamp. Not finding it proves nothing.
    #[inline(always)]
    fn find_any(&self, hash: u64, key: u64) -> Option<(&Line, usize)> {
        let home = self.home(hash);
        let line = self.lines.get(home)?;
        match find(line, key) {
            Some(slot) => Some((line, slot)),
            None => self.find_far(hash, home, key),
        }
    }

    fn find_far(&self, hash: u64, home: usize, key: u64) -> Option<(&Line, usize)> {
        // How far to go is noted elsewhere, on the way to memory again, so it is asked only beyond the
        // lines in which most of those are that are not at home.
        let segment = home / LINES;
        let look = |line| find(line, key).map(|slot| (line, slot));
        let near = self.window(segment, hash, NEAR).skip(1).find_map(look);
        near.or_else(|| self.lines_of(segment, hash).skip(NEAR).find_map(look))
    }

    /// Decides a charge without making it, if the key is in its slot. The write can be committed later, if
    /// nothing has changed by then.
    #[inline(never)]
    pub(super) fn tentative(
        &self,
        hash: u64,
        now: Moment,
        cost: u64,
        max: Option<u32>,
    ) -> Option<Tentative<'_>> {
        let current = self.current.read();
        if !current.holds_at(now) {
            return None;
        }
        let key = tag(hash) | u64::from(current.stamp);
        let (line, slot) = self.find_any(hash, key)?;
        let cell = &line.words[slot];
        // Orderings and argument as in `charge_slot`.
        let word = cell.load(Acquire);
        if word == CLAIM || line.keys[slot].load(Acquire) != key {
            return None;
        }
        let limit = with_max(&current.effective(), max);
        let step = limit.charge(Some(word), now, cost);
        // A pass is only good if it can be committed; a refusal must be seen to hold now.
        let is_admitted = step.verdict.is_admitted();
        if !is_admitted && cell.load(Acquire) != word {
            return None;
        }
        let after = step.write.filter(|_| is_admitted).unwrap_or(word);
        Some(Tentative {
            verdict: step.verdict,
            status: limit.status(Some(after), now),
            write: PendingWrite {
                cell,
                word,
                new: step.write.unwrap_or(word),
            },
        })
    }

    /// The key is not in its home line, or not as expected: look further, and if need be under the
    /// lock of its segment.
    #[cold]
    #[inline(never)]
    fn apply_slow<R>(
        &self,
        hash: u64,
        intent: Intent,
        now: Moment,
        fresh: impl Fn() -> Moment,
        step: impl Fn(&A, Option<u64>, Moment) -> (R, Option<u64>),
    ) -> Applied<A, R> {
        self.advance_epoch_if_due(now, &fresh);
        let mut tries = 0;
        loop {
            let (segment, guard) = self.lock_segment_of(hash);
            // Under the lock no other thread adds, moves or replaces keys here. The clock is read again under it:
            // a reading from before it may be older than the expiry of a slot that this very key had and lost
            // meanwhile, and would count that time a second time.
            let now = fresh().max(now);
            let current = self.current.read();
            // Words are kept by the limit itself, and decided on under its scale.
            let limit = current.effective();
            let before = self.before.read();
            let context = ReadContext {
                age: StampAge::Valid,
                limit: &current.limit,
                stamp: current.stamp,
                before: &before.limit,
                now,
            };
            let applied = |result, word, origin| Applied {
                result,
                word,
                limit,
                now,
                origin,
            };
            if let Some((line, slot)) = self.find_in(segment, hash) {
                let (result, word) =
                    apply_locked(line, slot, hash, intent, &context, |w| step(&limit, w, now));
                return applied(result, word, Origin::Fresh);
            }
            let inherited = self.overflow.inherited(hash, &context);
            let (result, write) = step(&limit, inherited, now);
            let Some(word) = write else {
                // Refused by what its cell has used, if there is such: a slot of its own would not
                // help, because it would start from there.
                let origin = if inherited.is_some() {
                    self.overflow.note();
                    Origin::Overflow
                } else {
                    Origin::Fresh
                };
                return applied(result, inherited, origin);
            };
            if self.add(segment, hash, &context, word) {
                let full =
                    guard.note_added(COUNT_EVERY) && self.live_in(segment, &context) > TARGET;
                drop(guard);
                if full {
                    (0..SPLITS_AT_ONCE).for_each(|_| self.grow(false));
                }
                return applied(result, Some(word), Origin::Fresh);
            }
            if tries < GROW_TRIES && self.shape().segments < self.extent.most {
                // Splits have not kept pace: wait for one and look again.
                drop(guard);
                self.grow(true);
                tries += 1;
                continue;
            }
            let on_cell = |_: &A, word, now| step(&limit, word, now);
            let (result, word) = self.overflow.apply(hash, &context, on_cell);
            return applied(result, word, Origin::Overflow);
        }
    }

    /// Forgets a key and reports what it had used. Usage of a new key without a slot stays in the overflow,
    /// because other keys share it.
    fn remove(&self, hash: u64, now: Moment) -> Applied<A, OpStep> {
        let (segment, _guard) = self.lock_segment_of(hash);
        let (current, before) = (self.current.read(), self.before.read());
        let context = ReadContext {
            age: StampAge::Valid,
            limit: &current.limit,
            stamp: current.stamp,
            before: &before.limit,
            now,
        };
        let word = self.find_in(segment, hash).and_then(|(line, slot)| {
            // As when a slot is freed for good: the word stays claimed, and a slot without a key is never
            // charged.
            let word = claim(&line.words[slot]);
            let word = read_slot(line.keys[slot].load(Relaxed), word, &context);
            line.keys[slot].store(0, Release);
            word
        });
        let result = OpStep {
            verdict: Verdict::Pass,
            units: usage(&current.limit, word, now),
            word: None,
        };
        Applied {
            result,
            word: None,
            limit: current.effective(),
            now,
            origin: Origin::Fresh,
        }
    }

    /// The lines in which a key may be found, nearest first.
    #[inline(always)]
    fn lines_of(&self, segment: usize, hash: u64) -> impl Iterator<Item = &Line> {
        let home = segment * LINES + home_line(hash);
        let reach = self.reach.get(home).map_or(0, |r| r.load(Relaxed));
        self.window(segment, hash, usize::from(reach) + 1)
    }

    #[inline(always)]
    fn window(&self, segment: usize, hash: u64, lines: usize) -> impl Iterator<Item = &Line> {
        (0..lines.min(LINES))
            .filter_map(move |d| self.lines.get(segment * LINES + line_at(hash, d)))
    }

    /// Locks the segment that the hash belongs to: the shape may change until it is locked.
    fn lock_segment_of(&self, hash: u64) -> (usize, SegmentGuard<'_>) {
        loop {
            let segment = self.shape().segment(hash, self.extent);
            let guard = self.segments[segment].lock();
            if self.shape().segment(hash, self.extent) == segment {
                return (segment, guard);
            }
        }
    }

    /// Under the lock: the slot of a key, whatever its stamp.
    fn find_in(&self, segment: usize, hash: u64) -> Option<(&Line, usize)> {
        let tag = tag(hash);
        self.lines_of(segment, hash).find_map(|line| {
            let slot = line
                .keys
                .iter()
                .position(|k| k.load(Relaxed) >> 16 == tag >> 16)?;
            Some((line, slot))
        })
    }

    /// Under the lock: gives the key a slot that is free, if there is one within reach.
    fn add(&self, segment: usize, hash: u64, context: &ReadContext<'_, A>, word: u64) -> bool {
        for (distance, line) in self.window(segment, hash, WINDOW).enumerate() {
            for slot in 0..SLOTS {
                if !take_over(line, slot, context) {
                    continue;
                }
                let reach = &self.reach[segment * LINES + home_line(hash)];
                // Only under the lock is it relied on.
                let furthest = reach.load(Relaxed).max(distance as u8);
                reach.store(furthest, Relaxed);
                // Release: a thread that sees this key sees that the word was claimed before it. The word is
                // written last; until then no thread can charge the slot.
                line.keys[slot].store(tag(hash) | u64::from(context.stamp), Release);
                line.words[slot].store(word, Release);
                return true;
            }
        }
        false
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
