//! The timed loop: shared by all contestants, compiled once for each.
//!
//! [`Contestant`] is generic so that a check is inlined as it would be in a user's program. What
//! stands between the contestants and the round-robin of `compare` is [`Seat`], whose methods are
//! virtual but are called once per round, not once per check.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::contestants::{BATCH_LEN, Contestant};
use crate::stream::{Order, Stage};
use crate::workload::{Cell, Kind};

/// When a round is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// So much time was spent in checks, by the thread that gets there first.
    Elapsed(Duration),
    /// Each thread made so many checks.
    Checks(u64),
}

/// What one round, or one thread of it, did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    /// Time spent in checks, added up over the threads. Staging keys is not in it.
    pub(crate) elapsed: Duration,
    pub(crate) checks: u64,
    pub(crate) admitted: u64,
}

/// A contestant that is built and ready, whichever it is.
pub(crate) trait Seat {
    /// Asks about every key twice, untimed.
    ///
    /// Once inserts the key and spends the only unit of a burst of 1. Twice because one contestant
    /// cannot be given a burst of less than 2; for the others it is one more lap to warm up.
    fn warm_up(&self, keys: usize, kind: Kind);

    /// One timed round, with one thread per order. `start` is where in the orders it begins.
    fn round(&self, cell: &Cell, orders: &[Order], start: usize, until: Until) -> Tally;
}

/// The one implementation of [`Seat`].
#[derive(Debug)]
pub(crate) struct Seated<C>(pub(crate) C);

impl<C: Contestant> Seat for Seated<C> {
    fn warm_up(&self, keys: usize, kind: Kind) {
        insert(&self.0, keys, kind);
        insert(&self.0, keys, kind);
    }

    fn round(&self, cell: &Cell, orders: &[Order], start: usize, until: Until) -> Tally {
        let begin = Barrier::new(orders.len());
        let over = AtomicBool::new(false);
        let mut tallies = vec![Tally::default(); orders.len()];
        std::thread::scope(|scope| {
            for (tally, order) in tallies.iter_mut().zip(orders) {
                let (begin, over) = (&begin, &over);
                scope.spawn(move || {
                    let stage = Stage::new(cell.kind);
                    begin.wait();
                    *tally = run_thread(&self.0, stage, order, start, until, over);
                });
            }
        });
        tallies.iter().fold(Tally::default(), |sum, tally| Tally {
            elapsed: sum.elapsed + tally.elapsed,
            checks: sum.checks + tally.checks,
            admitted: sum.admitted + tally.admitted,
        })
    }
}

/// Asks once about each of the first `keys` keys; returns how many were admitted.
pub(crate) fn insert<C: Contestant>(contestant: &C, keys: usize, kind: Kind) -> u64 {
    let mut stage = Stage::new(kind);
    let mut admitted = 0;
    for first in (0..keys).step_by(crate::stream::STAGE_LEN) {
        let end = keys.min(first + crate::stream::STAGE_LEN);
        // Key numbers stay below `KEYS_MAX`, which fits.
        stage.fill((first..end).map(|number| number as u32));
        admitted += check_stage(contestant, &stage);
    }
    admitted
}

fn run_thread<C: Contestant>(
    contestant: &C,
    mut stage: Stage,
    order: &Order,
    start: usize,
    until: Until,
    over: &AtomicBool,
) -> Tally {
    let mut tally = Tally::default();
    let mut at = start;
    let mut staged = 0;
    loop {
        let mut numbers = order.slice(at);
        match until {
            // Relaxed: the flag publishes nothing but itself; the tallies are published by the end
            // of the scope. A thread that sees it late does one stage more.
            Until::Elapsed(limit) => {
                if tally.elapsed >= limit {
                    over.store(true, Ordering::Relaxed);
                }
                if over.load(Ordering::Relaxed) {
                    return tally;
                }
            }
            Until::Checks(limit) => {
                let left = usize::try_from(limit - tally.checks).unwrap_or(usize::MAX);
                if left == 0 {
                    return tally;
                }
                numbers = &numbers[..numbers.len().min(left)];
            }
        }
        // With a single key, one stage is like the next. Staging it again would only give two
        // threads that fight for that key some time off.
        if !(order.is_one_key() && staged == numbers.len()) {
            stage.fill(numbers.iter().copied());
            staged = numbers.len();
        }
        let begin = Instant::now();
        tally.admitted += check_stage(contestant, &stage);
        tally.elapsed += begin.elapsed();
        tally.checks += numbers.len() as u64;
        at = at.wrapping_add(numbers.len());
    }
}

/// Asks about every key on the stage; returns how many were admitted.
fn check_stage<C: Contestant>(contestant: &C, stage: &Stage) -> u64 {
    match stage {
        Stage::Str(keys) => check_all_str(contestant, keys),
        Stage::U64(keys) => check_all_u64(contestant, keys),
    }
}

// Never inlined, so that each contestant has exactly one copy of the loop, in which a profiler can
// find it by name.
#[inline(never)]
fn check_all_str<C: Contestant>(contestant: &C, keys: &[String]) -> u64 {
    let mut admitted = 0;
    for batch in keys.chunks(BATCH_LEN) {
        let mut texts = [""; BATCH_LEN];
        for (text, key) in texts.iter_mut().zip(batch) {
            *text = key;
        }
        // Without a batch of its own a contestant answers a constant `None`, and all of the above
        // is dead code to the compiler.
        admitted += match contestant.check_batch_str(&texts[..batch.len()]) {
            Some(count) => u64::from(count),
            None => batch
                .iter()
                .map(|key| u64::from(contestant.check_str(key)))
                .sum(),
        };
    }
    admitted
}

#[inline(never)]
fn check_all_u64<C: Contestant>(contestant: &C, keys: &[u64]) -> u64 {
    let mut admitted = 0;
    for batch in keys.chunks(BATCH_LEN) {
        admitted += match contestant.check_batch_u64(batch) {
            Some(count) => u64::from(count),
            None => batch
                .iter()
                .map(|&key| u64::from(contestant.check_u64(key)))
                .sum(),
        };
    }
    admitted
}
