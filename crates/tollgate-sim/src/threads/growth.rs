//! Keys that are charged while others are added: the table splits its segments under the charges.
//!
//! A key that is there is charged without a lock while its slot is moved. A charge that was lost on
//! the way, or a key that ended up with two slots, admits one too many; a slot that was moved twice or
//! not at all shows in what is left and in the number of keys.

use super::{ThreadOutcome, Workers, burst, per_second, still};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tollgate::{Limit, Limiter, ManualClock};

/// Keys that are charged, so that some of them lie in whatever is split next.
const HOT: u64 = 16;
/// Keys that there is room for: the table starts with room for a twentieth of them.
const ROOM: u64 = 1_000_000;
/// Keys that are added at the most, so that none is ever without a slot.
const FRESH_MAX: u64 = ROOM / 10 * 9;
/// A table has grown within a fraction of a second, so one is filled after the other.
const CHARGES_PER_TABLE: u64 = 12_500_000;
const TABLES_MAX: u64 = 16;

/// Each of several token buckets admits its burst, and each of the keys that are added meanwhile is
/// charged once.
pub(super) fn while_the_table_grows(workers: &mut Workers<'_>) -> Result<ThreadOutcome, String> {
    let tables = (workers.charges() / CHARGES_PER_TABLE).clamp(1, TABLES_MAX);
    let (mut admitted, mut expected, mut fresh) = (0, 0, 0);
    let mut faults = Vec::new();
    for table in 0..tables {
        let first = workers.charges() / tables * table;
        let end = if table + 1 == tables {
            workers.charges()
        } else {
            workers.charges() / tables * (table + 1)
        };
        // At least two, so that a fresh key charged once differs from one that was not.
        let burst = (burst(end - first) / HOT).max(2);
        let limit = Limit::token_bucket(per_second(1_000)?, burst);
        let limiter = limit
            .and_then(|limit| Limiter::with_clock(limit.with_max_keys(ROOM as usize), still()))
            .map_err(|error| error.to_string())?;
        let adders = workers.threads();
        let (passed, added) = workers.charge_beside(
            first..end,
            |block| {
                let is_admitted = |time| limiter.check(&(time % HOT)).is_admitted();
                (0..block.charges)
                    .map(|time| u64::from(is_admitted(time)))
                    .sum()
            },
            adders,
            |adder, is_over| add(&limiter, adder, adders, is_over),
        )?;
        admitted += passed;
        expected += HOT * burst;
        fresh += added.iter().sum::<u64>();
        faults.append(&mut faults_of(&limiter, burst, &added));
    }
    let mut outcome = ThreadOutcome::exactly(expected, admitted);
    outcome.faults = faults;
    outcome
        .notes
        .push(format!("{fresh} keys added, tables: {tables}"));
    Ok(outcome)
}

/// The keys that one thread adds, which are none of the hot ones.
fn fresh_keys(adder: usize, adders: usize) -> impl Iterator<Item = u64> {
    (HOT..HOT + FRESH_MAX).skip(adder).step_by(adders)
}

/// Adds keys until it is over or enough; how many.
fn add(limiter: &Limiter<ManualClock>, adder: usize, adders: usize, is_over: &AtomicBool) -> u64 {
    // A first charge that is refused shows as a key that was charged less than once.
    fresh_keys(adder, adders)
        .take_while(|_| !is_over.load(Relaxed))
        .map(|key| u64::from(limiter.check(&key).is_admitted()))
        .sum()
}

/// The mismatches of a limiter whose hot keys have nothing left and of whose fresh keys each thread
/// added this many.
fn faults_of(limiter: &Limiter<ManualClock>, burst: u64, added: &[u64]) -> Vec<String> {
    let mut outcome = ThreadOutcome::exactly(0, 0);
    for key in 0..HOT {
        let left = limiter.peek(&key, 0).remaining();
        outcome.expect_equal("what is left to a key", 0, left);
    }
    let mut charged_once = 0;
    for (adder, &count) in added.iter().enumerate() {
        let keys = fresh_keys(adder, added.len()).take(usize::try_from(count).unwrap_or(0));
        let is_charged_once = |key: &u64| limiter.peek(key, 0).remaining() == burst - 1;
        charged_once += keys.filter(is_charged_once).count() as u64;
    }
    let added = added.iter().sum::<u64>();
    outcome.expect_equal("the number of fresh keys charged once", added, charged_once);
    let live = limiter.live_keys() as u64;
    outcome.expect_equal("the number of keys", HOT + added, live);
    outcome.expect_equal("the number of overflow decisions", 0, limiter.overflowed());
    outcome.faults
}
