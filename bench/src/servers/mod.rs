//! Compares front ends of real servers, those of Tollgate and of peers, over real sockets on one core each.
//!
//! # Method
//!
//! Every contestant is a process of its own, pinned to one core; the load is one thread of this process, pinned to another. All
//! servers of a [suite](cases::Suite) stay up and are interleaved, so that a busy minute of the machine falls on all of them. A
//! turn is a warm-up and then the time that counts. Reported is the median over the passes, and ratios also pass by pass. Where
//! keys are to be live, each was used once before anything is measured, and stays live for an hour.
//!
//! No-op servers are ours: bare hyper, a constant answer over RESP, bare tonic. They read what a front end reads and decide nothing.
//! The peers come from `tools/peers.sh`.
//!
//! # What the numbers are, and are not
//!
//! Where a server used less than 95 % of its core, the load or the rest of the machine was the slower one; then the ratio is
//! that of CPU time per request, and is marked so. Behind a proxy the service or the upstream shares the load's core, so there the
//! rate is the figure. *Others* is the rest of the machine meanwhile, in cores: much above 0.1, rate and latency are those of a
//! busy machine. Compare within one run, as ratios.
//!
//! Every answer is checked. An unexpected one makes the command fail, because its time is that of other work. A missing
//! contestant is named with the way to get it; its ratios are left out.

mod cases;
mod contestant;
mod files;
mod footprint;
mod load;
mod measurement;
pub(crate) mod noop;
mod report;
mod start;

use std::io;

pub(crate) use self::cases::Suite;

use self::cases::{Case, Expected, Keys};
use self::contestant::Contestant;
use self::load::{KeySequence, Load, RequestShape};
use self::measurement::{Measurement, measure};
use self::start::{Running, Starter};
use crate::args::Servers;
use crate::figures::interleave;
use crate::output::{Output, short_count};
use crate::system::{Cores, on_load_core};

/// All turns of a contestant in one case, or why it had none.
#[derive(Debug)]
struct CaseResult {
    contestant: Contestant,
    turns: Result<Vec<Measurement>, String>,
}

/// Measures the suites; returns whether every answer was expected.
pub(crate) fn run(args: &Servers, out: &mut Output<'_>) -> io::Result<bool> {
    let cores = Cores::find();
    let keys = usize::try_from(args.keys).unwrap_or(usize::MAX);
    out.line(&format!(
        "{} live keys; {} interleaved passes of {:?}; medians",
        short_count(keys),
        args.passes.passes,
        args.passes.time
    ))?;
    out.line(&match cores {
        Some(Cores { server, load }) => {
            format!("servers on core {server}, the load on core {load}")
        }
        None => "not pinned (that takes two cores and `taskset`): servers and load share all cores"
            .to_owned(),
    })?;
    let suites = match args.suites.as_slice() {
        [] => &Suite::ALL,
        suites => suites,
    };
    let starter = Starter { args, cores };
    let mut all_expected = true;
    for &suite in suites {
        if suite == Suite::Footprint {
            let footprints = on_load_core(cores, || footprint::measure(&starter))?;
            footprint::report(&footprints, args.keys, out)?;
            continue;
        }
        let all = on_load_core(cores, || measure_suite(suite, &starter))?;
        for (case, results) in suite.cases().iter().zip(&all) {
            report::print(suite, case, results, args, out)?;
            all_expected &= results.iter().all(|result| result.unexpected() == 0);
        }
    }
    Ok(all_expected)
}

/// The results of all cases of a suite.
fn measure_suite(suite: Suite, starter: &Starter<'_>) -> io::Result<Vec<Vec<CaseResult>>> {
    let args = starter.args;
    let mut running: Vec<Running> = Vec::new();
    let mut missing: Vec<(Contestant, String)> = Vec::new();
    for &contestant in suite.cases().iter().flat_map(|case| case.contestants) {
        let is_known = running.iter().any(|known| known.contestant == contestant)
            || missing.iter().any(|(known, _)| *known == contestant);
        if is_known || !takes_part(contestant, args)? {
            continue;
        }
        match contestant.missing(args) {
            Some(why) => missing.push((contestant, why)),
            None => running.push(starter.start(contestant)?),
        }
    }
    if suite.cases().iter().any(|case| case.keys == Keys::Live) {
        for running in &running {
            fill(running, 0..args.keys, args.keys)?;
        }
    }
    let measure_case = |case: &Case| {
        let has = |running: &&Running| case.contestants.contains(&running.contestant);
        let mut own: Vec<&Running> = running.iter().filter(has).collect();
        let turns = interleave(args.passes.passes, &mut own, |running, _| {
            measure(case, running, args).map_err(|error| {
                let name = running.contestant.name();
                io::Error::other(format!("`{name}`, {}: {error}", case.title))
            })
        })?;
        let measured = own.iter().zip(turns).map(|(running, turns)| CaseResult {
            contestant: running.contestant,
            turns: Ok(turns),
        });
        let missing = missing.iter().map(|(contestant, why)| CaseResult {
            contestant: *contestant,
            turns: Err(why.clone()),
        });
        let mut results: Vec<CaseResult> = measured.chain(missing).collect();
        let place = |result: &CaseResult| {
            let mut contestants = case.contestants.iter();
            contestants.position(|contestant| *contestant == result.contestant)
        };
        results.retain(|result| place(result).is_some());
        results.sort_by_key(place);
        Ok(results)
    };
    suite.cases().iter().map(measure_case).collect()
}

/// Whether a contestant is wanted. Without peers, none of the others may be missing.
fn takes_part(contestant: Contestant, args: &Servers) -> io::Result<bool> {
    if !args.without_peers {
        return Ok(true);
    }
    if contestant.needs_peers() {
        return Ok(false);
    }
    match contestant.missing(args) {
        None => Ok(true),
        Some(why) => Err(io::Error::other(format!("`{}`: {why}", contestant.name()))),
    }
}

/// Uses each key of a range once, of `keys` in all.
fn fill(running: &Running, range: std::ops::Range<u64>, keys: u64) -> io::Result<()> {
    let contestant = running.contestant;
    let shape = RequestShape {
        connections: 8,
        depth: 16,
        in_batches: true,
        quick_ack: contestant.stalls_in_pipelines(),
    };
    let address = running.server.address;
    let filled = || {
        let codec = || contestant.codec(Expected::Admitted, keys, address);
        let order = KeySequence::Each(range.start, range.end);
        let mut load = Load::start(address, shape, order, true, &codec)?;
        let tally = load.finish()?;
        let unexpected = load.unexpected.take().map(|answer| {
            let count = tally.unexpected;
            io::Error::other(format!("{count} unexpected answers, the first: {answer}"))
        });
        unexpected.map_or(Ok(()), Err)
    };
    filled().map_err(|error: io::Error| {
        let name = contestant.name();
        io::Error::other(format!("`{name}`, while its keys were made: {error}"))
    })
}
