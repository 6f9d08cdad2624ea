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
//! Nodes on one core have a quarter of it each: compare within one run, as ratios. What is offered is what a node can
//! ask; where that is less than the limit, as it may be of exact, nearly everything passes. No network is between
//! nodes and store: with one, exact is slower and the others hardly.

mod node;

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use tollgate::policy::Sharing;

use self::node::{Plan, Tally};
use crate::args::Fleets;
use crate::doors::cores::Cores;
use crate::store::server::Redis;
use crate::store::{median, ratio};
use crate::table::Table;

const NODES: u32 = 4;
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
}

impl Way {
    fn median(&self, part: fn(&Pass) -> u64) -> u64 {
        median(&self.passes.iter().map(part).collect::<Vec<_>>())
    }
}

/// Measures; returns whether every decision that needs the store was made with it.
pub(crate) fn run(wanted: &Fleets, out: &mut dyn Write) -> io::Result<bool> {
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
    for pass in 0..wanted.passes {
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
    wanted: &Fleets,
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
        let seen = watch(redis.port(), wanted, &tallies);
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
fn watch(port: u16, wanted: &Fleets, tallies: &[Arc<Tally>]) -> io::Result<Pass> {
    let time = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()?;
    let wait = |span| time.block_on(async { tokio::time::sleep(span).await });
    let look = || -> io::Result<([u64; 3], u64)> {
        let mut sums = [0; 3];
        for tally in tallies {
            let counts = [&tally.decided, &tally.admitted, &tally.alone];
            for (sum, count) in sums.iter_mut().zip(counts) {
                *sum += count.load(Relaxed);
            }
        }
        Ok((sums, questions(port)?))
    };
    wait(wanted.warm_up);
    let (before, asked_before) = look()?;
    let begin = Instant::now();
    wait(wanted.time);
    let (after, asked) = look()?;
    let micros = begin.elapsed().as_micros().max(1);
    let in_a_second =
        |count: u64| u64::try_from(u128::from(count) * 1_000_000 / micros).unwrap_or(u64::MAX);
    let [decided, admitted, alone] = [0, 1, 2].map(|i: usize| after[i] - before[i]);
    Ok(Pass {
        decided: in_a_second(decided) / u64::from(NODES),
        admitted: in_a_second(admitted),
        questions: (asked - asked_before) * 1_000_000 / decided.max(1),
        alone,
    })
}

/// How many scripts the server has run.
fn questions(port: u16) -> io::Result<u64> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"INFO commandstats\r\nQUIT\r\n")?;
    let mut said = String::new();
    stream.read_to_string(&mut said)?;
    Ok(scripts(&said))
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

fn report(ways: &[Way], wanted: &Fleets, out: &mut dyn Write) -> io::Result<()> {
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
        "offered, of the limit",
        "admitted, of the limit",
    ]);
    for way in ways {
        let rate = way.median(|pass| pass.decided);
        let admitted = way.median(|pass| pass.admitted);
        let questions = way.median(|pass| pass.questions);
        let offered = rate * u64::from(NODES);
        if wanted.json {
            let line = serde_json::json!({
                "fleet": way.name, "nodes": NODES, "keys": wanted.keys, "limit_per_s": wanted.limit,
                "decisions_per_s_and_node": rate, "to_exact": ratio(rate, exact), "to_memory": ratio(rate, memory),
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
        wanted.keys, wanted.limit, wanted.passes, wanted.time
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
