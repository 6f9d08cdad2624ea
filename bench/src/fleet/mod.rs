//! Four nodes that share hot keys in one real Redis: exactly, by loans, by copies, and each for itself.
//!
//! # Method
//!
//! Each node is a thread with a gate, a store and connections of its own, and asks as fast as it can, so many
//! requests at a time. The server has one core, all nodes together another. Ways to share take turns, with an empty
//! store each time. Commands are what the server counts as scripts: one for each question.
//!
//! # What the numbers are, and are not
//!
//! Nodes on one core have a quarter of it each: compare within one run, as ratios. What a node would do with a core of
//! its own is worked out ([`busy`]), not measured: this takes more machines than one. What is offered is what a node can
//! ask; where that is less than the limit, as it may be of exact, nearly everything passes. No network is between
//! nodes and store: with one, exact is slower and the others hardly.

mod busy;
mod node;

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use tollgate_policy::Sharing;

use self::busy::{Threads, server_ran, with_cores};
use self::node::{Plan, Tally};
use crate::args::Fleet;
use crate::servers::cores::Cores;
use crate::store::server::Redis;
use crate::store::{median, ratio};
use crate::table::Table;

const NODES: u32 = 4;
/// The longest warm-up: more than a lease's term.
const WARM_UP: Duration = Duration::from_millis(1200);
/// How long the server may take to say what it was asked.
const PATIENCE: Duration = Duration::from_secs(5);

/// A way to share, and what was seen of it in each pass.
struct Way {
    name: &'static str,
    sharing: Option<Sharing>,
    passes: Vec<Pass>,
}

/// What all nodes did in one pass.
#[derive(Clone, Copy, Debug)]
struct Pass {
    /// Of one node, in a second.
    decided: u64,
    /// Of all nodes, in a second.
    admitted: u64,
    /// Questions to the store for a million decisions.
    questions: u64,
    /// Decisions without the store.
    alone: u64,
    /// Nanoseconds that a decision takes of a node, and of the store.
    node_ns: u64,
    store_ns: u64,
}

impl Way {
    fn median(&self, part: fn(&Pass) -> u64) -> u64 {
        median(&self.passes.iter().map(part).collect::<Vec<_>>())
    }
}

/// Measures; returns whether every decision that needs the store was made with it.
pub(crate) fn run(wanted: &Fleet, out: &mut dyn Write) -> io::Result<bool> {
    let cores = Cores::find();
    let redis = Redis::start(cores.map(|cores| cores.server))?;
    let shared = Sharing::ALL.map(|sharing| (sharing.name(), Some(sharing)));
    let mut ways: Vec<Way> = shared
        .into_iter()
        .chain([("each for itself", None)])
        .map(|(name, sharing)| Way {
            name,
            sharing,
            passes: Vec::new(),
        })
        .collect();
    let many = ways.len();
    for pass in 0..usize::from(wanted.passes.passes) {
        for turn in 0..many {
            // The order moves on with every pass.
            if let Some(way) = ways.get_mut((turn + pass) % many) {
                let prefix = format!("tg{pass}x{turn}");
                let seen = once(&redis, wanted, cores, way.sharing, prefix)?;
                way.passes.push(seen);
            }
        }
    }
    report(&ways, wanted, out)?;
    let alone: u64 = ways
        .iter()
        .flat_map(|way| &way.passes)
        .map(|p| p.alone)
        .sum();
    Ok(alone == 0)
}

fn once(
    redis: &Redis,
    wanted: &Fleet,
    cores: Option<Cores>,
    sharing: Option<Sharing>,
    prefix: String,
) -> io::Result<Pass> {
    let plan = Arc::new(Plan {
        sharing,
        port: redis.port(),
        prefix,
        keys: (0..wanted.keys).map(|key| format!("org{key:06}")).collect(),
        limit: wanted.limit as u64,
        core: cores.map(|cores| cores.load),
        threads: Threads::default(),
        ready: Barrier::new(NODES as usize + 1),
        stop: AtomicBool::new(false),
    });
    let tallies: Vec<Arc<Tally>> = (0..NODES).map(|_| Arc::default()).collect();
    std::thread::scope(|scope| {
        let nodes: Vec<_> = (0_u64..)
            .zip(&tallies)
            .map(|(seed, tally)| {
                let plan = &plan;
                scope.spawn(move || node::run(plan, tally, seed))
            })
            .collect();
        plan.ready.wait();
        let seen = watch(redis.port(), wanted, &tallies, &plan.threads);
        plan.stop.store(true, Relaxed);
        for node in nodes {
            match node.join() {
                Ok(done) => done?,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        seen
    })
}

/// Looks twice, and says what happened in between.
fn watch(port: u16, wanted: &Fleet, tallies: &[Arc<Tally>], threads: &Threads) -> io::Result<Pass> {
    let time = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()?;
    let wait = |span| time.block_on(async { tokio::time::sleep(span).await });
    let look = || -> io::Result<([u64; 3], [u64; 3])> {
        let mut sums = [0; 3];
        for tally in tallies {
            let counts = [&tally.decided, &tally.admitted, &tally.alone];
            for (sum, count) in sums.iter_mut().zip(counts) {
                *sum += count.load(Relaxed);
            }
        }
        let said = ask_server(port)?;
        Ok((sums, [scripts(&said), server_ran(&said), threads.ran()?]))
    };
    wait(wanted.passes.warm_up(WARM_UP));
    let (before, busy_before) = look()?;
    let begin = Instant::now();
    wait(wanted.passes.time);
    let (after, busy) = look()?;
    let micros = begin.elapsed().as_micros().max(1);
    let in_a_second =
        |count: u64| u64::try_from(u128::from(count) * 1_000_000 / micros).unwrap_or(u64::MAX);
    let [decided, admitted, alone] = [0, 1, 2].map(|i: usize| after[i] - before[i]);
    let [asked, store_us, node_ns] = [0, 1, 2].map(|i: usize| busy[i] - busy_before[i]);
    Ok(Pass {
        decided: in_a_second(decided) / u64::from(NODES),
        admitted: in_a_second(admitted),
        questions: asked * 1_000_000 / decided.max(1),
        alone,
        node_ns: node_ns / decided.max(1),
        store_ns: store_us * 1_000 / decided.max(1),
    })
}

/// What the server says of its commands and of its processor.
fn ask_server(port: u16) -> io::Result<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"INFO commandstats cpu\r\nQUIT\r\n")?;
    let mut said = String::new();
    stream.read_to_string(&mut said)?;
    Ok(said)
}

/// The sum of the calls in lines such as `cmdstat_evalsha:calls=17,usec=230`.
fn scripts(said: &str) -> u64 {
    let calls = |line: &str| {
        let rest = ["evalsha", "eval", "fcall"]
            .iter()
            .find_map(|name| line.strip_prefix(&format!("cmdstat_{name}:calls=")))?;
        rest.split(',').next()?.parse::<u64>().ok()
    };
    said.lines().filter_map(calls).sum()
}

fn report(ways: &[Way], wanted: &Fleet, out: &mut dyn Write) -> io::Result<()> {
    let decided = |wanted: Option<Sharing>| {
        let way = ways.iter().find(|way| way.sharing == wanted);
        way.map_or(0, |way| way.median(|pass| pass.decided))
    };
    let (exact, memory) = (decided(Some(Sharing::Exact)), decided(None));
    let may = wanted.limit as u64 * wanted.keys as u64;
    let mut table = Table::new([
        "",
        "decisions/s a node",
        "to exact",
        "to itself",
        "commands a decision",
        "CPU of a node, of the store, ns",
        "with a core each",
        "to exact",
        "offered, of the limit",
        "admitted, of the limit",
    ]);
    let alone_on_a_core =
        |way: &Way| with_cores(way.median(|p| p.node_ns), way.median(|p| p.store_ns));
    let exact_way = ways.iter().find(|way| way.sharing == Some(Sharing::Exact));
    let exact_on_a_core = exact_way.map_or(0, alone_on_a_core);
    for way in ways {
        let (node_ns, store_ns) = (way.median(|p| p.node_ns), way.median(|p| p.store_ns));
        let on_a_core = alone_on_a_core(way);
        let rate = way.median(|pass| pass.decided);
        let admitted = way.median(|pass| pass.admitted);
        let questions = way.median(|pass| pass.questions);
        let offered = rate * u64::from(NODES);
        if wanted.json {
            let line = serde_json::json!({
                "fleet": way.name, "nodes": NODES, "keys": wanted.keys, "limit_per_s": wanted.limit,
                "decisions_per_s_and_node": rate, "to_exact": ratio(rate, exact), "to_memory": ratio(rate, memory),
                "cpu_ns_of_node": node_ns, "cpu_ns_of_store": store_ns, "with_a_core_each": on_a_core,
                "with_a_core_each_to_exact": ratio(on_a_core, exact_on_a_core),
                "commands_per_million": questions, "offered_per_s": offered, "admitted_per_s": admitted,
            });
            writeln!(out, "{line}")?;
        }
        table.row([
            way.name.to_owned(),
            rate.to_string(),
            format!("{:.1}", ratio(rate, exact)),
            format!("{:.2}", ratio(rate, memory)),
            format!("{}.{:02} %", questions / 10_000, questions / 100 % 100),
            format!("{node_ns}, {store_ns}"),
            on_a_core.to_string(),
            format!("{:.1}", ratio(on_a_core, exact_on_a_core)),
            format!("{:.2}", ratio(offered, may)),
            format!("{:.3}", ratio(admitted, may)),
        ]);
    }
    if wanted.json {
        return Ok(());
    }
    writeln!(
        out,
        "\n{NODES} nodes, {} hot keys of {}/s; passes: {}, interleaved, of {:?}; medians (targets of lease: 30 times exact, half \
         of what each does for itself, 2 % commands)",
        wanted.keys, wanted.limit, wanted.passes.passes, wanted.passes.time
    )?;
    table.print(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_counted_and_what_they_call_is_not() {
        let said = "cmdstat_get:calls=9,usec=1\r\ncmdstat_evalsha:calls=17,usec=230\r\ncmdstat_eval:calls=2,usec=1\r\n";
        assert_eq!(scripts(said), 19);
    }
}
