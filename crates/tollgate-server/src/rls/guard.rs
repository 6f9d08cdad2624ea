//! What a call comes to, whatever happens to it.
//!
//! A request that makes us panic is a mistake of ours. It is answered `INTERNAL`, which Envoy treats as it was told
//! to treat failures, and neither the process nor the other calls of the connection notice: those may be
//! served by the very same task.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

use tokio::time::Instant;
use tonic::Status;

use super::messages::{RateLimitRequest, RateLimitResponse};
use super::{Limits, ask};
use crate::metrics::Rls;

impl Limits {
    /// The answer to a call. `until` is when the caller stops waiting.
    ///
    /// # Errors
    /// A request that cannot be decided, by its own fault or by ours.
    pub(super) async fn answer(
        &self,
        request: RateLimitRequest,
        until: Option<Instant>,
    ) -> Result<RateLimitResponse, Status> {
        let answered = contained(async {
            ask::check(&request).inspect_err(|_| self.source.count_rls(Rls::Invalid, 1))?;
            Ok(self.decide(request, until).await)
        });
        answered.await.unwrap_or_else(|Panicked| {
            self.source.count_rls(Rls::Panicked, 1);
            tracing::error!(
                "a rate limit request made its handler panic; it was answered INTERNAL"
            );
            Err(Status::internal(
                "the request could not be decided because of a mistake in the server; see its log",
            ))
        })
    }
}

/// It did not come to an end.
#[derive(Debug, PartialEq, Eq)]
struct Panicked;

/// What a future comes to, or that it panicked. It is not asked again then.
async fn contained<T>(work: impl Future<Output = T>) -> Result<T, Panicked> {
    let mut work = pin!(work);
    poll_fn(|context| {
        // What a decision shares with others is atomic or behind a lock that survives a panic.
        let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context)));
        polled.map_or(Poll::Ready(Err(Panicked)), |polled| polled.map(Ok))
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_ends_its_own_call_and_no_other() {
        let at_once = contained(async { panic!("as the test wants") });
        let later = contained(async {
            tokio::task::yield_now().await;
            panic!("as the test wants")
        });
        let well = contained(async {
            tokio::task::yield_now().await;
            tokio::task::yield_now().await;
            7
        });
        // All in one task, as the calls of a connection may be.
        let (at_once, later, well): (Result<(), _>, Result<(), _>, _) =
            tokio::join!(at_once, later, well);
        assert_eq!(at_once, Err(Panicked));
        assert_eq!(later, Err(Panicked));
        assert_eq!(well, Ok(7));
    }
}
