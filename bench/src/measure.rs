//! The timed loop: shared by all contestants, compiled once for each.
//!
//! [`KeyedLimiter`] is generic so that a check is inlined as it would be in a user's program. Between the contestants and the
//! passes stands [`Turns`], whose methods are virtual but are called once per turn, not once per check.

use std::io;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::args::Repeats;
use crate::contestants::{BATCH_LEN, Entry, KeyedLimiter};
use crate::figures::{Figures, interleave};
use crate::keys::{BUFFER_LEN, KeyBuffer, KeyOrder};
use crate::workload::{KeyKind, Workload};

/// When a turn is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// One thread has spent this much time in checks.
    Elapsed(Duration),
    /// Each thread made this many checks.
    Checks(u64),
}

/// The result of one turn, or of one thread in it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    /// Time spent in checks, added up over the threads. Filling key buffers is not in it.
    pub(crate) elapsed: Duration,
    pub(crate) checks: u64,
    pub(crate) admitted: u64,
}

/// All turns of one contestant in one workload.
pub(crate) struct WorkloadResult {
    pub(crate) entry: &'static Entry,
    /// Nanoseconds per check.
    pub(crate) ns: Figures,
    pub(crate) checks: u64,
    pub(crate) admitted: u64,
    /// Units that a correct limiter admits.
    pub(crate) expected: u64,
}

impl WorkloadResult {
    fn new(entry: &'static Entry, workload: &Workload, turns: &[Tally]) -> WorkloadResult {
        let ns = |turn: &Tally| turn.elapsed.as_nanos() as f64 / turn.checks.max(1) as f64;
        let checks = turns.iter().map(|turn| turn.checks).sum();
        WorkloadResult {
            entry,
            ns: Figures::collect(turns, |turn| Some(ns(turn))),
            checks,
            admitted: turns.iter().map(|turn| turn.admitted).sum(),
            expected: workload.admitted_expected(checks),
        }
    }

    pub(crate) fn is_correct(&self) -> bool {
        !self.entry.decides || self.admitted == self.expected
    }
}

/// Measures all contestants in one workload.
pub(crate) fn measure(
    workload: &Workload,
    entries: &[&'static Entry],
    repeats: Repeats,
) -> io::Result<Vec<WorkloadResult>> {
    let orders = orders(workload);
    // A turn begins further on in the order than the one before it, at the same place for all.
    let start = |pass: usize| orders[0].len() / usize::from(repeats.passes) * pass;
    let build = |entry: &&Entry| {
        let contestant = (entry.build)(&workload.config());
        contestant.warm_up(workload.keys, workload.kind);
        contestant
    };
    let together = if workload.is_interleaved() {
        entries.len()
    } else {
        1
    };
    let mut results = Vec::new();
    for group in entries.chunks(together.max(1)) {
        let mut built: Vec<_> = group.iter().map(build).collect();
        let turns = interleave(repeats.passes, &mut built, |contestant, pass| {
            Ok(contestant.turn(workload.kind, &orders, start(pass), repeats.until()))
        })?;
        let all = group.iter().zip(&turns);
        results.extend(all.map(|(entry, turns)| WorkloadResult::new(entry, workload, turns)));
    }
    Ok(results)
}

/// One order per thread, each over its own share of the keys unless there are too few to share.
fn orders(workload: &Workload) -> Vec<KeyOrder> {
    const SEED: u64 = 0x7011_6A7E;
    let draw = |thread: usize| {
        let seed = SEED + thread as u64;
        if workload.keys < workload.threads {
            return KeyOrder::draw(workload.distribution, 0, workload.keys, seed);
        }
        let first = workload.keys * thread / workload.threads;
        let end = workload.keys * (thread + 1) / workload.threads;
        KeyOrder::draw(workload.distribution, first, end - first, seed)
    };
    (0..workload.threads).map(draw).collect()
}

/// A contestant whose type is erased.
pub(crate) trait Turns {
    /// Checks every key twice, untimed.
    ///
    /// Once inserts the key and spends the only unit of a burst of 1. Twice because one contestant cannot be given a burst of
    /// less than 2; for the others it is more warm-up.
    fn warm_up(&self, keys: usize, kind: KeyKind);

    /// One timed turn, with one thread per order. `start` is where in the orders it begins.
    fn turn(&self, kind: KeyKind, orders: &[KeyOrder], start: usize, until: Until) -> Tally;
}

impl<C: KeyedLimiter> Turns for C {
    fn warm_up(&self, keys: usize, kind: KeyKind) {
        insert(self, keys, kind);
        insert(self, keys, kind);
    }

    fn turn(&self, kind: KeyKind, orders: &[KeyOrder], start: usize, until: Until) -> Tally {
        let begin = Barrier::new(orders.len());
        let over = AtomicBool::new(false);
        let mut tallies = vec![Tally::default(); orders.len()];
        std::thread::scope(|scope| {
            for (tally, order) in tallies.iter_mut().zip(orders) {
                let (begin, over) = (&begin, &over);
                scope.spawn(move || {
                    let buffer = KeyBuffer::new(kind);
                    begin.wait();
                    *tally = run_thread(self, buffer, order, start, until, over);
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

/// Checks each of the first `keys` keys once; returns how many were admitted.
pub(crate) fn insert<C: KeyedLimiter>(contestant: &C, keys: usize, kind: KeyKind) -> u64 {
    let mut buffer = KeyBuffer::new(kind);
    let mut admitted = 0;
    for first in (0..keys).step_by(BUFFER_LEN) {
        let end = keys.min(first + BUFFER_LEN);
        // Key numbers stay below `KEYS_MAX`, which fits.
        buffer.fill((first..end).map(|number| number as u32));
        admitted += check_buffer(contestant, &buffer);
    }
    admitted
}

fn run_thread<C: KeyedLimiter>(
    contestant: &C,
    mut buffer: KeyBuffer,
    order: &KeyOrder,
    start: usize,
    until: Until,
    over: &AtomicBool,
) -> Tally {
    let mut tally = Tally::default();
    let mut at = start;
    let mut filled = 0;
    loop {
        let mut numbers = order.slice(at);
        match until {
            // Relaxed: the flag publishes nothing but itself; the end of the scope publishes the tallies. A thread that
            // sees it late checks one buffer more.
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
        // With a single key, one buffer is like the next. Filling it again would only give two threads that contend for that
        // key some time off.
        if !(order.is_one_key() && filled == numbers.len()) {
            buffer.fill(numbers.iter().copied());
            filled = numbers.len();
        }
        let begin = Instant::now();
        tally.admitted += check_buffer(contestant, &buffer);
        tally.elapsed += begin.elapsed();
        tally.checks += numbers.len() as u64;
        at = at.wrapping_add(numbers.len());
    }
}

/// Checks every key in the buffer; returns how many were admitted.
fn check_buffer<C: KeyedLimiter>(contestant: &C, buffer: &KeyBuffer) -> u64 {
    match buffer {
        KeyBuffer::Str(keys) => check_all_str(contestant, keys),
        KeyBuffer::U64(keys) => check_all_u64(contestant, keys),
    }
}

// Never inlined, so that each contestant has exactly one copy of the loop, in which a profiler can find it by name.
#[inline(never)]
fn check_all_str<C: KeyedLimiter>(contestant: &C, keys: &[String]) -> u64 {
    let mut admitted = 0;
    for batch in keys.chunks(BATCH_LEN) {
        let mut texts = [""; BATCH_LEN];
        for (text, key) in texts.iter_mut().zip(batch) {
            *text = key;
        }
        // Without a batch of its own a contestant returns a constant `None`, and all of the above is dead code to the
        // compiler.
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
fn check_all_u64<C: KeyedLimiter>(contestant: &C, keys: &[u64]) -> u64 {
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
