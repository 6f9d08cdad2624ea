//! Sliding logs: rings in a bounded arena.
//!
//! A log is not one word, so it does not fit the packed table. Keys are spread over shards. Each shard has a lock, an
//! index (hash and newest stamp) and an arena with one ring for each place in the index. All of it is laid out when the
//! limiter is built: what is never used takes no memory, and no charge allocates. A place is taken over when its key is as
//! if never used, never while it is live. New keys that find no place share the rings of the overflow, as in the
//! packed table.
//!
//! Why a lock here and none in the table: a charge changes several words of its ring. It is held for
//! the reading of `log2(limit)` stamps and the writing of `cost`.

use std::sync::atomic::{AtomicU64, AtomicU64 as Counter, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use super::op::{KeyOp, KeyOutcome};
use crate::algorithm::log::{Log, Ring};
use crate::algorithm::scale::Scale;
use crate::algorithm::{LimitError, Refund};
use crate::decision::{Decision, Origin, QuotaStatus, Verdict};
use crate::raw::Zeroed;
use crate::snapshot::{RestoreError, SnapshotReader, SnapshotWriter};
use crate::time::{Moment, Span};

/// Most shards: enough that threads rarely contend.
const SHARDS_MAX: usize = 64;
/// Places beyond its home in which a key may be. At three quarters full a run is rarely a dozen long.
const WINDOW: usize = 128;
/// Rings of the overflow in each shard.
const OVERFLOW_RINGS: usize = 16;

pub(crate) struct LogTable {
    shards: Box<[Mutex<Shard>]>,
    overflowed: Counter,
}

/// A key's place: its hash (zero if there is none, or nothing in its ring) and its newest stamp.
#[derive(Clone, Copy, Default)]
struct Entry {
    hash: u64,
    newest: u64,
}

struct Shard {
    /// The limit without pressure.
    limit: Log,
    /// The scale of the limit.
    scale: Scale,
    /// The places, and behind them those of the overflow.
    index: Box<[Entry]>,
    rings: Zeroed<AtomicU64>,
    /// Cells of each ring. The limit may be lower by now.
    ring_cells: usize,
    overflow_used: bool,
}

impl Shard {
    fn new(limit: Log, places: usize) -> Result<Shard, LimitError> {
        let all = places + OVERFLOW_RINGS;
        let cells = limit.cells().checked_mul(all);
        let no_memory = || LimitError::NoMemory {
            bytes: cells.unwrap_or(usize::MAX).saturating_mul(8),
        };
        // The rings first: they are by far the larger part.
        let rings = cells.and_then(Zeroed::new).ok_or_else(no_memory)?;
        let mut index = Vec::new();
        index.try_reserve_exact(all).map_err(|_| no_memory())?;
        index.resize(all, Entry::default());
        Ok(Shard {
            limit,
            scale: Scale::ONE,
            index: index.into_boxed_slice(),
            rings,
            ring_cells: limit.cells(),
            overflow_used: false,
        })
    }

    /// The limit as it decides: under its scale.
    fn effective(&self) -> Log {
        self.limit.scaled(self.scale)
    }

    fn places(&self) -> usize {
        self.index.len() - OVERFLOW_RINGS
    }

    fn ring(&self, place: usize) -> Option<Ring<'_, AtomicU64>> {
        let cells = self
            .rings
            .get(place * self.ring_cells..(place + 1) * self.ring_cells)?;
        Ring::over(cells)
    }

    fn window(&self, hash: u64) -> impl Iterator<Item = usize> + use<> {
        let places = self.places();
        let home = ((u128::from(hash) * places as u128) >> 64) as usize;
        (0..WINDOW.min(places)).map(move |d| (home + d) % places)
    }

    fn overflow_place(&self, hash: u64) -> usize {
        self.places() + (hash >> 7) as usize % OVERFLOW_RINGS
    }

    /// The place of a key, if it has one.
    fn find(&self, hash: u64) -> Option<usize> {
        self.window(hash).find(|p| self.index[*p].hash == hash)
    }

    /// A place for a key that has none, cleared; it starts from its state in the overflow. `None` if every place
    /// within reach is live.
    fn add(&mut self, hash: u64, now: Moment) -> Option<usize> {
        let place = self.window(hash).find(|p| self.is_free(*p, now))?;
        let overflow = self.overflow_place(hash);
        let inherit = self.overflow_used && !self.is_free(overflow, now);
        if let Some(ring) = self.ring(place) {
            match self.ring(overflow) {
                Some(from) if inherit => ring.copy_from(from),
                _ => ring.clear(),
            }
        }
        self.index[place] = Entry { hash, newest: 0 };
        Some(place)
    }

    fn is_free(&self, place: usize, now: Moment) -> bool {
        let entry = &self.index[place];
        // By the difference: the end of the window may lie beyond the end of the clock.
        let age = now.since(Moment::from_nanos(entry.newest));
        entry.hash == 0 || age >= self.limit.window()
    }

    /// The ring that a new key without a slot shares.
    fn use_overflow(&mut self, hash: u64) -> usize {
        self.overflow_used = true;
        let place = self.overflow_place(hash);
        self.index[place].hash = 1;
        place
    }

    /// Reads a key without a slot: what it shares in the overflow, or else a key never used. Changes nothing.
    fn read_without_slot(&self, op: &KeyOp, hash: u64, now: Moment) -> KeyOutcome {
        let limit = self.effective();
        let ring = self
            .ring(self.overflow_place(hash))
            .filter(|_| self.overflow_used);
        let step = match (*op, ring) {
            // A charge that is not made is a peek.
            (KeyOp::Charge { cost, max } | KeyOp::Peek { cost, max }, Some(ring)) => {
                op_step(&KeyOp::Peek { cost, max }, &limit, ring, now)
            }
            (KeyOp::Usage, Some(ring)) => op_step(op, &limit, ring, now),
            _ => unused(op, &limit),
        };
        outcome(step, now, Origin::Fresh)
    }

    /// Notes the newest stamp of a place, or that it holds nothing.
    fn note(&mut self, place: usize) {
        let newest = self.ring(place).and_then(Ring::newest);
        match newest {
            Some(newest) => self.index[place].newest = newest.as_nanos(),
            None => self.index[place] = Entry::default(),
        }
    }
}

impl LogTable {
    pub(crate) fn new(limit: Log, max_keys: usize) -> Result<LogTable, LimitError> {
        if max_keys == 0 || max_keys > usize::MAX / 64 {
            return Err(LimitError::MaxKeys { asked: max_keys });
        }
        // At least 64 keys to a shard, so that they fill evenly.
        let shards = (max_keys / 64).clamp(1, SHARDS_MAX);
        let mean = max_keys.div_ceil(shards) * 4 / 3;
        // Room for a shard that got more than its share: six times the root of the mean.
        let places = mean + 6 * mean.isqrt() + 8;
        let shard = |_| Shard::new(limit, places).map(Mutex::new);
        Ok(LogTable {
            shards: (0..shards).map(shard).collect::<Result<_, _>>()?,
            overflowed: Counter::new(0),
        })
    }

    /// A hash of zero would be an empty place.
    fn shard(&self, hash: u64) -> (u64, &Mutex<Shard>) {
        let at = (hash as u32 as usize).wrapping_mul(self.shards.len()) >> 32;
        (hash.max(1), &self.shards[at])
    }

    /// Applies an operation to the key with this hash.
    pub(super) fn apply(
        &self,
        op: &KeyOp,
        hash: u64,
        now: Moment,
        fresh: impl Fn() -> Moment,
    ) -> KeyOutcome {
        let (hash, shard) = self.shard(hash);
        let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
        // Read again under the lock, as the packed table does: an older reading could count time twice.
        let now = fresh().max(now);
        let mut origin = Origin::Fresh;
        let found = shard.find(hash);
        let place = match found.or_else(|| op.takes_units().then(|| shard.add(hash, now)).flatten())
        {
            Some(place) => place,
            None if op.takes_units() => {
                self.overflowed.fetch_add(1, Relaxed);
                origin = Origin::Overflow;
                shard.use_overflow(hash)
            }
            None => return shard.read_without_slot(op, hash, now),
        };
        let limit = shard.effective();
        let Some(ring) = shard.ring(place) else {
            return outcome(never(&limit), now, origin);
        };
        let step = op_step(op, &limit, ring, now);
        // The log stamps its newest moment, which is later than the clock after a step back.
        let is_stamped = matches!(op, KeyOp::Charge { .. } | KeyOp::Peek { .. });
        let newest = ring.newest().filter(|_| is_stamped && step.0.is_admitted());
        shard.note(place);
        outcome(step, newest.unwrap_or(now), origin)
    }

    /// Activates another limit. Rings that are too short for it are reallocated.
    pub(crate) fn change(&self, limit: Log) -> Result<(), LimitError> {
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            if limit.cells() > shard.ring_cells {
                let mut larger = Shard::new(limit, shard.places())?;
                for place in 0..shard.index.len() {
                    if shard.index[place].hash != 0
                        && let (Some(to), Some(from)) = (larger.ring(place), shard.ring(place))
                    {
                        to.copy_from(from);
                    }
                }
                larger.index.copy_from_slice(&shard.index);
                larger.scale = shard.scale;
                larger.overflow_used = shard.overflow_used;
                *shard = larger;
            }
            shard.limit = limit;
            for place in 0..shard.index.len() {
                if shard.index[place].hash != 0 {
                    shard.note(place);
                }
            }
        }
        Ok(())
    }

    /// Scales the limit, from the next charge on.
    pub(crate) fn set_scale(&self, scale: Scale) {
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.scale = scale;
        }
    }

    pub(crate) fn scale(&self) -> Scale {
        self.shards[0]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .scale
    }

    /// Writes every ring in use. Charges wait for the shard that is being written.
    pub(crate) fn save(&self, to: &mut SnapshotWriter) {
        let limit = self.limit();
        to.number(limit.limit());
        to.number(limit.window().as_nanos());
        to.number(self.overflowed());
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            to.size(shard.ring_cells);
            to.byte(u8::from(shard.overflow_used));
            let used = || {
                let numbered = shard.index.iter().enumerate();
                numbered.filter(|(_, entry)| entry.hash != 0)
            };
            to.size(used().count());
            for (place, entry) in used() {
                to.size(place);
                to.number(entry.hash);
                to.number(entry.newest);
                let cells = place * shard.ring_cells..(place + 1) * shard.ring_cells;
                for cell in shard.rings.get(cells).unwrap_or_default() {
                    to.number(cell.load(Relaxed));
                }
            }
        }
    }

    /// Restores saved logs, with room for `max_keys`.
    pub(crate) fn restored(
        max_keys: usize,
        from: &mut SnapshotReader<'_>,
    ) -> Result<LogTable, RestoreError> {
        let (limit, window) = (from.number()?, Span::from_nanos(from.number()?));
        let limit = Log::new(limit, window).map_err(|_| RestoreError::Malformed)?;
        let overflowed = from.number()?;
        let table = LogTable::new(limit, max_keys).map_err(|_| RestoreError::NoMemory)?;
        table.overflowed.store(overflowed, Relaxed);
        for shard in &table.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let cells = from.size_up_to(1 << 25)?;
            if cells < limit.cells() {
                return Err(RestoreError::Malformed);
            }
            if cells != shard.ring_cells {
                let all = cells.checked_mul(shard.index.len());
                let rings = all.and_then(Zeroed::new).ok_or(RestoreError::NoMemory)?;
                (shard.rings, shard.ring_cells) = (rings, cells);
            }
            shard.overflow_used = from.byte()? != 0;
            for _ in 0..from.size_up_to(shard.index.len())? {
                let place = from.size()?;
                let entry = Entry {
                    hash: from.number()?,
                    newest: from.number()?,
                };
                *shard.index.get_mut(place).ok_or(RestoreError::Malformed)? = entry;
                let ring = place * cells..(place + 1) * cells;
                for cell in shard.rings.get(ring).unwrap_or_default() {
                    cell.store(from.number()?, Relaxed);
                }
            }
        }
        Ok(table)
    }

    pub(crate) fn limit(&self) -> Log {
        self.shards[0]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .limit
    }

    pub(crate) fn live_keys(&self, now: Moment) -> usize {
        let live = |shard: &Mutex<Shard>| {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            (0..shard.places())
                .filter(|p| !shard.is_free(*p, now))
                .count()
        };
        self.shards.iter().map(live).sum()
    }

    pub(crate) fn memory_cap(&self) -> usize {
        let bytes = |shard: &Mutex<Shard>| {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.index.len() * size_of::<Entry>() + shard.rings.len() * 8
        };
        self.shards.iter().map(bytes).sum()
    }

    pub(crate) fn overflowed(&self) -> u64 {
        self.overflowed.load(Relaxed)
    }
}

/// What an operation does to a ring: verdict, units and status.
type LogStep = (Verdict, u64, QuotaStatus);

fn outcome((verdict, units, status): LogStep, issued: Moment, origin: Origin) -> KeyOutcome {
    let decision = Decision {
        verdict,
        status,
        issued,
        origin,
    };
    KeyOutcome { decision, units }
}

/// Applies an operation to a ring.
fn op_step(op: &KeyOp, limit: &Log, ring: Ring<'_, AtomicU64>, now: Moment) -> LogStep {
    let unscaled = limit.scaled(Scale::ONE);
    let usage = || {
        let left = unscaled.status(ring, now).remaining;
        unscaled.limit().saturating_sub(left)
    };
    let (verdict, units) = match *op {
        KeyOp::Charge { cost, .. } => {
            let (verdict, status) = limit.charge(ring, now, cost, true);
            return (verdict, 0, status);
        }
        KeyOp::Peek { cost, .. } => {
            let (verdict, status) = limit.charge(ring, now, cost, false);
            return (verdict, 0, status);
        }
        KeyOp::Refund(Refund {
            charged,
            kept,
            issued,
            ..
        }) => {
            limit.refund(ring, charged.saturating_sub(kept), issued);
            (Verdict::Pass, 0)
        }
        KeyOp::ChargeRemaining { cost } => {
            (Verdict::Pass, limit.charge_saturating(ring, now, cost))
        }
        KeyOp::Usage => (Verdict::Pass, usage()),
        KeyOp::AddUsage { units } => {
            let untaken = unscaled.charge_saturating(ring, now, units);
            (Verdict::Pass, units.saturating_sub(untaken))
        }
        KeyOp::RemoveUsage => {
            let used = usage();
            ring.clear();
            (Verdict::Pass, used)
        }
        KeyOp::Renew { .. } => (Verdict::Never, 0),
    };
    (verdict, units, limit.status(ring, now))
}

fn never(limit: &Log) -> LogStep {
    let status = QuotaStatus {
        remaining: limit.limit(),
        ..QuotaStatus::default()
    };
    (Verdict::Never, 0, status)
}

/// Reads a key that was never used.
fn unused(op: &KeyOp, limit: &Log) -> LogStep {
    let (verdict, units, mut status) = never(limit);
    match *op {
        KeyOp::Charge { cost, .. } | KeyOp::Peek { cost, .. } if cost <= limit.capacity() => {
            if cost > 0 {
                status.remaining = limit.limit().saturating_sub(cost);
                status.full_after = limit.window();
                status.next_after = limit.window();
            }
            (Verdict::Pass, 0, status)
        }
        KeyOp::Charge { .. } | KeyOp::Peek { .. } | KeyOp::Renew { .. } => (verdict, units, status),
        _ => (Verdict::Pass, 0, status),
    }
}
