//! A pool of reusable timers.
//!
//! # Theory
//!
//! Every response is awaited with a deadline, and hardly any wait reaches it. To insert a timer into the wheel of an event
//! loop and to remove it costs more than to check one that is in it. So a timer stays in the wheel when its request is
//! answered, and the next request takes it as it is. It may fire too early then, because it was set for an earlier request:
//! its user compares its own deadline and sets the timer anew. So a timer is set once per period, not once per request.
//!
//! # Invariant
//!
//! A wait ends neither before its deadline nor later than with a timer of its own.
//!
//! # Bounds
//!
//! At most [`MAX_SPARE`] timers are unused. One that fires then wakes its last user once, for nothing.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Context;
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// Unused timers of one thread.
const MAX_SPARE: usize = 256;
/// Longer waits are cut to this, so that no sum leaves the range of the clock.
const MAX_WAIT: Duration = Duration::from_secs(365 * 24 * 3600);

/// The timers of one thread and its event loop.
#[derive(Debug, Default)]
pub(super) struct TimerPool {
    spare: Mutex<Vec<Pin<Box<Sleep>>>>,
}

impl TimerPool {
    /// A deadline for one wait. It costs nothing until it is polled.
    pub(super) fn deadline(&self, from: Instant, max: Duration) -> Deadline<'_> {
        Deadline {
            timers: self,
            timer: None,
            until: from + max.min(MAX_WAIT),
        }
    }

    fn spare(&self) -> MutexGuard<'_, Vec<Pin<Box<Sleep>>>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A timer that fires at this time or before.
    fn take(&self, until: Instant) -> Pin<Box<Sleep>> {
        let spare = self.spare().pop();
        match spare {
            None => Box::pin(sleep_until(until)),
            Some(mut timer) => {
                if timer.deadline() > until {
                    timer.as_mut().reset(until);
                }
                timer
            }
        }
    }
}

/// The end of one wait.
#[derive(Debug)]
pub(super) struct Deadline<'t> {
    timers: &'t TimerPool,
    timer: Option<Pin<Box<Sleep>>>,
    until: Instant,
}

impl Deadline<'_> {
    /// Has it passed? If not, the task is woken when it has.
    pub(super) fn poll_passed(&mut self, cx: &mut Context<'_>) -> bool {
        let Deadline {
            timers,
            timer,
            until,
        } = self;
        let timer = timer.get_or_insert_with(|| timers.take(*until));
        while timer.as_mut().poll(cx).is_ready() {
            if timer.deadline() >= *until {
                return true;
            }
            timer.as_mut().reset(*until);
        }
        false
    }

    /// Sets a new deadline.
    pub(super) fn reset(&mut self, from: Instant, max: Duration) {
        self.until = from + max.min(MAX_WAIT);
    }
}

impl Drop for Deadline<'_> {
    fn drop(&mut self) {
        if let Some(timer) = self.timer.take() {
            let mut spare = self.timers.spare();
            if spare.len() < MAX_SPARE {
                spare.push(timer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Poll;

    use super::*;

    async fn waited(timers: &TimerPool, ms: u64) -> Duration {
        let from = Instant::now();
        let mut deadline = timers.deadline(from, Duration::from_millis(ms));
        poll_fn(|cx| match deadline.poll_passed(cx) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
        from.elapsed()
    }

    /// Starts to wait and is answered at once.
    async fn answered(timers: &TimerPool, ms: u64) {
        let mut deadline = timers.deadline(Instant::now(), Duration::from_millis(ms));
        let has_passed = poll_fn(|cx| Poll::Ready(deadline.poll_passed(cx))).await;
        assert!(!has_passed);
    }

    fn in_loop(test: impl AsyncFnOnce()) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().build().unwrap().block_on(test());
    }

    #[test]
    fn a_reused_timer_ends_no_wait_early_or_late() {
        in_loop(async || {
            let timers = TimerPool::default();
            answered(&timers, 30).await;
            let took = waited(&timers, 90).await;
            assert!(took >= Duration::from_millis(90), "{took:?}");
            answered(&timers, 60_000).await;
            let took = waited(&timers, 40).await;
            assert!(took >= Duration::from_millis(40), "{took:?}");
            assert!(took < Duration::from_secs(30), "{took:?}");
            assert_eq!(timers.spare().len(), 1);
        });
    }

    #[test]
    fn a_timer_that_fired_unused_is_used_again() {
        in_loop(async || {
            let timers = TimerPool::default();
            answered(&timers, 5).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
            let took = waited(&timers, 30).await;
            assert!(took >= Duration::from_millis(30), "{took:?}");
        });
    }

    #[test]
    fn a_deadline_beyond_the_clock_is_cut() {
        in_loop(async || {
            let timers = TimerPool::default();
            answered(&timers, u64::MAX).await;
            assert_eq!(timers.spare().len(), 1);
        });
    }
}
