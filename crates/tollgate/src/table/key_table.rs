//! The tables of one limit: one table whatever the algorithm, behind one set of verbs.

use super::layout::Intent;
use super::log_table::{LogTable, Logged};
use super::packed_table::{Applied, PackedTable, PendingWrite};
use crate::algorithm::bucket::Bucket;
use crate::algorithm::concurrency::Permits;
use crate::algorithm::queue::Queue;
use crate::algorithm::scale::Scale;
use crate::algorithm::sliding::Sliding;
use crate::algorithm::window::Window;
use crate::algorithm::{LimitError, OneWord};
use crate::decision::{Decision, QuotaStatus, Verdict};
use crate::limit::{Compiled, Limit};
use crate::saved::{Reader, RestoreError, Writer};
use crate::time::{Moment, Span};

/// All keys of one limit.
pub(crate) enum KeyTable {
    Bucket(PackedTable<Bucket>),
    Queue(PackedTable<Queue>),
    Window(PackedTable<Window>),
    Sliding(PackedTable<Sliding>),
    Permits(PackedTable<Permits>),
    Log(LogTable),
}

impl std::fmt::Debug for KeyTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeyTable")
    }
}

/// A charge that was decided and not yet made.
#[derive(Clone, Copy)]
pub(crate) struct TentativeCharge<'a> {
    pub(crate) verdict: Verdict,
    /// Where it can be committed at once; without, it has to be charged in full.
    pub(crate) place: Option<PendingWrite<'a>>,
}

/// The same code for every table, whichever its algorithm; and other code for logs.
macro_rules! for_table {
    ($keys:expr, $table:ident => $of_table:expr, $log:ident => $of_log:expr) => {
        match $keys {
            KeyTable::Bucket($table) => $of_table,
            KeyTable::Queue($table) => $of_table,
            KeyTable::Window($table) => $of_table,
            KeyTable::Sliding($table) => $of_table,
            KeyTable::Permits($table) => $of_table,
            KeyTable::Log($log) => $of_log,
        }
    };
}

#[inline(always)]
fn charge<A: OneWord>(cost: u64) -> impl Fn(&A, Option<u64>, Moment) -> (Verdict, Option<u64>) {
    move |limit, word, now| {
        let step = limit.charge(word, now, cost);
        (step.verdict, step.write)
    }
}

fn decision<A: OneWord>(applied: &Applied<A, Verdict>) -> Decision {
    Decision {
        verdict: applied.result,
        status: applied.limit.status(applied.word, applied.now),
        issued: applied.now,
        origin: applied.origin,
    }
}

fn logged(logged: &Logged<Verdict>) -> Decision {
    Decision {
        verdict: logged.result,
        status: logged.status,
        issued: if logged.result.is_admitted() {
            logged.issued
        } else {
            logged.now
        },
        origin: logged.origin,
    }
}

impl KeyTable {
    /// An empty table for a limit.
    ///
    /// # Errors
    /// A `max_keys` of zero, or more than there is memory for.
    pub(crate) fn new(limit: &Limit) -> Result<KeyTable, LimitError> {
        let max_keys = limit.max_keys();
        Ok(match limit.compiled()? {
            Compiled::Bucket(b) => KeyTable::Bucket(PackedTable::new(b, max_keys)?),
            Compiled::Queue(q) => KeyTable::Queue(PackedTable::new(q, max_keys)?),
            Compiled::Window(w) => KeyTable::Window(PackedTable::new(w, max_keys)?),
            Compiled::Sliding(s) => KeyTable::Sliding(PackedTable::new(s, max_keys)?),
            Compiled::Permits(p) => KeyTable::Permits(PackedTable::new(p, max_keys)?),
            Compiled::Log(l) => KeyTable::Log(LogTable::new(l, max_keys)?),
        })
    }

    /// Charges one unit for each of these keys and tells the verdicts. The memory of all of them is
    /// asked for before the first is decided.
    #[inline(always)]
    pub(crate) fn check_batch<const N: usize>(
        &self,
        hashes: &[u64; N],
        now: impl Fn() -> Moment,
        fresh: impl Fn() -> Moment,
        verdicts: &mut [Verdict],
    ) {
        #[inline(always)]
        fn batch<A: OneWord, const N: usize>(
            table: &PackedTable<A>,
            hashes: &[u64; N],
            now: impl Fn() -> Moment,
            fresh: impl Fn() -> Moment,
            verdicts: &mut [Verdict],
        ) {
            let mut homes = [0; N];
            for (home, hash) in homes.iter_mut().zip(&hashes[..verdicts.len().min(N)]) {
                *home = table.home(*hash);
                table.prefetch(*home);
            }
            // Read after the memory was asked for, so that the reading is as late as it can be.
            let now = now();
            // Most are in their home line. The others are fetched from further away while those are
            // decided.
            let (mut late, mut count) = ([0; N], 0);
            for (i, verdict) in verdicts.iter_mut().enumerate().take(N) {
                match table.check_at_home(hashes[i], homes[i], now, 1) {
                    Some(decided) => *verdict = decided,
                    None => {
                        table.prefetch_elsewhere(hashes[i], homes[i]);
                        late[count] = i;
                        count += 1;
                    }
                }
            }
            for i in late.into_iter().take(count) {
                verdicts[i] = table.check_elsewhere(hashes[i], homes[i], now, &fresh, 1);
            }
        }
        for_table!(self,
        table => batch(table, hashes, now, fresh, verdicts),
        log => {
            let now = now();
            for (verdict, hash) in verdicts.iter_mut().zip(hashes) {
                *verdict = log.charge(*hash, now, &fresh, 1, true).result;
            }
        });
    }

    /// Charges and tells only the verdict.
    #[inline(always)]
    pub(crate) fn check(
        &self,
        hash: u64,
        now: Moment,
        fresh: impl Fn() -> Moment,
        cost: u64,
    ) -> Verdict {
        for_table!(self,
            table => table.check(hash, table.home(hash), now, fresh, cost),
            log => log.charge(hash, now, fresh, cost, true).result)
    }

    /// Charges and tells everything.
    pub(crate) fn charge(
        &self,
        hash: u64,
        now: Moment,
        fresh: impl Fn() -> Moment,
        cost: u64,
    ) -> Decision {
        for_table!(self,
            table => decision(&table.apply(hash, Intent::Charge(cost), now, fresh, charge(cost))),
            log => logged(&log.charge(hash, now, fresh, cost, true)))
    }

    /// Tells what a charge would come to.
    pub(crate) fn peek(
        &self,
        hash: u64,
        now: Moment,
        fresh: impl Fn() -> Moment,
        cost: u64,
    ) -> Decision {
        fn peek<A: OneWord>(
            table: &PackedTable<A>,
            hash: u64,
            now: Moment,
            fresh: impl Fn() -> Moment,
            cost: u64,
        ) -> Decision {
            let applied = table.apply(hash, Intent::Read, now, fresh, |limit, word, now| {
                let step = limit.charge(word, now, cost);
                ((step.verdict, step.write.or(word)), None)
            });
            let (verdict, would_be) = applied.result;
            Decision {
                verdict,
                status: applied.limit.status(would_be, applied.now),
                issued: applied.now,
                origin: applied.origin,
            }
        }
        for_table!(self,
            table => peek(table, hash, now, fresh, cost),
            log => logged(&log.charge(hash, now, fresh, cost, false)))
    }

    /// Gives back `cost` that was charged at `issued`. `now` must be fresh.
    pub(crate) fn refund(&self, hash: u64, now: Moment, cost: u64, issued: Moment) {
        for_table!(self,
            table => {
                table.apply(hash, Intent::Write, now, || now, |limit, word, now| {
                    ((), word.and_then(|w| limit.refund(w, now, cost, issued)))
                });
            },
            log => log.refund(hash, now, cost, issued));
    }

    /// Gives back what was charged at `issued` beyond `kept`, as far as that is safe. `delay` is what a queue
    /// answered. `now` must be fresh.
    pub(crate) fn refund_beyond(
        &self,
        hash: u64,
        now: Moment,
        (charged, kept): (u64, u64),
        (issued, delay): (Moment, Span),
    ) {
        let KeyTable::Queue(table) = self else {
            return self.refund(hash, now, charged.saturating_sub(kept), issued);
        };
        table.apply(
            hash,
            Intent::Write,
            now,
            || now,
            |limit, word, now| {
                let last = |w| limit.refund_last(w, now, (charged, kept), (issued, delay));
                ((), word.and_then(last))
            },
        );
    }

    /// Renews a permit that was granted at `issued`; the moment it then counts from. None if it was
    /// lost, or if this is no concurrency limit.
    pub(crate) fn renew(&self, hash: u64, now: Moment, issued: Moment) -> Option<Moment> {
        let KeyTable::Permits(table) = self else {
            return None;
        };
        let renewed = table.apply(
            hash,
            Intent::Write,
            now,
            || now,
            |limit, word, now| {
                let write = word.and_then(|w| limit.renew(w, now, 1, issued));
                (write.is_some(), write)
            },
        );
        renewed.result.then_some(renewed.now)
    }

    /// Takes `cost` that was used already; what could not be taken.
    pub(crate) fn force(
        &self,
        hash: u64,
        now: Moment,
        fresh: impl Fn() -> Moment,
        cost: u64,
    ) -> u64 {
        for_table!(self,
            table => table.apply(hash, Intent::Write, now, fresh, |limit, word, now| {
                let (write, unpaid) = limit.force(word, now, cost);
                (unpaid, write)
            }).result,
            log => log.force(hash, now, fresh, cost))
    }

    /// How much a key has used and not earned back, in units without pressure.
    pub(crate) fn used(&self, hash: u64, now: Moment, fresh: impl Fn() -> Moment) -> u64 {
        for_table!(self,
            table => table.apply(hash, Intent::Read, now, fresh, |limit, word, now| {
                let plain = limit.under(Scale::ONE);
                let left = plain.status(word, now).remaining;
                (plain.capacity().saturating_sub(left), None)
            }).result,
            log => log.used(hash, now, fresh))
    }

    /// Takes `units` that [`KeyTable::withdraw`] told of, as if there had never been pressure; what could not be taken.
    pub(crate) fn take_over(
        &self,
        hash: u64,
        now: Moment,
        fresh: impl Fn() -> Moment,
        units: u64,
    ) -> u64 {
        for_table!(self,
            table => table.apply(hash, Intent::Write, now, fresh, |limit, word, now| {
                let (write, untaken) = limit.under(Scale::ONE).force(word, now, units);
                (untaken, write)
            }).result,
            log => log.take_over(hash, now, fresh, units))
    }

    /// Forgets a key and tells how much it had used, in units without pressure.
    pub(crate) fn withdraw(&self, hash: u64, now: Moment) -> u64 {
        for_table!(self,
            table => table.withdraw(hash, now),
            log => log.withdraw(hash, now))
    }

    /// Decides a charge without making it.
    #[inline(always)]
    pub(crate) fn offer(
        &self,
        hash: u64,
        now: Moment,
        fresh: impl Fn() -> Moment,
        cost: u64,
    ) -> TentativeCharge<'_> {
        let offered = for_table!(self,
            table => table.offer(hash, now, cost).map(|offer| TentativeCharge {
                verdict: offer.verdict,
                place: Some(offer.place),
            }),
            _log => None);
        offered.unwrap_or_else(|| TentativeCharge {
            verdict: self.peek(hash, now, fresh, cost).verdict,
            place: None,
        })
    }

    /// What is left once the offer at this place is made, or if it is not.
    pub(crate) fn status_at(
        &self,
        place: &PendingWrite<'_>,
        now: Moment,
        made: bool,
    ) -> QuotaStatus {
        let word = place.write.filter(|_| made).unwrap_or(place.word);
        for_table!(self,
            table => table.effective().status(Some(word), now),
            _log => QuotaStatus::default())
    }

    /// Puts another limit of the same kind in force.
    pub(crate) fn change(&self, to: &Compiled, now: Moment) -> Result<(), LimitError> {
        match (self, to) {
            (KeyTable::Bucket(t), Compiled::Bucket(b)) => t.change(*b, now),
            (KeyTable::Queue(t), Compiled::Queue(q)) => t.change(*q, now),
            (KeyTable::Window(t), Compiled::Window(w)) => t.change(*w, now),
            (KeyTable::Sliding(t), Compiled::Sliding(s)) => t.change(*s, now),
            (KeyTable::Permits(t), Compiled::Permits(p)) => t.change(*p, now),
            (KeyTable::Log(t), Compiled::Log(l)) => t.change(*l)?,
            _ => return Err(LimitError::OtherKind),
        }
        Ok(())
    }

    /// Leaves only `scale` of the limit, from the next charge on.
    pub(crate) fn set_scale(&self, scale: Scale) {
        for_table!(self, table => table.set_scale(scale), log => log.set_scale(scale));
    }

    /// How much of the limit is left.
    pub(crate) fn scale(&self) -> Scale {
        for_table!(self, table => table.scale(), log => log.scale())
    }

    /// Writes all keys.
    pub(crate) fn save(&self, now: Moment, to: &mut Writer) {
        for_table!(self, table => table.save(now, to), log => log.save(to));
    }

    /// The table of a limit, as it was saved.
    pub(crate) fn restored(limit: &Limit, from: &mut Reader<'_>) -> Result<KeyTable, RestoreError> {
        let keys = limit.max_keys();
        let compiled = limit.compiled().map_err(|_| RestoreError::Malformed)?;
        Ok(match compiled {
            Compiled::Bucket(_) => KeyTable::Bucket(PackedTable::restored(keys, from)?),
            Compiled::Queue(_) => KeyTable::Queue(PackedTable::restored(keys, from)?),
            Compiled::Window(_) => KeyTable::Window(PackedTable::restored(keys, from)?),
            Compiled::Sliding(_) => KeyTable::Sliding(PackedTable::restored(keys, from)?),
            Compiled::Permits(_) => KeyTable::Permits(PackedTable::restored(keys, from)?),
            Compiled::Log(_) => KeyTable::Log(LogTable::restored(keys, from)?),
        })
    }

    /// The greatest cost that can ever pass, under whatever scale.
    pub(crate) fn capacity(&self) -> u64 {
        for_table!(self, table => table.limit().capacity(), log => log.limit().limit())
    }

    pub(crate) fn live_keys(&self, now: Moment) -> usize {
        for_table!(self, table => table.live_keys(now), log => log.live_keys(now))
    }

    pub(crate) fn memory_cap(&self) -> usize {
        for_table!(self, table => table.memory_cap(), log => log.memory_cap())
    }

    pub(crate) fn overflowed(&self) -> u64 {
        for_table!(self, table => table.overflowed(), log => log.overflowed())
    }
}
