//! The doors for Redis clients and for Envoy side by side with peers, how long one round trip takes, and what a key takes in
//! memory: one table, made in one run.
//!
//! # Method
//!
//! As [`doors`](crate::doors) has it: every contestant is a process of its own, pinned to one core; the load is one thread on
//! another. All servers of a [part](cases::Part) stay up and take turns, in an order that moves on by one with every pass. A
//! turn is a warm-up and then the time that counts; reported is the median over the passes, and the ratios also pass by pass.
//! Where keys are to be live, each of them was asked about once before anything is measured, and lives for an hour from then.
//!
//! Floors are ours: a constant answer over RESP, and bare tonic. The peers come from `tools/peers.sh`.
//!
//! # What the numbers are, and are not
//!
//! Where a server used less than 95 % of its core the load (or the rest of the machine) was the slower one, and then the ratio
//! is that of CPU time for a request, and says so. Through Envoy the service and the upstream share the core of the load, so
//! there the rate is the figure. Compare within one run, as ratios.
//!
//! Every answer is looked at. One that says something else than it should makes the command fail, because its time is that of
//! other work. A contestant that is not there is named with the way to get it; its ratios are left out.

mod cases;
pub(crate) mod floor;
mod footprint;
mod load;
mod report;
mod start;
mod texts;
mod who;

use std::io::{self, Write};
use std::thread;

pub(crate) use self::cases::Part;

use self::cases::{Case, Keys};
use self::load::{Load, Order, Shape};
use self::start::{Place, Up};
use self::who::{Asked, Who};
use crate::args::Speed;
use crate::doors::cores::{Cores, Tree, pin_this_thread};
use crate::doors::server::{Folder, Server};
use crate::doors::timed;
use crate::turns::{Figure, Figures, Turn, figures, others};

/// All turns of a contestant in one case, or why it had none.
#[derive(Debug)]
struct Line {
    who: Who,
    turns: Result<Vec<Turn>, String>,
    /// What the first answer said that was to say something else.
    trouble: Option<String>,
}

impl Line {
    fn turns(&self) -> &[Turn] {
        self.turns.as_deref().unwrap_or_default()
    }

    fn others(&self) -> u64 {
        others(self.turns())
    }

    fn figures(&self, figure: Figure) -> Figures {
        figures(self.turns(), figure)
    }
}

/// Measures all parts that are wanted; returns whether every answer said what it should.
pub(crate) fn run(wanted: &Speed, out: &mut dyn Write) -> io::Result<bool> {
    let cores = Cores::find();
    if !wanted.json {
        report::print_head(wanted, cores, out)?;
    }
    let mut all_well = true;
    for &part in &wanted.parts {
        // A thread of its own, so that only the load is pinned and not what this process does next.
        let well = thread::scope(|scope| {
            let load = scope.spawn(|| {
                if let Some(cores) = cores {
                    pin_this_thread(cores.load)?;
                }
                measure(part, wanted, cores)
            });
            match load.join() {
                Ok(measured) => measured,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })?
        .report(part, wanted, cores, out)?;
        all_well &= well;
        out.flush()?;
    }
    Ok(all_well)
}

/// What a part gave.
enum Measured {
    Cases(Vec<Vec<Line>>),
    Memory(Vec<footprint::Weight>),
}

impl Measured {
    fn report(
        &self,
        part: Part,
        wanted: &Speed,
        cores: Option<Cores>,
        out: &mut dyn Write,
    ) -> io::Result<bool> {
        match self {
            Measured::Memory(weights) => {
                footprint::report(weights, wanted, out)?;
                Ok(weights.iter().all(footprint::Weight::is_well))
            }
            Measured::Cases(all) => {
                let mut well = true;
                for (case, lines) in part.cases().iter().zip(all) {
                    report::print(part, case, lines, wanted, cores, out)?;
                    well &= lines.iter().all(|line| line.others() == 0);
                }
                Ok(well)
            }
        }
    }
}

fn measure(part: Part, wanted: &Speed, cores: Option<Cores>) -> io::Result<Measured> {
    let folder = Folder::new()?;
    let place = Place {
        wanted,
        cores,
        folder: &folder,
    };
    if part == Part::Footprint {
        return footprint::weigh(&place).map(Measured::Memory);
    }
    let mut all_up: Vec<Result<Up, (Who, String)>> = Vec::new();
    for case in part.cases() {
        for &who in case.contestants {
            let is_known = all_up.iter().any(|up| name_of(up) == who);
            if is_known || wanted.only_ours && !who.is_ours() {
                continue;
            }
            all_up.push(match who.missing(wanted) {
                // Where nothing has to be installed, nothing may be missing.
                Some(why) if wanted.only_ours => {
                    let name = who.name();
                    return Err(io::Error::other(format!("`{name}`: {why}")));
                }
                Some(why) => Err((who, why)),
                None => Ok(place.start(who)?),
            });
        }
    }
    let lives = |case: &&Case| case.keys == Keys::Live;
    if part.cases().iter().any(|case| lives(&case)) {
        for up in all_up.iter().flatten() {
            fill(up, 0, wanted.keys, wanted.keys)?;
        }
    }
    let cases = part.cases().iter();
    let measured = cases.map(|case| take_turns(case, &mut all_up, wanted));
    measured.collect::<io::Result<_>>().map(Measured::Cases)
}

fn name_of(up: &Result<Up, (Who, String)>) -> Who {
    match up {
        Ok(up) => up.who,
        Err((who, _)) => *who,
    }
}

/// Asks once about each key from `first` up to and without `end`, of `keys` in all.
fn fill(up: &Up, first: u64, end: u64, keys: u64) -> io::Result<()> {
    let shape = Shape {
        connections: 8,
        depth: 16,
        in_batches: true,
        acknowledges_at_once: up.who.stalls_in_pipelines(),
    };
    let address = up.server.address;
    let speaker = || up.who.speaker(Asked::Pass, keys, address);
    let named = |error: io::Error| {
        let name = up.who.name();
        io::Error::other(format!("`{name}`, as its keys were made: {error}"))
    };
    let mut load = Load::start(address, shape, Order::Each(first, end), true, &speaker);
    let load = load
        .as_mut()
        .map_err(|error| named(io::Error::other(error.to_string())))?;
    let tally = load.finish().map_err(named)?;
    match load.trouble.take() {
        Some(trouble) => Err(named(io::Error::other(format!(
            "{} answers were wrong: {trouble}",
            tally.others
        )))),
        None => Ok(()),
    }
}

fn take_turns(
    case: &Case,
    all_up: &mut [Result<Up, (Who, String)>],
    wanted: &Speed,
) -> io::Result<Vec<Line>> {
    let mut lines: Vec<Line> = all_up
        .iter()
        .filter(|up| case.contestants.contains(&name_of(up)))
        .map(|up| Line {
            who: name_of(up),
            turns: match up {
                Ok(_) => Ok(Vec::new()),
                Err((_, why)) => Err(why.clone()),
            },
            trouble: None,
        })
        .collect();
    for _ in 0..wanted.passes {
        for up in all_up.iter().flatten() {
            let mut mine = lines.iter_mut().filter(|line| line.who == up.who);
            let Some(line) = mine.next() else { continue };
            let (turn, trouble) = turn(case, up, wanted).map_err(|error| {
                let name = up.who.name();
                io::Error::other(format!("`{name}`, {}: {error}", case.title))
            })?;
            line.trouble = line.trouble.take().or(trouble);
            if let Ok(turns) = &mut line.turns {
                turns.push(turn);
            }
        }
        // Who comes after whom must not matter.
        if !all_up.is_empty() {
            all_up.rotate_left(1);
        }
    }
    lines.sort_by_key(|line| case.contestants.iter().position(|&who| who == line.who));
    Ok(lines)
}

/// One turn of one server: a warm-up, and then the time that counts.
fn turn(case: &Case, up: &Up, wanted: &Speed) -> io::Result<(Turn, Option<String>)> {
    let (address, keys) = (up.server.address, case.keys.count(wanted.keys));
    let speaker = || up.who.speaker(case.asked, keys, address);
    let passes = case.asked == Asked::Pass;
    let order = Order::random(keys);
    let mut load = Load::start(address, case.shape(up.who), order, passes, &speaker)?;
    load.run(wanted.warm_up)?;
    // What is to be refused passes at first.
    load.trouble = None;
    let beside: Vec<Tree> = up.beside.iter().filter_map(Server::tree).collect();
    let turn = timed(up.server.tree().as_ref(), &beside, || load.run(wanted.time))?;
    Ok((turn, load.trouble.take()))
}
