//! Sliding logs: rings in a bounded arena.
//!
//! A log is not one word, so it does not fit the table. Keys are spread over shards, each with a lock,
//! an index (hash and newest stamp) and an arena with one ring for each place
//! in the index. All is laid out when the limiter is built; what is never used takes no memory, and no
//! charge allocates. Places are taken over when their key is as if never used, never while it is live.
//! Newcomers that find no place share the rings of a overflow, as in the table.
//!
//! Why a lock here and none in the table: a charge changes several words of its ring. It is held for
//! the reading of `log2(limit)` stamps and the writing of `cost`.

use std::sync::atomic::{AtomicU64, AtomicU64 as Counter, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use crate::algorithm::LimitError;
use crate::algorithm::log::{Log, Ring};
use crate::algorithm::scale::Scale;
use crate::decision::{Origin, QuotaStatus, Verdict};
use crate::raw::Zeroed;
use crate::saved::{Reader, RestoreError, Writer};
use crate::time::{Moment, Span};

/// Shards at the most: enough that threads rarely meet.
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
    /// How much of it is left.
    scale: Scale,
    /// The places, and behind them those of the overflow.
    index: Box<[Entry]>,
    rings: Zeroed<AtomicU64>,
    /// Cells of each ring. The limit may be lower by now.
    ring_cells: usize,
    overflow_used: bool,
}

/// What came of a step.
pub(crate) struct Logged<R> {
    pub(crate) result: R,
    pub(crate) status: QuotaStatus,
    /// The moment that the log stamped, which may be later than the clock after a step back.
    pub(crate) issued: Moment,
    pub(crate) now: Moment,
    pub(crate) origin: Origin,
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
        self.limit.under(self.scale)
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

    /// A place for a key that has none, cleared; its state in the overflow is inherited. None if every
    /// place within reach is live.
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

    /// Applies `step` to the ring of the key with this hash; `writes` says whether it may write, and
    /// so needs a place.
    fn with<R>(
        &self,
        hash: u64,
        now: Moment,
        fresh: impl Fn() -> Moment,
        adds: bool,
        step: impl FnOnce(&Log, Ring<'_, AtomicU64>, Moment) -> (R, QuotaStatus),
    ) -> Option<Logged<R>> {
        let (hash, shard) = self.shard(hash);
        let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
        // Read again under the lock, as the table does: an older reading could count time twice.
        let now = fresh().max(now);
        let mut origin = Origin::Fresh;
        let found = shard.find(hash);
        let place = match found.or_else(|| if adds { shard.add(hash, now) } else { None }) {
            Some(place) => place,
            None if adds => {
                self.overflowed.fetch_add(1, Relaxed);
                origin = Origin::Crowded;
                shard.overflow_used = true;
                let place = shard.overflow_place(hash);
                shard.index[place].hash = 1;
                place
            }
            None => return None,
        };
        let limit = shard.effective();
        let ring = shard.ring(place)?;
        let (result, status) = step(&limit, ring, now);
        let issued = ring.newest().unwrap_or(now);
        shard.note(place);
        Some(Logged {
            result,
            status,
            issued,
            now,
            origin,
        })
    }

    /// Decides `cost`; with `take`, makes the charge.
    pub(crate) fn charge(
        &self,
        hash: u64,
        now: Moment,
        fresh: impl Fn() -> Moment,
        cost: u64,
        take: bool,
    ) -> Logged<Verdict> {
        let decide =
            |limit: &Log, ring: Ring<'_, AtomicU64>, now| limit.charge(ring, now, cost, take);
        // A peek needs a place as little as a charge of nothing: a key without one is never used,
        // unless the overflow knows of it.
        if let Some(logged) = self.with(hash, now, &fresh, take && cost > 0, decide) {
            return logged;
        }
        let (hash, shard) = self.shard(hash);
        let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
        let overflow = shard.overflow_place(hash);
        let (verdict, status) = match shard.ring(overflow) {
            Some(ring) if shard.overflow_used => shard.effective().charge(ring, now, cost, false),
            _ => never_used(&shard.effective(), now, cost),
        };
        Logged {
            result: verdict,
            status,
            issued: now,
            now,
            origin: Origin::Fresh,
        }
    }

    pub(crate) fn refund(&self, hash: u64, now: Moment, cost: u64, issued: Moment) {
        self.with(
            hash,
            now,
            || now,
            false,
            |limit, ring, now| {
                limit.refund(ring, cost, issued);
                ((), limit.status(ring, now))
            },
        );
    }

    pub(crate) fn force(
        &self,
        hash: u64,
        now: Moment,
        fresh: impl Fn() -> Moment,
        cost: u64,
    ) -> u64 {
        let take = |limit: &Log, ring: Ring<'_, AtomicU64>, now| {
            (limit.force(ring, now, cost), limit.status(ring, now))
        };
        self.with(hash, now, fresh, true, take)
            .map_or(cost, |l| l.result)
    }

    /// How much a key has used, whatever the pressure.
    pub(crate) fn used(&self, hash: u64, now: Moment, fresh: impl Fn() -> Moment) -> u64 {
        let used = |limit: &Log, ring: Ring<'_, AtomicU64>, now| {
            let plain = limit.under(Scale::ONE);
            let status = plain.status(ring, now);
            (plain.limit().saturating_sub(status.remaining), status)
        };
        if let Some(logged) = self.with(hash, now, &fresh, false, used) {
            return logged.result;
        }
        let (hash, shard) = self.shard(hash);
        let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
        match shard.ring(shard.overflow_place(hash)) {
            Some(ring) if shard.overflow_used => used(&shard.limit, ring, now).0,
            _ => 0,
        }
    }

    /// Takes units that were used elsewhere, as if there were no pressure.
    pub(crate) fn take_over(
        &self,
        hash: u64,
        now: Moment,
        fresh: impl Fn() -> Moment,
        units: u64,
    ) -> u64 {
        let take = |limit: &Log, ring: Ring<'_, AtomicU64>, now| {
            let plain = limit.under(Scale::ONE);
            (plain.force(ring, now, units), plain.status(ring, now))
        };
        self.with(hash, now, fresh, true, take)
            .map_or(units, |logged| logged.result)
    }

    /// Forgets a key and tells how much it had used.
    pub(crate) fn withdraw(&self, hash: u64, now: Moment) -> u64 {
        let take = |limit: &Log, ring: Ring<'_, AtomicU64>, now| {
            // Counted without pressure, under which more may be used than is allowed.
            let plain = limit.under(Scale::ONE);
            let left = plain.status(ring, now).remaining;
            ring.clear();
            let used = plain.limit().saturating_sub(left);
            (used, limit.status(ring, now))
        };
        self.with(hash, now, || now, false, take)
            .map_or(0, |l| l.result)
    }

    /// Puts another limit in force. Rings that are too short for it are laid out anew.
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

    /// Leaves only `scale` of the limit, from the next charge on.
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
    pub(crate) fn save(&self, to: &mut Writer) {
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

    /// Logs with room for `max_keys` that go on where the saved ones were.
    pub(crate) fn restored(
        max_keys: usize,
        from: &mut Reader<'_>,
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

/// What a key that was never used is told.
fn never_used(limit: &Log, now: Moment, cost: u64) -> (Verdict, QuotaStatus) {
    let cells = [const { std::cell::Cell::new(0u64) }; 2];
    match Ring::over(&cells) {
        // A ring of one is shorter than the limit, so the verdict is made here.
        Some(ring) if cost <= limit.capacity() => {
            let mut status = limit.status(ring, now);
            if cost > 0 {
                status.remaining = limit.limit().saturating_sub(cost);
                status.full_after = limit.window();
                status.next_after = limit.window();
            }
            (Verdict::Pass, status)
        }
        Some(ring) => (Verdict::Never, limit.status(ring, now)),
        None => (Verdict::Never, QuotaStatus::default()),
    }
}
