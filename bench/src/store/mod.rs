//! Measures decisions on a real Redis: the server's time for each, the speed of one client, and the memory of a key.
//!
//! # Method
//!
//! The server is pinned to one core, the load to another. Commands are encoded beforehand and sent over one connection, a fixed
//! number at a time, for random ones of 100,000 keys; contestants are interleaved. The figure is the server's own time (user
//! and kernel, by `/proc`) for a request, because the load may be the slower of the two.
//!
//! The client is the store that the service uses, with a fixed number of requests in flight; see [`client`] for its contestants.
//!
//! # What the numbers are, and are not
//!
//! Every request passes and writes. Compare within one run, as ratios.

mod client;
mod connection;

use std::io;
use std::time::Duration;

use tollgate::{Limit, LimitId, Rate, Span};
use tollgate_policy::Quota;
use tollgate_policy::shared::{KeyKind, SharedCharge, SharedKey, SharedLimit, SharedRequest};
use tollgate_redis::testing::{ScriptClient, ScriptOp};
use tollgate_testkit::servers::{Kind, Server};

use self::connection::Connection;
use crate::args::Store;
use crate::figures::{Figures, interleave, ratio};
use crate::output::{Output, Row, range};
use crate::system::{Cores, ProcessTree, no_proc, on_load_core, pin_process};

/// The longest warm-up.
const WARM_UP: Duration = Duration::from_millis(300);
/// Distinct keys.
const KEYS: u64 = 100_000;
/// Commands that are encoded beforehand and sent over and over.
const COMMANDS: u64 = 20_000;
/// The shortest script for a token bucket, written by hand.
const HAND: &str = include_str!("hand.lua");

/// One kind of request.
struct Case {
    name: &'static str,
    /// Limits of the request by their places; empty for the script by hand.
    limits: &'static [usize],
    /// Place of the case that it is compared with, and its target.
    versus: Option<(usize, &'static str)>,
}

const fn case(
    name: &'static str,
    limits: &'static [usize],
    versus: usize,
    target: &'static str,
) -> Case {
    Case {
        name,
        limits,
        versus: Some((versus, target)),
    }
}

const CASES: [Case; 6] = [
    Case {
        name: "a bucket written by hand",
        limits: &[],
        versus: None,
    },
    case("one limit: bucket", &[0], 0, "1.1"),
    case("one limit: fixed window", &[4], 0, ""),
    case("one limit: sliding window", &[5], 0, ""),
    case("four limits: buckets", &[0, 1, 2, 3], 1, "1.5"),
    case("four limits: buckets and windows", &[0, 1, 4, 5], 1, ""),
];

/// Measures; returns whether everything was answered as it should.
pub(crate) fn run(args: &Store, out: &mut Output<'_>) -> io::Result<bool> {
    let cores = Cores::find();
    let redis = start_redis(cores)?;
    let mut all_correct = true;
    for depth in [1, 32] {
        all_correct &= scripts(&redis, args, cores, depth, out)?;
    }
    all_correct &= client::compare(&redis, args, cores, out)?;
    memory(&redis, out)?;
    Ok(all_correct)
}

/// A redis-server that is empty and pinned to the core of servers.
pub(crate) fn start_redis(cores: Option<Cores>) -> io::Result<Server> {
    let server = Server::start(Kind::Redis, &[]).map_err(io::Error::other)?;
    if let (Some(cores), Some(id)) = (cores, server.pid()) {
        pin_process(cores.server, id)?;
    }
    Ok(server)
}

/// The processor time of a server since its start.
pub(crate) fn cpu_time(server: &Server) -> io::Result<Duration> {
    let tree = server.pid().map(ProcessTree::single);
    tree.and_then(|tree| tree.time()).ok_or_else(no_proc)
}

fn limits() -> io::Result<Vec<(&'static str, Quota)>> {
    let per_second = Rate::new(1000, Span::from_secs(1)).map_err(io::Error::other)?;
    let per_minute = Rate::new(1_000_000, Span::from_secs(60)).map_err(io::Error::other)?;
    let bucket = |burst| Limit::token_bucket(per_second, burst);
    let limits = [
        ("a", bucket(1_000_000)),
        ("b", bucket(2_000_000)),
        ("c", bucket(3_000_000)),
        ("d", bucket(4_000_000)),
        ("e", Limit::fixed_window(per_minute)),
        ("f", Limit::sliding_window(per_minute)),
    ];
    let quota = |(name, limit): (_, Result<Limit, _>)| {
        Ok((name, Quota::plain(limit.map_err(io::Error::other)?)))
    };
    limits.into_iter().map(quota).collect()
}

/// Calls `f` with all limits as a store takes them.
fn with_limits<T>(f: impl FnOnce(&[SharedLimit<'_>]) -> io::Result<T>) -> io::Result<T> {
    let limits = limits()?;
    let shared = limits.iter().map(|(id, quota)| SharedLimit {
        id,
        quota,
        before: &[],
        plain: true,
    });
    let all: Vec<SharedLimit<'_>> = shared.collect();
    f(&all)
}

/// A client of the scripts with all limits.
fn script_client(server: &Server) -> io::Result<ScriptClient> {
    with_limits(|limits| {
        ScriptClient::connect(server.port(), "tg", None, limits).map_err(io::Error::other)
    })
}

fn request(limits: &[usize], key: u64) -> SharedRequest {
    let mut name = SharedKey::new(KeyKind::Own);
    name.push(format!("org{key:06}").as_bytes());
    let charge = |limit: &usize| SharedCharge {
        limit: LimitId::new(*limit),
        key: name.clone(),
        cost: 1,
        enforced: true,
        with_next: false,
        owed: 0,
        most: None,
    };
    SharedRequest {
        take: true,
        waited: Span::ZERO,
        charges: limits.iter().map(charge).collect(),
    }
}

/// Loads the script by hand and returns its hash.
fn load_hand(client: &mut ScriptClient) -> io::Result<String> {
    let mut load = redis::cmd("SCRIPT");
    load.arg("LOAD").arg(HAND);
    load.query(client.connection()).map_err(io::Error::other)
}

/// The commands of a case, for keys in an order that looks random and is the same in every run.
fn commands(client: &mut ScriptClient, limits: &[usize]) -> io::Result<Vec<Vec<u8>>> {
    let hand = load_hand(client)?;
    let command = |number: u64| {
        let key = (number * 7_919_777 + 13) % KEYS;
        if limits.is_empty() {
            let name = format!("tg:hand:{{org{key:06}}}");
            let mut command = redis::cmd("EVALSHA");
            command.arg(&[&hand, "1", &name, "1000", "1", "1000000000"]);
            return command.get_packed_command();
        }
        client.encoded(&request(limits, key))
    };
    Ok((0..COMMANDS).map(command).collect())
}

fn scripts(
    server: &Server,
    args: &Store,
    cores: Option<Cores>,
    depth: usize,
    out: &mut Output<'_>,
) -> io::Result<bool> {
    let mut client = script_client(server)?;
    let all = CASES.iter().map(|case| commands(&mut client, case.limits));
    let mut contestants = all.collect::<io::Result<Vec<_>>>()?;
    let mut errors = 0;
    let passes = args.passes;
    let times = on_load_core(cores, || {
        let mut connection = Connection::new(server.port())?;
        interleave(passes.passes, &mut contestants, |commands, _| {
            connection.run(commands, depth, passes.warm_up(WARM_UP))?;
            let before = cpu_time(server)?;
            let replies = connection.run(commands, depth, passes.time)?;
            let used = cpu_time(server)?.saturating_sub(before);
            errors += replies.errors;
            Ok(used.as_nanos() as f64 / replies.count.max(1) as f64)
        })
    })?;
    let times: Vec<Figures> = times.into_iter().map(Figures).collect();
    let row = |(case, ns): (&Case, &Figures)| {
        let versus = case
            .versus
            .map(|(place, target)| (&CASES[place], &times[place], target));
        let by_pass = versus
            .map(|(_, other, _)| ns.over(other))
            .unwrap_or_default();
        Row::new("store", case.name)
            .json("pipeline", depth)
            .json("server_cpu_ns", ns.median())
            .figure(
                "server_cpu_us",
                "CPU us",
                ns.median().map(|ns| ns / 1000.0),
                2,
            )
            .column("versus", versus.map_or("", |(other, ..)| other.name))
            .figure(
                "ratio",
                "ratio",
                versus.and_then(|(_, other, _)| ratio(ns, other)),
                2,
            )
            .column("pass by pass", range(by_pass.range()))
            .column("target", versus.map_or("", |(.., target)| target))
    };
    let rows: Vec<Row> = CASES.iter().zip(&times).map(row).collect();
    let title = format!(
        "server time for a decision, {depth} at a time on one connection; {} interleaved passes of {:?}; medians",
        passes.passes, passes.time
    );
    out.rows(&title, &rows)?;
    Ok(errors == 0)
}

/// The memory of keys in the server.
fn memory(server: &Server, out: &mut Output<'_>) -> io::Result<()> {
    let mut client = script_client(server)?;
    let limits = [
        ("token bucket", 0),
        ("fixed window", 4),
        ("sliding window", 5),
    ];
    let mut rows = Vec::new();
    for (name, limit) in limits {
        let (taken, plain) = key_memory(&mut client, &request(&[limit], 1))?;
        let row = Row::new("store", name)
            .count("key_bytes", "bytes", taken)
            .count("short_string", "a short string of that name", plain);
        rows.push(row);
    }
    out.rows("memory of a key in the server (MEMORY USAGE)", &rows)
}

/// The memory of a charged key, and of a string of eight letters with the same name and an expiry.
fn key_memory(client: &mut ScriptClient, request: &SharedRequest) -> io::Result<(u64, u64)> {
    let commands = client.commands(request);
    let key = commands.first().and_then(|command| command.keys.first());
    let key = key.ok_or_else(|| io::Error::other("the request has no key"))?;
    let charge = ScriptOp::Charge(request.clone());
    client.run(&[(0, charge)]).map_err(io::Error::other)?;
    let connection = client.connection();
    let mut usage = redis::cmd("MEMORY");
    usage.arg("USAGE").arg(key).arg("SAMPLES").arg(0);
    let measured = (|| {
        let taken = usage.query(connection)?;
        let mut set = redis::cmd("SET");
        set.arg(key).arg("abcdefgh").arg("PX").arg(60_000);
        set.query::<()>(connection)?;
        let plain = usage.query(connection)?;
        redis::cmd("DEL").arg(key).query::<()>(connection)?;
        redis::RedisResult::Ok((taken, plain))
    })();
    measured.map_err(io::Error::other)
}
