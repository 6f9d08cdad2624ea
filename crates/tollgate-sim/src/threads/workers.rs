//! Threads that start together and make a given number of charges in all.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

/// Charges of a block: enough that counting blocks costs nothing, few enough to report progress.
const BLOCK: u64 = 4096;

/// Time between two progress reports.
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// Charges that one thread makes in one go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChargeBlock {
    /// Which thread.
    pub thread: usize,
    /// Its number among the blocks of the thread.
    pub number: u64,
    /// How many charges.
    pub charges: u64,
}

/// Threads, and the number of charges that they make.
pub struct Workers<'a> {
    charges: u64,
    threads: usize,
    progress: &'a mut dyn FnMut(u64),
}

impl std::fmt::Debug for Workers<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            charges, threads, ..
        } = self;
        write!(f, "Workers({charges} charges by {threads} threads)")
    }
}

impl<'a> Workers<'a> {
    /// `threads` threads that make `charges` charges in all; `progress` is called now and then with the
    /// number made.
    pub fn new(charges: u64, threads: usize, progress: &'a mut dyn FnMut(u64)) -> Self {
        let threads = threads.max(1);
        Self {
            charges,
            threads,
            progress,
        }
    }

    /// How many charges they make.
    pub fn charges(&self) -> u64 {
        self.charges
    }

    /// How many threads there are.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// All charges, by `charge`, which makes those of a block and returns how many were admitted.
    ///
    /// # Errors
    ///
    /// If a thread panicked.
    pub fn charge(&mut self, ask: impl Fn(ChargeBlock) -> u64 + Sync) -> Result<u64, String> {
        let idle = |_: usize, _: &AtomicBool| ();
        self.charge_beside(0..self.charges, ask, 0, idle)
            .map(|(admitted, _)| admitted)
    }

    /// The charges of `part`, by `charge`, while `others` more threads run `beside` until its flag is set:
    /// how many were admitted, and the results of the others.
    ///
    /// # Errors
    ///
    /// If a thread panicked.
    pub fn charge_beside<R: Send>(
        &mut self,
        part: std::ops::Range<u64>,
        ask: impl Fn(ChargeBlock) -> u64 + Sync,
        others: usize,
        beside: impl Fn(usize, &AtomicBool) -> R + Sync,
    ) -> Result<(u64, Vec<R>), String> {
        let (first, charges) = (part.start, part.end.saturating_sub(part.start));
        let threads = self.threads;
        // Relaxed: the numbers are only shown, the flag only ends a loop; what the threads did is
        // published by joining them.
        let (made, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
        let begin = Barrier::new(threads + others);
        std::thread::scope(|scope| {
            let (made, is_over, begin) = (&made, &is_over, &begin);
            let (ask, beside) = (&ask, &beside);
            let (at_work, all_done) = channel::<()>();
            let chargers: Vec<_> = (0..threads)
                .map(|thread| {
                    let at_work = at_work.clone();
                    scope.spawn(move || {
                        begin.wait();
                        let admitted = blocks(thread, share(charges, thread, threads))
                            .map(|block| {
                                let admitted = ask(block);
                                made.fetch_add(block.charges, Relaxed);
                                admitted
                            })
                            .sum::<u64>();
                        drop(at_work);
                        admitted
                    })
                })
                .collect();
            drop(at_work);
            let others: Vec<_> = (0..others)
                .map(|other| {
                    scope.spawn(move || {
                        begin.wait();
                        beside(other, is_over)
                    })
                })
                .collect();
            // The channel carries nothing; it ends when the last thread lets go of it, even by a panic.
            while all_done.recv_timeout(REPORT_EVERY) == Err(RecvTimeoutError::Timeout) {
                (self.progress)(first + made.load(Relaxed));
            }
            is_over.store(true, Relaxed);
            let admitted = ends(chargers)?.into_iter().sum();
            Ok((admitted, ends(others)?))
        })
    }
}

/// The results of the threads.
fn ends<R>(threads: Vec<ScopedJoinHandle<'_, R>>) -> Result<Vec<R>, String> {
    // All are joined before the first result is read: a panicked thread that is not joined would
    // panic this one.
    let ends: Vec<_> = threads.into_iter().map(ScopedJoinHandle::join).collect();
    let end = |end: Result<R, _>| end.map_err(|_| "a thread panicked".to_owned());
    ends.into_iter().map(end).collect()
}

/// How many of `charges` fall to one of `threads` threads.
fn share(charges: u64, thread: usize, threads: usize) -> u64 {
    let is_extra = (thread as u64) < charges % threads as u64;
    charges / threads as u64 + u64::from(is_extra)
}

/// A thread's share in blocks.
fn blocks(thread: usize, share: u64) -> impl Iterator<Item = ChargeBlock> {
    (0..share.div_ceil(BLOCK)).map(move |number| ChargeBlock {
        thread,
        number,
        charges: BLOCK.min(share - number * BLOCK),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_charge_is_made_exactly_once() {
        for (charges, threads) in [(1, 1), (10, 3), (100_001, 2), (8192, 4), (3, 7)] {
            let mut progress = |_| ();
            let mut workers = Workers::new(charges, threads, &mut progress);
            assert_eq!(workers.charge(|block| block.charges), Ok(charges));
        }
    }

    #[test]
    fn the_others_continue_until_the_charges_are_made() {
        let mut progress = |_| ();
        let mut workers = Workers::new(10_000, 2, &mut progress);
        let beside = |other, is_over: &AtomicBool| {
            while !is_over.load(Relaxed) {
                std::thread::yield_now();
            }
            other
        };
        let done = workers.charge_beside(5_000..10_000, |block| block.charges, 2, beside);
        assert_eq!(done, Ok((5_000, vec![0, 1])));
    }

    #[test]
    fn a_panic_of_a_thread_is_an_error() {
        let mut progress = |_| ();
        let mut workers = Workers::new(10_000, 2, &mut progress);
        let done = workers.charge(|block| match block.thread {
            0 => block.charges,
            _ => panic!("as planned"),
        });
        assert_eq!(done, Err("a thread panicked".to_owned()));
    }
}
