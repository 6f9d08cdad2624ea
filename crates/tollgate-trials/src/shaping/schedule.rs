//! Requests of tenants at scheduled times: an open loop.
//!
//! # Theory
//!
//! A client that waits for an answer before the next request is slowed down by a slow server, and so measures an idle
//! server. Here a request is sent at its time, over an idle connection of its tenant, or over a new one. Its latency
//! counts from its *scheduled* time: a late load generator shows as latency, not as missing load.
//!
//! # What it does not know
//!
//! Finer times than a millisecond: that is the granularity of the runtime's timer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep_until, timeout};
use tollgate_sim::rng::Rng;

use super::panicked;
use crate::http::ConnectionPool;
use tollgate_testkit::Result;

/// How long an answer may take.
const DEADLINE: Duration = Duration::from_secs(15);

/// A request to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Scheduled {
    pub(super) at: Duration,
    pub(super) tenant: u32,
}

/// The result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Completed {
    pub(super) scheduled: Scheduled,
    /// From its scheduled time to the end of its answer.
    pub(super) took: Duration,
    /// 0 without an answer.
    pub(super) status: u16,
}

/// One tenant's requests: a rate for a duration, each somewhere within its own part of the time. So the
/// tenant keeps its rate, and many tenants together are as random as real ones.
pub(super) fn steady(
    tenant: u32,
    rate_per_100s: u64,
    span: Duration,
    rng: &mut Rng,
) -> Vec<Scheduled> {
    let every = 100_000_000 / rate_per_100s.max(1);
    let span = u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
    // The last part may lie beyond the end; what falls there is not sent.
    let parts = span.div_ceil(every);
    let due = |part: u64| part * every + rng.below(every);
    let all = (0..parts).map(due).filter(|&at| at < span);
    let due = |at| Scheduled {
        at: Duration::from_micros(at),
        tenant,
    };
    all.map(due).collect()
}

/// Sends all of `schedule`, which is in the order of time, and returns the result of each request.
pub(super) async fn send(
    port: u16,
    start: Instant,
    schedule: &[Scheduled],
    request: impl Fn(u32) -> Arc<[u8]>,
) -> Result<Vec<Completed>> {
    let pool = Arc::new(ConnectionPool::new(port, Semaphore::MAX_PERMITS));
    let mut in_flight = JoinSet::new();
    for &scheduled in schedule {
        sleep_until((start + scheduled.at).into()).await;
        let (pool, bytes) = (Arc::clone(&pool), request(scheduled.tenant));
        in_flight.spawn(async move {
            let answer = timeout(DEADLINE, pool.exchange(scheduled.tenant, &bytes)).await;
            Completed {
                scheduled,
                took: start.elapsed().saturating_sub(scheduled.at),
                status: answer.map_or(0, |answer| answer.map_or(0, |answer| answer.status)),
            }
        });
    }
    let mut all = Vec::with_capacity(schedule.len());
    while let Some(completed) = in_flight.join_next().await {
        all.push(completed.map_err(panicked)?);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_tenant_keeps_its_rate() {
        let mut rng = Rng::new(7);
        let schedule = steady(3, 808, Duration::from_secs(100), &mut rng);
        assert!((807..=809).contains(&schedule.len()), "{}", schedule.len());
        assert!(schedule.is_sorted());
        assert!(schedule.iter().all(|request| request.tenant == 3));
    }
}
