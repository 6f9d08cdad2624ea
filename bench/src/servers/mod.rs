//! Front ends of real servers, ours and peers: real sockets, one core each.
//!
//! # Method
//!
//! Every contestant is a process of its own, pinned to one core; the load is one thread of this process, pinned to
//! another. All servers of a [part](cases::Part) stay up and take turns, in an order that rotates by one with every
//! pass, so that a busy minute of the machine falls on all of them. A turn is a warm-up and then the time that counts.
//! Reported is the median over the passes, and ratios also pass by pass. Where keys are to be live, each was used once
//! before anything is measured, and stays live for an hour.
//!
//! Floors are ours: bare hyper, a constant answer over RESP, bare tonic. They read what a front end reads and decide
//! nothing. The peers come from `tools/peers.sh`.
//!
//! # What the numbers are, and are not
//!
//! Where a server used less than 95 % of its core, the load or the rest of the machine was the slower one; then the
//! ratio is that of CPU time per request, and says so. Behind a proxy the service or the upstream shares the load's core,
//! so there the rate is the figure. *Others* is what the rest of the machine used meanwhile, in cores: much above 0.1, rate
//! and latency are those of a busy machine. Compare within one run, as ratios.
//!
//! Every answer is checked. An unexpected one makes the command fail, because its time is that of other work. A missing
//! contestant is named with the way to get it; its ratios are left out.

mod cases;
mod contestant;
pub(crate) mod cores;
pub(crate) mod floor;
mod footprint;
mod load;
mod report;
mod server;
mod start;
mod texts;

use std::io::{self, Write};
use std::thread;
use std::time::Duration;

use tollgate_load::WHOLE;

pub(crate) use self::cases::Part;

use self::cases::{Case, Expected, Keys};
use self::contestant::Contestant;
use self::cores::{Cores, Tree, busy_time, pin_this_thread};
use self::load::{Load, Order, Shape, Tally};
use self::server::{Folder, Server};
use self::start::{Running, Starter};
use crate::args::Servers;
use crate::turns::{Figure, Figures, Turn, figures, unexpected};

/// All turns of a contestant in one case, or why it had none.
#[derive(Debug)]
struct Line {
    contestant: Contestant,
    turns: Result<Vec<Turn>, String>,
    /// The first unexpected answer.
    unexpected: Option<String>,
}

impl Line {
    fn turns(&self) -> &[Turn] {
        self.turns.as_deref().unwrap_or_default()
    }

    fn unexpected_count(&self) -> u64 {
        unexpected(self.turns())
    }

    fn figures(&self, figure: Figure) -> Figures {
        figures(self.turns(), figure)
    }
}

/// A contestant that is up, or why it is missing.
type Found = Result<Running, (Contestant, String)>;

/// Measures the parts; returns whether every answer was expected.
pub(crate) fn run(options: &Servers, out: &mut dyn Write) -> io::Result<bool> {
    let json = options.json;
    let cores = Cores::find();
    let report = report::Report {
        options,
        cores,
        json,
    };
    report.print_head(out)?;
    let mut all_expected = true;
    let parts = match options.parts.as_slice() {
        [] => &Part::ALL,
        parts => parts,
    };
    for &part in parts {
        // A thread of its own, so that only the load is pinned and not what this process does next.
        let measured = thread::scope(|scope| {
            let load = scope.spawn(|| {
                if let Some(cores) = cores {
                    pin_this_thread(cores.load)?;
                }
                measure(part, options, cores)
            });
            match load.join() {
                Ok(measured) => measured,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })?;
        all_expected &= match measured {
            Measured::Cases(all) => {
                for (case, lines) in part.cases().iter().zip(&all) {
                    report.print(part, case, lines, out)?;
                }
                let mut lines = all.iter().flatten();
                lines.all(|line| line.unexpected_count() == 0)
            }
            Measured::Footprints(footprints) => {
                footprint::report(&footprints, options.keys, json, out)?;
                true
            }
        };
        out.flush()?;
    }
    Ok(all_expected)
}

enum Measured {
    Cases(Vec<Vec<Line>>),
    Footprints(Vec<footprint::Footprint>),
}

fn measure(part: Part, options: &Servers, cores: Option<Cores>) -> io::Result<Measured> {
    let folder = Folder::new()?;
    let starter = Starter {
        options,
        cores,
        folder: &folder,
    };
    if part == Part::Footprint {
        return footprint::measure(&starter).map(Measured::Footprints);
    }
    let mut found: Vec<Found> = Vec::new();
    for case in part.cases() {
        for &contestant in case.contestants {
            let is_known = found.iter().any(|known| contestant_of(known) == contestant);
            if !is_known && takes_part(contestant, options)? {
                found.push(match contestant.missing(options) {
                    Some(why) => Err((contestant, why)),
                    None => Ok(starter.start(contestant)?),
                });
            }
        }
    }
    if part.cases().iter().any(|case| case.keys == Keys::Live) {
        for running in found.iter().flatten() {
            fill(running, 0..options.keys, options.keys)?;
        }
    }
    let cases = part.cases().iter();
    let measured = cases.map(|case| take_turns(case, &mut found, options));
    measured.collect::<io::Result<_>>().map(Measured::Cases)
}

/// Whether a contestant is wanted. Without peers, none of the others may be missing.
fn takes_part(contestant: Contestant, options: &Servers) -> io::Result<bool> {
    if !options.without_peers {
        return Ok(true);
    }
    if contestant.needs_peers() {
        return Ok(false);
    }
    match contestant.missing(options) {
        None => Ok(true),
        Some(why) => Err(io::Error::other(format!("`{}`: {why}", contestant.name()))),
    }
}

fn contestant_of(found: &Found) -> Contestant {
    match found {
        Ok(running) => running.contestant,
        Err((contestant, _)) => *contestant,
    }
}

/// Uses each key of a range once, of `keys` in all.
fn fill(running: &Running, range: std::ops::Range<u64>, keys: u64) -> io::Result<()> {
    let contestant = running.contestant;
    let shape = Shape {
        connections: 8,
        depth: 16,
        in_batches: true,
        quick_ack: contestant.stalls_in_pipelines(),
    };
    let named = |error: String| {
        let name = contestant.name();
        io::Error::other(format!("`{name}`, while its keys were made: {error}"))
    };
    let address = running.server.address;
    let speaker = || contestant.speaker(Expected::Admitted, keys, address);
    let order = Order::Each(range.start, range.end);
    let mut load = Load::start(address, shape, order, true, &speaker)
        .map_err(|error| named(error.to_string()))?;
    let tally = load.finish().map_err(|error| named(error.to_string()))?;
    match load.unexpected.take() {
        Some(answer) => Err(named(format!(
            "{} unexpected answers, the first: {answer}",
            tally.unexpected
        ))),
        None => Ok(()),
    }
}

fn take_turns(case: &Case, found: &mut [Found], options: &Servers) -> io::Result<Vec<Line>> {
    let mut lines: Vec<Line> = found
        .iter()
        .filter(|found| case.contestants.contains(&contestant_of(found)))
        .map(|found| Line {
            contestant: contestant_of(found),
            turns: match found {
                Ok(_) => Ok(Vec::new()),
                Err((_, why)) => Err(why.clone()),
            },
            unexpected: None,
        })
        .collect();
    for _ in 0..options.passes.passes {
        for running in found.iter().flatten() {
            let mut own = lines
                .iter_mut()
                .filter(|line| line.contestant == running.contestant);
            let Some(line) = own.next() else { continue };
            let (turn, unexpected) = turn(case, running, options).map_err(|error| {
                let name = running.contestant.name();
                io::Error::other(format!("`{name}`, {}: {error}", case.title))
            })?;
            line.unexpected = line.unexpected.take().or(unexpected);
            if let Ok(turns) = &mut line.turns {
                turns.push(turn);
            }
        }
        // The order must not matter.
        if !found.is_empty() {
            found.rotate_left(1);
        }
    }
    let place = |line: &Line| case.contestants.iter().position(|c| *c == line.contestant);
    lines.sort_by_key(place);
    Ok(lines)
}

/// One turn of one server: a warm-up, and then the time that counts.
fn turn(case: &Case, running: &Running, options: &Servers) -> io::Result<(Turn, Option<String>)> {
    let (contestant, address) = (running.contestant, running.server.address);
    let keys = case.keys.count(options.keys);
    let speaker = || contestant.speaker(case.expected, keys, address);
    let admits = case.expected == Expected::Admitted;
    let order = Order::random(keys);
    let mut load = Load::start(address, case.shape(contestant), order, admits, &speaker)?;
    load.run(options.passes.warm_up(Duration::from_millis(500)))?;
    // What is to be refused passes at first.
    load.unexpected = None;
    let helpers: Vec<Tree> = running.helpers.iter().filter_map(Server::tree).collect();
    let server = running.server.tree();
    let turn = timed(server.as_ref(), &helpers, || load.run(options.passes.time))?;
    Ok((turn, load.unexpected.take()))
}

/// Runs a load and measures the CPU time of the server's processes. The time of `helpers` is neither the server's nor that
/// of the rest of the machine.
fn timed(
    server: Option<&Tree>,
    helpers: &[Tree],
    load: impl FnOnce() -> io::Result<Tally>,
) -> io::Result<Turn> {
    let own = Tree::only(std::process::id());
    let times = || -> Option<[Duration; 3]> {
        let mut not_elsewhere = own.as_ref()?.time()?;
        for tree in helpers {
            not_elsewhere += tree.time()?;
        }
        Some([server?.time()?, not_elsewhere, busy_time()?])
    };
    let before = times();
    let tally = load()?;
    let used = times().zip(before).map(|(after, before)| {
        let used = |at: usize| after[at].saturating_sub(before[at]);
        [used(0), used(1), used(2)]
    });
    Ok(Turn {
        answers: tally.times.total(),
        unexpected: tally.unexpected,
        elapsed: tally.elapsed,
        p50: Duration::from_nanos(tally.times.quantile(WHOLE / 2)),
        p99: Duration::from_nanos(tally.times.quantile(WHOLE / 100 * 99)),
        cpu: used.map(|[server, ..]| server),
        cpu_elsewhere: used.map(|[server, load, all]| all.saturating_sub(server + load)),
    })
}
