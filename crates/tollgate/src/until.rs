//! Waiting until a request passes, on any async runtime.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use crate::clock::Clock;
use crate::decision::{Decision, Verdict};
use crate::key::Keyed;
use crate::limiter::Limiter;

/// The cost is above what the limit ever holds: no wait helps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeverReady {
    /// The cost that was asked for.
    pub cost: u64,
    /// The greatest that can ever pass.
    pub capacity: u64,
}

impl fmt::Display for NeverReady {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NeverReady { cost, capacity } = self;
        write!(
            f,
            "a cost of {cost} never passes a limit that holds at most {capacity}"
        )
    }
}

impl std::error::Error for NeverReady {}

impl<C: Clock> Limiter<C> {
    /// Waits until `cost` may pass for `key`, and takes it. `sleep` is the runtime's, for example
    /// `tokio::time::sleep`; nothing else of a runtime is needed.
    ///
    /// Several waiters for one key are not served in order: the first to wake takes what is there. A leaky bucket
    /// gives each its own slot.
    ///
    /// # If the future is dropped
    ///
    /// While it waits after a refusal nothing has been taken, and nothing is lost. While it waits for its slot in
    /// a leaky bucket the slot is taken and stays taken: it passes unused.
    ///
    /// # Errors
    /// The cost is above what the limit ever holds.
    ///
    /// ```
    /// use tollgate::{Limit, Limiter, ManualClock, Span};
    ///
    /// let clock = ManualClock::new();
    /// let limiter = Limiter::with_clock(Limit::token_bucket("5/s".parse()?, 1)?, clock.clone())?;
    /// // In a test, sleeping moves the clock.
    /// let sleep = |span: std::time::Duration| {
    ///     clock.advance(span.into());
    ///     std::future::ready(())
    /// };
    /// let work = async {
    ///     for _ in 0..3 {
    ///         limiter.until_ready("a", 1, sleep).await?;
    ///     }
    ///     Ok::<_, tollgate::NeverReady>(())
    /// };
    /// # let mut work = std::pin::pin!(work);
    /// # let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    /// # assert!(work.as_mut().poll(&mut context).is_ready());
    /// # use {std::future::Future, tollgate::Clock};
    /// assert_eq!(clock.now().as_nanos(), 400_000_000); // two waits of 200 ms
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn until_ready<K, S, F>(
        &self,
        key: &K,
        cost: u64,
        sleep: S,
    ) -> Result<Decision, NeverReady>
    where
        K: Keyed + ?Sized,
        S: Fn(Duration) -> F,
        F: Future<Output = ()>,
    {
        loop {
            let decision = self.charge(key, cost);
            match decision.verdict {
                Verdict::Pass => return Ok(decision),
                Verdict::Wait { delay } => {
                    sleep(delay.into()).await;
                    return Ok(decision);
                }
                Verdict::Refuse { retry_after } => sleep(retry_after.into()).await,
                Verdict::Never => {
                    let capacity = self.capacity();
                    return Err(NeverReady { cost, capacity });
                }
            }
        }
    }
}
