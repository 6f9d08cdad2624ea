//! A real Redis beside what is asked of it: what a decision costs the server, how fast one client asks, what a key takes.
//!
//! # Method
//!
//! The server is pinned to one core, the load to another. Commands are encoded beforehand and sent over one connection,
//! so many at a time, about 100,000 random keys; contestants take turns. What counts is the server's own time
//! (user and kernel, as `/proc` tells) for a request, because the load may be the slower of the two.
//!
//! The client is the store that the service uses, with so many requests in flight; see [`client`] for what it is held
//! against.
//!
//! # What the numbers are, and are not
//!
//! Every request passes and writes. Compare within one run, as ratios.

mod client;
mod raw;
pub(crate) mod server;

use std::io::{self, Write};
use std::time::Duration;

use tollgate::{Limit, LimitId, Rate, Span};
use tollgate_policy::Quota;
use tollgate_policy::shared::{KeyKind, SharedCharge, SharedKey, SharedLimit, SharedRequest};
use tollgate_redis::testing::Desk;

use self::server::Redis;
use crate::args::Store;
use crate::servers::cores::{Cores, pin_this_thread};
use crate::table::Table;

/// The longest warm-up.
const WARM_UP: Duration = Duration::from_millis(300);
/// Distinct keys that are asked about.
const KEYS: u64 = 100_000;
/// Commands that are encoded beforehand and sent over and over.
const COMMANDS: u64 = 20_000;
const HAND: &str = include_str!("hand.lua");

/// One kind of request.
struct Contestant {
    name: &'static str,
    /// Against which one it is held, by place, and the most that it may cost.
    against: Option<(usize, &'static str)>,
    commands: Vec<Vec<u8>>,
    /// Server time for a request, of each pass, in nanoseconds.
    nanos: Vec<u64>,
}

/// A contestant of ours: its name, the limits of a request, and against whom it is held.
type Ours = (
    &'static str,
    &'static [usize],
    Option<(usize, &'static str)>,
);

/// Measures; returns whether everything was answered as it should.
pub(crate) fn run(wanted: &Store, out: &mut dyn Write) -> io::Result<bool> {
    let cores = Cores::find();
    let redis = Redis::start(cores.map(|cores| cores.server))?;
    let mut well = true;
    for depth in [1, 32] {
        well &= scripts(&redis, wanted, cores, depth, out)?;
    }
    well &= client::compare(&redis, wanted, cores, out)?;
    memory(&redis, wanted, out)?;
    Ok(well)
}

fn limits() -> Vec<(&'static str, Quota)> {
    let rate = Rate::new(1000, Span::from_secs(1)).map_err(io::Error::other);
    let bucket = |burst| {
        rate.as_ref()
            .ok()
            .and_then(|rate| Limit::token_bucket(*rate, burst).ok())
    };
    let window = |limit| {
        let rate = Rate::new(limit, Span::from_secs(60)).ok()?;
        Some((
            Limit::fixed_window(rate).ok()?,
            Limit::sliding_window(rate).ok()?,
        ))
    };
    let mut limits = Vec::new();
    for (name, burst) in [
        ("a", 1_000_000),
        ("b", 2_000_000),
        ("c", 3_000_000),
        ("d", 4_000_000),
    ] {
        limits.extend(bucket(burst).map(|limit| (name, Quota::plain(limit))));
    }
    if let Some((fixed, sliding)) = window(1_000_000) {
        limits.push(("e", Quota::plain(fixed)));
        limits.push(("f", Quota::plain(sliding)));
    }
    limits
}

/// A desk with all limits of this comparison.
fn desk(port: u16) -> io::Result<Desk> {
    let limits = limits();
    let limits: Vec<SharedLimit<'_>> = limits
        .iter()
        .map(|(id, quota)| SharedLimit {
            id,
            quota,
            before: &[],
            plain: true,
        })
        .collect();
    Desk::connect(port, "tg", None, &limits).map_err(|error| io::Error::other(error.to_string()))
}

fn request(limits: &[usize], key: u64) -> SharedRequest {
    let mut name = SharedKey::new(KeyKind::Own);
    name.push(format!("org{key:06}").as_bytes());
    let charge = |limit: &usize| SharedCharge {
        limit: LimitId::at(*limit),
        key: name.clone(),
        cost: 1,
        enforced: true,
        with_next: false,
        owed: 0,
        most: None,
    };
    SharedRequest {
        take: true,
        waited: tollgate::Span::ZERO,
        charges: limits.iter().map(charge).collect(),
    }
}

/// Keys in an order that looks random and is the same in every run.
fn keys() -> impl Iterator<Item = u64> {
    (0..COMMANDS).map(|i| (i * 7_919_777 + 13) % KEYS)
}

fn contestants(redis: &Redis) -> io::Result<Vec<Contestant>> {
    let mut desk = desk(redis.port())?;
    let sha = desk
        .load(HAND)
        .map_err(|error| io::Error::other(error.to_string()))?;
    let by_hand = keys().map(|key| {
        let name = format!("tg:hand:{{org{key:06}}}");
        let words: [&[u8]; 7] = [
            b"EVALSHA",
            sha.as_bytes(),
            b"1",
            name.as_bytes(),
            b"1000",
            b"1",
            b"1000000000",
        ];
        raw::encoded(words)
    });
    let mut list = vec![Contestant {
        name: "a bucket written by hand",
        against: None,
        commands: by_hand.collect(),
        nanos: Vec::new(),
    }];
    let lines: [Ours; 5] = [
        ("one limit: bucket", &[0], Some((0, "1.1"))),
        ("one limit: fixed window", &[4], Some((0, ""))),
        ("one limit: sliding window", &[5], Some((0, ""))),
        ("four limits: buckets", &[0, 1, 2, 3], Some((1, "1.5"))),
        (
            "four limits: buckets and windows",
            &[0, 1, 4, 5],
            Some((1, "")),
        ),
    ];
    for (name, limits, against) in lines {
        let commands = keys().map(|key| {
            let words = desk.words(&request(limits, key));
            raw::encoded(words.iter().map(Vec::as_slice))
        });
        list.push(Contestant {
            name,
            against,
            commands: commands.collect(),
            nanos: Vec::new(),
        });
    }
    Ok(list)
}

fn scripts(
    redis: &Redis,
    wanted: &Store,
    cores: Option<Cores>,
    depth: usize,
    out: &mut dyn Write,
) -> io::Result<bool> {
    let mut list = contestants(redis)?;
    let mut well = true;
    std::thread::scope(|scope| {
        let load = scope.spawn(|| -> io::Result<()> {
            if let Some(cores) = cores {
                pin_this_thread(cores.load)?;
            }
            let mut connection = raw::Connection::to(redis.port())?;
            for pass in 0..usize::from(wanted.passes.passes) {
                for turn in 0..list.len() {
                    // The order moves on with every pass.
                    let at = (turn + pass) % list.len();
                    let Some(contestant) = list.get_mut(at) else {
                        continue;
                    };
                    connection.run(&contestant.commands, depth, wanted.passes.warm_up(WARM_UP))?;
                    let before = redis.cpu()?;
                    let answers =
                        connection.run(&contestant.commands, depth, wanted.passes.time)?;
                    let used = redis.cpu()?.saturating_sub(before);
                    well &= answers.errors == 0;
                    contestant.nanos.push(per(used, answers.count));
                }
            }
            Ok(())
        });
        match load.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })?;
    report(&list, depth, wanted, out)?;
    Ok(well)
}

/// Nanoseconds of each.
fn per(time: Duration, count: u64) -> u64 {
    u64::try_from(time.as_nanos() / u128::from(count.max(1))).unwrap_or(u64::MAX)
}

pub(crate) fn median(values: &[u64]) -> u64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or(0)
}

#[expect(clippy::float_arithmetic, reason = "a ratio for people")]
pub(crate) fn ratio(a: u64, b: u64) -> f64 {
    a as f64 / b.max(1) as f64
}

fn report(
    list: &[Contestant],
    depth: usize,
    wanted: &Store,
    out: &mut dyn Write,
) -> io::Result<()> {
    let against = |contestant: &Contestant| {
        let (place, most) = contestant.against?;
        Some((list.get(place)?, most))
    };
    if wanted.json {
        for contestant in list {
            let ratio = against(contestant)
                .map(|(other, _)| ratio(median(&contestant.nanos), median(&other.nanos)));
            let line = serde_json::json!({
                "store": contestant.name, "pipeline": depth,
                "server_cpu_ns": median(&contestant.nanos), "ratio": ratio,
            });
            writeln!(out, "{line}")?;
        }
        return Ok(());
    }
    writeln!(
        out,
        "\nserver time for a decision, {depth} at a time on one connection; passes: {}, interleaved, of {:?}; medians",
        wanted.passes.passes, wanted.passes.time
    )?;
    let mut table = Table::new(["", "CPU us", "against", "ratio", "pass by pass", "target"]);
    for contestant in list {
        let cpu = format!("{:.2}", ratio(median(&contestant.nanos), 1000));
        let [name, times, spread, target] = match against(contestant) {
            None => ["", "", "", ""].map(str::to_owned),
            Some((other, most)) => {
                let mut each: Vec<f64> = contestant
                    .nanos
                    .iter()
                    .zip(&other.nanos)
                    .map(|(a, b)| ratio(*a, *b))
                    .collect();
                each.sort_by(f64::total_cmp);
                let of = |place: usize| each.get(place).copied().unwrap_or(0.0);
                [
                    other.name.to_owned(),
                    format!("{:.2}", of(each.len() / 2)),
                    format!("{:.2} to {:.2}", of(0), of(each.len().saturating_sub(1))),
                    most.to_owned(),
                ]
            }
        };
        table.row([contestant.name.to_owned(), cpu, name, times, spread, target]);
    }
    table.print(out)
}

/// What keys take in the server.
fn memory(redis: &Redis, wanted: &Store, out: &mut dyn Write) -> io::Result<()> {
    let mut desk = desk(redis.port())?;
    let mut table = Table::new(["", "bytes", "a short string of that name"]);
    let lines = [
        ("token bucket", 0),
        ("fixed window", 4),
        ("sliding window", 5),
    ];
    for (name, limit) in lines {
        let (taken, plain) = desk
            .weigh(&request(&[limit], 1))
            .map_err(|error| io::Error::other(error.to_string()))?;
        if wanted.json {
            let line =
                serde_json::json!({"store_key": name, "bytes": taken, "short_string": plain});
            writeln!(out, "{line}")?;
        }
        table.row([name.to_owned(), taken.to_string(), plain.to_string()]);
    }
    if wanted.json {
        return Ok(());
    }
    writeln!(out, "\nmemory of a key in the server (MEMORY USAGE)")?;
    table.print(out)
}
