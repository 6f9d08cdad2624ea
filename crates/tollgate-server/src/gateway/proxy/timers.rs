//! Timers that are used again.
//!
//! # Theory
//!
//! Every answer is waited for with a bound in time, and hardly any wait reaches it. To put a timer into the
//! wheel of a loop and to take it out again costs more than to ask one that is in it. So a timer stays in
//! the wheel when its request is answered, and the next request takes it over as it is. It may go off too
//! early then, because it was set for an earlier request: whoever has it looks at its own bound and sets it
//! anew. So a timer is set once in the time that it is set for, not once for each request.
//!
//! # Invariant
//!
//! A wait ends neither before its bound nor later than a timer of its own would have ended it.
//!
//! # Bounds
//!
//! Timers that nobody uses are at most [`SPARE`]. One that goes off while nobody uses it wakes whoever used
//! it last, for nothing and once.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Context;
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// Timers that are kept for later, of one thread.
const SPARE: usize = 256;
/// Nobody waits for longer; it also keeps sums of times from leaving what a clock can show.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// The timers of one thread: of the loop that it runs.
#[derive(Debug, Default)]
pub(super) struct Timers {
    spare: Mutex<Vec<Pin<Box<Sleep>>>>,
}

impl Timers {
    /// A bound for one wait. It costs nothing until it is asked whether it is over.
    pub(super) fn bound(&self, from: Instant, most: Duration) -> Bound<'_> {
        Bound {
            timers: self,
            timer: None,
            until: from + most.min(LONGEST),
        }
    }

    fn spare(&self) -> MutexGuard<'_, Vec<Pin<Box<Sleep>>>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One that goes off at this time or before it.
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

/// How long somebody waits at the most.
#[derive(Debug)]
pub(super) struct Bound<'t> {
    timers: &'t Timers,
    timer: Option<Pin<Box<Sleep>>>,
    until: Instant,
}

impl Bound<'_> {
    /// Is it over? If not, whoever asks is woken when it is.
    pub(super) fn is_over(&mut self, cx: &mut Context<'_>) -> bool {
        let Bound {
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

    /// Begins anew.
    pub(super) fn again(&mut self, from: Instant, most: Duration) {
        self.until = from + most.min(LONGEST);
    }
}

impl Drop for Bound<'_> {
    fn drop(&mut self) {
        if let Some(timer) = self.timer.take() {
            let mut spare = self.timers.spare();
            if spare.len() < SPARE {
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

    async fn waited(timers: &Timers, ms: u64) -> Duration {
        let from = Instant::now();
        let mut bound = timers.bound(from, Duration::from_millis(ms));
        poll_fn(|cx| match bound.is_over(cx) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
        from.elapsed()
    }

    /// Begins to wait and is answered at once.
    async fn answered(timers: &Timers, ms: u64) {
        let mut bound = timers.bound(Instant::now(), Duration::from_millis(ms));
        let is_over = poll_fn(|cx| Poll::Ready(bound.is_over(cx))).await;
        assert!(!is_over);
    }

    fn in_loop(test: impl AsyncFnOnce()) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().build().unwrap().block_on(test());
    }

    #[test]
    fn a_timer_of_an_earlier_request_ends_no_later_one_early_or_late() {
        in_loop(async || {
            let timers = Timers::default();
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
    fn one_that_went_off_unused_is_used_again() {
        in_loop(async || {
            let timers = Timers::default();
            answered(&timers, 5).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
            let took = waited(&timers, 30).await;
            assert!(took >= Duration::from_millis(30), "{took:?}");
        });
    }

    #[test]
    fn a_bound_beyond_all_clocks_is_one() {
        in_loop(async || {
            let timers = Timers::default();
            answered(&timers, u64::MAX).await;
            assert_eq!(timers.spare().len(), 1);
        });
    }
}
