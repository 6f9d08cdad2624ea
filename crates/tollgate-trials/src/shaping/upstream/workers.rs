//! A pool of workers that serves requests in the order of their arrival.
//!
//! # Theory
//!
//! Service is first come, first served, and each request takes the same time. So the completion time of a request is known
//! on arrival: the worker that is free the earliest takes it. No timer runs in between, so its
//! lateness is not added up: the capacity is exactly `workers / work`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use super::Pool;

#[derive(Debug)]
pub(super) struct Workers {
    /// When each of them is free.
    free_at: BinaryHeap<Reverse<Duration>>,
    /// When those that wait begin to be worked on; some of it may be past.
    begin: BinaryHeap<Reverse<Duration>>,
    pool: Pool,
}

impl Workers {
    pub(super) fn new(pool: Pool) -> Workers {
        let all = (0..pool.workers.max(1)).map(|_| Reverse(Duration::ZERO));
        Workers {
            free_at: all.collect(),
            begin: BinaryHeap::new(),
            pool,
        }
    }

    /// When a request that comes now is done; none if too many wait.
    pub(super) fn take(&mut self, now: Duration) -> Option<Duration> {
        while self.begin.peek().is_some_and(|begin| begin.0 <= now) {
            self.begin.pop();
        }
        let free_at = self.free_at.peek().map_or(now, |free_at| free_at.0);
        let begin = free_at.max(now);
        if begin > now {
            if self.begin.len() >= self.pool.backlog {
                return None;
            }
            self.begin.push(Reverse(begin));
        }
        let done = begin + self.pool.work;
        self.free_at.pop();
        self.free_at.push(Reverse(done));
        Some(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_take_turns_and_refuse_what_no_longer_fits() {
        let ms = Duration::from_millis;
        let pool = Pool {
            workers: 2,
            work: ms(20),
            backlog: 1,
        };
        let mut workers = Workers::new(pool);
        assert_eq!(workers.take(ms(0)), Some(ms(20)));
        assert_eq!(workers.take(ms(5)), Some(ms(25)));
        assert_eq!(workers.take(ms(6)), Some(ms(40)));
        assert_eq!(workers.take(ms(7)), None);
        assert_eq!(workers.take(ms(20)), Some(ms(45)));
    }
}
