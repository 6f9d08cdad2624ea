//! One client: the store that the service uses, and `redis-benchmark` with the same script and as much in flight.

use std::io::{self, Write};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tollgate::store::shared::{SharedLimit, SharedLimits, SharedStore};
use tollgate_redis::{Settings, Store};

use super::server::Redis;
use super::{KEYS, desk, limits, median, request};
use crate::args::Stores;
use crate::doors::cores::{Cores, command_on, pin_this_thread};
use crate::table::Table;

/// Requests in flight.
const IN_FLIGHT: [usize; 2] = [64, 256];

/// Measures both in turns; returns whether every decision was answered by the store.
pub(super) fn compare(
    redis: &Redis,
    wanted: &Stores,
    cores: Option<Cores>,
    out: &mut dyn Write,
) -> io::Result<bool> {
    let mut table = Table::new([
        "in flight",
        "tollgate, decisions/s",
        "redis-benchmark, requests/s",
        "ratio",
    ]);
    let mut well = true;
    for in_flight in IN_FLIGHT {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..wanted.passes {
            let (rate, faults) = ours_once(redis.port(), wanted, cores, in_flight)?;
            well &= faults == 0;
            ours.push(rate);
            theirs.push(theirs_once(redis.port(), wanted, cores, in_flight)?);
        }
        let (ours, theirs) = (median(&ours), median(&theirs));
        let ratio = super::ratio(ours, theirs);
        if wanted.json {
            let line = serde_json::json!({
                "store_client": in_flight, "decisions_per_s": ours, "redis_benchmark_per_s": theirs, "ratio": ratio,
            });
            writeln!(out, "{line}")?;
        }
        table.row([
            in_flight.to_string(),
            ours.to_string(),
            theirs.to_string(),
            format!("{ratio:.2}"),
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
    wanted: &Stores,
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
            events.block_on(asked(port, wanted.warm_up, wanted.time, in_flight))
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

/// Requests a second of `redis-benchmark` with our script.
fn theirs_once(
    port: u16,
    wanted: &Stores,
    cores: Option<Cores>,
    in_flight: usize,
) -> io::Result<u64> {
    let desk = desk(port)?;
    let mut words = desk.words(&request(&[0], 0));
    // What it replaces by random digits, as long as ours.
    for word in &mut words {
        if let Ok(text) = std::str::from_utf8(word)
            && text.contains("org000000")
        {
            *word = text.replace("org000000", "org__rand_int__").into_bytes();
        }
    }
    // As many as take about the time, by what a server does in a second.
    let millis = u64::try_from(wanted.time.as_millis()).unwrap_or(1000);
    let count = (millis * 100).max(1000);
    let mut command = command_on(cores.map(|cores| cores.load), Path::new("redis-benchmark"));
    command
        .args([
            "-p",
            &port.to_string(),
            "-c",
            "1",
            "-P",
            &in_flight.to_string(),
        ])
        .args(["-n", &count.to_string(), "-r", &KEYS.to_string(), "--csv"]);
    let last = words.pop().unwrap_or_default();
    let is_text = !last.contains(&0) && std::str::from_utf8(&last).is_ok();
    if !is_text {
        command.arg("-x");
    }
    for word in &words {
        command.arg(String::from_utf8_lossy(word).into_owned());
    }
    if is_text {
        command.arg(String::from_utf8_lossy(&last).into_owned());
    }
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| {
            io::Error::other(format!(
                "redis-benchmark does not start: {error}; `make setup` installs it"
            ))
        })?;
    if let Some(mut input) = child.stdin.take()
        && !is_text
    {
        input.write_all(&last)?;
    }
    let output = child.wait_with_output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    // "test","rps",… and then the line of the test: its name may hold anything, its rate comes next.
    let line = text.lines().last().unwrap_or_default();
    let rate = line
        .rsplit("\",\"")
        .nth(6)
        .or_else(|| line.split("\",\"").nth(1))
        .and_then(|rate| rate.split('.').next()?.parse().ok());
    rate.ok_or_else(|| io::Error::other(format!("redis-benchmark said `{}`", text.trim())))
}
