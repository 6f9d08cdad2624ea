//! A timer that is exact to a fraction of a millisecond.
//!
//! # Theory
//!
//! Runtimes' timers go in steps of a millisecond, and 3000 a second are 333 microseconds apart. So one
//! thread of the process sleeps until the next alarm is due, wakes whoever set it, and sleeps again. The
//! kernel lets sleepers be late by 50 microseconds to wake several at once; the thread asks for less, for
//! itself alone, where the system lets it.
//!
//! # Invariant
//!
//! No alarm goes off early. There are as many entries as there are alarms set: one that is set anew or
//! dropped takes its entry with it. Wakers are called while no lock is held.
//!
//! # The thread
//!
//! It is started when the first alarm is set and ends when none has been set for a while, so a program that
//! waits for nothing pays nothing. If the system starts no thread, [`Alarm::set`] says so, and whoever set
//! it has to look at the clock itself.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// How long the thread stays when nobody waits.
const IDLE: Duration = Duration::from_secs(10);

static TIMER: Timer = Timer {
    state: Mutex::new(State {
        alarms: BTreeMap::new(),
        next_id: 0,
        sleeps_until: None,
        runs: false,
    }),
    earlier: Condvar::new(),
};

struct Timer {
    state: Mutex<State>,
    /// An alarm was set that is due before the thread wakes up.
    earlier: Condvar,
}

struct State {
    /// By when they are due; the number tells apart those that are due together.
    alarms: BTreeMap<(Instant, u64), Waker>,
    next_id: u64,
    /// When the thread wakes up by itself; none while it is awake.
    sleeps_until: Option<Instant>,
    runs: bool,
}

/// Wakes somebody at a moment. Dropped, it does not.
#[derive(Debug, Default)]
pub(crate) struct Alarm {
    set: Option<(Instant, u64)>,
}

#[expect(
    clippy::disallowed_methods,
    reason = "a thread sleeps by the system's clock; no decision is made by it"
)]
pub(super) fn system_now() -> Instant {
    Instant::now()
}

impl Alarm {
    /// Wakes `waker` at `at` and not before, instead of what was set before. False if there is nobody to do
    /// so: then it has to be tried again.
    pub(crate) fn set(&mut self, at: Instant, waker: &Waker) -> bool {
        let mut state = TIMER.state();
        let replaced = self.set.take().and_then(|key| state.alarms.remove(&key));
        state.next_id = state.next_id.wrapping_add(1);
        let key = (at, state.next_id);
        state.alarms.insert(key, waker.clone());
        self.set = Some(key);
        if !state.runs {
            state.runs = start();
        } else if state.sleeps_until.is_some_and(|until| at < until) {
            TIMER.earlier.notify_one();
        }
        let runs = state.runs;
        drop(state);
        // Wakers are dropped outside the lock, too: they may be the last of a task.
        drop(replaced);
        runs
    }

    /// Wakes nobody.
    pub(crate) fn clear(&mut self) {
        if let Some(key) = self.set.take() {
            let removed = TIMER.state().alarms.remove(&key);
            drop(removed);
        }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Timer {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sleep<'a>(&self, mut state: MutexGuard<'a, State>, until: Instant) -> MutexGuard<'a, State> {
        state.sleeps_until = Some(until);
        let length = until.saturating_duration_since(system_now());
        let slept = self.earlier.wait_timeout(state, length);
        let (mut state, _) = slept.unwrap_or_else(PoisonError::into_inner);
        state.sleeps_until = None;
        state
    }
}

fn start() -> bool {
    std::thread::Builder::new()
        .name("tollgate-timer".into())
        .spawn(run)
        .is_ok()
}

/// However the thread ends, the next alarm starts another.
struct Ends;

impl Drop for Ends {
    fn drop(&mut self) {
        TIMER.state().runs = false;
    }
}

fn run() {
    let ends = Ends;
    be_punctual();
    let mut due = Vec::new();
    let mut state = TIMER.state();
    let mut idle_since = None;
    loop {
        let now = system_now();
        while let Some(first) = state.alarms.first_entry() {
            if first.key().0 > now {
                break;
            }
            due.push(first.remove());
        }
        if !due.is_empty() {
            drop(state);
            due.drain(..).for_each(Waker::wake);
            idle_since = None;
            state = TIMER.state();
            continue;
        }
        let next = state.alarms.first_key_value().map(|((at, _), _)| *at);
        state = match next {
            Some(at) => {
                idle_since = None;
                TIMER.sleep(state, at)
            }
            None => {
                let since = *idle_since.get_or_insert(now);
                if now.saturating_duration_since(since) >= IDLE {
                    // Under the lock, so that nobody sets an alarm in between.
                    state.runs = false;
                    std::mem::forget(ends);
                    return;
                }
                TIMER.sleep(state, since + IDLE)
            }
        };
    }
}

/// Asks the kernel not to let this thread oversleep, where it can be asked. It is this thread alone that is
/// told, and nothing is lost if it is not.
fn be_punctual() {
    // The name is `<process>/task/<thread>`; the setting is found under the thread's own number.
    let own = std::fs::read_link("/proc/thread-self").ok();
    let thread = own.as_deref().and_then(std::path::Path::file_name);
    if let Some(thread) = thread {
        let slack = std::path::Path::new("/proc").join(thread);
        let _ = std::fs::write(slack.join("timerslack_ns"), b"1");
    }
}

/// Waits for a span, exactly: see [`sleep`].
#[derive(Debug)]
pub struct Sleep {
    until: Option<Instant>,
    length: Duration,
    alarm: Alarm,
}

/// Waits for `length`, never less, and on an idle machine less than a tenth of a millisecond more. Counted
/// from the first time it is polled.
pub fn sleep(length: Duration) -> Sleep {
    Sleep {
        until: None,
        length,
        alarm: Alarm::default(),
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let now = system_now();
        let length = self.length;
        // Beyond what the clock can tell is never.
        let until = *self
            .until
            .get_or_insert_with(|| now.checked_add(length).unwrap_or(now + far()));
        if now >= until {
            return Poll::Ready(());
        }
        if !self.alarm.set(until, context.waker()) {
            context.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

/// Longer than any program runs, and short enough to be added to any moment.
const fn far() -> Duration {
    Duration::from_secs(100 * 365 * 86_400)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::task::Wake;

    #[derive(Default)]
    struct Counts(AtomicUsize);

    impl Wake for Counts {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    #[tokio::test]
    async fn it_is_never_early_and_ends_in_the_order_of_the_moments() {
        let began = system_now();
        let mut ends = Vec::new();
        let waits = [7_000, 300, 2_500, 333].map(|us| async move {
            let length = Duration::from_micros(us);
            let before = system_now();
            sleep(length).await;
            assert!(before.elapsed() >= length, "early");
            us
        });
        let mut set = tokio::task::JoinSet::new();
        waits.into_iter().for_each(|wait| drop(set.spawn(wait)));
        while let Some(ended) = set.join_next().await {
            ends.push(ended.unwrap());
        }
        assert!(began.elapsed() >= Duration::from_micros(7_000));
        assert_eq!(ends.first(), Some(&300));
        assert_eq!(ends.last(), Some(&7_000));
    }

    #[tokio::test]
    async fn an_alarm_that_is_dropped_or_set_anew_leaves_nothing_behind() {
        let counts = Arc::new(Counts::default());
        let waker = Waker::from(Arc::clone(&counts));
        let soon = system_now() + Duration::from_millis(5);
        let mut moved = Alarm::default();
        assert!(moved.set(soon, &waker));
        assert!(moved.set(system_now() + Duration::from_secs(3600), &waker));
        let mut dropped = Alarm::default();
        assert!(dropped.set(soon, &waker));
        drop(dropped);
        sleep(Duration::from_millis(20)).await;
        assert_eq!(counts.0.load(SeqCst), 0);
        moved.clear();
        assert_eq!(Arc::strong_count(&counts), 2, "the timer holds no waker");
    }

    #[tokio::test]
    async fn an_alarm_that_is_due_before_the_others_is_not_kept_waiting_by_them() {
        let counts = Arc::new(Counts::default());
        let mut late = Alarm::default();
        late.set(
            system_now() + Duration::from_secs(3600),
            &Waker::from(counts),
        );
        sleep(Duration::from_millis(2)).await;
        let began = system_now();
        sleep(Duration::from_millis(1)).await;
        assert!(began.elapsed() < Duration::from_secs(5));
    }
}
