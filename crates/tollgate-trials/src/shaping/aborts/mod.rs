//! Clients abort at every moment of a request, over HTTP/1.1 and HTTP/2.
//!
//! A request holds a place in the queue, a turn, a permit of a concurrency limit, a connection to the upstream and
//! memory. All have to be released when its client closes, resets its connection or cancels its stream, at any moment.
//! Afterwards nothing is in flight or waits, the memory is that after a warm-up, the upstream has received only
//! admitted requests, and as many requests at once as the limit has permits pass.

mod http1;
mod http2;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tollgate_sim::rng::Rng;

use super::gateway::{self, before, mebibytes};
use super::measure::{per_mille, percent};
use super::probe;
use super::upstream::Upstream;
use super::{number, panicked, runtime};
use crate::http::{HttpConnection, get};
use crate::service::metric;
use crate::trials::TrialOptions;
use crate::verdicts::{Verdicts, time};
use tollgate_testkit::Result;
use tollgate_testkit::tollgate::Tollgate;
use tollgate_testkit::{Check, now, sleep, wait_for};

/// Clients at once.
const CLIENTS: u64 = 200;
/// Permits of the concurrency limit: fewer than there are clients, so that it matters.
const PERMITS: usize = 150;
const AT_ONCE: usize = 16;
/// How long it may take until nothing is in flight.
const SETTLED_WITHIN: Duration = Duration::from_secs(10);
/// How much more memory than after the warm-up there may be, in parts of a thousand.
const MORE: u64 = 50;
const DEADLINE: Duration = Duration::from_secs(20);

pub(crate) fn run(options: &TrialOptions, verdicts: &mut Verdicts) -> Result<()> {
    let upstream = Upstream::quick(now())?;
    let gateway = gateway::start(&policy(upstream.port()))?;
    let all = options.quick_or_full(3_000, 100_000);
    let runtime = runtime()?;
    // A fifth warms up: buffers grow, connections are opened.
    let start = now();
    runtime.block_on(load(gateway.port(), all / 5, options.seed))?;
    settle(&gateway)?;
    let before = gateway.resident()?;
    runtime.block_on(load(gateway.port(), all - all / 5, !options.seed))?;
    let took = start.elapsed();
    settle(&gateway)?;
    verdicts.figure("aborted requests", all);
    verdicts.figure("within", time(took));
    verdicts.promise(
        "afterwards nothing is in flight and nothing waits",
        true,
        format!("within {}", time(SETTLED_WITHIN)),
    );
    let after = gateway.resident()?;
    let more = per_mille(after.saturating_sub(before), before);
    verdicts.promise_undisturbed(
        &format!(
            "the memory is that after the warm-up, within {}",
            percent(MORE)
        ),
        more <= MORE,
        format!(
            "{}, after the warm-up {}",
            mebibytes(after),
            mebibytes(before)
        ),
    );
    // The last requests may be in the buffers of the system.
    sleep(Duration::from_millis(300));
    let seen = number(upstream.count());
    let answered = metric(&gateway, "tollgate_upstream_responses_total")?;
    let admitted = metric(&gateway, "tollgate_decisions_total{verdict=\"pass\"}")?;
    verdicts.promise(
        "the upstream has received what it answered, and only admitted requests",
        (answered..=admitted).contains(&seen) && seen > 0,
        format!("{answered} answered, {seen} seen, {admitted} admitted"),
    );
    let passed = runtime.block_on(all_at_once(gateway.port()))?;
    verdicts.promise(
        &format!("all {PERMITS} permits are free again"),
        passed == PERMITS,
        format!("{passed} requests at once pass"),
    );
    let more = number(upstream.count()).saturating_sub(seen);
    verdicts.promise(
        "the upstream sees each of these once",
        more == number(passed),
        format!("{more} seen"),
    );
    let fresh = runtime.block_on(probe::once(gateway.port(), None));
    verdicts.promise(
        "a new request works",
        fresh.is_ok(),
        fresh.err().unwrap_or_default(),
    );
    gateway.is_running()
}

fn policy(upstream: u16) -> String {
    format!(
        "version: 1\ndefault: pass\nlimits:\n  - {{ name: permits, algorithm: concurrency, allow: {PERMITS}, ttl: 60s }}\n\
         queues:\n  - {{ name: app, at_once: {AT_ONCE}, waiting: 1000, waiting_per_flow: 1000, max_wait: 30s }}\n{}",
        before(upstream)
    )
}

/// Waits until the gateway reports nothing in flight.
fn settle(gateway: &Tollgate) -> Result<()> {
    wait_for(
        "nothing is in flight and nothing waits",
        SETTLED_WITHIN,
        || gateway.log(),
        || {
            let admitted = metric(gateway, "tollgate_queue_in_flight_requests")?;
            let waiting = metric(gateway, "tollgate_queue_waiting_requests")?;
            let in_flight = metric(gateway, "tollgate_upstream_server_in_flight_requests")?;
            Ok(match (admitted, waiting, in_flight) {
                (0, 0, 0) => Check::Ready(()),
                counts => Check::Pending(format!("{counts:?} in progress, waiting, in flight")),
            })
        },
    )
}

/// A number of aborted requests, by clients with random behaviour.
async fn load(port: u16, count: u64, seed: u64) -> Result<()> {
    let left = Arc::new(AtomicU64::new(count));
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        let left = Arc::clone(&left);
        let mut rng = Rng::new(seed.wrapping_add(client));
        clients.spawn(async move {
            // A refused connection is no aborted request, but the count has to end.
            while take(&left) {
                if rng.one_in(3) {
                    http2::give_up(port, &mut rng).await;
                } else {
                    http1::give_up(port, &mut rng).await;
                }
            }
        });
    }
    while let Some(done) = clients.join_next().await {
        done.map_err(panicked)?;
    }
    Ok(())
}

fn take(left: &AtomicU64) -> bool {
    let less = |left: u64| left.checked_sub(1);
    // Only the number itself is shared.
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less)
        .is_ok()
}

/// As many requests at once as there are permits; how many pass.
async fn all_at_once(port: u16) -> Result<usize> {
    let mut clients = JoinSet::new();
    for _ in 0..PERMITS {
        clients.spawn(async move {
            let request = get("/work/50", &[]);
            let mut connection = HttpConnection::open(port).await?;
            connection.exchange_within(&request, DEADLINE).await
        });
    }
    let mut passed = 0;
    while let Some(done) = clients.join_next().await {
        let answer = done.map_err(panicked)?;
        passed += usize::from(answer.is_ok_and(|answer| answer.status == 200));
    }
    Ok(passed)
}
