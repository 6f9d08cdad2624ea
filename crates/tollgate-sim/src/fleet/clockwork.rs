//! Time that only moves when nothing is left to do, and tasks that wait for it.
//!
//! # Theory
//!
//! Everything that happens in a simulation is a task: a request on its way through a node, a message on its way
//! to the store, a crash. Tasks run one after the other, in the order in which they were woken; when none
//! can go on, time jumps to the next moment that somebody waits for. Nothing depends on threads or on a real
//! clock, so the same seed is the same world to the last bit.
//!
//! # What it does not know
//!
//! What the tasks do.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use tollgate::{Clock, Moment};

/// Locks without minding that somebody panicked: then the simulation ends anyway.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The time of a world, and who waits for it. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Clockwork {
    now: Arc<AtomicU64>,
    waiting: Arc<Mutex<Waiting>>,
    tasks: Arc<Mutex<Spawned>>,
}

#[derive(Debug, Default)]
struct Waiting {
    count: u64,
    due: BinaryHeap<Reverse<Due>>,
}

/// Who is to be woken when. Of those of one moment, whoever came first.
#[derive(Debug)]
struct Due {
    at: u64,
    number: u64,
    waker: Waker,
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.number) == (other.at, other.number)
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
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

/// Puts a task into the line of those that can go on.
struct Line {
    task: usize,
    ready: Arc<Mutex<VecDeque<usize>>>,
}

impl Wake for Line {
    fn wake(self: Arc<Self>) {
        lock(&self.ready).push_back(self.task);
    }
}

impl Clockwork {
    /// Nanoseconds since the world began.
    pub fn now(&self) -> u64 {
        self.now.load(Relaxed)
    }

    /// Has a task run beside all others.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        lock(&self.tasks).0.push(Box::pin(task));
    }

    /// Waits until `at`.
    pub async fn until(&self, at: u64) {
        let mut is_noted = false;
        std::future::poll_fn(|context: &mut Context<'_>| {
            if self.now() >= at {
                return Poll::Ready(());
            }
            // Nobody here is handed from one task to another, so once is enough.
            if std::mem::replace(&mut is_noted, true) {
                return Poll::Pending;
            }
            let mut waiting = lock(&self.waiting);
            waiting.count += 1;
            let number = waiting.count;
            let waker = context.waker().clone();
            waiting.due.push(Reverse(Due { at, number, waker }));
            Poll::Pending
        })
        .await;
    }

    /// Waits for `span` nanoseconds.
    pub async fn sleep(&self, span: u64) {
        self.until(self.now().saturating_add(span)).await;
    }

    /// Runs until nobody waits for anything, or until `end`.
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
                // Woken twice, or for something that is over: nothing is there any more.
                let Some(slot) = tasks.get_mut(place) else {
                    continue;
                };
                let Some(task) = slot.as_mut() else { continue };
                let waker = Waker::from(Arc::new(Line {
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
            let due = lock(&self.waiting).due.pop();
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

/// The clock of one machine: it runs a little too fast or too slow, and may be set.
#[derive(Clone, Debug)]
pub struct Watch {
    world: Arc<AtomicU64>,
    /// Nanoseconds that it is ahead.
    ahead: Arc<AtomicI64>,
    /// Millionths that it runs too fast.
    fast: i64,
}

/// So that a watch can be set back and still show something.
const BEGINNING: i64 = 1_000_000_000_000;

impl Watch {
    /// A watch of this world.
    pub fn new(world: &Clockwork, ahead: i64, fast: i64) -> Watch {
        Watch {
            world: Arc::clone(&world.now),
            ahead: Arc::new(AtomicI64::new(ahead)),
            fast,
        }
    }

    /// Sets it forward or back.
    pub fn step(&self, by: i64) {
        self.ahead.fetch_add(by, Relaxed);
    }
}

impl Clock for Watch {
    fn now(&self) -> Moment {
        let world = self.world.load(Relaxed) as i64;
        let own = world + world / 1_000_000 * self.fast + self.ahead.load(Relaxed) + BEGINNING;
        Moment::from_nanos(u64::try_from(own).unwrap_or(0))
    }
}
