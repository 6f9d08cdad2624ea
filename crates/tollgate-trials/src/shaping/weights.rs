//! Three tiers with the weights 1, 4 and 16, all of which always have requests waiting.
//!
//! Each connection sends its next request on each answer, with enough connections that every tier always has waiting
//! requests. Then the upstream has to receive them 1:4:16. The count begins when all connections wait and ends with
//! a fixed number of requests, so requests at the edges do not count.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::gateway::{self, before};
use super::measure::{per_mille, percent};
use super::upstream::Upstream;
use super::{number, panicked, runtime};
use crate::http::{HttpConnection, get};
use crate::service::metric;
use crate::trials::TrialOptions;
use crate::verdicts::Verdicts;
use tollgate_testkit::now;
use tollgate_testkit::tollgate::Tollgate;
use tollgate_testkit::{Error, Result};

/// The tiers, their weights, and the connections of each.
const TIERS: [(&str, u64, usize); 3] = [("basic", 1, 100), ("plus", 4, 200), ("pro", 16, 700)];
/// All weights together.
const SUM: u64 = 21;
const AT_ONCE: usize = 10;
/// What a request takes at the upstream, in milliseconds.
const WORK: u64 = 4;
/// How long all of it may take.
const DEADLINE: Duration = Duration::from_secs(120);
/// How far from its share a tier may be, in parts of a thousand.
const TOLERANCE: u64 = 20;

pub(crate) fn run(options: &TrialOptions, verdicts: &mut Verdicts) -> Result<()> {
    let wanted = options.quick_or_full(2_100, 42_000);
    let upstream = Upstream::quick(now())?;
    let gateway = gateway::start(&policy(upstream.port()))?;
    let (from, errors) = runtime()?.block_on(load(&gateway, &upstream, wanted))?;
    verdicts.promise(
        "every request passes",
        errors == 0,
        format!("{errors} do not"),
    );
    let seen = upstream.seen();
    let counted: Vec<&str> = seen
        .iter()
        .skip(from)
        .take(wanted)
        .map(|request| request.plan.as_str())
        .collect();
    let all = number(counted.len());
    for (tier, weight, _) in TIERS {
        let served = number(counted.iter().filter(|&&plan| plan == tier).count());
        let due = all * weight / SUM;
        let off = per_mille(served.abs_diff(due), due);
        verdicts.promise(
            &format!(
                "{tier} is served {weight} in {SUM}, within {}",
                percent(TOLERANCE)
            ),
            off <= TOLERANCE && served > 0,
            format!("{served} of {all}, off by {}", percent(off)),
        );
    }
    Ok(())
}

fn policy(upstream: u16) -> String {
    let tiers = TIERS.map(|(name, weight, _)| format!("  {name}: {{ weight: {weight} }}\n"));
    format!(
        "version: 1\ndefault: pass\ntiers:\n{}queues:\n  - name: app\n    flow: header.x-plan\n    \
         tier: header.x-plan\n    at_once: {AT_ONCE}\n    waiting: 10_000\n    waiting_per_flow: 5000\n    \
         max_wait: 60s\n{}",
        tiers.concat(),
        before(upstream)
    )
}

/// Keeps all tiers backlogged until the upstream has received `wanted` counted requests; returns how many it had received
/// before those, and how many answers were not 200.
async fn load(gateway: &Tollgate, upstream: &Upstream, wanted: usize) -> Result<(usize, usize)> {
    let port = gateway.port();
    let stop = Arc::new(AtomicBool::new(false));
    let mut clients = JoinSet::new();
    for (tier, _, connections) in TIERS {
        let request: Arc<[u8]> = get(&format!("/work/{WORK}"), &[("x-plan", tier)]).into();
        for _ in 0..connections {
            clients.spawn(client(port, Arc::clone(&request), Arc::clone(&stop)));
        }
    }
    wait_for_backlog(gateway).await?;
    let from = upstream.count();
    let enough = async {
        while upstream.count() < from + wanted {
            sleep(Duration::from_millis(5)).await;
        }
    };
    let late = timeout(DEADLINE, enough).await.is_err();
    // Only the flag itself is shared.
    stop.store(true, Ordering::Relaxed);
    if late {
        clients.abort_all();
        let seen = upstream.count() - from;
        return Err(Error::Invalid(format!(
            "the upstream received {seen} of {wanted} requests within {DEADLINE:?}"
        )));
    }
    let mut errors = 0;
    while let Some(done) = clients.join_next().await {
        errors += done.map_err(panicked)?;
    }
    Ok((from, errors))
}

/// Waits until 19 of 20 connections wait; the rest may be in flight.
async fn wait_for_backlog(gateway: &Tollgate) -> Result<()> {
    let all: usize = TIERS.iter().map(|(_, _, connections)| connections).sum();
    let start = now();
    loop {
        let waiting = metric(gateway, "tollgate_queue_waiting_requests")?;
        if waiting >= number(all) * 19 / 20 {
            return Ok(());
        }
        if start.elapsed() > DEADLINE {
            return Err(Error::Invalid(format!(
                "only {waiting} of {all} clients wait after {DEADLINE:?}"
            )));
        }
        sleep(Duration::from_millis(20)).await;
    }
}

/// Sends requests until `stop` is set; how many answers were not 200.
async fn client(port: u16, request: Arc<[u8]>, stop: Arc<AtomicBool>) -> usize {
    let mut errors = 0;
    let Ok(mut connection) = HttpConnection::open(port).await else {
        return 1;
    };
    while !stop.load(Ordering::Relaxed) {
        match connection.exchange_within(&request, DEADLINE).await {
            Ok(answer) if answer.status == 200 => {}
            Ok(_) => errors += 1,
            Err(_) => return errors + 1,
        }
    }
    errors
}
