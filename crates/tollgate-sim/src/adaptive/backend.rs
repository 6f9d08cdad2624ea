//! A simulated backend that divides its capacity among the requests in flight.
//!
//! # Theory
//!
//! Up to `servers` requests run at full speed. More share: `n` of them run at `servers / n`, so the
//! rate stays and latency grows. Beyond the *knee*, 1.5 times the servers, the backend thrashes and the
//! rate falls too: to `1 / (1 + (n - knee) / (2 servers))` of it. At four times the servers it is less
//! than half.
//!
//! All that run have the same work rate, so one number is enough: how much work each of them has
//! been given since the start. A request that starts now is done when that number has grown by its
//! own work. A change of the work rate changes only when that will be.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Beyond this many times the servers, the rate falls.
const KNEE: f64 = 1.5;

/// The condition of a backend: its capacity, and what slows it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BackendCondition {
    /// How many requests run at full speed.
    pub servers: f64,
    /// How many times its usual work each request takes.
    pub slow: f64,
    /// No request progresses.
    pub stalled: bool,
    /// A request that starts while this many are served hangs until it times out.
    pub pool: Option<u32>,
}

impl BackendCondition {
    /// Work done per nanosecond for each of `n`.
    fn work_rate(self, n: usize) -> f64 {
        if self.stalled || n == 0 {
            return 0.0;
        }
        let n = n as f64;
        let shared = (self.servers / n).min(1.0);
        let surplus = (n - self.servers * KNEE).max(0.0);
        shared / (1.0 + surplus / (2.0 * self.servers)) / self.slow
    }
}

/// A request in the backend.
#[derive(Clone, Copy, Debug)]
pub struct Job<T> {
    /// When it started.
    pub started_ns: u64,
    /// The caller's value for it.
    pub item: T,
    is_hung: bool,
}

/// See the [module](self).
#[derive(Debug)]
pub struct Backend<T> {
    condition: BackendCondition,
    timeout_ns: u64,
    now_ns: u64,
    /// Work given to each since the start, in nanoseconds at full speed.
    given: f64,
    /// By the amount given at which they are done. May name jobs that are gone.
    done_at: BinaryHeap<Reverse<(u64, u64)>>,
    /// Oldest first; a hole is one that is gone.
    jobs: VecDeque<Option<Job<T>>>,
    /// The number of the first of `jobs`.
    first: u64,
    running: usize,
    in_flight: usize,
}

impl<T: Copy> Backend<T> {
    /// Creates an idle backend, which abandons a request that takes longer than `timeout_ns`.
    pub fn new(condition: BackendCondition, timeout_ns: u64) -> Self {
        Self {
            condition,
            timeout_ns,
            now_ns: 0,
            given: 0.0,
            done_at: BinaryHeap::new(),
            jobs: VecDeque::new(),
            first: 0,
            running: 0,
            in_flight: 0,
        }
    }

    /// The number of requests in the backend.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// The time that the oldest request has been in the backend.
    pub fn oldest_ns(&self, now_ns: u64) -> u64 {
        let oldest = self.jobs.front().and_then(Option::as_ref);
        oldest.map_or(0, |job| now_ns.saturating_sub(job.started_ns))
    }

    /// Changes the condition.
    pub fn change(&mut self, now_ns: u64, condition: BackendCondition) {
        self.pass_to(now_ns);
        self.condition = condition;
    }

    /// Starts a request that needs `work` nanoseconds at full speed. A request that hangs does not call
    /// `work`, so that the others have the same work whatever hangs.
    pub fn start(&mut self, now_ns: u64, work: impl FnOnce() -> f64, item: T) {
        self.pass_to(now_ns);
        let pool = self.condition.pool;
        let is_hung = pool.is_some_and(|pool| self.running >= pool as usize);
        let number = self.first + self.jobs.len() as u64;
        self.jobs.push_back(Some(Job {
            started_ns: now_ns,
            item,
            is_hung,
        }));
        self.in_flight += 1;
        if !is_hung {
            self.running += 1;
            let done = (self.given + work()).ceil() as u64;
            self.done_at.push(Reverse((done, number)));
        }
    }

    /// The moment at which the next request ends, completed or abandoned.
    pub fn next_ns(&mut self) -> Option<u64> {
        while let Some(&Reverse((_, number))) = self.done_at.peek() {
            if self.job(number).is_some() {
                break;
            }
            self.done_at.pop();
        }
        let work_rate = self.condition.work_rate(self.running);
        let done = self.done_at.peek().filter(|_| work_rate > 0.0);
        let done = done.map(|Reverse((done, _))| {
            let span = ((*done as f64 - self.given) / work_rate).max(0.0).ceil();
            self.now_ns.saturating_add(span as u64)
        });
        let oldest = self.jobs.front().and_then(Option::as_ref);
        let given_up = oldest.map(|job| job.started_ns.saturating_add(self.timeout_ns));
        done.into_iter().chain(given_up).min()
    }

    /// The next job that ends at `now_ns`, and whether it completed.
    pub fn next_finished(&mut self, now_ns: u64) -> Option<(Job<T>, bool)> {
        self.pass_to(now_ns);
        let oldest = self.jobs.front().and_then(Option::as_ref);
        if oldest.is_some_and(|job| now_ns >= job.started_ns.saturating_add(self.timeout_ns)) {
            let first = self.first;
            return self.take(first).map(|job| (job, false));
        }
        let &Reverse((done, number)) = self.done_at.peek()?;
        // Half a nanosecond of work may be lost to rounding.
        if done as f64 > self.given + 1.0 {
            return None;
        }
        self.done_at.pop();
        self.take(number).map(|job| (job, true))
    }

    fn pass_to(&mut self, now_ns: u64) {
        let span = now_ns.saturating_sub(self.now_ns) as f64;
        self.given += span * self.condition.work_rate(self.running);
        self.now_ns = now_ns;
    }

    fn job(&self, number: u64) -> Option<&Job<T>> {
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.jobs.get(at)?.as_ref()
    }

    fn take(&mut self, number: u64) -> Option<Job<T>> {
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let job = self.jobs.get_mut(at)?.take()?;
        self.in_flight -= 1;
        if !job.is_hung {
            self.running -= 1;
        }
        while let Some(None) = self.jobs.front() {
            self.jobs.pop_front();
            self.first += 1;
        }
        Some(job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn condition(servers: f64) -> BackendCondition {
        BackendCondition {
            servers,
            slow: 1.0,
            stalled: false,
            pool: None,
        }
    }

    /// Starts `n` of 10 ms at once; when the last has left.
    fn last_of(n: u64, condition: BackendCondition) -> u64 {
        let mut backend = Backend::new(condition, 10_000 * MS);
        for _ in 0..n {
            backend.start(0, || 10.0 * MS as f64, ());
        }
        let mut now = 0;
        while let Some(next) = backend.next_ns() {
            now = next;
            while backend.next_finished(now).is_some() {}
        }
        now
    }

    #[test]
    fn up_to_its_servers_all_run_at_full_speed_and_more_share() {
        assert_eq!(last_of(10, condition(10.0)) / MS, 10);
        assert_eq!(last_of(15, condition(10.0)) / MS, 15);
        // 40 share 10, and 25 more than the knee slow all down to 1 / 2.25.
        assert_eq!(last_of(40, condition(10.0)) / MS, 90);
        let slow = BackendCondition {
            slow: 3.0,
            ..condition(10.0)
        };
        assert_eq!(last_of(10, slow) / MS, 30);
    }

    #[test]
    fn a_hung_request_ends_at_its_timeout_and_slows_no_other() {
        let mut backend = Backend::new(
            BackendCondition {
                pool: Some(1),
                ..condition(1.0)
            },
            1000 * MS,
        );
        backend.start(0, || 10.0 * MS as f64, 'a');
        backend.start(0, || 10.0 * MS as f64, 'b');
        assert_eq!(backend.next_ns(), Some(10 * MS));
        let (job, is_done) = backend.next_finished(10 * MS).unwrap();
        assert_eq!((job.item, is_done), ('a', true));
        assert_eq!(backend.next_ns(), Some(1000 * MS));
        let (job, is_done) = backend.next_finished(1000 * MS).unwrap();
        assert_eq!((job.item, is_done), ('b', false));
        assert_eq!(backend.in_flight(), 0);
    }

    #[test]
    fn a_stall_only_moves_the_end() {
        let mut backend = Backend::new(condition(1.0), 10_000 * MS);
        backend.start(0, || 10.0 * MS as f64, ());
        let stalled = BackendCondition {
            stalled: true,
            ..condition(1.0)
        };
        backend.change(4 * MS, stalled);
        backend.change(104 * MS, condition(1.0));
        assert_eq!(backend.next_ns(), Some(110 * MS));
    }
}
