//! Work that no request waits for: prefetches, returns of blocks, reports of usage, abandoned requests.
//!
//! # Bounds
//!
//! Each runner polls [`RUNNING_MAX`] tasks at once, and [`QUEUED_MAX`] wait. Further tasks are dropped and
//! counted: the store earns unreturned units again, and a lost refund errs on the strict side.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use super::flight::Task;

/// Tasks that one runner polls at once.
const RUNNING_MAX: usize = 64;
/// Tasks that wait.
const QUEUED_MAX: usize = 1 << 16;

/// A queue of tasks. It has no runtime: the owner of the policy runs it ([`Background::run`]), or drains it
/// regularly ([`Background::drain`]).
#[derive(Default)]
pub(crate) struct Background {
    queue: Mutex<TaskQueue>,
    /// The number of runners.
    runners: AtomicUsize,
}

#[derive(Default)]
struct TaskQueue {
    tasks: VecDeque<Task>,
    /// The wakers of waiting runners, by their number.
    wakers: Vec<(u64, Waker)>,
    /// The number of the next runner.
    next: u64,
    dropped: u64,
}

impl std::fmt::Debug for Background {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let queue = self.queue();
        f.debug_struct("Background")
            .field("tasks", &queue.tasks.len())
            .field("dropped", &queue.dropped)
            .finish_non_exhaustive()
    }
}

/// Tasks that a runner has started and not finished. Dropping it queues them again.
struct Running<'a> {
    background: &'a Background,
    number: u64,
    tasks: Vec<Task>,
    is_runner: bool,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if self.is_runner {
            self.background.runners.fetch_sub(1, Relaxed);
        }
        let mut queue = self.background.queue();
        queue.tasks.extend(self.tasks.drain(..));
        // This runner may have been woken for a task that another one must take now.
        let wakers = std::mem::take(&mut queue.wakers);
        drop(queue);
        wakers.into_iter().for_each(|(_, waker)| waker.wake());
    }
}

impl Background {
    fn queue(&self) -> MutexGuard<'_, TaskQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is a runner. Without one nothing is prefetched, and abandoned requests are dropped.
    pub(crate) fn is_run(&self) -> bool {
        self.runners.load(Relaxed) > 0
    }

    pub(crate) fn push(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut queue = self.queue();
        if queue.tasks.len() >= QUEUED_MAX {
            queue.dropped += 1;
            return;
        }
        queue.tasks.push_back(Box::pin(task));
        let wakers = std::mem::take(&mut queue.wakers);
        drop(queue);
        wakers.into_iter().for_each(|(_, waker)| waker.wake());
    }

    /// Runs tasks until `over`, and then those that have started.
    pub(crate) async fn run(&self, over: impl Future<Output = ()>) {
        let mut over = pin!(over);
        let mut running = self.running(true);
        let mut is_over = false;
        poll_fn(|context| {
            if !is_over && over.as_mut().poll(context).is_ready() {
                is_over = true;
                running.is_runner = false;
                self.runners.fetch_sub(1, Relaxed);
            }
            match running.poll(!is_over, context) && is_over {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
    }

    /// Runs all waiting tasks to their end.
    pub(crate) async fn drain(&self) {
        let mut running = self.running(false);
        poll_fn(|context| match running.poll(true, context) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
    }

    fn running(&self, is_runner: bool) -> Running<'_> {
        self.runners.fetch_add(usize::from(is_runner), Relaxed);
        let mut queue = self.queue();
        queue.next += 1;
        Running {
            background: self,
            number: queue.next,
            tasks: Vec::new(),
            is_runner,
        }
    }
}

impl Running<'_> {
    /// Polls started tasks, and with `takes_more` starts more. True if nothing is left to do.
    fn poll(&mut self, takes_more: bool, context: &mut std::task::Context<'_>) -> bool {
        loop {
            if takes_more {
                let mut queue = self.background.queue();
                let room = RUNNING_MAX.saturating_sub(self.tasks.len());
                let more = queue.tasks.len().min(room);
                self.tasks.extend(queue.tasks.drain(..more));
                if more == 0 {
                    let waker = context.waker();
                    let mut known = queue.wakers.iter_mut();
                    match known.find(|(number, _)| *number == self.number) {
                        Some((_, known)) => known.clone_from(waker),
                        None => queue.wakers.push((self.number, waker.clone())),
                    }
                }
            }
            let before = self.tasks.len();
            self.tasks
                .retain_mut(|task| task.as_mut().poll(context).is_pending());
            let is_idle = self.tasks.is_empty();
            let has_more = takes_more && !self.background.queue().tasks.is_empty();
            if self.tasks.len() == before || !has_more {
                // A finished task may have queued another one.
                if is_idle && has_more {
                    continue;
                }
                return is_idle;
            }
        }
    }
}
