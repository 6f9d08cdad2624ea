//! A single-threaded executor on virtual time: time advances when no task is ready.
//!
//! # Theory
//!
//! Every activity of a simulation is a task: a request at a node, a message to the store, a crash. Tasks run one after the other, in the order of their wake-ups; when none
//! is ready, time jumps to the next timer. Nothing depends on threads or on a real
//! clock, so the same seed is the same simulation to the last bit.
//!
//! # What it does not know
//!
//! The meaning of the tasks.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use tollgate::{Clock, Moment};

/// Locks and ignores poisoning: a panic ends the simulation anyway.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The time of a simulation and its timers. Clones share both.
#[derive(Clone, Debug, Default)]
pub struct Executor {
    now: Arc<AtomicU64>,
    timers: Arc<Mutex<Timers>>,
    tasks: Arc<Mutex<Spawned>>,
}

#[derive(Debug, Default)]
struct Timers {
    count: u64,
    due: BinaryHeap<Reverse<Timer>>,
}

/// A timer: earlier moments first, then earlier registrations.
#[derive(Debug)]
struct Timer {
    at: u64,
    number: u64,
    waker: Waker,
}

impl PartialEq for Timer {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.number) == (other.at, other.number)
    }
}

impl Eq for Timer {}

impl PartialOrd for Timer {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timer {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

#[derive(Default)]
struct Spawned(Vec<Task>);

impl std::fmt::Debug for Spawned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} tasks", self.0.len())
    }
}

/// Appends a task to the ready queue.
struct TaskWaker {
    task: usize,
    ready: Arc<Mutex<VecDeque<usize>>>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        lock(&self.ready).push_back(self.task);
    }
}

impl Executor {
    /// Nanoseconds since the simulation began.
    pub fn now(&self) -> u64 {
        self.now.load(Relaxed)
    }

    /// Spawns a task.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        lock(&self.tasks).0.push(Box::pin(task));
    }

    /// Waits until `at`.
    pub async fn until(&self, at: u64) {
        let mut is_registered = false;
        std::future::poll_fn(|context: &mut Context<'_>| {
            if self.now() >= at {
                return Poll::Ready(());
            }
            // A future stays with its task here, so one registration is enough.
            if std::mem::replace(&mut is_registered, true) {
                return Poll::Pending;
            }
            let mut timers = lock(&self.timers);
            timers.count += 1;
            let number = timers.count;
            let waker = context.waker().clone();
            timers.due.push(Reverse(Timer { at, number, waker }));
            Poll::Pending
        })
        .await;
    }

    /// Waits for `span` nanoseconds.
    pub async fn sleep(&self, span: u64) {
        self.until(self.now().saturating_add(span)).await;
    }

    /// Runs until no task is ready and no timer is left, or until `end`.
    pub fn run(&self, end: u64) {
        let ready = Arc::new(Mutex::new(VecDeque::new()));
        let mut tasks: Vec<Option<Task>> = Vec::new();
        let mut free: Vec<usize> = Vec::new();
        loop {
            for task in std::mem::take(&mut lock(&self.tasks).0) {
                let place = free.pop().unwrap_or_else(|| {
                    tasks.push(None);
                    tasks.len() - 1
                });
                if let Some(slot) = tasks.get_mut(place) {
                    *slot = Some(task);
                }
                lock(&ready).push_back(place);
            }
            let next = lock(&ready).pop_front();
            if let Some(place) = next {
                // Woken twice, or after its end.
                let Some(slot) = tasks.get_mut(place) else {
                    continue;
                };
                let Some(task) = slot.as_mut() else { continue };
                let waker = Waker::from(Arc::new(TaskWaker {
                    task: place,
                    ready: Arc::clone(&ready),
                }));
                if task
                    .as_mut()
                    .poll(&mut Context::from_waker(&waker))
                    .is_ready()
                {
                    *slot = None;
                    free.push(place);
                }
                continue;
            }
            let due = lock(&self.timers).due.pop();
            match due {
                Some(Reverse(due)) if due.at <= end => {
                    self.now.store(self.now().max(due.at), Relaxed);
                    due.waker.wake();
                }
                _ => return,
            }
        }
    }
}

/// The clock of one machine: it drifts, and may be set.
#[derive(Clone, Debug)]
pub struct NodeClock {
    simulation: Arc<AtomicU64>,
    /// Its offset in nanoseconds.
    ahead: Arc<AtomicI64>,
    /// Its drift in parts per million.
    fast: i64,
}

/// A clock that is set back stays above zero.
const ORIGIN: i64 = 1_000_000_000_000;

impl NodeClock {
    /// A clock of this simulation.
    pub fn new(simulation: &Executor, ahead: i64, fast: i64) -> NodeClock {
        NodeClock {
            simulation: Arc::clone(&simulation.now),
            ahead: Arc::new(AtomicI64::new(ahead)),
            fast,
        }
    }

    /// Sets it forward or back.
    pub fn step(&self, by: i64) {
        self.ahead.fetch_add(by, Relaxed);
    }
}

impl Clock for NodeClock {
    fn now(&self) -> Moment {
        let simulation = self.simulation.load(Relaxed) as i64;
        let own =
            simulation + simulation / 1_000_000 * self.fast + self.ahead.load(Relaxed) + ORIGIN;
        Moment::from_nanos(u64::try_from(own).unwrap_or(0))
    }
}
