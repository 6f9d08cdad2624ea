//! One tenant sends fifty times its share of a slow server, and 99 others send theirs.
//!
//! # Theory
//!
//! The server has 20 workers, each of which takes 20 ms for a request: 1000 a second. The 99 together use 80 % of that,
//! so alone they are served. With the noisy tenant the server is overloaded.
//!
//! The same schedule, request by request, is offered to three fronts: nothing, nginx with a limit for each tenant
//! ([`nginx`](super::nginx)), and the gateway with a fair queue. For each of them once without the noisy tenant
//! (*alone*) and once with it. Latency counts from when a request was due.
//!
//! *Fairness* is Jain's index over the throughput of each tenant relative to its max-min fair share: the 99 their demand,
//! the noisy one all the rest. A limit protects the 99 as well, but it leaves unused capacity idle; that
//! shows in what the noisy tenant gets.

mod tally;

use std::sync::Arc;
use std::time::Duration;

use tollgate_sim::rng::Rng;

use self::tally::Tally;
use super::gateway::{self, before};
use super::measure::{percent, ratio};
use super::nginx::limiting_nginx;
use super::runtime;
use super::schedule::{Scheduled, send, steady};
use super::upstream::{Pool, Upstream};
use crate::http::get;
use crate::trials::TrialOptions;
use crate::verdicts::{Verdicts, time};
use tollgate_testkit::Result;
use tollgate_testkit::now;
use tollgate_testkit::tollgate::Tollgate;
use tollgate_testkit::web::WebServer;

/// The tenants; the first is the noisy one.
const TENANTS: u32 = 100;
const NOISY: u32 = 0;
/// Requests in 100 seconds of each of the 99: together 80 % of the capacity.
const QUIET_RATE: u64 = 808;
/// Fifty times its share, which is a hundredth of the capacity.
const NOISY_RATE: u64 = 50_000;
/// The server: 1000 requests a second. Behind its workers there is room as behind those of real ones.
const POOL: Pool = Pool {
    workers: 20,
    work: Duration::from_millis(20),
    backlog: 1000,
};
const CAPACITY: u64 = 1000;
/// When everything has found its pace.
const WARM_UP: Duration = Duration::from_millis(300);
/// The promises: parts of a thousand that the 99 keep, and the most that their p99 may grow by.
const KEPT: u64 = 990;
const SLOWER: (u32, u32) = (3, 2);

/// The front of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FrontKind {
    Nothing,
    Nginx,
    Tollgate,
}

impl FrontKind {
    const ALL: [FrontKind; 3] = [FrontKind::Nothing, FrontKind::Nginx, FrontKind::Tollgate];

    fn name(self) -> &'static str {
        match self {
            FrontKind::Nothing => "nothing",
            FrontKind::Nginx => "nginx",
            FrontKind::Tollgate => "tollgate",
        }
    }
}

/// A front that runs until it is dropped.
enum RunningFront {
    Nothing(u16),
    Nginx(WebServer),
    Tollgate(Tollgate),
}

impl RunningFront {
    fn port(&self) -> u16 {
        match self {
            RunningFront::Nothing(port) => *port,
            RunningFront::Nginx(nginx) => nginx.port(),
            RunningFront::Tollgate(gateway) => gateway.port(),
        }
    }
}

pub(crate) fn run(options: &TrialOptions, verdicts: &mut Verdicts) -> Result<()> {
    let span = options.span(500, 20_000);
    for front in FrontKind::ALL {
        let alone = measure(front, false, span, options.seed)?;
        let beside = measure(front, true, span, options.seed)?;
        report(verdicts, front, &alone, &beside);
        if front == FrontKind::Tollgate {
            check(verdicts, &alone, &beside);
        }
    }
    Ok(())
}

fn measure(front: FrontKind, with_noise: bool, span: Duration, seed: u64) -> Result<Tally> {
    let start = now();
    let upstream = Upstream::start(start, POOL)?;
    let running = match front {
        FrontKind::Nothing => RunningFront::Nothing(upstream.port()),
        FrontKind::Nginx => RunningFront::Nginx(limiting_nginx(upstream.port())?),
        FrontKind::Tollgate => RunningFront::Tollgate(gateway::start(&policy(upstream.port()))?),
    };
    let requests: Vec<Arc<[u8]>> = (0..TENANTS)
        .map(|tenant| get("/pool", &[("x-api-key", &format!("tenant-{tenant}"))]).into())
        .collect();
    let schedule = schedule(with_noise, WARM_UP + span, seed);
    let nothing: Arc<[u8]> = Arc::new([]);
    let request = |tenant: u32| {
        let known = usize::try_from(tenant).ok().and_then(|t| requests.get(t));
        Arc::clone(known.unwrap_or(&nothing))
    };
    let done = send(running.port(), now(), &schedule, request);
    let mut done = runtime()?.block_on(done)?;
    done.retain(|done| done.scheduled.at >= WARM_UP);
    Ok(Tally::new(&done, span))
}

fn policy(upstream: u16) -> String {
    format!(
        "version: 1\ndefault: pass\nqueues:\n  - name: app\n    flow: header.x-api-key\n    at_once: {}\n    \
         waiting: 2000\n    waiting_per_flow: 100\n    max_wait: 10s\n{}",
        POOL.workers,
        before(upstream)
    )
}

/// The load of the 99 is the same with and without the noisy tenant.
fn schedule(with_noise: bool, span: Duration, seed: u64) -> Vec<Scheduled> {
    let mut rng = Rng::new(seed);
    let mut schedule: Vec<Scheduled> = (1..TENANTS)
        .flat_map(|tenant| steady(tenant, QUIET_RATE, span, &mut rng))
        .collect();
    if with_noise {
        schedule.append(&mut steady(NOISY, NOISY_RATE, span, &mut rng));
    }
    schedule.sort_unstable();
    schedule
}

fn report(verdicts: &mut Verdicts, front: FrontKind, alone: &Tally, beside: &Tally) {
    let mut figure = |what: &str, value: String| {
        verdicts.figure(&format!("{}: {what}", front.name()), value);
    };
    figure("the 99 keep", percent(beside.kept_of(alone)));
    figure("the 99 refused or failed", beside.quiet_failed.to_string());
    figure(
        "p50 of the 99",
        format!("{} (alone {})", time(beside.p50), time(alone.p50)),
    );
    figure(
        "p99 of the 99",
        format!("{} (alone {})", time(beside.p99), time(alone.p99)),
    );
    figure("p99 over alone", ratio(beside.p99, alone.p99));
    figure(
        "the noisy one gets",
        format!("{}/s", beside.noisy_per_second()),
    );
    figure("fairness", percent(beside.fairness));
    figure(
        "no answer at all",
        (beside.silent + alone.silent).to_string(),
    );
}

fn check(verdicts: &mut Verdicts, alone: &Tally, beside: &Tally) {
    let kept = beside.kept_of(alone);
    verdicts.promise(
        &format!(
            "behind tollgate the 99 keep {} of what they have alone",
            percent(KEPT)
        ),
        kept >= KEPT && alone.quiet_served > 0,
        format!(
            "{} ({} of {})",
            percent(kept),
            beside.quiet_served,
            alone.quiet_served
        ),
    );
    verdicts.promise(
        "behind tollgate the noisy one is served, and refused the rest",
        beside.noisy_served > 0 && beside.silent == 0,
        format!(
            "{} served, {} refused",
            beside.noisy_served, beside.noisy_refused
        ),
    );
    let most = alone.p99 * SLOWER.0 / SLOWER.1;
    verdicts.promise_time(
        &format!(
            "behind tollgate their p99 is within 1.5 times of alone, {}",
            time(most)
        ),
        most,
        Some(beside.p99),
    );
}
