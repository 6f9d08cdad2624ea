//! The keys of one limit: one table whatever the algorithm, and the calendar that its windows follow.
//!
//! `check`, `check_batch`, `charge` and `tentative` are the hot paths. Token buckets take the `fast_path` there, everything else
//! the general path, which is not inlined. Every other operation is [`KeyTable::apply`].
//!
//! All moments that go in and come out are moments of the clock. A limit whose windows are periods of a calendar
//! counts on another time ([`crate::calendar`]); the conversion there and back happens here and nowhere else.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use super::fast_path::Home;
use super::log_table::LogTable;
use super::op::{KeyOp, KeyOutcome};
use super::packed_table::PackedTable;
use super::tentative::{PendingWrite, Tentative};
use crate::algorithm::bucket::Bucket;
use crate::algorithm::concurrency::Permits;
use crate::algorithm::queue::Queue;
use crate::algorithm::scale::Scale;
use crate::algorithm::sliding::Sliding;
use crate::algorithm::window::Window;
use crate::algorithm::{LimitError, PackedAlgorithm, Refund};
use crate::calendar::Periods;
use crate::decision::{Decision, QuotaStatus, Verdict};
use crate::limit::{Compiled, Limit};
use crate::snapshot::{RestoreError, SnapshotReader, SnapshotWriter};
use crate::time::Moment;

/// All keys of one limit.
pub(crate) struct KeyTable {
    keys: Keys,
    /// The calendar that the windows follow, if they do.
    calendar: Option<Calendar>,
}

/// The periods that the windows are, and by how many nanoseconds the wall clock is ahead of the limiter's.
struct Calendar {
    periods: Periods,
    // Relaxed: the number is the whole message. A decision that overlaps a change may name the moment of its charge by the
    // other number; then a refund finds no charge there, and nothing is given away.
    ahead: AtomicI64,
}

impl Calendar {
    fn window_time(&self, now: Moment) -> Moment {
        let wall = now
            .as_nanos()
            .saturating_add_signed(self.ahead.load(Relaxed));
        self.periods.window_time(Moment::from_nanos(wall))
    }

    fn decision_in_clock_time(&self, decision: Decision) -> Decision {
        let decision = self.periods.decision_in_clock_time(decision);
        let wall = decision.issued.as_nanos();
        let behind = self.ahead.load(Relaxed).saturating_neg();
        Decision {
            issued: Moment::from_nanos(wall.saturating_add_signed(behind)),
            ..decision
        }
    }
}

/// The table of an algorithm.
pub(super) enum Keys {
    Bucket(PackedTable<Bucket>),
    Queue(PackedTable<Queue>),
    Window(PackedTable<Window>),
    Sliding(PackedTable<Sliding>),
    Permits(PackedTable<Permits>),
    Log(LogTable),
}

/// A charge that was decided and not made.
#[derive(Clone, Copy)]
pub(crate) struct TentativeCharge<'a> {
    pub(crate) verdict: Verdict,
    /// The status once the charge is made, or as it is if the charge is refused.
    pub(crate) status: QuotaStatus,
    /// The write that makes the charge. Without one, the key has to be charged anew.
    pub(crate) write: Option<PendingWrite<'a>>,
}

/// The same code for every packed algorithm, and other code for logs.
macro_rules! for_table {
    ($keys:expr, $table:ident => $of_table:expr, $log:ident => $of_log:expr) => {
        match $keys {
            Keys::Bucket($table) => $of_table,
            Keys::Queue($table) => $of_table,
            Keys::Window($table) => $of_table,
            Keys::Sliding($table) => $of_table,
            Keys::Permits($table) => $of_table,
            Keys::Log($log) => $of_log,
        }
    };
}

impl std::fmt::Debug for KeyTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyTable").finish_non_exhaustive()
    }
}

impl From<Keys> for KeyTable {
    fn from(keys: Keys) -> KeyTable {
        KeyTable {
            keys,
            calendar: None,
        }
    }
}

impl KeyTable {
    /// An empty table for a limit.
    ///
    /// # Errors
    /// A `max_keys` of zero, or more than there is memory for.
    pub(crate) fn new(limit: &Limit) -> Result<KeyTable, LimitError> {
        let max_keys = limit.max_keys();
        let keys = match limit.compiled()? {
            Compiled::Bucket(b) => Keys::Bucket(PackedTable::new(b, max_keys)?),
            Compiled::Queue(q) => Keys::Queue(PackedTable::new(q, max_keys)?),
            Compiled::Window(w) => Keys::Window(PackedTable::new(w, max_keys)?),
            Compiled::Sliding(s) => Keys::Sliding(PackedTable::new(s, max_keys)?),
            Compiled::Permits(p) => Keys::Permits(PackedTable::new(p, max_keys)?),
            Compiled::Log(l) => Keys::Log(LogTable::new(l, max_keys)?),
        };
        Ok(keys.into())
    }

    /// The table of a limit, as it was saved.
    pub(crate) fn restored(
        limit: &Limit,
        from: &mut SnapshotReader<'_>,
    ) -> Result<KeyTable, RestoreError> {
        let max_keys = limit.max_keys();
        let compiled = limit.compiled().map_err(|_| RestoreError::Malformed)?;
        let keys = match compiled {
            Compiled::Bucket(_) => Keys::Bucket(PackedTable::restored(max_keys, from)?),
            Compiled::Queue(_) => Keys::Queue(PackedTable::restored(max_keys, from)?),
            Compiled::Window(_) => Keys::Window(PackedTable::restored(max_keys, from)?),
            Compiled::Sliding(_) => Keys::Sliding(PackedTable::restored(max_keys, from)?),
            Compiled::Permits(_) => Keys::Permits(PackedTable::restored(max_keys, from)?),
            Compiled::Log(_) => Keys::Log(LogTable::restored(max_keys, from)?),
        };
        Ok(keys.into())
    }

    /// The same table, whose windows are these periods.
    ///
    /// # Errors
    /// The limit has no windows.
    pub(crate) fn with_periods(self, periods: Option<Periods>) -> Result<KeyTable, LimitError> {
        let calendar = periods.map(|periods| Calendar {
            periods,
            ahead: AtomicI64::new(0),
        });
        match self.keys {
            Keys::Window(_) => Ok(KeyTable { calendar, ..self }),
            _ if calendar.is_none() => Ok(self),
            _ => Err(LimitError::CalendarWithoutWindow),
        }
    }

    pub(crate) fn periods(&self) -> Option<&Periods> {
        self.calendar.as_ref().map(|calendar| &calendar.periods)
    }

    /// Has the periods follow a wall clock that is `nanos` ahead of the clock.
    pub(crate) fn set_wall_clock_ahead(&self, nanos: i64) {
        if let Some(calendar) = &self.calendar {
            calendar.ahead.store(nanos, Relaxed);
        }
    }

    /// The moment that the limit counts by.
    #[inline(always)]
    fn limit_time(&self, now: Moment) -> Moment {
        match &self.calendar {
            None => now,
            Some(calendar) => calendar.window_time(now),
        }
    }

    /// A decision in moments and spans of the clock. It was made at `issued`, on the time of the limit.
    #[inline(always)]
    fn in_clock_time(&self, decision: Decision) -> Decision {
        match &self.calendar {
            None => decision,
            Some(calendar) => calendar.decision_in_clock_time(decision),
        }
    }

    /// The token buckets, whose charges take the fast path. They follow no calendar.
    #[inline(always)]
    fn buckets(&self) -> Option<&PackedTable<Bucket>> {
        match &self.keys {
            Keys::Bucket(table) => Some(table),
            _ => None,
        }
    }

    /// Charges one unit for each of these keys and writes the verdicts. Fetches the memory of all keys
    /// before it decides the first.
    #[inline(always)]
    pub(crate) fn check_batch<const N: usize>(
        &self,
        hashes: &[u64; N],
        now: impl Fn() -> Moment,
        fresh: impl Fn() -> Moment,
        verdicts: &mut [Verdict],
    ) {
        let Some(table) = self.buckets() else {
            return self.check_batch_general(hashes, now, fresh, verdicts);
        };
        let mut homes = [None; N];
        for (home, hash) in homes.iter_mut().zip(&hashes[..verdicts.len().min(N)]) {
            *home = table.fetch_home(*hash);
        }
        // Read after the prefetches, so that the reading is as late as it can be.
        let now = now();
        // Most are in their home line. The others are fetched from further away while those are
        // decided.
        let (mut late, mut count) = ([0; N], 0);
        for (i, verdict) in verdicts.iter_mut().enumerate().take(N) {
            let hash = hashes[i];
            if let Some(home) = homes[i]
                && let Some(decided) = table.check_fast::<false>(hash, home, now, 1)
            {
                *verdict = decided;
                continue;
            }
            table.prefetch_elsewhere(hash);
            late[count] = i;
            count += 1;
        }
        for i in late.into_iter().take(count) {
            let hash = hashes[i];
            if let Some(home) = homes[i]
                && let Some(decided) = table.check_fast::<true>(hash, home, now, 1)
            {
                verdicts[i] = decided;
                continue;
            }
            verdicts[i] = table.check_general(hash, now, &fresh, 1);
        }
    }

    #[inline(never)]
    fn check_batch_general<const N: usize>(
        &self,
        hashes: &[u64; N],
        now: impl Fn() -> Moment,
        fresh: impl Fn() -> Moment,
        verdicts: &mut [Verdict],
    ) {
        for hash in &hashes[..verdicts.len().min(N)] {
            self.fetch_general(*hash);
        }
        let now = now();
        for (verdict, hash) in verdicts.iter_mut().zip(hashes) {
            *verdict = self.check_general(*hash, now, &fresh, 1);
        }
    }

    /// Charges and reports only the verdict.
    #[inline(always)]
    pub(crate) fn check(
        &self,
        hash: u64,
        now: impl Fn() -> Moment,
        fresh: impl Fn() -> Moment,
        cost: u64,
    ) -> Verdict {
        let Some(table) = self.buckets() else {
            return self.check_general(hash, now(), fresh, cost);
        };
        // The line is on its way from memory while the clock is read.
        let home = table.fetch_home(hash);
        let now = now();
        // No closure: it would not be inlined.
        if let Some(home) = home
            && let Some(verdict) = table.check_fast::<true>(hash, home, now, cost)
        {
            return verdict;
        }
        table.check_general(hash, now, fresh, cost)
    }

    #[inline(never)]
    fn check_general(
        &self,
        hash: u64,
        now: Moment,
        fresh: impl Fn() -> Moment,
        cost: u64,
    ) -> Verdict {
        if self.calendar.is_some() {
            return self.charge_general(hash, now, fresh, cost, None).verdict;
        }
        for_table!(&self.keys,
            table => table.check_general(hash, now, fresh, cost),
            log => log.apply(&KeyOp::Charge { cost, max: None }, hash, now, fresh).decision.verdict)
    }

    /// Charges. `max` is the number of the window, if it comes with the request.
    #[inline(always)]
    pub(crate) fn charge(
        &self,
        hash: u64,
        now: impl Fn() -> Moment,
        fresh: impl Fn() -> Moment,
        cost: u64,
        max: Option<u32>,
    ) -> Decision {
        let Some(table) = self.buckets() else {
            return self.charge_general(hash, now(), fresh, cost, max);
        };
        let home = table.fetch_home(hash);
        let now = now();
        if let Some(home) = home
            && let Some(decision) = table.charge_fast(hash, home, now, cost)
        {
            return decision;
        }
        self.charge_general(hash, now, fresh, cost, max)
    }

    #[inline(never)]
    fn charge_general(
        &self,
        hash: u64,
        now: Moment,
        fresh: impl Fn() -> Moment,
        cost: u64,
        max: Option<u32>,
    ) -> Decision {
        let (now, fresh) = (self.limit_time(now), || self.limit_time(fresh()));
        let decision = for_table!(&self.keys,
            table => table.charge(hash, now, fresh, cost, max),
            log => log.apply(&KeyOp::Charge { cost, max }, hash, now, fresh).decision);
        self.in_clock_time(decision)
    }

    /// Applies an operation to one key. `now` must be fresh if the operation needs it
    /// ([`KeyOp::needs_fresh_clock`]).
    pub(crate) fn apply(
        &self,
        op: &KeyOp,
        hash: u64,
        now: Moment,
        fresh: impl Fn() -> Moment,
    ) -> KeyOutcome {
        let (now, fresh) = (self.limit_time(now), || self.limit_time(fresh()));
        // Charges of the past are dated in moments of the clock.
        let op = match *op {
            KeyOp::Refund(refund) => KeyOp::Refund(Refund {
                issued: self.limit_time(refund.issued),
                ..refund
            }),
            other => other,
        };
        let outcome = for_table!(&self.keys,
            table => table.apply(&op, hash, now, fresh),
            log => log.apply(&op, hash, now, fresh));
        KeyOutcome {
            decision: self.in_clock_time(outcome.decision),
            ..outcome
        }
    }

    /// Fetches the memory of a key that is about to be charged. Its home line, if charges take the fast path.
    #[inline(always)]
    pub(crate) fn fetch(&self, hash: u64) -> Option<Home<'_>> {
        match &self.keys {
            Keys::Bucket(table) => table.fetch_home(hash),
            _ => {
                self.fetch_general(hash);
                None
            }
        }
    }

    #[inline(never)]
    fn fetch_general(&self, hash: u64) {
        for_table!(&self.keys, table => table.prefetch(table.home(hash)), _log => ());
    }

    /// Decides a charge without making it, if it takes the fast path. `home` is what [`KeyTable::fetch`] returned.
    #[inline(always)]
    pub(crate) fn tentative_fast<'a>(
        &'a self,
        hash: u64,
        home: Home<'a>,
        now: Moment,
        cost: u64,
    ) -> Option<TentativeCharge<'a>> {
        let tentative = self.buckets()?.tentative_fast(hash, home, now, cost)?;
        Some(TentativeCharge {
            verdict: tentative.verdict,
            status: tentative.status,
            write: Some(tentative.write),
        })
    }

    /// Decides a charge without making it.
    #[inline(never)]
    pub(crate) fn tentative(
        &self,
        hash: u64,
        now: Moment,
        fresh: impl Fn() -> Moment,
        cost: u64,
        max: Option<u32>,
    ) -> TentativeCharge<'_> {
        let limit_now = self.limit_time(now);
        let found = for_table!(&self.keys,
            table => table.tentative(hash, limit_now, cost, max),
            _log => None);
        let Some(Tentative {
            verdict,
            status,
            write,
        }) = found
        else {
            let peek = KeyOp::Peek { cost, max };
            let peeked = self.apply(&peek, hash, now, fresh).decision;
            return TentativeCharge {
                verdict: peeked.verdict,
                status: peeked.status,
                write: None,
            };
        };
        let (verdict, status) = match self.periods() {
            None => (verdict, status),
            Some(periods) => (
                periods.verdict_in_clock_time(verdict, limit_now),
                periods.status_in_clock_time(status, limit_now),
            ),
        };
        TentativeCharge {
            verdict,
            status,
            write: Some(write),
        }
    }

    /// Replaces the limit by another one of the same kind.
    pub(crate) fn change(&self, to: &Compiled, now: Moment) -> Result<(), LimitError> {
        let now = self.limit_time(now);
        match (&self.keys, to) {
            (Keys::Bucket(t), Compiled::Bucket(b)) => t.change(*b, now),
            (Keys::Queue(t), Compiled::Queue(q)) => t.change(*q, now),
            (Keys::Window(t), Compiled::Window(w)) => t.change(*w, now),
            (Keys::Sliding(t), Compiled::Sliding(s)) => t.change(*s, now),
            (Keys::Permits(t), Compiled::Permits(p)) => t.change(*p, now),
            (Keys::Log(t), Compiled::Log(l)) => t.change(*l)?,
            _ => return Err(LimitError::DifferentAlgorithm),
        }
        Ok(())
    }

    /// Scales the limit, from the next charge on.
    pub(crate) fn set_scale(&self, scale: Scale) {
        for_table!(&self.keys, table => table.set_scale(scale), log => log.set_scale(scale));
    }

    /// The current scale.
    pub(crate) fn scale(&self) -> Scale {
        for_table!(&self.keys, table => table.scale(), log => log.scale())
    }

    /// Writes all keys.
    pub(crate) fn save(&self, now: Moment, to: &mut SnapshotWriter) {
        let now = self.limit_time(now);
        for_table!(&self.keys, table => table.save(now, to), log => log.save(to));
    }

    /// The greatest cost that can ever pass, under any scale.
    pub(crate) fn capacity(&self) -> u64 {
        for_table!(&self.keys, table => table.limit().capacity(), log => log.limit().capacity())
    }

    pub(crate) fn live_keys(&self, now: Moment) -> usize {
        let now = self.limit_time(now);
        for_table!(&self.keys, table => table.live_keys(now), log => log.live_keys(now))
    }

    pub(crate) fn memory_cap(&self) -> usize {
        for_table!(&self.keys, table => table.memory_cap(), log => log.memory_cap())
    }

    pub(crate) fn overflowed(&self) -> u64 {
        for_table!(&self.keys, table => table.overflowed(), log => log.overflowed())
    }

    /// Whether it is a leaky bucket, which assigns slots.
    pub(crate) fn is_leaky_bucket(&self) -> bool {
        matches!(self.keys, Keys::Queue(_))
    }
}
