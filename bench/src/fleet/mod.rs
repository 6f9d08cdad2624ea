//! Four nodes that share hot keys on one real Redis: with exact limits, leases or synced counters, and without a store.
//!
//! # Method
//!
//! Each node is a thread with a gate, a store and connections of its own, and decides as fast as it can with a fixed number of
//! requests in flight. The server has one core, all nodes together another. Ways to share are interleaved, each on keys of its
//! own. Commands are what the server counts as scripts: one for each round trip.
//!
//! # What the numbers are, and are not
//!
//! Nodes on one core have a quarter of it each: compare within one run, as ratios. The rate of a node with a core of its own is
//! computed from the processor time of a decision, not measured: that takes more machines than one. The offered load is the rate
//! of the nodes. Where that is less than the limit, as it may be with exact limits, nearly everything passes. There is no
//! network between nodes and store: with one, exact limits are slower and the others hardly.

mod node;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use tollgate_policy::Sharing;
use tollgate_testkit::servers::Server;

use self::node::{Plan, Tally};
use crate::args::Fleet;
use crate::figures::{Figures, interleave, ratio};
use crate::output::{Output, Row};
use crate::store::{cpu_time, start_redis};
use crate::system::{Cores, ProcessTree, no_proc};

const NODES: u32 = 4;
/// The longest warm-up: more than a lease's term.
const WARM_UP: Duration = Duration::from_millis(1200);

/// A mode to share limits; `None` for nodes without a store.
type SharingMode = Option<Sharing>;

/// All nodes in one pass.
#[derive(Clone, Copy, Debug)]
struct Measurement {
    /// Decisions of all nodes in a second, and the admitted ones.
    decided: f64,
    admitted: f64,
    /// Scripts that the store ran per decision.
    commands: f64,
    /// Decisions of the fallback.
    fallback: u64,
    /// Processor time of a decision in a node and in the store.
    node_ns: f64,
    store_ns: f64,
}

/// Measures; returns whether every decision that needs the store was made with it.
pub(crate) fn run(args: &Fleet, out: &mut Output<'_>) -> io::Result<bool> {
    let cores = Cores::find();
    let redis = start_redis(cores)?;
    let mut modes: Vec<SharingMode> = Sharing::ALL.into_iter().map(Some).chain([None]).collect();
    let turns = interleave(args.passes.passes, &mut modes, |mode, pass| {
        let prefix = format!("tg{pass}{}", mode.map_or("none", Sharing::name));
        turn(&redis, args, cores, *mode, prefix)
    })?;
    report(&modes, &turns, args, out)?;
    Ok(turns.iter().flatten().all(|turn| turn.fallback == 0))
}

fn turn(
    redis: &Server,
    args: &Fleet,
    cores: Option<Cores>,
    sharing: SharingMode,
    prefix: String,
) -> io::Result<Measurement> {
    let plan = Arc::new(Plan {
        sharing,
        port: redis.port(),
        prefix,
        keys: (0..args.keys).map(|key| format!("org{key:06}")).collect(),
        limit: args.limit as u64,
        core: cores.map(|cores| cores.load),
        ready: Barrier::new(NODES as usize + 1),
        stop: AtomicBool::new(false),
        tally: Tally::default(),
    });
    thread::scope(|scope| {
        let nodes: Vec<_> = (0..u64::from(NODES))
            .map(|seed| {
                let plan = &plan;
                scope.spawn(move || node::run(plan, seed))
            })
            .collect();
        plan.ready.wait();
        let turn = observe(redis, args, &plan.tally);
        plan.stop.store(true, Relaxed);
        for node in nodes {
            node.join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        turn
    })
}

/// Reads all counters twice and returns the difference.
fn observe(redis: &Server, args: &Fleet, tally: &Tally) -> io::Result<Measurement> {
    let nodes = ProcessTree::single(std::process::id());
    let read = || -> io::Result<[f64; 6]> {
        let counts = [&tally.decided, &tally.admitted, &tally.fallback];
        let [decided, admitted, fallback] = counts.map(|count| count.load(Relaxed) as f64);
        let info = redis.ask_text(&["INFO", "commandstats"]);
        let scripts = scripts(&info.map_err(io::Error::other)?) as f64;
        // This process does nothing else meanwhile.
        let nodes = nodes.time().ok_or_else(no_proc)?.as_nanos() as f64;
        let store = cpu_time(redis)?.as_nanos() as f64;
        Ok([decided, admitted, fallback, scripts, nodes, store])
    };
    thread::sleep(args.passes.warm_up(WARM_UP));
    let (before, begin) = (read()?, Instant::now());
    thread::sleep(args.passes.time);
    let (after, seconds) = (read()?, begin.elapsed().as_secs_f64());
    let [decided, admitted, fallback, scripts, nodes, store] =
        std::array::from_fn(|place| after[place] - before[place]);
    Ok(Measurement {
        decided: decided / seconds,
        admitted: admitted / seconds,
        commands: scripts / decided.max(1.0),
        fallback: fallback as u64,
        node_ns: nodes / decided.max(1.0),
        store_ns: store / decided.max(1.0),
    })
}

/// The sum of the calls in lines such as `cmdstat_evalsha:calls=17,usec=230`.
fn scripts(info: &str) -> u64 {
    let calls = |line: &str| {
        let rest = ["evalsha", "eval", "fcall"]
            .iter()
            .find_map(|name| line.strip_prefix(&format!("cmdstat_{name}:calls=")))?;
        rest.split(',').next()?.parse::<u64>().ok()
    };
    info.lines().filter_map(calls).sum()
}

/// Decisions a second of a node that has a core of its own, as all others and the store have: the first that is busy all the
/// time is the bound.
fn rate_with_cores(node_ns: f64, store_ns: f64) -> f64 {
    1e9 / node_ns.max(store_ns * f64::from(NODES))
}

fn report(
    modes: &[SharingMode],
    turns: &[Vec<Measurement>],
    args: &Fleet,
    out: &mut Output<'_>,
) -> io::Result<()> {
    let figures = |mode: SharingMode, figure: fn(&Measurement) -> f64| {
        let place = modes.iter().position(|other| *other == mode).unwrap_or(0);
        Figures::collect(&turns[place], |turn| Some(figure(turn)))
    };
    let decided = |mode: SharingMode| figures(mode, |turn| turn.decided / f64::from(NODES));
    let with_cores =
        |mode: SharingMode| figures(mode, |turn| rate_with_cores(turn.node_ns, turn.store_ns));
    let exact = Some(Sharing::Exact);
    let allowed = args.limit as f64 * args.keys as f64;
    let row = |&mode: &SharingMode| {
        let median = |figure| figures(mode, figure).median();
        let of_limit = |figure| median(figure).map(|rate| rate / allowed);
        let commands = median(|turn| turn.commands);
        Row::new("fleet", mode.map_or("no store", Sharing::name))
            .json("nodes", NODES)
            .json("keys", args.keys)
            .json("limit_per_s", args.limit)
            .figure(
                "decisions_per_s_and_node",
                "decisions/s a node",
                decided(mode).median(),
                0,
            )
            .figure(
                "to_exact",
                "to exact",
                ratio(&decided(mode), &decided(exact)),
                1,
            )
            .figure(
                "to_memory",
                "to no store",
                ratio(&decided(mode), &decided(None)),
                2,
            )
            .json("commands_per_million", commands.map(|part| part * 1e6))
            .figure(
                "commands_percent",
                "commands, %",
                commands.map(|part| part * 100.0),
                2,
            )
            .figure(
                "cpu_ns_of_node",
                "node CPU ns",
                median(|turn| turn.node_ns),
                0,
            )
            .figure(
                "cpu_ns_of_store",
                "store CPU ns",
                median(|turn| turn.store_ns),
                0,
            )
            .figure(
                "with_a_core_each",
                "with a core each",
                with_cores(mode).median(),
                0,
            )
            .figure(
                "with_a_core_each_to_exact",
                "to exact",
                ratio(&with_cores(mode), &with_cores(exact)),
                1,
            )
            .json("offered_per_s", median(|turn| turn.decided))
            .figure(
                "offered",
                "offered, of the limit",
                of_limit(|turn| turn.decided),
                2,
            )
            .json("admitted_per_s", median(|turn| turn.admitted))
            .figure(
                "admitted",
                "admitted, of the limit",
                of_limit(|turn| turn.admitted),
                3,
            )
    };
    let rows: Vec<Row> = modes.iter().map(row).collect();
    let title = format!(
        "{NODES} nodes, {} hot keys of {}/s; {} interleaved passes of {:?}; medians (targets of lease: 30 times exact, half of \
         no store, 2 % commands)",
        args.keys, args.limit, args.passes.passes, args.passes.time
    );
    out.rows(&title, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_counted_and_the_commands_in_them_are_not() {
        let info = "cmdstat_get:calls=9,usec=1\r\ncmdstat_evalsha:calls=17,usec=230\r\ncmdstat_eval:calls=2,usec=1\r\n";
        assert_eq!(scripts(info), 19);
    }

    #[test]
    fn the_first_busy_core_bounds_a_fleet() {
        // A node could decide a million, but the store runs two hundred thousand scripts for all four.
        assert!((rate_with_cores(1_000.0, 5_000.0) - 50_000.0).abs() < 1.0);
        assert!((rate_with_cores(1_000.0, 5.0) - 1_000_000.0).abs() < 1.0);
        assert!((rate_with_cores(1_000.0, 0.0) - 1_000_000.0).abs() < 1.0);
    }
}
