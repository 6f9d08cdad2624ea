//! Waiting until a key may pass, on tokio's timer.

use std::fmt;
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::time::{Instant, Sleep, sleep};

use crate::algorithm::Refund;
use crate::clock::{Clock, MonotonicClock};
use crate::decision::{Decision, NotAdmitted, QuotaStatus, Verdict};
use crate::key::Keyed;
use crate::limiter::{Limiter, UnkeyedLimiter};
use crate::table::KeyOp;
use crate::time::Span;

/// Waits until a key may pass, and takes its cost: the future of [`Limiter::until_ready`]. It returns what is left.
///
/// Several waiters for one key are not served in order: the first that wakes takes what is there. A leaky bucket gives each
/// its own slot, in order.
///
/// Dropping the future takes nothing: a refused charge takes nothing, and the slot of a leaky bucket is given back. A slot
/// that is not the last one stays idle; see [`crate::algorithm::queue`].
///
/// ```
/// use std::time::Duration;
/// use tollgate::Limiter;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Limiter::new("100/s burst 5".parse()?)?;
/// let ready = limiter.until_ready("rider:42").with_cost(5).with_max_wait(Duration::from_secs(1));
/// assert_eq!(ready.await?.remaining, 0);
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is taken until this is awaited"]
pub struct UntilReady<'a, C: Clock = MonotonicClock> {
    limiter: &'a Limiter<C>,
    hash: u64,
    cost: u64,
    max_wait: Span,
    jitter: Span,
    /// When it was polled first.
    started: Option<Instant>,
    sleep: Option<Pin<Box<Sleep>>>,
    /// The slot of a leaky bucket that begins when the sleep ends.
    slot: Option<Decision>,
}

impl<C: Clock> fmt::Debug for UntilReady<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UntilReady")
            .field("cost", &self.cost)
            .field("max_wait", &self.max_wait)
            .field("jitter", &self.jitter)
            .finish_non_exhaustive()
    }
}

impl<C: Clock> UntilReady<'_, C> {
    /// Takes `cost` units instead of one.
    pub fn with_cost(mut self, cost: u64) -> Self {
        self.cost = cost;
        self
    }

    /// Fails as soon as it is known that the key cannot pass within `wait` of the first poll. By default it waits as long
    /// as it takes.
    #[doc(alias = "deadline")]
    #[doc(alias = "timeout")]
    pub fn with_max_wait(mut self, wait: impl Into<Span>) -> Self {
        self.max_wait = wait.into();
        self
    }

    /// Adds a random part of `jitter` to each wait after a refusal, so that many waiters do not wake at once. The wait
    /// stays within [`UntilReady::with_max_wait`]. A slot of a leaky bucket needs no jitter and gets none.
    pub fn with_jitter(mut self, jitter: impl Into<Span>) -> Self {
        self.jitter = jitter.into();
        self
    }

    /// What is left of the longest wait.
    fn left(&mut self) -> Span {
        let started = *self.started.get_or_insert_with(Instant::now);
        let elapsed = Span::from(started.elapsed());
        Span::from_nanos(self.max_wait.as_nanos().saturating_sub(elapsed.as_nanos()))
    }

    /// Between nothing and the jitter, at random.
    fn random_part(&self) -> Span {
        // Each `RandomState` has other keys, the first of a thread from the operating system.
        let random = u128::from(RandomState::new().hash_one(self.hash));
        let part = (random * (u128::from(self.jitter.as_nanos()) + 1)) >> 64;
        Span::from_nanos(u64::try_from(part).unwrap_or(u64::MAX))
    }

    /// Tries once. None if it is to be tried again, or has a slot, after `self.sleep`.
    fn attempt(&mut self) -> Option<Result<QuotaStatus, NotAdmitted>> {
        let left = self.left();
        let charge = KeyOp::Charge {
            cost: self.cost,
            max: None,
        };
        let decision = self.limiter.apply(self.hash, &charge).decision;
        let wait = match decision.verdict {
            Verdict::Pass => return Some(Ok(decision.status)),
            Verdict::Never => return Some(Err(NotAdmitted { retry_after: None })),
            Verdict::Wait { delay } => {
                self.slot = Some(decision);
                delay
            }
            Verdict::Refuse { retry_after } => retry_after,
        };
        if wait > left {
            self.return_slot();
            return Some(Err(NotAdmitted {
                retry_after: Some(wait),
            }));
        }
        let jittered = match self.slot {
            Some(_) => wait,
            None => {
                let jittered = wait
                    .as_nanos()
                    .saturating_add(self.random_part().as_nanos());
                Span::from_nanos(jittered).min(left)
            }
        };
        self.sleep = Some(Box::pin(sleep(jittered.into())));
        None
    }

    fn return_slot(&mut self) {
        let Some(decision) = self.slot.take() else {
            return;
        };
        let delay = decision.verdict.wait().unwrap_or(Span::ZERO);
        let refund = KeyOp::Refund(Refund {
            charged: self.cost,
            kept: 0,
            issued: decision.issued,
            delay,
        });
        // A refund reports nothing that is of use here.
        let _ = self.limiter.apply(self.hash, &refund);
    }
}

impl<C: Clock> Future for UntilReady<'_, C> {
    type Output = Result<QuotaStatus, NotAdmitted>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        loop {
            if let Some(sleep) = &mut this.sleep {
                ready!(sleep.as_mut().poll(cx));
                this.sleep = None;
                if let Some(decision) = this.slot.take() {
                    return Poll::Ready(Ok(decision.status));
                }
            }
            if let Some(result) = this.attempt() {
                return Poll::Ready(result);
            }
        }
    }
}

impl<C: Clock> Drop for UntilReady<'_, C> {
    fn drop(&mut self) {
        self.return_slot();
    }
}

impl<C: Clock> Limiter<C> {
    /// Waits until `key` may pass, and takes one unit. Needs the feature `tokio`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Limiter, NotAdmitted};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::new("100/s burst 5".parse()?)?;
    /// limiter.until_ready("rider:42").await?;
    ///
    /// // With a cost, a deadline and jitter:
    /// let ready = limiter.until_ready("rider:42").with_cost(5).with_max_wait(Duration::from_secs(1));
    /// let left = ready.with_jitter(Duration::from_millis(5)).await?.remaining;
    /// assert!(left < 5);
    ///
    /// // A wait that would be too long fails at once.
    /// let ready = limiter.until_ready("rider:42").with_cost(5).with_max_wait(Duration::from_millis(1));
    /// assert!(matches!(ready.await, Err(NotAdmitted { retry_after: Some(_) })));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The cost is above what the limit holds, or the wait would be longer than [`UntilReady::with_max_wait`].
    ///
    /// # Panics
    /// It has to wait outside of a tokio runtime whose timer is enabled.
    pub fn until_ready<K: Keyed + ?Sized>(&self, key: &K) -> UntilReady<'_, C> {
        UntilReady {
            limiter: self,
            hash: self.key_hash(key),
            cost: 1,
            max_wait: Span::MAX,
            jitter: Span::ZERO,
            started: None,
            sleep: None,
            slot: None,
        }
    }
}

impl<C: Clock> UnkeyedLimiter<C> {
    /// Waits until a request may pass, and takes one unit; see [`Limiter::until_ready`].
    pub fn until_ready(&self) -> UntilReady<'_, C> {
        self.limiter().until_ready(&())
    }
}
