//! An open loop: every request has its time before the first is sent.
//!
//! # Theory
//!
//! Whoever waits for an answer before asking again is slowed down by a slow server, and so measures it while nobody
//! asks. Here a request is sent when it is due, over a connection of its tenant that is idle, or over a new one. Its
//! latency counts from when it was *due*: if the crowd itself is late, that shows as latency, not as silence.
//!
//! # What it does not know
//!
//! Finer times than a millisecond: that is the grain of the runtime's timer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::sleep_until;
use tollgate_sim::rng::Rng;

use super::panicked;
use super::wire::Wire;
use tollgate_testkit::Result;

/// How long an answer may take.
const DEADLINE: Duration = Duration::from_secs(15);
/// Idle connections that one tenant keeps.
const KEPT: usize = 512;

/// A request that shall be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Due {
    pub(super) at: Duration,
    pub(super) tenant: u32,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Done {
    pub(super) due: Due,
    /// From when it was due to the end of its answer.
    pub(super) took: Duration,
    /// 0 if none came.
    pub(super) status: u16,
}

/// The idle connections of each tenant.
type Idle = Arc<Mutex<HashMap<u32, Vec<Wire>>>>;

/// One tenant's requests: so many in a second for so long, each somewhere within its own part of the time. So the
/// tenant keeps its rate, and many tenants together are as random as real ones.
pub(super) fn steady(tenant: u32, rate_per_100s: u64, span: Duration, rng: &mut Rng) -> Vec<Due> {
    let every = 100_000_000 / rate_per_100s.max(1);
    let span = u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
    // The last part may lie beyond the end; what falls there is not sent.
    let parts = span.div_ceil(every);
    let due = |part: u64| part * every + rng.below(every);
    let all = (0..parts).map(due).filter(|&at| at < span);
    let due = |at| Due {
        at: Duration::from_micros(at),
        tenant,
    };
    all.map(due).collect()
}

/// Sends all of `script`, which is in the order of time, and gives what became of each.
pub(super) async fn offer(
    port: u16,
    start: Instant,
    script: &[Due],
    request: impl Fn(u32) -> Arc<[u8]>,
) -> Result<Vec<Done>> {
    let idle = Idle::default();
    let mut under_way = JoinSet::new();
    for &due in script {
        sleep_until((start + due.at).into()).await;
        let (idle, bytes) = (Arc::clone(&idle), request(due.tenant));
        under_way.spawn(async move {
            let status = ask(port, due.tenant, &bytes, &idle).await;
            Done {
                due,
                took: start.elapsed().saturating_sub(due.at),
                status,
            }
        });
    }
    let mut all = Vec::with_capacity(script.len());
    while let Some(done) = under_way.join_next().await {
        all.push(done.map_err(panicked)?);
    }
    Ok(all)
}

async fn ask(port: u16, tenant: u32, bytes: &[u8], idle: &Idle) -> u16 {
    let kept = {
        let mut idle = idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.get_mut(&tenant).and_then(Vec::pop)
    };
    let wire = match kept {
        Some(wire) => Ok(wire),
        None => Wire::open(port).await,
    };
    let Ok(mut wire) = wire else {
        return 0;
    };
    let Ok(answer) = wire.ask_within(bytes, DEADLINE).await else {
        return 0;
    };
    if !answer.head.closes() {
        let mut idle = idle.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = idle.entry(tenant).or_default();
        if kept.len() < KEPT {
            kept.push(wire);
        }
    }
    answer.status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_tenant_keeps_its_rate() {
        let mut rng = Rng::new(7);
        let script = steady(3, 808, Duration::from_secs(100), &mut rng);
        assert!((807..=809).contains(&script.len()), "{}", script.len());
        assert!(script.is_sorted());
        assert!(script.iter().all(|due| due.tenant == 3));
    }
}
