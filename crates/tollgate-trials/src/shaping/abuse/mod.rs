//! Clients that are slow on purpose, that flood, or that hold responses.
//!
//! Each kind of abuse ([`attacks`]) runs for a while from addresses of its own, in a thread of its own. Meanwhile an
//! well-behaved client sends requests over kept connections and over new ones. Each has to be answered; the gateway may
//! grow by 64 MiB at the most; and response times have to recover within a second.
//!
//! The treatment of the abusers (close, answer, ignore) is not checked.

mod attacks;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tokio::time::sleep;

use self::attacks::Attack;
use super::gateway::{self, mebibytes};
use super::measure::quantile;
use super::probe::{self, Probe, ProbeResult};
use super::upstream::Upstream;
use super::{allow_connections, runtime};
use crate::trials::TrialOptions;
use crate::verdicts::{Verdicts, time};
use tollgate_testkit::HOST;
use tollgate_testkit::now;
use tollgate_testkit::tollgate::Tollgate;
use tollgate_testkit::{Error, Result};

/// How much the gateway may grow.
const GROWTH_MAX: u64 = 64 << 20;
/// How soon after the end response times are normal.
const NORMAL_WITHIN: Duration = Duration::from_secs(1);
/// This many responses in a row, each within the bound, are normal.
const NORMAL: (usize, Duration) = (5, Duration::from_millis(100));
/// The longest wait for normal response times.
const DEADLINE: Duration = Duration::from_secs(20);
/// Time between two reads of the memory.
const POLL_EVERY: Duration = Duration::from_millis(25);

pub(crate) fn run(options: &TrialOptions, verdicts: &mut Verdicts) -> Result<()> {
    let upstream = Upstream::quick(now())?;
    let gateway = gateway::start(&policy(upstream.port()))?;
    let span = options.span(400, 8_000);
    let slow_ones = options.quick_or_full(500, 10_000);
    allow_connections(slow_ones + 1000)?;
    let runtime = runtime()?;
    runtime.block_on(warm_up(gateway.port()))?;
    for attack in attacks::ALL {
        let seen = runtime.block_on(measure(&gateway, attack, span, slow_ones))?;
        check(verdicts, attack, &seen);
        gateway.is_running()?;
    }
    Ok(())
}

/// Each address has 250 connections and 32 requests at once. The second is what keeps an address whose clients never read
/// their answers from having every turn of the queue until the gateway gives them up.
fn policy(upstream: u16) -> String {
    format!(
        "version: 1\ndefault: pass\n\
         limits:\n  - {{ name: per-address, key: ip, algorithm: concurrency, allow: 32, ttl: 60s }}\n\
         queues:\n  - {{ name: app, flow: ip, at_once: 64, waiting: 1000, waiting_per_flow: 100, max_wait: 10s }}\n\
         gateway:\n  accept: {{ connections: 12_000, per_address: 250 }}\n  upstreams: http://{HOST}:{upstream}\n"
    )
}

/// The result of one kind of abuse.
struct AttackResult {
    before: u64,
    most: u64,
    probe_result: ProbeResult,
    /// What the abusers sent and opened.
    done: attacks::Done,
    normal_after: Option<Duration>,
}

async fn warm_up(port: u16) -> Result<()> {
    for _ in 0..50 {
        let answered = probe::once(port, None).await;
        answered.map_err(|why| Error::Invalid(format!("the gateway does not answer: {why}")))?;
    }
    Ok(())
}

async fn measure(
    gateway: &Tollgate,
    attack: Attack,
    span: Duration,
    slow_ones: usize,
) -> Result<AttackResult> {
    let (port, before) = (gateway.port(), gateway.resident()?);
    let stop = Arc::new(AtomicBool::new(false));
    let abusers = thread::Builder::new()
        .name("abusers".into())
        .spawn({
            let stop = Arc::clone(&stop);
            move || {
                let runtime = runtime()?;
                runtime.block_on(attacks::run(attack, port, slow_ones, &stop))
            }
        })
        .map_err(Error::io("start the abusers"))?;
    let probe = Probe::start(port);
    let (start, mut most) = (now(), before);
    while start.elapsed() < span {
        most = most.max(gateway.resident()?);
        sleep(POLL_EVERY).await;
    }
    let probe_result = probe.end().await?;
    // Only the flag itself is shared.
    stop.store(true, Ordering::Relaxed);
    let done = tokio::task::spawn_blocking(move || abusers.join()).await;
    let ended = now();
    let done = match done {
        Ok(Ok(done)) => done?,
        _ => return Err(Error::Invalid("the abusers panicked".into())),
    };
    let normal_after = until_normal(port).await.then(|| ended.elapsed());
    Ok(AttackResult {
        before,
        most: most.max(gateway.resident()?),
        probe_result,
        done,
        normal_after,
    })
}

/// Sends requests until response times are normal; whether they become so.
async fn until_normal(port: u16) -> bool {
    let (start, mut in_a_row) = (now(), 0);
    while start.elapsed() < DEADLINE {
        let sent = now();
        let answered = probe::once(port, None).await.is_ok();
        in_a_row = match answered && sent.elapsed() <= NORMAL.1 {
            true => in_a_row + 1,
            false => 0,
        };
        if in_a_row == NORMAL.0 {
            return true;
        }
    }
    false
}

fn check(verdicts: &mut Verdicts, attack: Attack, seen: &AttackResult) {
    let name = attack.name();
    let AttackResult {
        probe_result, done, ..
    } = seen;
    verdicts.figure(
        &format!("{name}: connections, messages"),
        format!("{}, {}", done.connections, done.messages),
    );
    let mut times = probe_result.times.clone();
    verdicts.figure(
        &format!("{name}: well-behaved p50, p99"),
        format!(
            "{}, {}",
            time(quantile(&mut times, 500)),
            time(quantile(&mut times, 990))
        ),
    );
    verdicts.promise(
        &format!("{name}: every well-behaved request is answered"),
        probe_result.answered == probe_result.sent && probe_result.sent > 0,
        match &probe_result.first_error {
            None => format!("{} of {}", probe_result.answered, probe_result.sent),
            Some(why) => format!("{} of {}: {why}", probe_result.answered, probe_result.sent),
        },
    );
    let growth = seen.most.saturating_sub(seen.before);
    verdicts.promise(
        &format!(
            "{name}: the gateway grows by less than {}",
            mebibytes(GROWTH_MAX)
        ),
        growth < GROWTH_MAX,
        format!("{}, from {}", mebibytes(growth), mebibytes(seen.before)),
    );
    verdicts.promise(
        &format!("{name}: the attack really ran"),
        done.connections > 0 && done.messages > 0,
        format!("{} messages", done.messages),
    );
    verdicts.promise_time(
        &format!(
            "{name}: response times are normal within {}",
            time(NORMAL_WITHIN)
        ),
        NORMAL_WITHIN,
        seen.normal_after,
    );
}
