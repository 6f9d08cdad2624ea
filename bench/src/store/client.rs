//! One client: the store that the service uses; a bare one that sends the same script and delimits replies; and
//! `redis-benchmark`, which cannot send our script (its arguments end at a zero byte), with the script by hand.

use std::io;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tollgate_policy::shared::{SharedLimits, SharedStore};
use tollgate_redis::{RedisStore, Settings};
use tollgate_testkit::servers::Server;

use super::connection::Connection;
use super::{KEYS, WARM_UP, commands, load_hand, request, script_client, with_limits};
use crate::args::{self, PassArgs};
use crate::figures::{Figures, interleave, ratio};
use crate::output::{Output, Row};
use crate::system::{Cores, on_load_core};

/// Requests in flight.
const IN_FLIGHT: [usize; 2] = [64, 256];

#[derive(Clone, Copy, Debug)]
enum Client {
    Tollgate,
    Bare,
    RedisBenchmark,
}

/// Measures the clients; returns whether the store answered every decision.
pub(super) fn compare(
    server: &Server,
    args: &args::Store,
    cores: Option<Cores>,
    out: &mut Output<'_>,
) -> io::Result<bool> {
    let mut faults = 0;
    let mut rows = Vec::new();
    for in_flight in IN_FLIGHT {
        let mut clients = [Client::Tollgate, Client::Bare, Client::RedisBenchmark];
        let rates = interleave(args.passes.passes, &mut clients, |client, _| {
            let rate = on_load_core(cores, || match client {
                Client::Tollgate => tollgate(server.port(), args.passes, in_flight),
                Client::Bare => Ok((bare(server, args.passes, in_flight)?, 0)),
                Client::RedisBenchmark => Ok((redis_benchmark(server, args.passes, in_flight)?, 0)),
            });
            let (rate, failed) = rate?;
            faults += failed;
            Ok(rate)
        })?;
        let rates: Vec<Figures> = rates.into_iter().map(Figures).collect();
        let [ours, bare, benchmark] = rates.as_slice() else {
            continue;
        };
        let row = Row::new("store", &format!("{in_flight} in flight"))
            .figure("decisions_per_s", "tollgate, decisions/s", ours.median(), 0)
            .figure("bare_per_s", "bare client, requests/s", bare.median(), 0)
            .figure("ratio", "ratio", ratio(ours, bare), 2)
            .figure(
                "redis_benchmark_by_hand_per_s",
                "redis-benchmark, by hand",
                benchmark.median(),
                0,
            )
            .figure(
                "ratio_to_redis_benchmark",
                "ratio",
                ratio(ours, benchmark),
                2,
            );
        rows.push(row);
    }
    out.rows(
        "one client, one connection, one bucket each (target: 0.90)",
        &rows,
    )?;
    Ok(faults == 0)
}

/// Decisions a second of the store, and how many of them failed.
fn tollgate(port: u16, passes: PassArgs, in_flight: usize) -> io::Result<(f64, u64)> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build()?;
    runtime.block_on(async {
        let mut settings = Settings::standalone("127.0.0.1", port);
        // The figure is the rate, not the latency.
        settings.deadline = Duration::from_secs(1);
        let store = RedisStore::open(settings, runtime.handle()).map_err(io::Error::other)?;
        let limits = with_limits(|limits| {
            let prepared = store.prepare(limits);
            prepared.map_err(|(_, error)| io::Error::other(error))
        })?;
        while limits.charge(&request(&[0], 0)).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let counts = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let read = || [counts[0].load(Relaxed), counts[1].load(Relaxed)];
        let charge = |seed| tokio::spawn(charge(Arc::clone(&limits), Arc::clone(&counts), seed));
        let tasks: Vec<_> = (0..in_flight as u64).map(charge).collect();
        tokio::time::sleep(passes.warm_up(WARM_UP)).await;
        let (before, begin) = (read(), Instant::now());
        tokio::time::sleep(passes.time).await;
        let (after, elapsed) = (read(), begin.elapsed());
        tasks.iter().for_each(tokio::task::JoinHandle::abort);
        let rate = (after[0] - before[0]) as f64 / elapsed.as_secs_f64();
        Ok((rate, after[1] - before[1]))
    })
}

/// Charges one request after the other, for ever. Counts answers and faults.
async fn charge(limits: Arc<dyn SharedLimits>, counts: Arc<[AtomicU64; 2]>, seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    loop {
        let charged = limits.charge(&request(&[0], rng.u64(..KEYS))).await;
        counts[usize::from(charged.is_err())].fetch_add(1, Relaxed);
    }
}

/// Requests a second of a client that only sends the same script and delimits replies.
fn bare(server: &Server, passes: PassArgs, in_flight: usize) -> io::Result<f64> {
    let commands = commands(&mut script_client(server)?, &[0])?;
    let mut connection = Connection::new(server.port())?;
    connection.run(&commands, in_flight, passes.warm_up(WARM_UP))?;
    let begin = Instant::now();
    let replies = connection.run(&commands, in_flight, passes.time)?;
    Ok(replies.count as f64 / begin.elapsed().as_secs_f64())
}

/// Requests a second of `redis-benchmark` with the script by hand.
fn redis_benchmark(server: &Server, passes: PassArgs, in_flight: usize) -> io::Result<f64> {
    let sha = load_hand(&mut script_client(server)?)?;
    // A number that takes about the time, by the rate of a usual server.
    let millis = u64::try_from(passes.time.as_millis()).unwrap_or(1000);
    let count = (millis * 100).max(1000);
    let output = Command::new("redis-benchmark")
        .args(["-p", &server.port().to_string(), "-c", "1"])
        .args(["-P", &in_flight.to_string(), "-n", &count.to_string()])
        .args(["-r", &KEYS.to_string(), "--csv", "EVALSHA", &sha, "1"])
        .args(["tg:hand:{org__rand_int__}", "1000", "1", "1000000000"])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| {
            let hint = "`make setup` installs it";
            io::Error::other(format!("redis-benchmark does not start: {error}; {hint}"))
        })?;
    let text = String::from_utf8_lossy(&output.stdout);
    // A line of headings, then the test: its command, its rate, its latencies.
    let line = text.lines().last().unwrap_or_default();
    let rate = line
        .split("\",\"")
        .nth(1)
        .and_then(|rate| rate.parse().ok());
    rate.ok_or_else(|| io::Error::other(format!("redis-benchmark printed `{}`", text.trim())))
}
