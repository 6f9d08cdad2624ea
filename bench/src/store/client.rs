//! One client: the store that the service uses; a bare one that sends the same script and reads replies, as many at a
//! time; and `redis-benchmark`, which cannot send our script (its arguments end at a zero byte), with the one by hand.

use std::io::{self, Write};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tollgate_policy::shared::{SharedLimit, SharedLimits, SharedStore};
use tollgate_redis::{Settings, Store};

use super::WARM_UP;
use super::raw;
use super::server::Redis;
use super::{KEYS, desk, limits, median, request};
use crate::args;
use crate::servers::cores::{Cores, command_on, pin_this_thread};
use crate::table::Table;

/// Requests in flight.
const IN_FLIGHT: [usize; 2] = [64, 256];

/// Measures both in turns; returns whether every decision was answered by the store.
pub(super) fn compare(
    redis: &Redis,
    wanted: &args::Store,
    cores: Option<Cores>,
    out: &mut dyn Write,
) -> io::Result<bool> {
    let mut table = Table::new([
        "in flight",
        "tollgate, decisions/s",
        "bare client, requests/s",
        "ratio",
        "redis-benchmark, by hand",
        "ratio",
    ]);
    let mut well = true;
    for in_flight in IN_FLIGHT {
        let (mut ours, mut bare, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..usize::from(wanted.passes.passes) {
            let (rate, faults) = ours_once(redis.port(), wanted, cores, in_flight)?;
            well &= faults == 0;
            ours.push(rate);
            bare.push(bare_once(redis, wanted, cores, in_flight)?);
            theirs.push(redis_benchmark_once(redis, wanted, cores, in_flight)?);
        }
        let [ours, bare, theirs] = [median(&ours), median(&bare), median(&theirs)];
        let (to_bare, to_theirs) = (super::ratio(ours, bare), super::ratio(ours, theirs));
        if wanted.json {
            let line = serde_json::json!({
                "store_client": in_flight, "decisions_per_s": ours, "bare_per_s": bare,
                "redis_benchmark_by_hand_per_s": theirs, "ratio": to_bare,
            });
            writeln!(out, "{line}")?;
        }
        table.row([
            in_flight.to_string(),
            ours.to_string(),
            bare.to_string(),
            format!("{to_bare:.2}"),
            theirs.to_string(),
            format!("{to_theirs:.2}"),
        ]);
    }
    if !wanted.json {
        writeln!(
            out,
            "\none client, one connection, one bucket each (target: 0.90)"
        )?;
        table.print(out)?;
    }
    Ok(well)
}

/// Decisions a second, and those that the store did not answer.
fn ours_once(
    port: u16,
    wanted: &args::Store,
    cores: Option<Cores>,
    in_flight: usize,
) -> io::Result<(u64, u64)> {
    std::thread::scope(|scope| {
        let load = scope.spawn(|| -> io::Result<(u64, u64)> {
            if let Some(cores) = cores {
                pin_this_thread(cores.load)?;
            }
            let events = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            events.block_on(asked(
                port,
                wanted.passes.warm_up(WARM_UP),
                wanted.passes.time,
                in_flight,
            ))
        });
        match load.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

async fn asked(
    port: u16,
    warm_up: Duration,
    time: Duration,
    in_flight: usize,
) -> io::Result<(u64, u64)> {
    let mut settings = Settings::standalone("127.0.0.1", port);
    // The rate is asked for here, not the answer in time.
    settings.deadline = Duration::from_secs(1);
    let store = Store::open(settings, &tokio::runtime::Handle::current())
        .map_err(|error| io::Error::other(error.to_string()))?;
    let known = limits();
    let known: Vec<SharedLimit<'_>> = known
        .iter()
        .map(|(id, quota)| SharedLimit {
            id,
            quota,
            before: &[],
            plain: true,
        })
        .collect();
    let limits = store
        .prepare(&known)
        .map_err(|(_, error)| io::Error::other(error.to_string()))?;
    while limits.charge(&request(&[0], 0)).await.is_err() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let count = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let tasks: Vec<_> = (0..in_flight as u64)
        .map(|seed| tokio::spawn(ask(Arc::clone(&limits), Arc::clone(&count), seed)))
        .collect();
    tokio::time::sleep(warm_up).await;
    let before = [count[0].load(Relaxed), count[1].load(Relaxed)];
    let begin = Instant::now();
    tokio::time::sleep(time).await;
    let after = [count[0].load(Relaxed), count[1].load(Relaxed)];
    let micros = begin.elapsed().as_micros().max(1);
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
    let answered = u128::from(after[0] - before[0]) * 1_000_000 / micros;
    let rate = u64::try_from(answered).unwrap_or(u64::MAX);
    Ok((rate, after[1] - before[1]))
}

/// Asks one after the other, for ever.
async fn ask(limits: Arc<dyn SharedLimits>, count: Arc<[AtomicU64; 2]>, seed: u64) {
    let mut number = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    loop {
        number = number
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let answered = limits.charge(&request(&[0], (number >> 33) % KEYS)).await;
        count[usize::from(answered.is_err())].fetch_add(1, Relaxed);
    }
}

/// Requests a second of a client that does nothing but send and read: the same script, as many at a time.
fn bare_once(
    redis: &Redis,
    wanted: &args::Store,
    cores: Option<Cores>,
    in_flight: usize,
) -> io::Result<u64> {
    let desk = desk(redis.port())?;
    let commands = super::keys().map(|key| {
        let words = desk.words(&request(&[0], key));
        raw::encoded(words.iter().map(Vec::as_slice))
    });
    let commands: Vec<Vec<u8>> = commands.collect();
    std::thread::scope(|scope| {
        let load = scope.spawn(|| -> io::Result<u64> {
            if let Some(cores) = cores {
                pin_this_thread(cores.load)?;
            }
            let mut connection = raw::Connection::to(redis.port())?;
            connection.run(&commands, in_flight, wanted.passes.warm_up(WARM_UP))?;
            let begin = Instant::now();
            let answers = connection.run(&commands, in_flight, wanted.passes.time)?;
            let micros = begin.elapsed().as_micros().max(1);
            let rate = u128::from(answers.count) * 1_000_000 / micros;
            Ok(u64::try_from(rate).unwrap_or(u64::MAX))
        });
        match load.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Requests a second of `redis-benchmark` with the script by hand, as many at a time.
fn redis_benchmark_once(
    redis: &Redis,
    wanted: &args::Store,
    cores: Option<Cores>,
    in_flight: usize,
) -> io::Result<u64> {
    let sha = desk(redis.port())?
        .load(super::HAND)
        .map_err(|error| io::Error::other(error.to_string()))?;
    // As many as take about the time, by what a server does in a second.
    let millis = u64::try_from(wanted.passes.time.as_millis()).unwrap_or(1000);
    let count = (millis * 100).max(1000);
    let output = command_on(cores.map(|cores| cores.load), Path::new("redis-benchmark"))
        .args(["-p", &redis.port().to_string(), "-c", "1"])
        .args(["-P", &in_flight.to_string(), "-n", &count.to_string()])
        .args(["-r", &KEYS.to_string(), "--csv", "EVALSHA", &sha, "1"])
        .args(["tg:hand:{org__rand_int__}", "1000", "1", "1000000000"])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| {
            let mend = "`make setup` installs it";
            io::Error::other(format!("redis-benchmark does not start: {error}; {mend}"))
        })?;
    let text = String::from_utf8_lossy(&output.stdout);
    // A line of names, then that of the test: what was sent, its rate, its times.
    let line = text.lines().last().unwrap_or_default();
    let rate = line.split("\",\"").nth(1);
    let rate = rate.and_then(|rate| rate.split('.').next()?.parse().ok());
    rate.ok_or_else(|| io::Error::other(format!("redis-benchmark said `{}`", text.trim())))
}
